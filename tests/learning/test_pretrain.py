import dataclasses

import pytest
import torch

from lcwof.data import Dataset
from lcwof.errors import LcwofError
from lcwof.learning import Phase1, base_accuracy, pretrain
from lcwof.learning.pretrain import cutmix

QUICK = Phase1("mlp", 4, batch=32, lr=0.05, schedule="one-cycle")
CPU = torch.device("cpu")


def test_phase_1_learns_and_keeps_the_best_epoch_on_held_out_images(digits: Dataset) -> None:
    seen: dict[int, float] = {}
    model = pretrain(digits, QUICK, CPU, lambda epoch, figures: seen.__setitem__(epoch, figures["accuracy"]))
    assert sorted(seen) == [1, 2, 3, 4]
    best = max(seen.values())
    assert model.about["select accuracy"] == best and seen[model.about["epoch"]] == best
    assert base_accuracy(model, digits, digits.split.select) == pytest.approx(best)
    assert base_accuracy(model, digits, digits.split.test) > 85
    assert not any(p.requires_grad for p in model.backbone.parameters()) and not model.backbone.training


def test_phase_1_does_not_read_test_images_or_other_classes(digits: Dataset) -> None:
    """Garbage in every image that phase 1 must not read changes nothing."""
    allowed = torch.cat([digits.split.train, digits.split.select])
    pixels = torch.full_like(digits.images.pixels, 255)
    pixels[allowed] = digits.images.pixels[allowed]
    spoiled = dataclasses.replace(digits, images=dataclasses.replace(digits.images, pixels=pixels))
    first, second = pretrain(digits, QUICK, CPU), pretrain(spoiled, QUICK, CPU)
    assert torch.equal(first.head, second.head)


def test_cutmix_and_the_average_of_weights_train_too(digits: Dataset) -> None:
    how = dataclasses.replace(QUICK, backbone="conv4", epochs=6, cutmix=0.5, average=0.9)
    model = pretrain(digits, how, CPU)
    assert base_accuracy(model, digits, digits.split.test) > 80


def test_cutmix_mixes_targets_by_the_pasted_area() -> None:
    torch.manual_seed(0)
    images = torch.arange(8.0).view(8, 1, 1, 1).expand(8, 1, 20, 20)
    targets = torch.eye(8)
    for _ in range(20):
        mixed, soft = cutmix(images, targets)
        assert torch.allclose(soft.sum(1), torch.ones(8))
        for i in range(8):
            shares = torch.bincount(mixed[i].long().flatten(), minlength=8) / 400
            torch.testing.assert_close(shares, soft[i])


def test_a_diverging_phase_1_says_so(digits: Dataset) -> None:
    with pytest.raises(LcwofError, match="phase 1, epoch 1: the loss is not a number"):
        pretrain(digits, dataclasses.replace(QUICK, lr=float("nan")), CPU)
