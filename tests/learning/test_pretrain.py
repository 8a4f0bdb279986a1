import dataclasses
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from lcwof.data import Dataset
from lcwof.errors import LcwofError
from lcwof.learning import Phase1, base_accuracy, pretrain
from lcwof.learning.mixing import cutmix, turned, turned_loss
from lcwof.learning.pretrain import Training
from lcwof.models import BaseModel
from lcwof.models.checkpoint import load_tensors

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


def test_turned_images_are_at_all_right_angles() -> None:
    images = torch.randn(3, 2, 5, 5).to(memory_format=torch.channels_last)
    for angles in (2, 3, 4):
        found, by = turned(images, angles)
        assert found.is_contiguous(memory_format=torch.channels_last)
        assert by[:3].tolist() == [0, 0, 0] and torch.equal(found[:3], images)
        for i in range(3):
            shown = by[i::3].tolist()
            assert len(set(shown)) == angles, "the same image is not shown at one angle twice"
            for k, image in zip(shown, found[i::3], strict=True):
                assert torch.equal(image, images[i].rot90(k, (1, 2)))
    by = turned(torch.zeros(300, 1, 2, 2), 2)[1][300:]
    assert (by.bincount(minlength=4)[1:] > 70).all(), "each other angle about as often"


def test_the_loss_of_class_and_angle_by_hand() -> None:
    """Two images of two classes, each upright and once turned."""
    both = torch.randn(4, 8, generator=torch.Generator().manual_seed(0))
    targets, by = torch.tensor([[1.0, 0.0], [0.3, 0.7]]), torch.tensor([0, 0, 3, 1])
    asked, together = turned_loss(both, targets, by)
    logs = both.log_softmax(1)  # of angle k and class c in place 2 k + c
    by_hand = (logs[0, 0], 0.3 * logs[1, 0] + 0.7 * logs[1, 1], logs[2, 6], 0.3 * logs[3, 2] + 0.7 * logs[3, 3])
    torch.testing.assert_close(asked, -sum(by_hand) / 4)
    torch.testing.assert_close(
        together, torch.stack([(both[0, :2] + both[2, 6:]) / 2, (both[1, :2] + both[3, 2:4]) / 2])
    )


@pytest.mark.parametrize("angles", [2, 4])
def test_phase_1_learns_to_tell_how_far_images_are_turned(digits: Dataset, angles: int) -> None:
    """A network that tells neither class nor angle has a loss of log 6 + log 24 = 5, without the angle log 4 = 1.4."""
    how = Phase1("conv4", 6, batch=16, lr=0.05, schedule="one-cycle", turns=1.0, angles=angles)
    losses: list[float] = []
    model = pretrain(digits, how, CPU, lambda epoch, figures: losses.append(figures["loss"]))
    assert losses[-1] < 1.0 < losses[0]
    with pytest.raises(LcwofError, match="2, 3 or 4"):
        pretrain(digits, dataclasses.replace(how, angles=1), CPU)
    assert base_accuracy(model, digits, digits.split.test) > 80


def test_a_student_follows_its_teacher_and_not_the_labels(digits: Dataset, tmp_path: Path) -> None:
    teacher = pretrain(digits, QUICK, CPU)
    teacher.head = teacher.head.roll(1, 0)  # it now calls every class by the name of the next
    teacher.save(tmp_path / "teacher.safetensors")
    how = dataclasses.replace(QUICK, teachers=(str(tmp_path / "teacher.safetensors"),), taught_part=1.0)
    student = pretrain(digits, how, CPU)
    assert student.told()["phase1"]["teachers"] == [teacher.known_as], "wherever its file lies"
    assert re.fullmatch(r"\w+ \(epoch \d+, \d+\.\d\d% of held-out images\)", teacher.known_as)
    rolled = dataclasses.replace(student, head=student.head.roll(-1, 0))
    assert base_accuracy(student, digits, digits.split.test) < 10
    assert base_accuracy(rolled, digits, digits.split.test) > 70, "even though the epoch kept is the least like it"
    for wrong, why in (({"temperature": 0.0}, "above 0 is needed"), ({"teachers": ("none",)}, "no file none")):
        with pytest.raises(LcwofError, match=why):
            pretrain(digits, dataclasses.replace(how, **wrong), CPU)  # type: ignore[arg-type]
    moved = dataclasses.replace(digits, mean=(0.9,))
    with pytest.raises(LcwofError, match="looks at inputs of shape, mean and deviation"):
        pretrain(moved, how, CPU)
    with pytest.raises(LcwofError, match=r"the teacher .* takes images of 8 pixels only, not of 6"):
        pretrain(digits, dataclasses.replace(how, backbone="resnet10", small_part=0.5, small_side=6), CPU)
    other = dataclasses.replace(teacher, classes=("a",) * 6)
    other.save(tmp_path / "teacher.safetensors")
    with pytest.raises(LcwofError, match="trained on 6 other base classes"):
        pretrain(digits, how, CPU)


def test_a_limit_of_the_gradient_holds_steps_back(digits: Dataset) -> None:
    how = Phase1("mlp", epochs=1, batch=64, lr=0.1, momentum=0.9, weight_decay=0.0, schedule="one-cycle")
    moved = []
    for clip in (None, 1e-6):
        training = Training(digits, how, torch.device("cpu"), clip)
        before = training.network.head.weight.detach().clone()
        training.epoch()
        moved.append(float((training.network.head.weight.detach() - before).norm()))
    assert moved[0] > 1e-2 and 0 < moved[1] < 1e-3


