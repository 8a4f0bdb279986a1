"""The incremental protocol."""

from __future__ import annotations

import dataclasses
import json
import operator
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from lcwof.config import replace_field
from lcwof.data import Dataset
from lcwof.data.episodes import Pool
from lcwof.data.sessions import Step, Streams, StreamSource, pseudo_sessions
from lcwof.errors import LcwofError
from lcwof.evaluation import MEASURES, prepare, tune_streams
from lcwof.evaluation.candidates import Tuning
from lcwof.evaluation.gfsl import query_logits
from lcwof.evaluation.ifsl import Session, _tasks, run_streams, summary_measures
from lcwof.learning import Phase1, Phase2, Phase3, pretrain
from lcwof.methods import Method, State, get_method, method_names
from lcwof.methods.lcwof import LCwoF, LCwoFConfig, LCwoFState
from lcwof.methods.pn import Prototypes
from lcwof.models import BaseModel
from lcwof.randomness import Randomness

SHORT: dict[str, dict[str, Any]] = {
    "lcwof": {"phase2.epochs": 20, "phase3.epochs": 20, "weight_constraint": 10.0},
    "aan": {"meta_steps": 40},
    "dfsl": {"meta_steps": 60},
    "ft": {"descent.epochs": 5},
    "icarl": {"descent.epochs": 5, "exemplars": 5},
    "idlvq": {"descent.epochs": 2, "base_steps": 20, "exemplars": 5},
    "joint": {"descent.epochs": 8},
    "protogan": {"meta_steps": 30, "steps": 20, "novel_bias": 4.0},
    "rgfsl": {"meta_steps": 60},
    "sdc": {"descent.epochs": 2},
    "topic": {"descent.epochs": 2, "gas_passes": 1},
    "ucir": {"descent.epochs": 5, "exemplars": 5},
}


def short(name: str) -> Method:
    config = get_method(name).Config()
    for key, value in SHORT.get(name, {}).items():
        config = replace_field(config, key, value)
    return get_method(name)(config)


def run(
    method: Method, data: Dataset, model: BaseModel, numbers: list[int], **options: Any
) -> list[tuple[Session, State]]:
    base, fitted = prepare(method, model, data)
    (streams,) = StreamSource.of(data, way=3, shot=3, queries=10).draw(numbers)
    return list(run_streams(method, base, fitted, streams, 0, **options))


@pytest.mark.parametrize("name", method_names())
def test_every_method_learns_session_after_session(name: str, strokes: Dataset, strokes_model: BaseModel) -> None:
    found = [session for session, _ in run(short(name), strokes, strokes_model, [0, 1])]
    assert [s.number for s in found] == [1, 2, 3, 4, 5]
    assert [tuple(s.origins.shape) for s in found] == [(2, n) for n in range(1, 6)]
    assert [s.classes.shape[1] for s in found] == [12, 15, 18, 21, 24]
    first = dict(zip(MEASURES, found[0].values[0].tolist(), strict=True))
    assert first["B/B"] == first["B/J"] == first["J/J"] > 80 and first["hm"] != first["hm"]
    for session in found[1:]:
        values = dict(zip(MEASURES, session.values.double().mean(0).tolist(), strict=True))
        origins = session.origins.mean(0)
        assert values["B/J"] == pytest.approx(float(origins[0]), abs=0.01)
        assert values["N/J"] == pytest.approx(float(origins[1:].mean()), abs=0.01), (
            "sessions have equal numbers of queries"
        )
        assert values["B/J"] == pytest.approx(float(session.classes[:, :12].mean()), abs=0.01)
        if name != "ft":  # which forgets what came before
            assert values["N/N"] > 55, values
        if name not in ("ft", "gfsv", "joint"):  # these are not balanced, or only by tuning
            assert values["N/J"] > 30, values


