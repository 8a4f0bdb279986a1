"""The losses of methods that train the network, term by term and by hand, in the second session of a stream: what is
old there is what the first session left, not the base model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from lcwof.config import replace_field
from lcwof.data import Augment, Dataset
from lcwof.data.episodes import EpisodeSource
from lcwof.data.images import Images
from lcwof.evaluation import prepare
from lcwof.learning import Batch, Inputs, Learners
from lcwof.methods import Base, Task, get_method
from lcwof.methods.embeddings import embed, herd, herded
from lcwof.models import BaseModel, build_backbone
from lcwof.randomness import Randomness

KNOWN, WAY, SHOT = 14, 2, 3  # 12 base classes and the two of the first session


@dataclass
class Second:
    """A second session before its first step, and what it asks of `descend`."""

    base: Base
    task: Task
    before: Any  # the state after the first session
    state: Any  # that of the second, before any step
    asked: tuple[Any, ...]

    @property
    def objective(self) -> Any:
        return self.asked[8]

    def batch(self) -> Batch:
        """Examples of all kinds, as seen by a network that has moved since."""
        index, labels = self.asked[2](0)
        learners = self.state.learners
        moved = {name: weight + 0.02 * torch.cos(weight * 1e3) for name, weight in learners.weights().items()}
        maps = self.base.inputs.plain(index)
        return Batch(maps, *learners.scored(moved, maps), labels)

    def old(self, maps: Tensor) -> tuple[Tensor, Tensor]:
        learners = self.before.learners
        return learners.scored(learners.weights(), maps)


def second(name: str, data: Dataset, model: BaseModel, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> Second:
    kind = get_method(name)
    config = kind.Config()
    for key, value in {"descent.epochs": 3, "descent.lr_tail": 0.05, **settings}.items():
        config = replace_field(config, key, value)
    method = kind(config)
    base, fitted = prepare(method, model, replace(data, augment=Augment.none()))
    shots = EpisodeSource.of(data, "novel", 2 * WAY, SHOT).draw([0, 1]).support
    draws = Randomness.of_episodes(0, [0, 1])
    tasks = [Task.of_shots(shots[:, at : at + WAY], draws["session", at], "cpu") for at in (0, WAY)]
    *_, before = method.grow(base, fitted, method.start(base, fitted, 2), tasks[0])
    moved = max(float((x - before.learners.structure.anchor[n]).abs().max()) for n, x in before.learners.tail.items())
    assert moved > 1e-3, "the first session has left the base model"
    caught: list[tuple[Any, ...]] = []

    def catch(*given: Any, **more: Any) -> Iterator[int]:
        caught.append(given)
        return iter(())

    monkeypatch.setattr(f"{kind.__module__}.descend", catch)
    (state,) = method.grow(base, fitted, before, tasks[1])
    return Second(base, tasks[1], before, state, caught[0])


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """(E, B, C), (E, B) -> (E, B)."""
    return -logits.log_softmax(-1).gather(-1, labels.unsqueeze(-1)).squeeze(-1)


def squared(a: Tensor, b: Tensor) -> Tensor:
    return (a.unsqueeze(-2) - b.unsqueeze(-3)).square().sum(-1)


def test_icarl_is_held_to_the_answers_before_the_session(
    strokes: Dataset, strokes_model: BaseModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = second("icarl", strokes, strokes_model, monkeypatch, exemplars=2, distillation=3.0)
    batch = found.batch()
    assert found.asked[1] == ("base_head", "novel_head")
    assert batch.labels.shape == (2, 12 * 2 + 2 * WAY * SHOT), "exemplars, earlier shots and new ones"
    old = found.old(batch.maps)[1]
    assert old.shape[-1] == KNOWN
    theirs, mine = (old / 2).softmax(-1), (batch.logits[..., :KNOWN] / 2).log_softmax(-1)
    apart = 4 * (theirs * (theirs.log() - mine)).sum(-1).mean(-1)
    expected = cross_entropy(batch.logits, batch.labels).mean(-1) + 3 * apart
    torch.testing.assert_close(found.objective(batch), expected, atol=1e-4, rtol=1e-4)


def test_ucir_keeps_the_directions_and_the_class_weights_that_were_there_before_the_session(
    strokes: Dataset, strokes_model: BaseModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = second("ucir", strokes, strokes_model, monkeypatch, exemplars=4, head_steps=20, less_forget=2.0)
    assert found.asked[1] == ("novel_head",), "weights of known classes stay"
    learners = found.state.learners
    unit = F.normalize(embed(found.base, found.task.support, found.before.learners), dim=-1)
    means = unit.unflatten(1, (WAY, SHOT)).mean(2)
    torch.testing.assert_close(F.normalize(learners.novel_head, dim=-1), F.normalize(means, dim=-1), msg="imprinted")
    batch = found.batch()
    assert torch.bincount(batch.labels[0]).tolist() == [SHOT] * (KNOWN + WAY)
    turned = 1 - F.cosine_similarity(batch.embedded, found.old(batch.maps)[0], dim=-1)
    cosines = batch.logits / learners.scoring.scale
    own = cosines.gather(-1, batch.labels.unsqueeze(-1))
    ranking = (0.5 - own + cosines[..., KNOWN:]).clamp_min(0).sum(-1)
    old = (batch.labels < KNOWN).float()
    expected = cross_entropy(batch.logits, batch.labels).mean(-1)
    expected = expected + 2 * (KNOWN / WAY) ** 0.5 * turned.mean(-1) + (ranking * old).sum(-1) / old.sum(-1)
    torch.testing.assert_close(found.objective(batch), expected, atol=1e-4, rtol=1e-4)


def test_idlvq_adds_a_margin_the_variation_within_classes_and_the_drift_since_before_the_session(
    strokes: Dataset, strokes_model: BaseModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    how = {"exemplars": 4, "base_steps": 3, "less_forget": 2.0, "intra": 0.3}
    found = second("idlvq", strokes, strokes_model, monkeypatch, **how)
    assert found.asked[1] == ("novel_head",)
    batch = found.batch()
    stood, now = (F.normalize(x, dim=-1) for x in (found.old(batch.maps)[0], batch.embedded))
    apart = -batch.logits / found.state.learners.scoring.scale
    own = apart.gather(-1, batch.labels.unsqueeze(-1)).squeeze(-1)
    other = apart.scatter(-1, batch.labels.unsqueeze(-1), torch.inf).min(-1).values
    ranked = (0.2 + own - other).clamp_min(0) + 0.3 * own
    old = (batch.labels < KNOWN).float()
    moved = ((now - stood).square().sum(-1) * old).sum(-1) / old.sum(-1)
    torch.testing.assert_close(found.objective(batch), ranked.mean(-1) + 2 * moved, atol=1e-4, rtol=1e-4)


def test_idlvq_learns_its_base_classes_first_and_how_far_apart_they_are(
    strokes: Dataset, strokes_model: BaseModel
) -> None:
    kind = get_method("idlvq")

    def trained(steps: int) -> Any:
        return prepare(kind(kind.Config(base_steps=steps)), strokes_model, strokes)[1][0]

    start, end = trained(0), trained(20)
    assert float(start.scale) == 10.0 and abs(float(end.scale) - 10) > 0.5
    assert not torch.allclose(start.references, end.references, atol=1e-4)
    weights = zip(start.tail.chain.parameters(), end.tail.chain.parameters(), strict=True)
    assert all(not torch.equal(a, b) for a, b in weights)


def test_topic_pulls_pushes_and_anchors_and_its_new_nodes_follow(
    strokes: Dataset, strokes_model: BaseModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    how = {"nodes": 20, "gas_passes": 1, "head_steps": 5, "pull": 0.7, "push": 2.0, "anchor": 30.0, "margin": 1.5}
    found = second("topic", strokes, strokes_model, monkeypatch, **how)
    batch, nodes = found.batch(), found.state.nodes.clone()
    assert nodes.shape[1] == 20 + 2 * WAY
    fresh = batch.labels < KNOWN + WAY
    assert fresh.sum(1).tolist() == [WAY * SHOT] * 2 and not fresh.all()
    now, was = (F.normalize(x, dim=-1) for x in (batch.embedded, found.old(batch.maps)[0]))
    shots = F.normalize(embed(found.base, found.task.support, found.before.learners), dim=-1)
    result = found.objective(batch)
    for learner in range(2):
        mine = fresh[learner]
        labels = batch.labels[learner, mine] - KNOWN
        apart = squared(now[learner, mine], nodes[learner])
        own = nodes.shape[1] - WAY + labels
        pull = apart.gather(1, own.unsqueeze(1)).squeeze(1)
        beside = torch.zeros(WAY, nodes.shape[1])  # the nodes nearest to a class's shots, its own aside
        for shot, label in zip(shots[learner], found.task.labels[learner].tolist(), strict=True):
            reach = squared(shot[None], nodes[learner])[0]
            reach[nodes.shape[1] - WAY + label] = torch.inf
            beside[label, reach.argmin()] = 1
        push = ((1.5 - apart).clamp_min(0) * beside[labels]).sum(1)
        assert float(push.sum()) > 0, "there is something to push from"
        asked = cross_entropy(batch.logits[learner : learner + 1, mine], batch.labels[learner : learner + 1, mine])[0]
        stay = (now[learner, ~mine] - was[learner, ~mine]).square().mean()
        expected = (asked + 0.7 * pull + 2 * push).mean() + 30 * stay
        torch.testing.assert_close(result[learner], expected, atol=1e-4, rtol=1e-4)
        for c in range(WAY):
            place = nodes.shape[1] - WAY + c
            mean = now[learner, mine][labels == c].mean(0)
            followed = nodes[learner, place] + 0.1 * (mean - nodes[learner, place])
            torch.testing.assert_close(found.state.nodes[learner, place], followed, atol=1e-5, rtol=1e-4)


def test_sdc_compares_with_the_embeddings_before_the_session(strokes: Dataset, strokes_model: BaseModel) -> None:
    kind = get_method("sdc")
    method = kind(replace_field(replace_field(kind.Config(), "descent.epochs", 3), "descent.lr_tail", 0.05))
    base, fitted = prepare(method, strokes_model, replace(strokes, augment=Augment.none()))
    shots = EpisodeSource.of(strokes, "novel", 2 * WAY, SHOT).draw([0]).support
    tasks = [Task.of_shots(shots[:, at : at + WAY], Randomness.of_episodes(0, [0]), "cpu") for at in (0, WAY)]
    *_, before = method.grow(base, fitted, method.start(base, fitted, 1), tasks[0])
    *_, after = method.grow(base, fitted, before, tasks[1])
    was, now = (F.normalize(embed(base, tasks[1].support, x.learners), dim=-1) for x in (before, after))
    near = torch.exp(-squared(before.prototypes, was) / (2 * 0.3**2))
    drift = near @ (now - was) / near.sum(-1, keepdim=True)
    torch.testing.assert_close(after.prototypes[:, :KNOWN], before.prototypes + drift, atol=1e-4, rtol=1e-4)


def test_exemplars_are_herded_among_unit_embeddings(strokes: Dataset, strokes_model: BaseModel) -> None:
    method = get_method("icarl")()
    base, _ = prepare(method, strokes_model, strokes)
    index, labels = herded(base, 3)
    assert labels.tolist() == [c for c in range(12) for _ in range(3)]
    for c in range(12):
        images = base.pool.table[c, : int(base.pool.counts[c])]
        unit = F.normalize(embed(base, images[None])[0], dim=-1)
        assert index[labels == c].tolist() == images[herd(unit, 3)].tolist()
    assert index.tolist() != base.pool.table[:, :3].flatten().tolist(), "not just the first"


def test_learners_that_are_as_they_were_before_are_not_at_fault_whatever_is_dropped() -> None:
    """A network that drops: held to old answers under the same noise, equal weights lose nothing."""
    torch.manual_seed(0)
    pixels = torch.randint(0, 256, (6, 1, 40, 40), dtype=torch.uint8)
    images = Images(pixels, torch.zeros(6, dtype=torch.long), ("only",), tuple("abcdef"))
    backbone, shape = build_backbone("resnet12", (1, 40, 40)), (1, 40, 40)
    model = BaseModel("resnet12", backbone, torch.randn(3, 640), ("a", "b", "c"), shape, (0.5,), (0.3,))
    inputs = Inputs(model, images, Augment.none(), 1)
    learners = Learners.start(inputs, 2)
    maps, keys = inputs.plain(torch.arange(6).expand(2, -1)), torch.tensor([3, 4])
    seen = learners.scored(learners.weights(), maps, keys, blocks=True)
    batch = Batch(maps, *seen, torch.zeros(2, 6, dtype=torch.long), keys, blocks=True)
    for mine, theirs, whole in zip(
        seen, learners.taught(batch), learners.scored(learners.weights(), maps), strict=True
    ):
        assert torch.equal(mine, theirs) and not torch.allclose(mine, whole)
