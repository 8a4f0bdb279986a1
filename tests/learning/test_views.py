from dataclasses import replace

import pytest
import torch
from torch import Tensor

from lcwof.data import Dataset
from lcwof.data.augment import augment_batch
from lcwof.errors import LcwofError
from lcwof.learning import Descent, Inputs, Learners, descend
from lcwof.learning.inputs import drawn_views, view_noise
from lcwof.learning.views import KeptViews, view_keys
from lcwof.models import BaseModel
from lcwof.randomness import Randomness


class Counting:
    """Maps that tell their image and view, and how many were made."""

    def __init__(self) -> None:
        self.made: list[tuple[int, int]] = []

    def __call__(self, image: Tensor, view: Tensor) -> Tensor:
        self.made += list(zip(image.tolist(), view.tolist(), strict=True))
        return torch.stack([image, view], dim=1).float()


def kept(make: Counting, maps: int) -> KeptViews:
    """Views of ten images, four each, with room for so many maps."""
    return KeptViews(make, 10, 4, lambda: maps * 8, torch.device("cpu"))


def test_a_view_is_made_once_while_there_is_room() -> None:
    make = Counting()
    views = kept(make, 40)
    image, view = torch.tensor([[3, 9], [3, 3]]), torch.tensor([[0, 1], [0, 2]])
    for _ in range(2):
        assert torch.equal(views(image, view), torch.stack([image, view], dim=-1).float())
    assert sorted(make.made) == [(3, 0), (3, 2), (9, 1)]
    every = torch.arange(10).repeat_interleave(4), torch.arange(4).repeat(10)
    assert torch.equal(views(*every), torch.stack(every, dim=-1).float())
    assert len(make.made) == len(set(make.made)) == 40


@pytest.mark.parametrize("room", [0, 1, 5, 7, 39])
def test_maps_are_right_however_little_room_there_is(room: int) -> None:
    make = Counting()
    views, chance = kept(make, room), torch.Generator().manual_seed(0)
    for size in torch.randint(1, 9, (200,), generator=chance).tolist():
        image, view = (torch.randint(0, n, (size,), generator=chance) for n in (10, 4))
        assert torch.equal(views(image, view), torch.stack([image, view], dim=-1).float())
    assert len(make.made) > 40, "some had to go, and were made again"
    assert views._maps is not None and len(views._maps) <= max(room, 8), "as many as one call asks for, at least"


def test_the_oldest_go_first() -> None:
    make = Counting()
    views = kept(make, 4)
    for image in (0, 1, 2, 3, 4):  # the fifth takes the place of the first
        views(torch.tensor([image]), torch.tensor([0]))
    make.made.clear()
    views(torch.tensor([1, 2, 3, 4]), torch.zeros(4, dtype=torch.long))
    assert make.made == []
    views(torch.tensor([0]), torch.tensor([0]))
    assert make.made == [(0, 0)]


def test_a_view_is_the_images_own_whoever_looks_and_however_many_there_are(
    digits: Dataset, digits_model: BaseModel
) -> None:
    inputs = Inputs(digits_model, digits.images, digits.augment, 1)
    index, draws = torch.tensor([[5, 7, 5], [7, 5, 9]]), Randomness.of_episodes(0, [0, 1])
    found = inputs.augmented(index, draws, views=4)
    chosen = drawn_views(draws, 3, 4)
    numbers, keys = view_noise(index.flatten(), chosen.flatten())
    pixels = augment_batch(digits.images.pixels[index.flatten()], numbers, digits.augment, inputs.size)
    expected = inputs._through_trunk(inputs.model.normalise(pixels), keys, False)
    torch.testing.assert_close(found.flatten(0, 1), expected)
    torch.testing.assert_close(inputs.augmented(index[1:], draws.part([1]), views=4)[0], found[1])
    one, many = (inputs.augmented(index[:1], draws.part([0]), views=n) for n in (1, 1000))
    torch.testing.assert_close(one[0, 0], one[0, 2], msg="the same image, and one view")
    assert not torch.allclose(many[0, 0], many[0, 2]), "the same image, and many views"
    torch.testing.assert_close(one, inputs._kept_views(4, False)(index[:1], torch.zeros_like(index[:1])))


@pytest.mark.parametrize("views", [0, 4])
def test_crops_may_be_other_than_the_data_sets_own(digits: Dataset, digits_model: BaseModel, views: int) -> None:
    inputs = Inputs(digits_model, digits.images, digits.augment, 1)
    index, draws = torch.tensor([[5, 7, 9]]), Randomness.of_episodes(0, [0])
    other = Inputs(digits_model, digits.images, replace(digits.augment, scale=(0.1, 1.0)), 1)
    own, cropped = inputs.augmented(index, draws, views=views), inputs.cropped(0.1).augmented(index, draws, views=views)
    torch.testing.assert_close(cropped, other.augmented(index, draws, views=views))
    assert not torch.allclose(own, cropped)
    torch.testing.assert_close(inputs.augmented(index, draws, views=views), own, msg="whose views are still the same")
    assert inputs.cropped(None) is inputs and inputs.cropped(0.1) is inputs.cropped(0.1), "which keeps its views"


