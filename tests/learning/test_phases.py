"""Tests that fail if the method is wrong."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor

from lcwof.data import Augment, Dataset
from lcwof.data.episodes import EpisodeSource, Pool
from lcwof.errors import LcwofError
from lcwof.learning import Inputs, Learners, Phase2, Phase3, calibrate, learn_novel
from lcwof.learning.learners import Batch, Descent, descend, joint_cross_entropy
from lcwof.learning.phases import Distillation
from lcwof.models import BaseModel, build_backbone
from lcwof.randomness import Randomness

Setup = tuple[Inputs, Learners, Tensor, Tensor, Pool, Randomness]


def setup(data: Dataset, model: BaseModel, learners: int = 2, shot: int = 1, own_statistics: bool = False) -> Setup:
    episodes = EpisodeSource.of(data, "novel", 2, shot).draw(range(learners))
    draws = Randomness.of_episodes(0, range(learners))
    labels = torch.arange(2).repeat_interleave(shot).expand(learners, -1) + len(model.head)
    base_labels = data.base_labels(data.split.train)
    pool = Pool.of([data.split.train[base_labels == i] for i in range(len(data.split.base))])
    inputs = Inputs(model, data.images, data.augment, 1)
    start = Learners.start(inputs, len(draws), own_statistics=own_statistics)
    return inputs, start.grown(2, draws), episodes.support.flatten(1), labels, pool, draws


def exhaust(steps: object) -> int:
    return len(list(steps))  # type: ignore[call-overload]


def test_phase_2_leaves_base_head_trunk_and_bn_statistics_bit_identical(
    digits: Dataset, digits_model: BaseModel
) -> None:
    before = {name: value.clone() for name, value in digits_model.backbone.state_dict().items()}
    head = digits_model.head.clone()
    inputs, learners, support, labels, _, draws = setup(digits, digits_model)
    assert exhaust(learn_novel(learners, inputs, support, labels, Phase2(epochs=5), 10.0, draws)) == 5
    for learner in learners.base_head:
        assert torch.equal(learner, head)
    assert torch.equal(digits_model.head, head)
    for name, value in digits_model.backbone.state_dict().items():
        assert torch.equal(value, before[name]), name
    moved = max(float((learners.tail[n] - learners.structure.anchor[n]).abs().max()) for n in learners.tail)
    assert moved > 0
    fresh = Learners.start(inputs, len(draws)).grown(2, draws)
    assert not torch.equal(learners.novel_head, fresh.novel_head)


def test_phase_2_trains_by_base_normalized_cross_entropy(digits: Dataset, digits_model: BaseModel) -> None:
    """One step of plain gradient descent equals the hand-written gradient of equation 4."""
    from lcwof.learning import base_normalized_cross_entropy, weight_constraint

    plain = dataclasses.replace(digits, augment=Augment.none())
    inputs, learners, support, labels, _, draws = setup(plain, digits_model)
    for weight in learners.tail.values():
        weight.add_(0.01)
    start = learners.copy()
    how = Phase2(epochs=1, momentum=0.0, weight_decay=0.0, clip=1e9, lr_head=0.5, lr_tail=0.25)
    exhaust(learn_novel(learners, inputs, support, labels, how, 3.0, draws))
    leaves = {name: weight.requires_grad_() for name, weight in {**start.tail, "novel_head": start.novel_head}.items()}
    joint = start.joint({**start.weights(), **leaves}, inputs.plain(support))
    base = len(digits_model.head)
    tail = {name: leaves[name] for name in start.tail}
    loss = base_normalized_cross_entropy(joint[..., :base], joint[..., base:], labels - base)
    total = (loss + 3.0 * weight_constraint(tail, start.structure.anchor)).sum()
    gradients = dict(zip(leaves, torch.autograd.grad(total, list(leaves.values())), strict=True))
    torch.testing.assert_close(learners.novel_head, start.novel_head - 0.5 * gradients["novel_head"])
    for name in start.tail:
        torch.testing.assert_close(learners.tail[name], start.tail[name] - 0.25 * gradients[name])


def test_weight_constraint_pulls_exactly_to_theta_1(digits: Dataset, digits_model: BaseModel) -> None:
    inputs, learners, support, labels, _, draws = setup(digits, digits_model)
    for weight in learners.tail.values():
        weight.add_(torch.randn(weight.shape, generator=torch.Generator().manual_seed(0)) * 0.1)
    how = Phase2(epochs=60, loss_weight=0.0, weight_decay=0.0, momentum=0.0, lr_tail=0.01)
    exhaust(learn_novel(learners, inputs, support, labels, how, 20.0, draws))
    for name, weight in learners.tail.items():
        torch.testing.assert_close(weight, learners.structure.anchor[name].expand_as(weight), atol=1e-6, rtol=0)


def test_a_stronger_constraint_stays_closer(digits: Dataset, digits_model: BaseModel) -> None:
    moved = []
    for lam in (0.0, 10.0, 500.0):
        inputs, learners, support, labels, _, draws = setup(digits, digits_model)
        exhaust(learn_novel(learners, inputs, support, labels, Phase2(epochs=20), lam, draws))
        moved.append(sum(float((w - learners.structure.anchor[n]).square().sum()) for n, w in learners.tail.items()))
    assert moved[0] > moved[1] > moved[2] > 0


def test_phase_3_moves_both_heads(digits: Dataset, digits_model: BaseModel) -> None:
    inputs, learners, support, labels, pool, draws = setup(digits, digits_model)
    before = learners.copy()
    exhaust(calibrate(learners, inputs, support, labels, pool, Phase3(epochs=2), 1.0, draws))
    assert not torch.equal(learners.base_head, before.base_head)
    assert not torch.equal(learners.novel_head, before.novel_head)


@pytest.mark.parametrize(("replay", "sets"), [("lim", 1), ("unlim", 6)])
def test_replay_is_drawn_once_for_lim_and_anew_for_unlim(
    digits: Dataset, digits_model: BaseModel, monkeypatch: pytest.MonkeyPatch, replay: str, sets: int
) -> None:
    inputs, learners, support, labels, pool, draws = setup(digits, digits_model, shot=3)
    seen: list[Tensor] = []
    original = inputs.augmented

    def record(index: Tensor, *rest: Any) -> Tensor:
        seen.append(index.sort(dim=1).values)
        return original(index, *rest)

    monkeypatch.setattr(inputs, "augmented", record)
    how = Phase3(epochs=6, replay=replay)  # type: ignore[arg-type]
    exhaust(calibrate(learners, inputs, support, labels, pool, how, 1.0, draws))
    assert len({tuple(s[0].tolist()) for s in seen}) == sets
    train, few = set(digits.split.train.tolist()), set(support[0].tolist())
    for index in seen:
        replayed = [i for i in index[0].tolist() if i not in few]
        assert few <= set(index[0].tolist())
        assert set(replayed) <= train
        counts = torch.bincount(digits.base_labels(torch.tensor(replayed)), minlength=6)
        assert counts.tolist() == [3] * 6, "balanced: as many examples of a base class as of a novel one"
    assert not torch.equal(seen[0][0], seen[0][1]), "learners replay different images"


def test_replay_per_class_can_be_set(digits: Dataset, digits_model: BaseModel, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs, learners, support, labels, pool, draws = setup(digits, digits_model, shot=5)
    sizes = []
    original = inputs.augmented
    monkeypatch.setattr(inputs, "augmented", lambda index, *how: sizes.append(index.shape[1]) or original(index, *how))
    exhaust(calibrate(learners, inputs, support, labels, pool, Phase3(epochs=1, replay_per_class=1), 1.0, draws))
    assert sizes == [6 * 1 + 2 * 5]


def test_joint_logits_are_base_then_novel(digits: Dataset, digits_model: BaseModel) -> None:
    inputs, learners, support, *_ = setup(digits, digits_model)
    maps = inputs.plain(support)
    joint = learners.logits(maps)
    embedded = digits_model.backbone.tail(1)(maps.flatten(0, 1).movedim(-1, 1)).unflatten(0, maps.shape[:2])
    torch.testing.assert_close(joint[..., :6], embedded @ digits_model.head.T)
    torch.testing.assert_close(joint[..., 6:], embedded @ learners.novel_head.mT)


def test_a_loss_that_is_not_a_number_names_phase_epoch_and_episode(digits: Dataset, digits_model: BaseModel) -> None:
    inputs, learners, support, labels, _, draws = setup(digits, digits_model)
    learners.novel_head[1] = float("nan")
    with pytest.raises(LcwofError, match=r"phase 2, epoch 1, learner of episode 1: the loss is not a number"):
        exhaust(learn_novel(learners, inputs, support, labels, Phase2(epochs=2), 1.0, draws))


def test_drop_layers_are_on_and_depend_on_the_learner_alone(digits: Dataset) -> None:
    """On a tail with DropBlock and a trunk with dropout; one step of one image also guards shared gradient tensors."""
    torch.manual_seed(0)
    backbone = build_backbone("resnet12", (1, 8, 8))
    head = torch.randn(6, 640) / 25
    model = BaseModel("resnet12", backbone, head, digits.split.base, (1, 8, 8), digits.mean, digits.std)

    how = Phase2(epochs=2, batch=1, drop_blocks=True)

    def tails(numbers: list[int]) -> dict[str, Tensor]:
        inputs = Inputs(model, digits.images, digits.augment, 1)
        draws = Randomness.of_episodes(0, numbers)
        support = EpisodeSource.of(digits, "novel", 2, 1).draw(numbers).support.flatten(1)
        labels = (torch.arange(2) + 6).expand(len(numbers), -1)
        learners = Learners.start(inputs, len(draws)).grown(2, draws)
        exhaust(learn_novel(learners, inputs, support, labels, how, 1.0, draws))
        return learners.weights()

    together, alone = tails([0, 1, 2]), tails([1])
    for name, weight in alone.items():
        torch.testing.assert_close(together[name][1], weight[0], atol=1e-5, rtol=1e-4)
    inputs = Inputs(model, digits.images, Augment.none(), 1)
    inputs.augments = True
    noisy = inputs.augmented(torch.tensor([[0, 0]]), Randomness.of_episodes(0, [0]))
    assert not torch.allclose(noisy[0, 0], noisy[0, 1]), "the same image twice meets different dropout in the trunk"


def test_blocks_are_dropped_where_that_is_asked_and_only_there(digits: Dataset) -> None:
    """By trunk and tail: ResNet-12 has a DropBlock in either, which in phases 2 and 3 the authors' code hardly uses."""
    torch.manual_seed(0)
    shape = (1, 40, 40)
    head = torch.randn(6, 640)
    model = BaseModel("resnet12", build_backbone("resnet12", shape), head, digits.split.base, shape, (0.5,), (0.3,))
    draws, index = Randomness.of_episodes(0, [0]), torch.tensor([[0, 1]])
    inputs = Inputs(model, digits.images, Augment.none(), 1)
    inputs.augments = True
    without, again, dropped = (inputs.augmented(index, draws, blocks) for blocks in (False, False, True))
    assert torch.equal(without, again) and not torch.allclose(without, dropped)
    assert (dropped == 0).sum() > (without == 0).sum()
    shared = inputs.augmented(index.expand(2, -1), Randomness.of_episodes(0, [0, 0]), True)
    torch.testing.assert_close(shared, dropped.expand_as(shared), msg="learners of one episode share it, holes and all")
    kept = [inputs.augmented(index, draws, blocks, 2) for blocks in (False, True)]
    assert not torch.allclose(*kept), "views with holes are others than those without"
    learners = Learners.start(inputs, 1)
    whole, keyed, holes = (
        learners.scored(learners.weights(), without, *how)[0] for how in ((), (draws.keys,), (draws.keys, True))
    )
    assert torch.equal(whole, keyed) and not torch.allclose(whole, holes)
    told: list[bool] = []

    def noting(batch: Batch) -> Tensor:
        told.append(batch.blocks)
        return joint_cross_entropy(batch)

    for blocks in (False, True):
        one = learners.grown(1, draws), ("novel_head",), lambda epoch: (index, torch.tensor([[6, 6]])), inputs
        exhaust(descend(*one, Descent(epochs=1, drop_blocks=blocks), 0.0, draws, "some phase", noting))
    assert told == [False, True], "so that who is held to drops the same"