@pytest.mark.parametrize("name", method_names())
def test_a_stream_is_the_same_alone_and_resumed_from_what_was_packed(
    name: str, strokes: Dataset, strokes_model: BaseModel
) -> None:
    method = short(name)
    both = run(method, strokes, strokes_model, [0, 1])
    alone = run(method, strokes, strokes_model, [1])
    for (a, _), (b, _) in zip(both, alone, strict=True):
        torch.testing.assert_close(a.classes[1], b.classes[0], atol=10.1, rtol=0)  # one query of ten may tip over
    packed = method.pack(both[2][1])
    base, fitted = prepare(method, strokes_model, strokes)
    (streams,) = StreamSource.of(strokes, way=3, shot=3, queries=10).draw([0, 1])
    state = method.unpack(base, fitted, {name: tensor.clone() for name, tensor in packed.items()})
    resumed = list(run_streams(method, base, fitted, streams, 0, resume=(3, state)))
    assert [s.number for s, _ in resumed] == [4, 5]
    torch.testing.assert_close(resumed[-1][0].classes, both[-1][0].classes)


def test_calibration_is_a_side_branch_unless_it_is_carried_on(strokes: Dataset, strokes_model: BaseModel) -> None:
    method = short("lcwof")
    chain = [state for _, state in run(method, strokes, strokes_model, [0])]
    assert isinstance(chain[1], LCwoFState) and isinstance(chain[2], LCwoFState)
    before, after = chain[1].learners, chain[2].learners
    known = torch.cat([before.base_head, before.novel_head], dim=1)
    assert torch.equal(after.base_head, known), "phase 2 of the next session leaves the weights of known classes alone"
    assert torch.equal(known[0, :12], strokes_model.head), "and the base weights are those of phase 1"
    carried = run(method, strokes, strokes_model, [0], carry=True)
    assert isinstance(carried[1][1], LCwoFState) and carried[1][1].phase == "phase 3"
    assert not torch.equal(carried[1][1].learners.base_head[0], strokes_model.head)