def test_a_diverging_phase_1_says_so(digits: Dataset) -> None:
    with pytest.raises(LcwofError, match="phase 1, epoch 1: the loss is not a number"):
        pretrain(digits, dataclasses.replace(QUICK, lr=float("nan")), CPU)


def test_an_interrupted_phase_1_ends_as_an_uninterrupted_one(
    digits: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["lcwof.learning.pretrain"], "_SAVE_EVERY", 0.0)
    how = dataclasses.replace(QUICK, backbone="conv4", epochs=4, cutmix=0.5, average=0.9)
    file = tmp_path / "base.partial"

    def stop(epoch: int, figures: dict[str, float]) -> None:
        if epoch == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pretrain(digits, how, CPU, stop, file)
    epochs: list[int] = []
    resumed = pretrain(digits, how, CPU, lambda epoch, figures: epochs.append(epoch), file)
    assert epochs == [3, 4] and file.exists(), "until the result is kept"
    whole = pretrain(digits, how, CPU)
    assert torch.equal(resumed.head, whole.head) and resumed.about == whole.about


def test_phase_1_in_progress_is_not_resumed_with_other_settings(digits: Dataset, tmp_path: Path) -> None:
    Training(digits, QUICK, CPU).save(tmp_path / "file")
    for data, how in (
        (digits, dataclasses.replace(QUICK, lr=0.01)),
        (dataclasses.replace(digits, mean=(0.5,)), QUICK),
    ):
        with pytest.raises(LcwofError, match="begun with other settings"):
            pretrain(data, how, CPU, unfinished=tmp_path / "file")


def test_what_makes_phase_1_repeatable_ends_with_it(digits: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    def state() -> tuple[bool, ...]:
        cudnn, memory = torch.backends.cudnn, torch.utils.deterministic
        return torch.are_deterministic_algorithms_enabled(), cudnn.benchmark, memory.fill_uninitialized_memory

    before, during = state(), list[tuple[bool, ...]]()
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", True)
    for wanted in (True, False):
        how = dataclasses.replace(QUICK, epochs=1, repeatable=wanted)
        pretrain(digits, how, CPU, lambda epoch, figures: during.append(state()))
    assert during == [(True, False, False), (False, True, before[2])]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA card")
def test_a_card_repeats_phase_1_bit_for_bit(tmp_path: Path) -> None:
    """In processes of their own, so that neither finds what the other has chosen."""
    for name in ("one", "other"):
        command = [
            "pretrain",
            "fast.toml",
            "--data",
            "strokes",
            "--set",
            "phase1.epochs=3",
            "-o",
            f"{name}.safetensors",
        ]
        command += ["--set", "phase1.repeatable=true", "--set", "phase1.views=[]", "--set", "phase1.batch=32"]
        environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / name)}
        subprocess.run([sys.executable, "-m", "lcwof.cli.main", *command], cwd=tmp_path, env=environment, check=True)
    one, other = (load_tensors(tmp_path / f"{name}.safetensors", "base model") for name in ("one", "other"))
    assert one[1] == other[1]
    assert all(torch.equal(one[0][name], other[0][name]) for name in one[0])


def test_early_epochs_may_see_smaller_images(strokes: Dataset) -> None:
    how = Phase1("resnet10", 2, batch=32, lr=0.05, schedule="one-cycle", small_part=0.5, small_side=16)
    training = Training(strokes, how, CPU)
    sides: list[int] = []
    loss_of = training.loss_of
    training.loss_of = lambda inputs, *rest: sides.append(inputs.shape[-1]) or loss_of(inputs, *rest)  # type: ignore
    training.steps = 1
    training.epoch()
    training.epoch()
    assert sides == [16, 28]


@pytest.mark.parametrize("setting", [{"views": (80,)}, {"small_part": 0.5, "small_side": 64}])
def test_a_network_for_one_size_of_images_refuses_others(strokes: Dataset, setting: dict[str, Any]) -> None:
    with pytest.raises(LcwofError, match="conv4 takes images of 28 pixels only, not of"):
        Training(strokes, Phase1("conv4", 2, **setting), CPU)


def test_the_view_of_test_images_is_the_best_on_held_out_ones(strokes: Dataset) -> None:
    how = Phase1("resnet10", 1, batch=64, lr=0.05, schedule="one-cycle", views=(20, 36), mirror=True)
    small = dataclasses.replace(strokes, split=dataclasses.replace(strokes.split, train=strokes.split.train[:128]))
    model = pretrain(small, how, CPU)
    found = model.about["views"]
    views = {f"{side}{mirrored}" for side in ("crop", "20", "36") for mirrored in ("", ", mirrored")}
    assert set(found) == views and model.about["select accuracy"] == max(found.values())
    assert found[f"{model.view or 'crop'}{', mirrored' if model.mirror else ''}"] == max(found.values())
    assert base_accuracy(model, small, small.split.select) == pytest.approx(max(found.values()))


def test_a_mirror_image_counts_as_much_as_the_image(digits: Dataset, digits_model: BaseModel, tmp_path: Path) -> None:
    model = dataclasses.replace(digits_model, mirror=True)
    flipped = dataclasses.replace(digits.images, pixels=digits.images.pixels.flip(-1))
    index = digits.split.test
    same = base_accuracy(model, digits, index)
    assert same == base_accuracy(model, dataclasses.replace(digits, images=flipped), index)
    assert same < base_accuracy(digits_model, digits, index), "digits are not to be mirrored"
    model.save(tmp_path / "m.safetensors")
    assert BaseModel.load(tmp_path / "m.safetensors").mirror