def test_the_clip_keeps_an_unstable_lambda_bounded(digits: Dataset, digits_model: BaseModel) -> None:
    """lr x 2 lambda = 10 is beyond the stability limit of momentum SGD, as in the authors' 5-shot setting."""
    inputs, learners, support, labels, _, draws = setup(digits, digits_model)
    exhaust(learn_novel(learners, inputs, support, labels, Phase2(epochs=150), 5e3, draws))
    assert max(float((w - learners.structure.anchor[n]).norm()) for n, w in learners.tail.items()) < 10


def watched(inputs: Inputs, monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    seen: list[Tensor] = []
    original = inputs.augmented
    monkeypatch.setattr(inputs, "augmented", lambda index, *rest: seen.append(index) or original(index, *rest))
    return seen


def test_of_unequal_classes_as_many_are_replayed_as_they_have_on_average(
    digits: Dataset, digits_model: BaseModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs, learners, support, labels, pool, draws = setup(digits, digits_model, shot=2)
    seen = watched(inputs, monkeypatch)
    exhaust(calibrate(learners, inputs, support[:, :3], labels[:, :3], pool, Phase3(epochs=1), 1.0, draws))
    assert seen[0].shape[1] == 6 * 2 + 3, "two of the one class, one of the other: 1.5, so 2 of every base class"


def test_every_batch_has_unlabelled_images_of_its_own(
    digits: Dataset, digits_model: BaseModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs, learners, support, labels, _, draws = setup(digits, digits_model, shot=2)
    seen, unlabelled = watched(inputs, monkeypatch), torch.cat(digits.images.of_classes(digits.split.val))[:40]
    how, keep = Phase2(epochs=6, batch=1), Distillation(weight=1.0)
    exhaust(learn_novel(learners, inputs, support, labels, how, 1.0, draws, keep, learners.copy(), unlabelled))
    drawn = [[i for i in index[0].tolist() if i not in support[0].tolist()] for index in seen]
    assert {i for each in drawn for i in each} <= set(unlabelled.tolist())
    assert len({each[0] for each in drawn}) > 1 and any(each[0] != each[1] for each in drawn)


def test_base_examples_meet_in_other_batches_in_every_epoch(
    digits: Dataset, digits_model: BaseModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs, learners, support, labels, pool, draws = setup(digits, digits_model)
    seen = watched(inputs, monkeypatch)
    exhaust(calibrate(learners, inputs, support, labels, pool, Phase3(epochs=3, per_batch=2), 1.0, draws))
    assert len({tuple(index[0].tolist()) for index in seen}) == 3, "the same images in other orders"
    assert len({tuple(index[0].sort().values.tolist()) for index in seen}) == 1


def test_unlabelled_images_may_join_where_novel_classes_are_scored_alone(
    digits: Dataset, digits_model: BaseModel
) -> None:
    inputs, learners, support, labels, _, draws = setup(digits, digits_model)
    before, unlabelled = learners.copy(), torch.cat(digits.images.of_classes(digits.split.val))[:40]
    how, keep = Phase2(epochs=2, normalised=False), Distillation(weight=1.0)
    exhaust(learn_novel(learners, inputs, support, labels, how, 1.0, draws, keep, before, unlabelled))
    assert learners.novel_head.isfinite().all() and not torch.equal(learners.novel_head, before.novel_head)


def test_no_class_replays_an_image_twice(
    digits: Dataset, digits_model: BaseModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs, learners, support, labels, pool, draws = setup(digits, digits_model, shot=5)
    small = Pool.of(
        [row[: 3 if i == 2 else int(n)] for i, (row, n) in enumerate(zip(pool.table, pool.counts, strict=True))]
    )
    seen = watched(inputs, monkeypatch)
    exhaust(calibrate(learners, inputs, support, labels, small, Phase3(epochs=1), 1.0, draws))
    assert seen[0].shape[1] == 6 * 3 + 10 and all(len(index.unique()) == len(index) for index in seen[0])


def test_who_is_held_to_keeps_their_own_bn_statistics(digits: Dataset, digits_model: BaseModel) -> None:
    inputs, learners, support, labels, _, draws = setup(digits, digits_model, own_statistics=True)
    before = learners.copy()
    kept = {name: x.clone() for name, x in before.statistics.items()}
    how, keep = Phase2(epochs=2), Distillation(weight=1.0)
    exhaust(learn_novel(learners, inputs, support, labels, how, 1.0, draws, keep, before))
    assert kept and all(torch.equal(before.statistics[name], x) for name, x in kept.items())
    assert not all(torch.equal(learners.statistics[name], x) for name, x in kept.items())


def test_a_copy_has_bn_statistics_of_its_own(digits: Dataset, digits_model: BaseModel) -> None:
    _, learners, *_ = setup(digits, digits_model, own_statistics=True)
    copy = learners.copy()
    for weight in copy.weights().values():
        weight.add_(1.0)
    assert all(not torch.equal(weight, copy.weights()[name]) for name, weight in learners.weights().items())


def test_what_is_packed_is_unpacked_with_bn_statistics(digits: Dataset, digits_model: BaseModel) -> None:
    inputs, learners, *_ = setup(digits, digits_model, own_statistics=True)
    for x in learners.statistics.values():
        x.add_(1.0)
    again = Learners.unpack(inputs.tail, learners.weights(), learners.scoring)
    assert learners.weights().keys() == again.weights().keys()
    assert all(torch.equal(weight, again.weights()[name]) for name, weight in learners.weights().items())


def test_unlabelled_images_join_every_batch(
    digits: Dataset, digits_model: BaseModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs, learners, support, labels, _, draws = setup(digits, digits_model, shot=3)
    seen, unlabelled = watched(inputs, monkeypatch), torch.cat(digits.images.of_classes(digits.split.val))[:40]
    how, keep = Phase2(epochs=1, batch=2), Distillation(weight=1.0)
    exhaust(learn_novel(learners, inputs, support, labels, how, 1.0, draws, keep, learners.copy(), unlabelled))
    few = [[i in support[0].tolist() for i in batch.tolist()] for batch in seen[0][0].split(2 + 2)]
    assert few == [[True, True, False, False]] * 3, "two of six shots in each, and as many unlabelled images"


def test_few_shot_classes_of_all_sessions_say_how_many_are_replayed(
    digits: Dataset, digits_model: BaseModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs, learners, support, labels, pool, draws = setup(digits, digits_model, shot=3)
    later, seen = learners.grown(2, draws["later"]), watched(inputs, monkeypatch)
    both = torch.cat([support, support], dim=1), torch.cat([labels, labels + 2], dim=1)
    exhaust(calibrate(later, inputs, *both, pool, Phase3(epochs=1), 1.0, draws))
    assert seen[0].shape[1] == 6 * 3 + 4 * 3, "three of each of six base and four few-shot classes"
