"""The baselines on cases worked by hand."""

from __future__ import annotations

import copy
import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from lcwof.data import Dataset
from lcwof.data.episodes import EpisodeSource
from lcwof.evaluation import prepare
from lcwof.learning.learners import fresh_head
from lcwof.methods import Task
from lcwof.methods.dfsl import Dynamic, DynamicConfig, Generator
from lcwof.methods.embeddings import class_means
from lcwof.methods.gfsv import Video, VideoConfig
from lcwof.methods.ilvq import Vectors, VectorsConfig, VectorsState, learn_sample
from lcwof.methods.iw import Imprinting
from lcwof.methods.lcwof import LCwoF, LCwoFConfig
from lcwof.methods.meta import FakeSource
from lcwof.methods.pn import Fitted, Prototypes
from lcwof.methods.sdc import compensated
from lcwof.methods.ucir import margin_ranking
from lcwof.models import BaseModel
from lcwof.randomness import Randomness


def base_of(embeddings: torch.Tensor) -> Any:
    """A base whose images are their embeddings."""
    return SimpleNamespace(inputs=SimpleNamespace(plain=lambda index: embeddings[index], device="cpu"))


def test_imprinted_weight_of_three_vectors() -> None:
    # Normalised: (1,0), (0,1), (0.6,0.8); their mean is (0.533, 0.6), of length 0.8028.
    base = base_of(torch.tensor([[2.0, 0.0], [0.0, 5.0], [3.0, 4.0]]))
    task = Task(torch.tensor([[0, 1, 2]]), torch.zeros(1, 3, dtype=torch.long), 1, Randomness.of_episodes(0, [0]))
    (state,) = Imprinting().learn(base, (torch.tensor([[1.0, 0.0]]), torch.tensor(10.0)), task)
    expected = torch.tensor([1.6 / 3, 0.6])
    torch.testing.assert_close(state.weights[0, 1], expected / expected.norm())
    logits = Imprinting().logits(state, torch.tensor([[[0.0, 3.0]]]))
    torch.testing.assert_close(logits, torch.tensor([[[0.0, 10 * 0.6 / float(expected.norm())]]]))


def test_prototypes_are_nearest_means() -> None:
    base = base_of(torch.tensor([[0.0, 0.0], [2.0, 0.0], [5.0, 5.0]]))
    task = Task(torch.tensor([[0, 1, 2]]), torch.tensor([[0, 0, 1]]), 2, Randomness.of_episodes(0, [0]))
    fitted = Fitted(torch.tensor([[1.0, 3.0]]), torch.nn.Identity())
    (state,) = Prototypes().learn(base, fitted, task)
    logits = Prototypes().logits(state, torch.tensor([[[1.0, 1.0]]]))
    torch.testing.assert_close(logits, torch.tensor([[[-4.0, -1.0, -32.0]]]))


def test_class_means_with_unequal_shots() -> None:
    embedded = torch.tensor([[[1.0], [2.0], [6.0], [10.0]]])
    means = class_means(embedded, torch.tensor([[1, 0, 0, 0]]), 2)
    torch.testing.assert_close(means, torch.tensor([[[6.0], [1.0]]]))


def test_methods_that_adapt_nothing_keep_the_order_of_base_logits(digits: Dataset, digits_model: BaseModel) -> None:
    """pn and iw only add classes: among the base classes nothing changes, whatever is learned."""
    for method in (Prototypes(), Imprinting()):
        base, fitted = prepare(method, digits_model, digits)
        found = []
        for number in (0, 1):
            task = Task.of_shots(
                EpisodeSource.of(digits, "novel", 2, 1).draw([number]).support,
                Randomness.of_episodes(0, [number]),
                "cpu",
            )
            *_, state = method.learn(base, fitted, task)
            found.append(method.logits(state, base.inputs.plain(digits.split.test[None]))[..., :6])
        torch.testing.assert_close(found[0], found[1])


def test_lambda_follows_the_shots_unless_set() -> None:
    assert LCwoF().constraint(1) == 5e2
    assert LCwoF().constraint(5) == 5e3
    assert LCwoF(LCwoFConfig(weight_constraint=7.0)).constraint(5) == 7.0


def test_drift_compensation_of_a_rigid_shift_is_exact() -> None:
    torch.manual_seed(0)
    prototypes, samples, shift = torch.randn(2, 4, 3), torch.randn(2, 6, 3), torch.tensor([1.0, -2.0, 0.5])
    moved = compensated(prototypes, samples, samples + shift, sigma=0.3)
    torch.testing.assert_close(moved, prototypes + shift)


