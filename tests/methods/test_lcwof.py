"""The variants of the paper's ablations: each does what it says and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from lcwof.config import replace_field
from lcwof.data import Dataset
from lcwof.data.episodes import EpisodeSource
from lcwof.errors import LcwofError
from lcwof.evaluation import prepare, tune
from lcwof.learning import Batch
from lcwof.learning import learners as module
from lcwof.methods import Base, Task
from lcwof.methods import lcwof as lcwof_module
from lcwof.methods.embeddings import embed
from lcwof.methods.lcwof import LCwoF, LCwoFConfig, LCwoFState
from lcwof.models import BaseModel
from lcwof.randomness import Randomness

SHORT = {"phase2.epochs": 3, "phase3.epochs": 2}


def variant(**settings: Any) -> LCwoF:
    config = LCwoFConfig()
    for key, value in {**SHORT, **{k.replace("__", "."): v for k, v in settings.items()}}.items():
        config = replace_field(config, key, value)
    return LCwoF(config)


def learned(method: LCwoF, data: Dataset, model: BaseModel, episodes: int = 2) -> tuple[Base, list[LCwoFState]]:
    base, fitted = prepare(method, model, data)
    shots = EpisodeSource.of(data, "novel", 2, 1).draw(range(episodes)).support
    task = Task.of_shots(shots, Randomness.of_episodes(0, range(episodes)), "cpu")
    return base, [LCwoFState(s.phase, s.epoch, s.learners.copy()) for s in method.learn(base, fitted, task)]


def test_plain_cross_entropy_learns_novel_classes_whatever_the_base_head_says(
    digits: Dataset, digits_model: BaseModel
) -> None:
    """Equation 1 does not look at base logits, so another base head changes nothing; equation 2 does."""
    other = BaseModel(**{**vars(digits_model), "head": digits_model.head.flip(0) * 3})
    for normalised, same in ((False, True), (True, False)):
        ways = [
            learned(variant(phase2__normalised=normalised, phase3__epochs=0), digits, model)[1][-1].learners
            for model in (digits_model, other)
        ]
        assert torch.equal(ways[0].novel_head, ways[1].novel_head) == same
        for name in ways[0].tail:
            assert torch.equal(ways[0].tail[name], ways[1].tail[name]) == same


def base_answers(base: Base, state: LCwoFState, images: Tensor) -> Tensor:
    """images: (E, n)"""
    return state.learners.logits(base.inputs.plain(images))[..., : len(base.model.head)].softmax(-1)


def test_distillation_keeps_the_answers_about_base_classes(digits: Dataset, digits_model: BaseModel) -> None:
    """On the images it is shown: with unlabelled ones, on these too."""
    shown, others = {}, {}
    for name, settings in {
        "none": {},
        "KD": {"distillation__weight": 10.0},
        "KD+": {"distillation__weight": 10.0, "distillation__unlabelled": 40},
    }.items():
        method = variant(weight_constraint=0.0, phase2__epochs=30, phase3__epochs=0, **settings)
        base, states = learned(method, digits, digits_model, episodes=10)
        assert base.unlabelled is not None
        unlabelled = base.unlabelled[:: len(base.unlabelled) // 40][:40].expand(10, -1)
        shots = EpisodeSource.of(digits, "novel", 2, 1).draw(range(10)).support.flatten(1)
        for changed, images in ((shown, shots), (others, unlabelled)):
            apart = base_answers(base, states[-1], images) - base_answers(base, states[0], images)
            changed[name] = float(apart.abs().mean())
    assert shown["KD+"] < shown["KD"] < 0.9 * shown["none"], shown
    assert others["KD+"] < 0.7 * min(others["KD"], others["none"]), others


def test_unlabelled_images_join_the_batches_and_change_nothing_else(digits: Dataset, digits_model: BaseModel) -> None:
    """With next to no weight, phase 2 goes as without them: the same labelled images, in the same steps."""
    how = {"weight_constraint": 1.0, "phase2__epochs": 5, "phase3__epochs": 0, "phase2__batch": 3}
    plain, joined = (
        learned(variant(**how, distillation__weight=1e-9, distillation__unlabelled=n), digits, digits_model)[1][-1]
        for n in (0, 40)
    )
    for name, weight in plain.learners.weights().items():
        torch.testing.assert_close(joined.learners.weights()[name], weight, atol=1e-5, rtol=1e-4)


def test_distillation_may_stand_for_the_weight_constraint_in_phase_2(digits: Dataset, digits_model: BaseModel) -> None:
    def weights(**settings: object) -> dict[str, Tensor]:
        method = variant(phase2__epochs=5, **{"phase3__epochs": 0, **settings})
        return learned(method, digits, digits_model)[1][-1].learners.weights()

    free, held = weights(weight_constraint=0.0), weights(weight_constraint=100.0)
    instead = weights(weight_constraint=100.0, distillation__weight=1e-9, distillation__instead=True)
    for name, weight in free.items():
        torch.testing.assert_close(instead[name], weight, atol=1e-5, rtol=1e-4)
    assert any(not torch.allclose(free[name], held[name], atol=1e-4) for name in free)
    beside = weights(weight_constraint=100.0, distillation__weight=1e-9)
    for name, weight in held.items():
        torch.testing.assert_close(beside[name], weight, atol=1e-5, rtol=1e-4)
    later = {"distillation__weight": 1e-9, "distillation__instead": True, "phase3__epochs": 3}
    apart = [weights(weight_constraint=lam, **later) for lam in (0.0, 100.0)]
    assert any(not torch.allclose(apart[0][name], apart[1][name], atol=1e-4) for name in free), "phase 3 keeps it"
    loose = weights(weight_constraint=100.0, **later, distillation__free_phase3=True)
    for name, weight in apart[0].items():
        torch.testing.assert_close(loose[name], weight, atol=1e-5, rtol=1e-4)


def test_a_phase_3_without_constraint_is_for_distillation_in_its_place(
    digits: Dataset, digits_model: BaseModel
) -> None:
    with pytest.raises(LcwofError, match="instead of the constraint"):
        learned(variant(distillation__weight=1.0, distillation__free_phase3=True), digits, digits_model)


@pytest.mark.parametrize(
    "setting",
    [{"distillation__instead": True}, {"distillation__unlabelled": 10}, {"distillation__free_phase3": True}],
)
def test_distillation_without_a_weight_is_refused(
    setting: dict[str, Any], digits: Dataset, digits_model: BaseModel
) -> None:
    with pytest.raises(LcwofError, match="has settings but no weight"):
        learned(variant(**setting), digits, digits_model)


def test_more_unlabelled_images_than_there_are_is_refused(digits: Dataset, digits_model: BaseModel) -> None:
    with pytest.raises(LcwofError, match=r"unlabelled = 99999: there are \d+ images of validation classes"):
        prepare(variant(distillation__weight=1.0, distillation__unlabelled=99999), digits_model, digits)


def test_statistics_adapt_only_where_asked_and_to_each_learner_alone(digits: Dataset, digits_model: BaseModel) -> None:
    _, frozen = learned(variant(), digits, digits_model)
    assert not frozen[-1].learners.statistics
    base, states = learned(variant(batch_norm="adapting"), digits, digits_model)
    start = base.inputs.tail.statistics
    found = states[-1].learners.statistics
    assert set(found) == set(start) and not base.inputs.tail.chain.training
    for name, value in found.items():
        assert not torch.allclose(value[0], start[name]) and not torch.allclose(value[0], value[1])
    _, alone = learned(variant(batch_norm="adapting"), digits, digits_model, episodes=1)
    for name, value in alone[-1].learners.statistics.items():
        torch.testing.assert_close(value[0], found[name][0], atol=1e-4, rtol=1e-4)


def test_embeddings_of_learners_with_their_own_statistics_use_these(digits: Dataset, digits_model: BaseModel) -> None:
    base, states = learned(variant(batch_norm="adapting"), digits, digits_model)
    mine, images = states[-1].learners, digits.split.test[:4].expand(2, -1)
    expected = mine.structure.embed(mine.weights(), base.inputs.plain(images))
    torch.testing.assert_close(embed(base, images, mine), expected)
    shared = mine.structure.embed(mine.tail, base.inputs.plain(images))
    assert not torch.allclose(shared, expected, rtol=0.01)


def test_a_bias_of_each_class_starts_at_0_for_base_classes_and_learns(digits: Dataset, digits_model: BaseModel) -> None:
    base, states = learned(variant(bias=True), digits, digits_model)
    dim = digits_model.head.shape[1]
    before, after = states[0].learners, states[-1].learners
    assert before.base_head.shape[-1] == dim + 1
    assert not before.base_head[..., -1].any() and bool(after.base_head[..., -1].all())
    maps = base.inputs.plain(digits.split.test[:5].expand(2, -1))
    embedded = after.structure.embed(after.tail, maps)
    expected = embedded @ after.base_head[..., :-1].mT + after.base_head[..., -1].unsqueeze(1)
    torch.testing.assert_close(after.logits(maps)[..., : len(digits_model.head)], expected)
    with pytest.raises(LcwofError, match="bias is of a linear head"):
        learned(variant(bias=True, head="cosine"), digits, digits_model)


def test_every_batch_has_all_novel_examples_where_the_ratio_is_fixed(
    digits: Dataset, digits_model: BaseModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[int]] = []

    def watched(*args: Any) -> Batch:
        batch = Batch(*args)
        seen.append(sorted(batch.labels[0].tolist()))
        return batch

    monkeypatch.setattr(module, "Batch", watched)
    learned(variant(phase2__epochs=0, phase3__epochs=1, phase3__per_batch=4), digits, digits_model)
    assert len(seen) == 2, "six base classes, four a batch"
    assert all(len(batch) == 6 and batch[-2:] == [6, 7] for batch in seen)
    assert {label for batch in seen for label in batch} == set(range(8))


def test_phases_in_turns(digits: Dataset, digits_model: BaseModel, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    asked: list[tuple[str, tuple[Any, ...]]] = []
    for name in ("learn_novel", "calibrate"):

        def watched(*given: Any, _name: str = name, _phase: Any = getattr(lcwof_module, name)) -> Iterator[int]:
            asked.append((_name, given))
            for epoch in _phase(*given):
                done.append(_name)
                yield epoch

        monkeypatch.setattr(lcwof_module, name, watched)
    _, states = learned(variant(alternate=5, phase3__epochs=3), digits, digits_model)
    assert done == [*["learn_novel"] * 5, "calibrate"] * 3
    assert [(s.phase, s.epoch) for s in states[-3:]] == [("phase 3", 1), ("phase 3", 2), ("phase 3", 3)]
    heads = [s.learners.novel_head for s in states]
    assert torch.equal(heads[0], heads[1]), "phase 2 happens within the turns"
    assert not torch.equal(heads[-2], heads[-1])
    draws = [given[-1] for name, given in asked if name == "calibrate"]
    assert all(torch.equal(each.keys, draws[0].keys) for each in draws), "what is replayed stays, turn after turn"
    assert {given[5] for name, given in asked if name == "learn_novel"} == {500.0}
    assert {given[6] for name, given in asked if name == "calibrate"} == {500.0}
    method = variant(alternate=5, distillation__weight=1.0)
    with pytest.raises(LcwofError, match=r"alternate and method\.distillation do not go together"):
        prepare(method, digits_model, digits)


def test_without_phase_3_tuning_stops_phase_2(digits: Dataset, digits_model: BaseModel) -> None:
    config = variant(phase3__epochs=0, phase2__epochs=4).config
    tuning = tune(LCwoF, config, digits_model, digits, 2, 1, 2, grid={"weight_constraint": [1e3]})
    tried = [candidate.settings["phase2.epochs"] for candidate in tuning.candidates]
    assert sorted(tried) == [0, 1, 2, 3, 4]
    config = replace_field(config, "phase2.epochs", 45)  # of which every second is looked at, and the last
    tuning = tune(LCwoF, config, digits_model, digits, 2, 1, 2, grid={"weight_constraint": [1e3]})
    found = {candidate.settings["phase2.epochs"]: candidate for candidate in tuning.candidates}
    assert sorted(found) == [*range(0, 45, 2), 45]
    alone = tune(
        LCwoF,
        replace_field(config, "phase2.epochs", 0),
        digits_model,
        digits,
        2,
        1,
        2,
        grid={"weight_constraint": [1e3]},
    )
    assert found[0].hm == pytest.approx(alone.best.hm), "the start is not mixed with the end"
    assert tuning.apply(config).phase3.epochs == 0


def test_whitening_is_of_centred_cosines(digits: Dataset, digits_model: BaseModel) -> None:
    for settings in ({"head": "linear"}, {"head": "cosine", "centred": False}):
        with pytest.raises(LcwofError, match=r"method\.whiten is of centred cosines"):
            learned(variant(whiten=0.3, **settings), digits, digits_model)
    base, states = learned(variant(whiten=0.3, head="cosine", start="mean", phase2__epochs=0), digits, digits_model)
    scoring = states[0].learners.scoring
    assert scoring.whitening is not None and scoring.whitening.shape == (base.model.head.shape[1],) * 2


def test_cosines_are_scaled_as_asked(digits: Dataset, digits_model: BaseModel) -> None:
    _, states = learned(variant(head="cosine", scale=7.0, phase2__epochs=1, phase3__epochs=0), digits, digits_model)
    assert states[-1].learners.scoring.scale == 7.0


def test_cosines_are_of_embeddings_from_the_centre_or_as_they_are(digits: Dataset, digits_model: BaseModel) -> None:
    for centred in (True, False):
        how = {"head": "cosine", "centred": centred, "phase2__epochs": 0, "phase3__epochs": 0}
        base, states = learned(variant(**how), digits, digits_model)
        learners, images = states[0].learners, digits.split.test[:4].expand(2, -1)
        centre = torch.zeros(())
        if centred:
            some = torch.stack([row[:20] for row in base.pool.table])
            centre = embed(base, some.flatten()[None])[0].mean(0)
        apart = embed(base, images, learners) - centre
        cosines = F.cosine_similarity(apart.unsqueeze(2), learners.base_head.unsqueeze(1), dim=-1)
        found = learners.logits(base.inputs.plain(images))[..., : len(digits_model.head)]
        torch.testing.assert_close(found, cosines * learners.scoring.scale, atol=1e-3, rtol=1e-3)
