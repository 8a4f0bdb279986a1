"""That methods use what they are made of: parts of a loss, the drift, classes that are hidden while training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lcwof.config import replace_field
from lcwof.data import Augment, Dataset
from lcwof.data.episodes import EpisodeSource, Pool
from lcwof.evaluation import prepare
from lcwof.methods import Base, Task, get_method
from lcwof.methods.embeddings import base_embeddings, base_images, class_means, embed
from lcwof.methods.meta import FakeSource
from lcwof.models import BaseModel
from lcwof.randomness import Randomness


def configured(name: str, **settings: Any) -> Any:
    kind = get_method(name)
    config = kind.Config()
    for key, value in settings.items():
        config = replace_field(config, key.replace("__", "."), value)
    return kind(config)


def grown(name: str, data: Dataset, model: BaseModel, **settings: Any) -> tuple[Base, Task, Any, Any]:
    """A method that has learned two novel classes of three shots, beside what it was before."""
    method = configured(name, **settings)
    base, fitted = prepare(method, model, data)
    base.inputs.augments = False
    shots = EpisodeSource.of(data, "novel", 2, 3).draw([0, 1]).support
    task = Task.of_shots(shots, Randomness.of_episodes(0, [0, 1]), "cpu")
    before = method.start(base, fitted, 2)
    *_, state = method.grow(base, fitted, before, task)
    return base, task, before, state


def test_base_images_are_embedded_once_for_all_methods_but_anew_for_a_learner_or_other_images(
    digits: Dataset, digits_model: BaseModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    base, fitted = prepare(configured("ft"), digits_model, digits)
    monkeypatch.setattr("lcwof.methods.embeddings._of_base", {})
    calls: list[int] = []
    embed_as_before = base.inputs.tail.embed

    def noted(*given: Any, **more: Any) -> Tensor:
        calls.append(1)
        return embed_as_before(*given, **more)

    monkeypatch.setattr(base.inputs.tail, "embed", noted)
    first = base_embeddings(base)
    asked = len(calls)
    assert asked and all(torch.equal(a, b) for a, b in zip(first, base_embeddings(base), strict=True))
    assert len(calls) == asked
    learners = configured("ft").start(base, fitted, 1).learners
    learners.tail = {name: weight + 0.1 for name, weight in learners.tail.items()}
    assert not torch.allclose(base_embeddings(base, learners)[0], first[0])
    assert torch.equal(base_embeddings(base)[0], first[0])
    fewer = replace(base, pool=Pool(base.pool.table[1:], base.pool.counts[1:]))
    assert all(torch.allclose(a, b) for a, b in zip(base_embeddings(fewer), first[1:], strict=True))


LONG = {"descent__epochs": 15, "descent__lr_tail": 1e-3}
EXEMPLARS = {"exemplars": 3}


def test_icarl_keeps_its_answers_about_old_classes_by_distillation(digits: Dataset, digits_model: BaseModel) -> None:
    def changed(weight: float) -> float:
        how = {"distillation": weight, "temperature": 1.0, "descent__batch": 100}
        base, task, before, state = grown("icarl", digits, digits_model, **LONG, **EXEMPLARS, **how)
        maps, old = base.inputs.plain(task.support), before.learners.base_head.shape[1]
        was, now = (x.learners.logits(maps)[..., :old].softmax(-1) for x in (before, state))
        return float((now - was).abs().mean())

    assert changed(5.0) < 0.5 * changed(0.0)


def test_ucir_keeps_directions_and_ranks_old_classes_before_new_ones(digits: Dataset, digits_model: BaseModel) -> None:
    def found(**settings: float) -> tuple[float, float]:
        base, _, before, state = grown("ucir", digits, digits_model, **LONG, **EXEMPLARS, **settings)
        was, now = (embed(base, before.index, x.learners) for x in (before, state))
        turned = 1 - F.cosine_similarity(was, now, dim=-1).mean()
        cosines = state.learners.logits(base.inputs.plain(before.index)) / state.learners.scoring.scale
        own = cosines.gather(-1, before.labels.unsqueeze(-1)).squeeze(-1)
        lead = own - cosines[..., before.learners.base_head.shape[1] :].max(-1).values
        return float(turned), float(lead.mean())

    assert found(less_forget=20.0)[0] < 0.5 * found(less_forget=0.0)[0]
    assert found(margin=2.0)[1] > found(margin=-5.0)[1] + 0.01, "a margin of -5 asks for nothing"


@pytest.mark.parametrize(("name", "weight"), [("idlvq", "less_forget"), ("topic", "anchor")])
def test_what_stands_for_old_classes_is_kept_in_place(
    name: str, weight: str, digits: Dataset, digits_model: BaseModel
) -> None:
    small = {"idlvq": {**EXEMPLARS, "base_steps": 5}, "topic": {"nodes": 20, "gas_passes": 1, "head_steps": 20}}[name]

    def moved(much: float) -> float:
        base, _, before, state = grown(name, digits, digits_model, **LONG, **small, **{weight: much})
        was, now = (F.normalize(embed(base, before.index, x.learners), dim=-1) for x in (before, state))
        return float((now - was).square().sum(-1).mean())

    assert moved({"idlvq": 10.0, "topic": 350.0}[name]) < 0.5 * moved(0.0)


def test_sdc_moves_old_prototypes_by_the_drift_of_new_examples(digits: Dataset, digits_model: BaseModel) -> None:
    base, task, before, state = grown("sdc", digits, digits_model, **LONG)
    was, now = (F.normalize(embed(base, task.support, x.learners), dim=-1) for x in (before, state))
    for learner in range(2):
        for c, prototype in enumerate(before.prototypes[learner]):
            nearness = torch.exp(-(was[learner] - prototype).square().sum(-1) / (2 * 0.3**2))
            drift = (nearness[:, None] * (now - was)[learner]).sum(0) / nearness.sum()
            assert drift.norm() > 1e-4
            torch.testing.assert_close(state.prototypes[learner, c], prototype + drift, atol=1e-4, rtol=1e-4)
    novel = class_means(now, task.labels, 2)
    torch.testing.assert_close(state.prototypes[:, -2:], novel)


def test_gfsv_fits_novel_classes_among_themselves(digits: Dataset, digits_model: BaseModel) -> None:
    other = BaseModel(**{**vars(digits_model), "head": digits_model.head.flip(0) * 3})
    _, _, _, state = grown("gfsv", digits, digits_model)
    _, _, _, with_other = grown("gfsv", digits, other)
    torch.testing.assert_close(with_other.weights[:, -2:], state.weights[:, -2:])
    assert not torch.allclose(with_other.weights[:, :-2], state.weights[:, :-2])


def test_gfsv_fits_the_classes_of_all_sessions_together(digits: Dataset, digits_model: BaseModel) -> None:
    """Two sessions of one class end where one session of both does: at a classifier that tells them apart."""
    method = configured("gfsv", lr=0.1)
    base, fitted = prepare(method, digits_model, digits)
    shots = EpisodeSource.of(digits, "novel", 2, 3).draw([0]).support
    draws, state = Randomness.of_episodes(0, [0]), method.start(base, fitted, 1)
    for at in range(2):
        (state,) = method.grow(base, fitted, state, Task.of_shots(shots[:, at : at + 1], draws, "cpu"))
    answers = method.logits(state, base.inputs.plain(shots.flatten(1)))[..., -2:].argmax(-1)
    assert answers.tolist() == [[0, 0, 0, 1, 1, 1]]


def test_ft_steps_down_the_cross_entropy_of_new_examples(digits: Dataset, digits_model: BaseModel) -> None:
    """One step of all examples: the novel weights move by the hand-computed slope, and weight decay."""
    how = {"descent__epochs": 1, "descent__batch": 100, "descent__lr_tail": 0.0, "descent__lr_head": 0.1}
    base, task, _, state = grown("ft", digits, digits_model, **how)
    known = len(digits_model.head)
    start = configured("ft").start(base, None, 2).learners.grown(2, task.draws)
    embedded = embed(base, task.support)
    errors = start.logits(base.inputs.plain(task.support)).softmax(-1) - F.one_hot(task.labels + known, known + 2)
    slope = errors.mT @ embedded / task.support.shape[1]
    for at, head in ((slice(0, known), "base_head"), (slice(known, None), "novel_head")):
        was = getattr(start, head)
        expected = was - 0.1 * (slope[:, at] + 1e-4 * was)
        torch.testing.assert_close(getattr(state.learners, head), expected, atol=1e-4, rtol=1e-3)


def test_joint_steps_down_the_cross_entropy_of_base_and_new_examples_together(
    digits: Dataset, digits_model: BaseModel
) -> None:
    """One step of all examples, each counting the same: the heads move by the hand-computed slope, and weight decay."""
    step = {"descent__epochs": 1, "descent__batch": 100, "descent__lr_tail": 0.0, "descent__lr_head": 0.5}
    method = configured("joint", per_class=4, **step)
    base, fitted = prepare(method, digits_model, replace(digits, augment=Augment.none()))
    known, old = len(digits_model.head), base.pool.table[:, :4]
    base = replace(base, pool=Pool(old, torch.full((known,), 4)))  # no more than are shown: whatever is drawn, all are
    shots = EpisodeSource.of(digits, "novel", 2, 3).draw([0, 1]).support
    task = Task.of_shots(shots, Randomness.of_episodes(0, [0, 1]), "cpu")
    first, *_, last = method.learn(base, fitted, task)
    start = torch.cat([digits_model.head.expand(2, -1, -1), first.learners.novel_head], dim=1)
    embedded = embed(base, torch.cat([old.flatten().expand(2, -1), shots.flatten(1)], dim=1))
    answers = F.one_hot(torch.tensor([c for c in range(known) for _ in range(4)] + [known] * 3 + [known + 1] * 3))
    errors = (embedded @ start.mT).softmax(-1) - answers
    slope = errors.mT @ embedded / (known * 4 + 2 * 3)
    found = torch.cat([last.learners.base_head, last.learners.novel_head], dim=1)
    torch.testing.assert_close(found, start - 0.5 * (slope + 1e-4 * start), atol=1e-5, rtol=1e-4)
    assert all(torch.equal(weight, first.learners.tail[name]) for name, weight in last.learners.tail.items())


def test_joint_training_sees_base_images(digits: Dataset, digits_model: BaseModel) -> None:
    method = configured("joint", per_class=10, descent__epochs=15)
    base, fitted = prepare(method, digits_model, digits)
    shots = EpisodeSource.of(digits, "novel", 2, 3).draw([0]).support
    task = Task.of_shots(shots, Randomness.of_episodes(0, [0]), "cpu")
    *_, joint = method.learn(base, fitted, task)
    *_, alone = configured("ft", descent__epochs=15).learn(base, None, task)
    some = [group[:10] for group in base_images(base)]
    maps, labels = base.inputs.plain(torch.cat(some)[None]), torch.arange(len(some)).repeat_interleave(10)
    losses = [float(F.cross_entropy(state.learners.logits(maps)[0], labels)) for state in (joint, alone)]
    assert losses[0] < 0.5 * losses[1]


@pytest.mark.parametrize("name", ["dfsl", "rgfsl", "aan"])
def test_classes_that_play_novel_ones_are_hidden_while_meta_training(
    name: str, digits: Dataset, digits_model: BaseModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their base weights have no say in the loss; those of other classes have."""
    caught: list[tuple[nn.Module, Callable[[int], Tensor]]] = []

    def catch(method: object, base: object, module: nn.Module, loss_of: Callable[[int], Tensor], *more: object) -> None:
        caught.append((module, loss_of))

    monkeypatch.setattr(f"lcwof.methods.{name}.meta_train", catch)
    method = configured(name, meta_episodes=1, meta_way=2)
    base, _ = prepare(method, digits_model, digits)
    ((module, loss_of),) = caught
    hidden = FakeSource(base).draw(0, 1, 2, method.config.meta_shots[0], method.config.meta_queries).fake[0]
    with torch.no_grad():
        for tensor in module.parameters():  # what starts at 0 hides what it multiplies
            tensor.add_(0.1 * torch.rand(tensor.shape, generator=torch.Generator().manual_seed(0)))
    for classes, same in ((hidden, True), (torch.tensor([c for c in range(6) if c not in hidden.tolist()]), False)):
        first = float(loss_of(0).detach())
        kept = {key: value.clone() for key, value in module.state_dict().items()}
        for key in ("weights", "keys"):
            if key in kept:
                module.state_dict()[key][classes] = torch.randn(
                    len(classes), kept[key].shape[1], generator=torch.Generator().manual_seed(1)
                )
        assert (float(loss_of(0).detach()) == pytest.approx(first, rel=1e-5)) == same
        module.load_state_dict(kept)