def test_drift_near_a_prototype_counts_more() -> None:
    # Samples at distance 0 and 1 with sigma 1: weights 1 and exp(-1/2); only the second one moved, by 1.
    before = torch.tensor([[[0.0], [1.0]]])
    moved = compensated(torch.zeros(1, 1, 1), before, before + torch.tensor([[0.0], [1.0]]), sigma=1.0)
    part = torch.tensor(-0.5).exp()
    torch.testing.assert_close(moved, (part / (1 + part)).view(1, 1, 1))


def test_one_step_of_vector_quantization() -> None:
    def state() -> VectorsState:
        vectors = torch.tensor([[[0.0, 0.0], [4.0, 0.0], [0.0, 0.0]]])
        owners, wins = torch.tensor([[0, 1, -1]]), torch.tensor([[1.0, 1.0, 0.0]])
        return VectorsState("vectors", 0, vectors, owners, wins, torch.tensor(2))

    near = state()
    learn_sample(near, torch.tensor([[1.0, 0.0]]), torch.tensor([0]), VectorsConfig(threshold=2.0, away=0.1))
    # The winner has seen one sample and now its second: half the way. The other class is pushed by a tenth of 3.
    torch.testing.assert_close(near.vectors, torch.tensor([[[0.5, 0.0], [4.3, 0.0], [0.0, 0.0]]]))
    assert near.wins.tolist() == [[2.0, 1.0, 0.0]] and near.owners.tolist() == [[0, 1, -1]]
    far = state()
    learn_sample(far, torch.tensor([[0.0, 3.0]]), torch.tensor([0]), VectorsConfig(threshold=2.0, away=0.1))
    torch.testing.assert_close(far.vectors, torch.tensor([[[0.0, 0.0], [4.0, 0.0], [0.0, 3.0]]]))
    assert far.owners.tolist() == [[0, 1, 0]]
    logits = Vectors().logits(far, F.normalize(torch.tensor([[[0.0, 1.0]]]), dim=-1))
    torch.testing.assert_close(logits, torch.tensor([[[-1.0, -17.0]]]))  # the nearest of a class's two prototypes


def test_margin_ranking_counts_old_samples_and_the_nearest_new_classes() -> None:
    cosines = torch.tensor([[[0.9, 0.0, 0.8, 0.7, 0.1], [0.2, 0.0, 0.9, 0.0, 0.0]]])
    labels = torch.tensor([[0, 2]])  # the second is of a new class and does not count
    found = margin_ranking(cosines, labels, known=2, margin=0.5, hardest=2)
    torch.testing.assert_close(found, torch.tensor([0.4 + 0.3]))


def test_generated_weights_are_the_mean_of_shots_and_what_they_recall() -> None:
    base = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    generator = Generator(base, torch.tensor(10.0)).requires_grad_(False)
    generator.average.fill_(2.0)
    generator.attend.copy_(torch.tensor([0.5, 3.0]))
    generator.gamma.fill_(1.0)
    shots, labels = torch.tensor([[[0.0, 5.0]]]), torch.zeros(1, 1, dtype=torch.long)
    # The shot is (0, 1), its cosines with the keys 0, 1, 0: attention (1, e, 1) / (2 + e), recalled (0, e / (2 + e)).
    e = torch.tensor(1.0).exp()
    torch.testing.assert_close(generator(shots, labels, 1), torch.stack([0 * e, 2 + 3 * e / (2 + e)]).view(1, 1, 2))
    # Without class 1, which plays the novel one: attention (1/2, 0, 1/2), recalled (0, 0).
    torch.testing.assert_close(generator(shots, labels, 1, torch.tensor([[1]])), torch.tensor([[[0.0, 2.0]]]))


def test_made_up_episodes_keep_fake_novel_classes_out_of_the_base_side(
    digits: Dataset, digits_model: BaseModel
) -> None:
    method = Prototypes()
    base, _ = prepare(method, digits_model, digits)
    source = FakeSource(base)
    fake = source.draw(3, episodes=4, way=2, shot=3, queries=5)
    assert fake.support.shape[:2] == (4, 6) and fake.queries.shape[:2] == (4, 2 * 5 + 2 * 5)
    assert (fake.answers[:, :10] >= 6).all() and (fake.answers[:, 10:] < 6).all()
    for i in range(4):
        assert not set(fake.answers[i, 10:].tolist()) & set(fake.fake[i].tolist())
    ends = source.starts + source.counts
    where = (fake.support.unsqueeze(2) == source.embedded).all(-1).float().argmax(-1)  # which image each shot is
    owner = (where.unsqueeze(-1) >= ends).sum(-1)
    assert torch.equal(owner, fake.fake.gather(1, fake.labels)), "shots are of the classes that play novel ones"
    again = source.draw(3, episodes=4, way=2, shot=3, queries=5)
    assert torch.equal(again.queries, fake.queries) and not torch.equal(source.draw(4, 4, 2, 3, 5).fake, fake.fake)


