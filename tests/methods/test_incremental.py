"""The incremental baselines that train: losses and steps on cases worked by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from lcwof.config import replace_field
from lcwof.data import Dataset
from lcwof.data.episodes import EpisodeSource, Pool
from lcwof.evaluation import prepare
from lcwof.learning import Descent
from lcwof.methods import Task, get_method, icarl, ucir
from lcwof.methods.embeddings import base_images, embed
from lcwof.methods.idlvq import Nearness, References, ReferencesConfig, margin_loss, quantization_loss
from lcwof.methods.meta import BaseTail, FakeSource
from lcwof.methods.pn import Episodic, Prototypes, PrototypesConfig, episodic_loss, spread
from lcwof.methods.sdc import compensated
from lcwof.methods.topic import Topic, TopicConfig, anchor_loss, follow, gas_pass, hebbian_edges, min_max, neural_gas
from lcwof.models import BaseModel
from lcwof.randomness import Randomness


def test_one_step_of_a_neural_gas_of_three_nodes() -> None:
    nodes = torch.tensor([[0.0, 4.0], [1.0, 0.0], [3.0, 0.0]])
    gas_pass(nodes, torch.tensor([[0.0, 0.0]]), rate=0.5, decay=2.0)
    # Distances 4, 1, 3: ranks 2, 0, 1, so each keeps 1 - exp(-rank / 2) / 2 of its way to the sample.
    kept = 1 - torch.exp(-torch.tensor([2.0, 0.0, 1.0]) / 2) / 2
    torch.testing.assert_close(
        nodes, torch.stack([kept * torch.tensor([0.0, 1.0, 3.0]), kept * torch.tensor([4.0, 0.0, 0.0])]).T
    )


def test_samples_of_a_pass_move_nodes_one_after_the_other() -> None:
    draws = Randomness.of_episodes(0, [0])
    nodes, samples = draws["nodes"].uniform(30, 3)[0] * 4, draws["samples"].uniform(50, 3)[0] * 4
    expected = nodes.clone()
    for sample in samples:
        ranks = (expected - sample).norm(dim=1).argsort().argsort()
        expected += 0.3 * torch.exp(-ranks / 1.5).unsqueeze(1) * (sample - expected)
    gas_pass(nodes, samples, rate=0.3, decay=1.5)
    torch.testing.assert_close(nodes, expected)


def test_a_neural_gas_settles_nearer_to_its_samples_than_it_started() -> None:
    samples = torch.cat([torch.linspace(0, 1, 50), torch.linspace(9, 10, 50)]).unsqueeze(1)
    told: list[tuple[str, int, int]] = []

    def error(passes: int) -> float:
        nodes = neural_gas(samples, 12, TopicConfig(gas_passes=passes), lambda *news: told.append(news))
        assert nodes.shape == (12, 1)
        return float(torch.cdist(samples, nodes).min(1).values.mean())

    assert error(20) < 0.8 * error(0)
    assert told == [("neural gas", turn, 20) for turn in range(1, 21)]


def test_anchor_loss_is_the_mean_square_of_what_has_moved() -> None:
    moved = anchor_loss(torch.tensor([[[1.0, 2.0], [0.0, 0.0]]]), torch.tensor([[[0.0, 4.0], [0.0, 0.0]]]))
    torch.testing.assert_close(moved, torch.tensor([[(1.0 + 4.0) / 2, 0.0]]))


def test_min_max_loss_pulls_to_the_own_node_and_pushes_from_its_neighbours() -> None:
    nodes = torch.tensor([[[0.0, 0.5], [0.0, 0.0], [1.0, 0.0], [0.5, 0.5]]])  # two old ones, then two of new classes
    edges = torch.tensor([[[True, False, False, True], [False, True, False, False]]])
    embedded = torch.tensor([[[0.5, 0.0], [0.0, 0.4]]], requires_grad=True)
    pull, push = min_max(embedded, torch.tensor([[0, 1]]), nodes, edges, margin=0.4)
    torch.testing.assert_close(pull, torch.tensor([[0.25, 0.25 + 0.01]]))
    # The first is 0.5 from an old neighbour, beyond the margin, and 0.25 from a new one; the second 0.16 from its own.
    torch.testing.assert_close(push, torch.tensor([[0.15, 0.24]]))
    (slope,) = torch.autograd.grad((pull + push).sum(), embedded)
    torch.testing.assert_close(slope, torch.tensor([[[-1.0, 1.0], [-1.0, -0.2 - 0.8]]]))


def test_neighbours_of_a_new_node_come_second_to_it() -> None:
    nodes = torch.tensor([[[0.0], [5.0], [1.0], [9.0]]])  # two old ones, then two of new classes
    shots, labels = torch.tensor([[[0.6], [2.9], [8.0]]]), torch.tensor([[0, 0, 1]])
    found = hebbian_edges(shots, labels, nodes, way=2)
    assert found.tolist() == [[[True, True, False, False], [False, True, False, False]]]


def test_nodes_of_new_classes_follow_their_examples() -> None:
    nodes = torch.tensor([[[0.0], [10.0]]])
    embedded, labels = torch.tensor([[[2.0], [4.0], [99.0]]]), torch.tensor([[0, 0, 1]])
    found = follow(nodes, embedded, labels, fresh=torch.tensor([[True, True, False]]), rate=0.1)
    torch.testing.assert_close(found, torch.tensor([[[0.3], [10.0]]]))


def test_known_weights_stay_and_nodes_are_added(strokes: Dataset, strokes_model: BaseModel) -> None:
    method = Topic(TopicConfig(descent=Descent(epochs=2)))
    base, fitted = prepare(method, strokes_model, strokes)
    support = EpisodeSource.of(strokes, "novel", 3, 2).draw([0, 1]).support
    start = method.start(base, fitted, 2)
    *_, grown = method.grow(base, fitted, start, Task.of_shots(support, Randomness.of_episodes(0, [0, 1]), "cpu"))
    assert torch.equal(grown.learners.base_head, start.learners.base_head)
    assert torch.equal(grown.nodes[:, :-3], start.nodes) and torch.equal(grown.index[:, :-3], start.index)
    for one in range(2):
        assert all(int(grown.index[one, c - 3]) in support[one, c].tolist() for c in range(3))


@pytest.mark.parametrize("name", ["idlvq", "topic"])
def test_classes_may_have_unequal_shots_and_what_was_before_stays(
    name: str, strokes: Dataset, strokes_model: BaseModel
) -> None:
    kind = get_method(name)
    method = kind(replace_field(kind.Config(), "descent.epochs", 2))
    base, fitted = prepare(method, strokes_model, strokes)
    shots = EpisodeSource.of(strokes, "novel", 4, 3).draw([0, 1]).support
    draws = Randomness.of_episodes(0, [0, 1])
    first = Task(shots[:, :2].flatten(1)[:, :4], torch.tensor([[0, 0, 0, 1]] * 2), 2, draws["first"])
    second = Task(shots[:, 2:].flatten(1)[:, 2:], torch.tensor([[0, 1, 1, 1]] * 2), 2, draws["second"])
    *_, before = method.grow(base, fitted, method.start(base, fitted, 2), first)
    packed = {key: tensor.clone() for key, tensor in method.pack(before).items()}
    *_, after = method.grow(base, fitted, before, second)
    for key, tensor in method.pack(before).items():
        assert torch.equal(tensor, packed[key]), key
    logits = method.logits(after, base.inputs.plain(shots.flatten(1)))
    assert logits.shape == (2, 12, 12 + 4) and logits.isfinite().all()


def test_loss_of_two_reference_vectors_and_where_it_moves_them() -> None:
    references = torch.tensor([[0.0, 0.0], [2.0, 0.0]], requires_grad=True)
    sample = torch.tensor([[1.0, 1.0]], requires_grad=True)
    apart = (sample.unsqueeze(1) - references).square().sum(-1)  # 2 to either
    loss = quantization_loss(apart, torch.tensor([0]), torch.tensor(0.5), intra=0.1)
    torch.testing.assert_close(loss, torch.tensor(2.0).log() + 0.1 * 2)
    found, at = torch.autograd.grad(loss, [references, sample])
    # d/dd_y = s (1 - p_y) + intra = 0.25 + 0.1, d/dd_other = -s p_other = -0.25; d(d_c)/dm_c = 2 (m_c - x).
    torch.testing.assert_close(found, torch.tensor([[0.35 * -2, 0.35 * -2], [-0.25 * 2, -0.25 * -2]]))
    torch.testing.assert_close(at, torch.tensor([[0.35 * 2 - 0.25 * -2, 0.35 * 2 - 0.25 * 2]]))
    assert quantization_loss(apart, torch.tensor([0]), torch.tensor(0.5), intra=0.0) == torch.tensor(2.0).log()


def test_margin_loss_looks_at_the_nearest_other_class() -> None:
    apart = torch.tensor([[[0.2, 0.9, 0.6], [0.2, 0.9, 0.3], [0.5, 0.1, 0.4]]], requires_grad=True)
    loss = margin_loss(apart, torch.tensor([[0, 0, 0]]), margin=0.3)
    torch.testing.assert_close(loss, torch.tensor([[0.0, 0.2, 0.7]]))
    (slope,) = torch.autograd.grad(loss.sum(), apart)
    torch.testing.assert_close(slope, torch.tensor([[[0.0, 0.0, 0.0], [1.0, 0.0, -1.0], [1.0, -1.0, 0.0]]]))


def test_nearness_is_of_unit_embeddings() -> None:
    logits = Nearness(scale=3.0).logits(torch.tensor([[[0.0, 5.0]]]), torch.tensor([[[0.0, 1.0], [1.0, 0.0]]]))
    torch.testing.assert_close(logits, torch.tensor([[[0.0, -6.0]]]))


def test_reference_vectors_of_known_classes_move_with_their_exemplars_alone(
    strokes: Dataset, strokes_model: BaseModel
) -> None:
    config = ReferencesConfig(base_steps=5, exemplars=3, descent=Descent(epochs=3, lr_tail=1e-2))
    method = References(config)
    base, fitted = prepare(method, strokes_model, strokes)
    support = EpisodeSource.of(strokes, "novel", 3, 2).draw([0]).support
    task = Task.of_shots(support, Randomness.of_episodes(0, [0]), "cpu")
    start = method.start(base, fitted, 1)
    before = start.settled.base_head.clone()
    growing = method.grow(base, fitted, start, task)
    torch.testing.assert_close(next(growing).settled.base_head, before)  # nothing has drifted yet
    *_, last = growing
    assert torch.equal(last.learners.base_head, before) and torch.equal(start.settled.base_head, before)
    was, now = (F.normalize(embed(base, start.index, x), dim=-1) for x in (start.learners, last.learners))
    assert (now - was).norm(dim=-1).min() > 1e-3
    torch.testing.assert_close(last.settled.base_head, compensated(before, was, now, config.sigma))
    assert method.kept(base, task) == 12 * 3 + 6 and last.index.shape == (1, 12 * 3 + 6)


def test_episodic_loss_of_two_prototypes() -> None:
    shots, labels = torch.tensor([[[0.0], [2.0], [4.0]]]), torch.tensor([[0, 0, 1]])  # prototypes 1 and 4
    queries, answers = torch.tensor([[[2.0], [2.0]]]), torch.tensor([[0, 1]])  # squared distances 1 and 4
    loss = episodic_loss(shots, labels, queries, answers, 2, torch.tensor(0.5))
    torch.testing.assert_close(loss, (F.softplus(torch.tensor(-1.5)) + F.softplus(torch.tensor(1.5))) / 2)


def test_steps_of_episodic_training_lower_the_loss_of_their_episode(digits: Dataset, digits_model: BaseModel) -> None:
    base, fitted = prepare(Prototypes(PrototypesConfig(meta_steps=1)), digits_model, digits)
    module = Episodic(BaseTail(base.inputs), spread(fitted.means))
    fake = FakeSource(base, groups=base_images(base)).draw(0, episodes=2, way=4, shot=1, queries=5)
    assert fake.support.shape == (2, 4) and not fake.support.is_floating_point()
    asked = base.inputs.plain(fake.queries[:, :20]), fake.answers[:, :20] - 6
    optimiser = torch.optim.Adam(module.parameters(), lr=1e-4)
    losses = []
    for _ in range(4):
        loss = module.loss(base.inputs.plain(fake.support), fake.labels, *asked, 4)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses == sorted(losses, reverse=True) and losses[-1] < 0.5 * losses[0]
    assert all(weight.grad is not None and weight.grad.abs().max() > 0 for weight in module.parameters())


def test_an_interrupted_episodic_training_ends_as_an_uninterrupted_one(
    digits: Dataset, digits_model: BaseModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lcwof.methods.meta._SAVE_EVERY", 0.0)
    monkeypatch.setattr("lcwof.methods.meta._SAVING", float("inf"))
    monkeypatch.setenv("LCWOF_CACHE", str(tmp_path / "a"))
    config = PrototypesConfig(meta_steps=4, meta_episodes=1, meta_queries=5)
    _, whole = prepare(Prototypes(config), digits_model, digits)
    monkeypatch.setenv("LCWOF_CACHE", str(tmp_path / "b"))
    steps: list[int] = []

    def stop(what: str, done: int, total: int) -> None:
        steps.append(done)
        if len(steps) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare(Prototypes(config), digits_model, digits, fitting=stop)
    biased = PrototypesConfig(meta_steps=4, meta_episodes=1, meta_queries=5, novel_bias=0.5)
    _, resumed = prepare(Prototypes(biased), digits_model, digits, fitting=stop)
    assert steps == [1, 2, 3, 3, 4], "goes on after the last save; another bias is the same training"
    for name, value in whole.tail.state_dict().items():
        torch.testing.assert_close(resumed.tail.state_dict()[name], value)
    _, shared = prepare(Prototypes(), digits_model, digits)
    assert not torch.allclose(whole.means, shared.means, atol=1e-4), "something was trained"


def last_of(name: str, data: Dataset, model: BaseModel, **settings: Any) -> tuple[Any, Any, Any]:
    """A method, what it works with and its state after two episodes."""
    config = get_method(name).Config()
    for key, value in {"descent.epochs": 2, **settings}.items():
        config = replace_field(config, key.replace("__", "."), value)
    method = get_method(name)(config)
    base, fitted = prepare(method, model, data)
    episodes = EpisodeSource.of(data, "novel", 2, 3).draw([0, 1])
    task = Task.of_shots(episodes.support, Randomness.of_episodes(0, [0, 1]), torch.device("cpu"))
    *_, state = method.learn(base, fitted, task)
    return method, base, state


def test_icarl_answers_by_the_nearest_mean_of_exemplars(digits: Dataset, digits_model: BaseModel) -> None:
    method, base, state = last_of("icarl", digits, digits_model, exemplars=4)
    queries = digits.split.test[:10]
    logits = method.logits(state, base.inputs.plain(queries.expand(2, -1)))
    for learner in range(2):
        kept, classes = state.index[learner], state.labels[learner]
        assert len(kept) == 6 * 4 + 2 * 3
        unit = F.normalize(embed(base, state.index, state.learners), dim=-1)[learner]
        means = F.normalize(torch.stack([unit[classes == c].mean(0) for c in range(8)]), dim=-1)
        asked = F.normalize(embed(base, queries.expand(2, -1), state.learners), dim=-1)[learner]
        torch.testing.assert_close(logits[learner], -torch.cdist(asked, means).square(), atol=1e-4, rtol=1e-4)


def test_icarl_compares_old_and_new_answers_at_its_temperature(
    digits: Dataset, digits_model: BaseModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    heats: set[float] = set()
    compare = icarl.distillation
    monkeypatch.setattr(icarl, "distillation", lambda new, old, heat: heats.add(heat) or compare(new, old, heat))
    last_of("icarl", digits, digits_model, temperature=3.0)
    assert heats == {3.0}


def test_joint_training_sees_as_many_images_of_a_base_class_as_asked(
    digits: Dataset, digits_model: BaseModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[int, set[int]]] = []
    draw = Pool.draw

    def watched(self: Pool, draws: Randomness, k: int) -> Tensor:
        drawn = draw(self, draws, k)
        seen.append((k, set(drawn[0].flatten().tolist())))
        return drawn

    monkeypatch.setattr(Pool, "draw", watched)
    last_of("joint", digits, digits_model, per_class=7)
    epochs = [images for k, images in seen if k == 7]
    assert len(epochs) == 2 and all(len(images) == 6 * 7 for images in epochs)
    assert epochs[0] != epochs[1], "drawn anew"


def test_ucir_keeps_directions_the_more_the_more_classes_are_old(
    digits: Dataset, digits_model: BaseModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[float, int, int]] = []
    weigh = ucir.less_forget_weight
    monkeypatch.setattr(ucir, "less_forget_weight", lambda *given: asked.append(given) or weigh(*given))
    _, _, light = last_of("ucir", digits, digits_model, exemplars=4)
    assert asked == [(5.0, 6, 2)]
    monkeypatch.setattr(ucir, "less_forget_weight", lambda *_: 1e3)
    _, _, heavy = last_of("ucir", digits, digits_model, exemplars=4)
    assert any(not torch.equal(w, heavy.learners.tail[name]) for name, w in light.learners.tail.items())