@pytest.mark.parametrize("crop", [0.0, -0.1, 1.5])
def test_a_crop_is_a_part_of_the_image(crop: float) -> None:
    with pytest.raises(LcwofError, match=r"least_crop = .*: a part of the image's area, above 0 and at most 1"):
        Descent(epochs=1, least_crop=crop)


def test_so_many_views_are_seen_and_no_more(digits: Dataset, digits_model: BaseModel) -> None:
    inputs = Inputs(digits_model, digits.images, digits.augment, 1)
    index = torch.arange(4)[None]
    draws = Randomness.of_episodes(0, [0])
    for views, most in ((3, 3), (0, 40)):
        seen = torch.cat([inputs.augmented(index, draws["augment", epoch], views=views) for epoch in range(40)])
        for image in range(4):
            assert len(seen[:, image].flatten(1).unique(dim=0)) == most


def test_few_shot_examples_are_always_seen_anew_and_others_beside_them_are_not(
    digits: Dataset, digits_model: BaseModel
) -> None:
    inputs = Inputs(digits_model, digits.images, digits.augment, 1)
    index, draws = torch.tensor([[0, 1, 2], [3, 4, 5]]), Randomness.of_episodes(0, [0, 1])
    few = torch.tensor([[False, True, False], [True, False, False]])  # as shuffled: of each learner elsewhere
    seen = [inputs.augmented(index, draws["augment", epoch], views=2, few=few) for epoch in range(30)]
    for learner, place in ((0, 0), (0, 1), (0, 2), (1, 0), (1, 1)):
        maps = torch.stack([each[learner, place].flatten() for each in seen])
        assert len(maps.unique(dim=0)) == (30 if few[learner, place] else 2)
    epoch = draws["augment", 0]
    new, kept = inputs.augmented(index, epoch), inputs.augmented(index, epoch, views=2)
    torch.testing.assert_close(seen[0][few], new[few])
    torch.testing.assert_close(seen[0][~few], kept[~few])
    torch.testing.assert_close(inputs.augmented(index, epoch, views=2, few=torch.ones_like(few)), new)
    twice = Randomness.of_episodes(0, [0, 1, 0])["augment", 0]
    shared = inputs.augmented(index[[0, 1, 0]], twice, views=2, few=few[[0, 1, 0]])
    torch.testing.assert_close(shared, seen[0][[0, 1, 0]], msg="learners of one episode look at the same")


def test_a_descent_looks_at_base_classes_again_and_at_others_anew(
    digits: Dataset, digits_model: BaseModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs = Inputs(digits_model, digits.images, digits.augment, 1)
    asked: list[tuple[int, list[bool]]] = []
    original = inputs.augmented

    def noting(index: Tensor, draws: Randomness, blocks: bool, views: int, few: Tensor) -> Tensor:
        asked.append((views, few[0].tolist()))
        return original(index, draws, blocks, views, few)

    monkeypatch.setattr(inputs, "augmented", noting)
    draws = Randomness.of_episodes(0, [0])
    learners = Learners.start(inputs, 1).grown(1, draws).grown(1, draws)  # in a stream: 6 is known, too, by a few shots
    labels = torch.tensor([[5, 6, -1, 7]])  # 6 base classes; -1: an image without a label
    samples = ("novel_head",), lambda epoch: (torch.tensor([[0, 1, 2, 3]]), labels), inputs
    for _ in descend(
        learners, *samples, Descent(1, views=3), 0.0, draws, "test", lambda b: b.logits.sum((1, 2)), False
    ):
        pass
    assert asked == [(3, [False, True, False, True])]


def test_views_are_drawn_evenly() -> None:
    drawn = drawn_views(Randomness.of_episodes(0, range(50)), 100, 5)
    assert drawn.shape == (50, 100)
    counts = drawn.flatten().bincount()
    assert len(counts) == 5 and counts.min() > 900 and counts.max() < 1100


def test_views_of_different_images_are_different_and_drop_by_other_numbers_than_they_are_cut_by() -> None:
    """The engine and the ordinary loop share this, so holding one to the other would not tell."""
    image, view = torch.tensor([3, 4, 3]), torch.tensor([1, 1, 2])
    numbers, keys = view_noise(image, view)
    assert len(numbers.unique(dim=0)) == len(keys.unique()) == 3
    assert not torch.equal(keys, view_keys(image, view)), "or what is dropped would hang on how the image is cut"


def test_memory_that_runs_out_leaves_nothing_wrong_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    make = Counting()
    views = kept(make, 2)
    few = torch.tensor([0, 1]), torch.tensor([0, 0])
    views(*few)

    def scarce(*_: object) -> Tensor:
        raise torch.OutOfMemoryError

    many = torch.arange(8), torch.zeros(8, dtype=torch.long)
    with monkeypatch.context() as patch:
        patch.setattr(Tensor, "new_empty", scarce)
        with pytest.raises(torch.OutOfMemoryError):
            views(*many)
    for image, view in (few, many):
        assert torch.equal(views(image, view), torch.stack([image, view], dim=-1).float())


def test_descent_draws_from_views_unless_told_not_to() -> None:
    assert Descent(epochs=1).views == 32