def test_an_interrupted_meta_training_ends_as_an_uninterrupted_one(
    digits: Dataset, digits_model: BaseModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LCWOF_CACHE", str(tmp_path / "a"))
    monkeypatch.setattr("lcwof.methods.meta._SAVE_EVERY", 0.0)
    monkeypatch.setattr("lcwof.methods.meta._SAVING", float("inf"))
    method = Dynamic(DynamicConfig(meta_steps=6, head_steps=20))
    _, whole = prepare(method, digits_model, digits)
    monkeypatch.setenv("LCWOF_CACHE", str(tmp_path / "b"))
    steps: list[int] = []

    def stop(what: str, done: int, total: int) -> None:
        steps.append(done)
        if len(steps) == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare(method, digits_model, digits, fitting=stop)
    _, resumed = prepare(
        Dynamic(DynamicConfig(meta_steps=6, head_steps=20, novel_bias=0.1)), digits_model, digits, fitting=stop
    )
    assert steps == [1, 2, 3, 4, 4, 5, 6], "goes on after the last save; another bias is the same training"
    for name, value in whole.state_dict().items():
        torch.testing.assert_close(resumed.state_dict()[name], value)
    prepare(method, digits_model, digits, fitting=stop)
    assert len(steps) == 7, "what is trained is found again"


def test_a_meta_training_is_found_again_only_where_all_it_depends_on_is_the_same(
    digits: Dataset, digits_model: BaseModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LCWOF_CACHE", str(tmp_path))
    method, steps = Dynamic(DynamicConfig(meta_steps=1, head_steps=2)), list[int]()

    def trained(model: BaseModel, data: Dataset) -> bool:
        steps.clear()
        prepare(method, model, data, fitting=lambda what, done, total: steps.append(done))
        return bool(steps)

    assert trained(digits_model, digits) and not trained(digits_model, digits)
    fewer = dataclasses.replace(digits.split, train=digits.split.train[::2])
    assert trained(digits_model, dataclasses.replace(digits, split=fewer)), "other base images"
    about = vars(digits_model)
    assert trained(BaseModel(**{**about, "mean": tuple(x + 0.1 for x in digits_model.mean)}), digits), "other inputs"
    backbone = copy.deepcopy(digits_model.backbone)
    with torch.no_grad():
        for weight in backbone.parameters():
            weight.mul_(1.5)
    assert trained(BaseModel(**{**about, "backbone": backbone}), digits), "another backbone under the same head"


def test_the_video_classifier_is_adam_on_the_shots_of_all_sessions() -> None:
    embedded = torch.tensor([[1.0, 0.0], [0.0, 1.0], [2.0, 1.0], [-1.0, 3.0]])
    base = base_of(embedded)
    base.model = SimpleNamespace(head=torch.tensor([[1.0, 1.0]]))
    method = Video(VideoConfig(steps=7, lr=0.05))
    draws = [Randomness.of_episodes(0, [0])["session", number] for number in (2, 3)]
    tasks = [Task(torch.tensor([[2 * i, 2 * i + 1]]), torch.tensor([[0, 1]]), 2, draws[i]) for i in range(2)]
    state = method.start(base, None, 1)
    for task in tasks:
        (state,) = method.grow(base, None, state, task)
    expected = fresh_head(4, base.model.head[None], draws[1])[0].requires_grad_()
    optimiser = torch.optim.Adam([expected], lr=0.05)
    for _ in range(7):
        optimiser.zero_grad()
        F.cross_entropy(embedded @ expected.T, torch.arange(4)).backward()
        optimiser.step()
    torch.testing.assert_close(state.weights[0], torch.cat([base.model.head, expected.detach()]))


def test_the_first_step_of_the_video_classifier_is_as_long_as_its_rate() -> None:
    base = base_of(torch.tensor([[1.0, 2.0], [3.0, -1.0]]))
    base.model = SimpleNamespace(head=torch.zeros(1, 2))
    task = Task(torch.tensor([[0, 1]]), torch.tensor([[0, 1]]), 2, Randomness.of_episodes(0, [0]))
    (state,) = Video(VideoConfig(steps=1, lr=0.05)).learn(base, None, task)
    start = fresh_head(2, base.model.head[None], task.draws)
    torch.testing.assert_close((state.weights[:, 1:] - start).abs(), torch.full((1, 2, 2), 0.05), atol=1e-4, rtol=0)