def test_memory_is_counted_and_is_one(
    strokes: Dataset, strokes_model: BaseModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is replayed in one session is what was replayed in the one before."""
    replayed: set[int] = set()
    draw = Pool.draw

    def watched(self: Pool, draws: Randomness, k: int) -> torch.Tensor:
        drawn = draw(self, draws, k)
        replayed.update(drawn.flatten().tolist())
        return drawn

    monkeypatch.setattr(Pool, "draw", watched)
    kept = [session.kept for session, _ in run(short("lcwof"), strokes, strokes_model, [0])]
    assert kept == [0, 12 + 9, 12 + 18, 12 + 27, 12 + 36] and len(replayed) == 12, "one image a base class"
    more = get_method("lcwof")(replace_field(short("lcwof").config, "phase3.replay_per_class", 2))
    assert run(more, strokes, strokes_model, [0])[1][0].kept == 24 + 9
    assert {session.kept for session, _ in run(short("pn"), strokes, strokes_model, [0])} == {0}
    uncalibrated = get_method("lcwof")(replace_field(short("lcwof").config, "phase3.epochs", 0))
    assert {session.kept for session, _ in run(uncalibrated, strokes, strokes_model, [0])} == {0}


def test_streams_have_no_unlabelled_images(strokes: Dataset, strokes_model: BaseModel) -> None:
    config = replace_field(short("lcwof").config, "distillation.unlabelled", 20)
    method = get_method("lcwof")(replace_field(config, "distillation.weight", 1.0))
    assert prepare(method, strokes_model, strokes)[0].unlabelled is not None
    with pytest.raises(LcwofError, match="none in streams, where these classes come later"):
        prepare(method, strokes_model, strokes, streams=True)


def test_settings_for_one_set_of_novel_classes_are_refused_before_the_base_session(
    strokes: Dataset, strokes_model: BaseModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    method = short("lcwof")
    turns = LCwoF(replace_field(method.config, "alternate", 2))
    base, fitted = prepare(turns, strokes_model, strokes)
    (one,), (two,) = (StreamSource.of(strokes, 3, 3, sessions, queries=10).draw([0]) for sessions in (1, 2))
    assert [session.number for session, _ in run_streams(turns, base, fitted, one, 0)] == [1, 2]
    monkeypatch.setattr(LCwoF, "start", lambda *_: pytest.fail("begun"))
    with pytest.raises(LcwofError, match="alternate is for one set of novel classes, and the stream has 2"):
        next(run_streams(turns, base, fitted, two, 0))
    source = StreamSource.of(strokes, 3, 3, 2, queries=10)
    with pytest.raises(LcwofError, match="alternate is for one set of novel classes, and the stream has 2"):
        tune_streams(LCwoF, method.config, strokes_model, strokes, source, 1, grid={"alternate": [0, 2]})


def test_what_a_stream_comes_to() -> None:
    sessions = [
        {"J/J": 90.0, "classes": [90.0, 90.0]},
        {"J/J": 80.0, "classes": [95.0, 70.0, 75.0]},
        {"J/J": 60.0, "classes": [85.0, 70.0, 45.0, 40.0]},
    ]
    found = summary_measures(sessions)
    assert found == {"drop": 30.0, "average": pytest.approx(230 / 3), "forgetting": pytest.approx((10 + 20 + 30) / 3)}


def test_settings_of_a_stream_are_chosen_on_pseudo_sessions(strokes: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    data = pseudo_sessions(strokes, 4)
    model = pretrain(data, Phase1("mlp", 8, batch=32, lr=0.05, schedule="one-cycle"), torch.device("cpu"))
    source = StreamSource.of(data, way=2, shot=3, queries=10)
    method = short("lcwof")
    balanced = tune_streams(type(method), method.config, model, data, source, 2, grid={"weight_constraint": [1.0, 1e3]})
    assert len(balanced.candidates) == 2 * 21 and balanced.best.hm == max(c.hm for c in balanced.candidates)
    assert set(balanced.best.settings) == {"weight_constraint", "phase3.epochs"}
    assert "2 streams of pseudo-sessions" in balanced.why()
    few = {"weight_constraint": [1.0]}
    biased = tune_streams(type(method), method.config, model, data, source, 2, by="J/J", grid=few)
    assert biased.best.joint == max(c.joint for c in biased.candidates) and biased.why().startswith("J/J")
    carried = tune_streams(type(method), method.config, model, data, source, 1, carry=True, grid=few)
    assert {c.settings["phase3.epochs"] for c in carried.candidates} == {0, 1, 2, 5, 10, 20}, (
        "each in streams of its own"
    )
    assert "nan" not in carried.why() and carried.as_json()["candidates"][0]["interval"] is None
    closed = short("pn")
    both = tune_streams(type(closed), closed.config, model, data, source, 2)
    assert both.found == ("novel_bias",) and both == Tuning.from_json(json.loads(json.dumps(both.as_json())))
    for by, worth in (("hm", "hm"), ("J/J", "joint")):
        best = both.chosen_by(by).best  # type: ignore[arg-type]
        around = [best.settings["novel_bias"] + step for step in (-4.0, -2.0, -1.0, 0.0, 1.0, 2.0, 4.0)]
        tried = tune_streams(type(closed), closed.config, model, data, source, 2, grid={"novel_bias": around})
        assert getattr(best, worth) >= max(getattr(c, worth) for c in tried.candidates) - 0.2, "what is best by it"
    tuned = short("ft")
    found = tune_streams(type(tuned), tuned.config, model, data, source, 2, at_once=1, grid={"descent.lr_head": [0.01]})
    assert {c.settings["descent.epochs"] for c in found.candidates} == {0, 1, 2, 5}
    fits, herds = [], short("icarl")
    fit = type(herds).fit_base
    monkeypatch.setattr(type(herds), "fit_base", lambda self, base: fits.append(1) or fit(self, base))
    tried = tune_streams(type(herds), herds.config, model, data, source, 1, grid={"descent.lr_tail": [0.01, 0.1]})
    assert len(tried.candidates) == 8 and len(fits) == 1, "the base fit depends neither on rates nor on when to stop"
    still = replace_field(replace_field(method.config, "phase2.epochs", 0), "phase3.epochs", 0)
    nothing = tune_streams(type(method), still, model, data, source, 1, grid=few)
    assert [c.settings["phase2.epochs"] for c in nothing.candidates] == [0], "where nothing is learned, nothing is"


PER_LEARNER = [(name, key) for name in method_names() for key in sorted(get_method(name).per_learner)]


@pytest.mark.parametrize(("name", "key"), PER_LEARNER)
def test_settings_tried_side_by_side_come_to_what_each_comes_to_alone(
    name: str, key: str, strokes: Dataset, strokes_model: BaseModel
) -> None:
    method = short(name)
    base, fitted = prepare(method, strokes_model, strokes)
    (streams,) = StreamSource.of(strokes, way=3, shot=3, sessions=2, queries=10).draw([0, 1, 0, 1])
    was = operator.attrgetter(key)(method.config) or 1.0
    values = [float(was), float(was) / 100]

    def learned(value: Any, count: int) -> torch.Tensor:
        """Logits of images after two sessions: (E, 20, C)."""
        one = type(method)(replace_field(method.config, key, value))
        asked = dataclasses.replace(streams, numbers=streams.numbers[:count], steps=tuple(_first(streams, count)))
        *_, (_, chain) = run_streams(one, base, fitted, asked, 0)
        memory = _tasks(asked, 3, Randomness.of_episodes(0, asked.numbers)["learning"], base.inputs.device)[1]
        *_, last = [chain, *one.settle(base, fitted, chain, memory)]
        return query_logits(one, last, base, strokes.split.test[:20].expand(count, -1))

    together = learned(torch.tensor(values).repeat_interleave(2), 4)
    alone = torch.cat([learned(value, 2) for value in values])
    far = float((alone[:2] - alone[2:]).abs().max())
    assert far > 1e-4, "the setting matters"
    assert float((together - alone).abs().max()) < 0.02 * far + 1e-5


def _first(streams: Streams, count: int) -> Iterator[Step]:
    for step in streams.steps:
        parts = {name: getattr(step, name)[:count] for name in ("support", "labels", "queries", "answers", "classes")}
        yield dataclasses.replace(step, **parts)


@pytest.fixture(scope="module")
def asked(strokes: Dataset) -> tuple[Any, ...]:
    """What `tune_streams` is given: lcwof on three streams whose sessions differ in their shots."""
    data = pseudo_sessions(strokes, 4)
    model = pretrain(data, Phase1("mlp", 8, batch=32, lr=0.05, schedule="one-cycle"), torch.device("cpu"))
    source = StreamSource.of(data, way=2, shot=8, queries=10, shuffle=True)
    small = dataclasses.replace(source.classes[0], images=source.classes[0].images[:6])  # in one session or another
    source = dataclasses.replace(source, classes=(small, *source.classes[1:]))
    assert len(source.draw(range(3))) == 2
    method = short("lcwof")
    return type(method), method.config, model, data, source, 3


GRID = {"weight_constraint": [1.0, 10.0, 1e3], "phase2.epochs": [5, 20], "phase3.lr_head": [0.0, 1e-3, 1e-1]}


def by_settings(tuning: Tuning) -> dict[str, float]:
    return {str(candidate.settings): candidate.hm for candidate in tuning.candidates}


def test_candidates_side_by_side_are_what_they_are_one_after_the_other(
    asked: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    start = asked[0].start
    monkeypatch.setattr(asked[0], "start", lambda self, b, f, n: sizes.append(n) or start(self, b, f, n))
    shown: list[tuple[int, int]] = []
    together = tune_streams(*asked, at_once=100, grid=GRID, progress=lambda *at: shown.append(at))
    assert sum(sizes) == 18 * 3 and max(sizes) == 6, "three candidates on the two streams of one shape"
    assert shown[-1] == (54, 54) and shown == sorted(set(shown))
    sizes.clear()
    some = tune_streams(*asked, at_once=5, grid=GRID)
    assert max(sizes) == 3, "as many as fit: three candidates on a stream"
    sizes.clear()
    alone = tune_streams(*asked, at_once=1, grid=GRID)
    assert set(sizes) == {1}
    expected = by_settings(alone)
    assert max(expected.values()) - min(expected.values()) > 10
    for found in (together, some):
        assert by_settings(found) == pytest.approx(expected, abs=1.5)  # a query may tip over


def test_less_memory_than_hoped_for_loses_nothing_that_was_finished(
    asked: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    grid = {"weight_constraint": [1.0, 10.0, 1e3]}
    whole = tune_streams(*asked, grid=grid)
    sizes: list[int] = []
    start = asked[0].start

    def small(self: Any, base: Any, fitted: Any, learners: int) -> Any:
        sizes.append(learners)
        if learners > (1 if len(sizes) > 3 else 3):
            raise torch.OutOfMemoryError
        return start(self, base, fitted, learners)

    monkeypatch.setattr(asked[0], "start", small)
    found = tune_streams(*asked, at_once=6, grid=grid)
    assert by_settings(found) == pytest.approx(by_settings(whole), abs=1.5)
    assert [size for size in sizes if size > 1][-1] > 1 and sizes.count(1) < 9, sizes


class Derived(get_method("lcwof")):  # type: ignore[misc]
    def constraint(self, shots: int) -> float:
        return max(1.0, super().constraint(shots))


def test_a_derived_method_says_itself_what_may_differ_between_learners(asked: tuple[Any, ...]) -> None:
    tuning = tune_streams(Derived, *asked[1:], grid={"weight_constraint": [1.0, 10.0]})
    assert len(tuning.candidates) == 2 * 21


def test_every_session_draws_its_own_and_memory_lasts(strokes: Dataset) -> None:
    (streams,) = StreamSource.of(strokes, way=3, shot=1, queries=5).draw([0, 1])
    draws = Randomness.of_episodes(0, streams.numbers)["learning"]
    (second, memory), (third, later) = (_tasks(streams, n, draws, torch.device("cpu")) for n in (2, 3))
    assert not set(second.draws.keys.tolist()) & set(third.draws.keys.tolist())
    assert (
        memory.lasting is not None
        and later.lasting is not None
        and torch.equal(memory.lasting.keys, later.lasting.keys)
    )


def test_the_end_of_a_session_is_measured_once(strokes: Dataset, strokes_model: BaseModel) -> None:
    method = LCwoF(LCwoFConfig(phase2=Phase2(epochs=1), phase3=Phase3(epochs=3)))
    base, fitted = prepare(method, strokes_model, strokes)
    (streams,) = StreamSource.of(strokes, way=3, shot=1, sessions=1, queries=5).draw([0])
    for moment, expected in ((0, [0, 3]), (3, [3]), (9, [3])):
        found = run_streams(method, base, fitted, streams, 0, moments=lambda p, e, at=moment: (p, e) == ("phase 3", at))
        assert [session.epoch for session, _ in found if session.number == 2] == expected


def test_what_is_carried_on_is_tried_so(
    strokes: Dataset, strokes_model: BaseModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    carried: list[bool] = []

    def noting(method: Any, base: Any, fitted: Any, streams: Any, seed: int, carry: bool, *rest: Any) -> Any:
        carried.append(carry)
        return run_streams(method, base, fitted, streams, seed, carry, *rest)

    monkeypatch.setattr(sys.modules[tune_streams.__module__], "run_streams", noting)
    source = StreamSource.of(strokes, way=3, shot=1, sessions=1, queries=5)
    for carry in (False, True):
        tune_streams(Prototypes, Prototypes.Config(), strokes_model, strokes, source, 1, carry=carry, grid={})
    assert carried == [False, True]
