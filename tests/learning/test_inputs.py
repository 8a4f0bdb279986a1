import pytest
import torch

from lcwof.data import Augment, Dataset, Images
from lcwof.data.augment import NUMBERS, augment_batch, plain_batch
from lcwof.errors import LcwofError
from lcwof.learning import Inputs
from lcwof.models import BaseModel
from lcwof.randomness import Randomness


def test_augmentation_of_an_episode_does_not_depend_on_its_company(digits: Dataset, digits_model: BaseModel) -> None:
    inputs = Inputs(digits_model, digits.images, digits.augment, 1)
    index = torch.arange(12).view(3, 4)
    draws = Randomness.of_episodes(0, range(3))
    together = inputs.augmented(index, draws)
    alone = inputs.augmented(index[1:2], Randomness.of_episodes(0, [1]))
    torch.testing.assert_close(together[1], alone[0], atol=1e-5, rtol=1e-5)
    assert not torch.allclose(together[1], inputs.plain(index)[1], atol=1e-2)


def test_learners_of_one_episode_share_what_they_look_at(
    digits: Dataset, digits_model: BaseModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs = Inputs(digits_model, digits.images, digits.augment, 1)
    seen: list[int] = []
    run = inputs._run
    monkeypatch.setattr(inputs, "_run", lambda images, *noise: seen.append(len(images)) or run(images, *noise))
    index, draws = torch.arange(8).view(2, 4), Randomness.of_episodes(0, [5, 3, 5, 3, 5])
    shared = inputs.augmented(index[[0, 1, 0, 1, 0]], draws)
    assert sum(seen) == 8
    alone = inputs.augmented(index, Randomness.of_episodes(0, [5, 3]))
    torch.testing.assert_close(shared, alone[[0, 1, 0, 1, 0]])
    seen.clear()
    other = inputs.augmented(torch.stack([index[0], index[1], index[0].flip(0)]), draws.part([0, 1, 2]))
    assert sum(seen) == 12, "the same episode, but other images"
    torch.testing.assert_close(other[:2], alone)


def test_plain_maps_are_the_trunks_output_whatever_was_asked_before(digits: Dataset, digits_model: BaseModel) -> None:
    inputs = Inputs(digits_model, digits.images, digits.augment, 1)
    inputs.plain(torch.tensor([5, 3]))
    again = inputs.plain(torch.tensor([[3, 9], [5, 3]]))
    pixels = plain_batch(digits.images.pixels[[3, 9, 5, 3]], 8)
    expected = digits_model.backbone.trunk(1)(digits_model.normalise(pixels))
    torch.testing.assert_close(again.flatten(0, 1), expected.movedim(1, -1))


def test_mirror_images_are_kept_beside_the_images(digits: Dataset, digits_model: BaseModel) -> None:
    inputs = Inputs(digits_model, digits.images, digits.augment, 1)
    index = torch.tensor([3, 9, 5])
    both = [inputs.plain(index[:2]), inputs.plain(index, mirrored=True), inputs.plain(index)]
    pixels = plain_batch(digits.images.pixels[index], 8)
    trunk = digits_model.backbone.trunk(1)
    for found, seen in ((both[1], pixels.flip(-1)), (both[2], pixels)):
        torch.testing.assert_close(found, trunk(digits_model.normalise(seen)).movedim(1, -1))


def test_data_of_other_channels_are_refused(digits_model: BaseModel) -> None:
    colour = Images(torch.zeros(1, 3, 8, 8, dtype=torch.uint8), torch.zeros(1, dtype=torch.long), ("a",), ("a/1",))
    with pytest.raises(LcwofError, match="expects 1 channels or features, the data have 3"):
        Inputs(digits_model, colour, Augment(), 1)


def test_no_augmentation_changes_nothing() -> None:
    pixels = torch.randint(0, 256, (4, 3, 10, 10), dtype=torch.uint8)
    out = augment_batch(pixels, torch.rand(4, NUMBERS), Augment.none(), 10)
    torch.testing.assert_close(out, pixels.float() / 255)


def test_flip_mirrors_half_of_the_images() -> None:
    pixels = torch.randint(0, 256, (64, 1, 6, 6), dtype=torch.uint8)
    how = Augment(scale=(1.0, 1.0), ratio=(1.0, 1.0), flip=True, jitter=0.0)
    out = augment_batch(pixels, torch.rand(64, NUMBERS, generator=torch.Generator().manual_seed(0)), how, 6)
    original = pixels.float() / 255
    same = [torch.allclose(a, b, atol=1e-5) for a, b in zip(out, original, strict=True)]
    mirrored = [torch.allclose(a, b.flip(-1), atol=1e-5) for a, b in zip(out, original, strict=True)]
    assert all(s or m for s, m in zip(same, mirrored, strict=True))
    assert 20 < sum(mirrored) < 44


def test_a_crop_shows_a_part_of_the_image_magnified() -> None:
    ramp = torch.arange(0, 240, 10, dtype=torch.uint8).expand(24, 24)[None, None].repeat(32, 1, 1, 1)
    how = Augment(scale=(0.25, 0.25), ratio=(1.0, 1.0), flip=False, jitter=0.0)
    out = augment_batch(ramp, torch.rand(32, NUMBERS, generator=torch.Generator().manual_seed(1)), how, 24)
    span = (out[..., -1] - out[..., 0]).mean((1, 2)) * 255
    torch.testing.assert_close(span, torch.full((32,), 230 / 2), atol=8.0, rtol=0)  # half the side, half the ramp
    assert out[:, 0, 0, 0].std() > 0.05, "crops lie in different places"


def test_jitter_keeps_images_in_range_and_changes_brightness() -> None:
    pixels = torch.full((50, 3, 4, 4), 128, dtype=torch.uint8)
    how = Augment(scale=(1.0, 1.0), ratio=(1.0, 1.0), flip=False, jitter=0.4)
    out = augment_batch(pixels, torch.rand(50, NUMBERS, generator=torch.Generator().manual_seed(2)), how, 4)
    level = out.mean((1, 2, 3)) / (128 / 255)
    assert out.min() >= 0 and out.max() <= 1
    assert level.min() < 0.75 and level.max() > 1.25 and level.min() > 0.59 and level.max() < 1.41


def test_the_test_transform_resizes_to_92_and_keeps_the_centre_of_84() -> None:
    pixels = torch.randint(0, 256, (1, 3, 84, 84), dtype=torch.uint8)
    resized = torch.nn.functional.interpolate(pixels.float() / 255, (92, 92), mode="bilinear", antialias=True)
    torch.testing.assert_close(plain_batch(pixels, 84), resized[..., 4:88, 4:88])


def test_maps_are_right_after_memory_ran_out(
    digits: Dataset, digits_model: BaseModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = Inputs(digits_model, digits.images, digits.augment, 1).plain(torch.arange(20))
    inputs = Inputs(digits_model, digits.images, digits.augment, 1)

    def scarce(x: torch.Tensor) -> torch.Tensor:
        raise torch.OutOfMemoryError

    with monkeypatch.context() as patch:
        patch.setattr(inputs, "trunk", scarce)
        with pytest.raises(torch.OutOfMemoryError):
            inputs.plain(torch.arange(10))
    torch.testing.assert_close(inputs.plain(torch.arange(10, 20)), expected[10:])
    torch.testing.assert_close(inputs.plain(torch.arange(10)), expected[:10])
