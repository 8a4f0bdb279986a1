"""The generalized protocol."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

from lcwof.compute import Compute
from lcwof.data import Dataset
from lcwof.data.episodes import EpisodeSource
from lcwof.data.sessions import StreamSource
from lcwof.evaluation import MEASURES, gfsl, prepare, run_episodes
from lcwof.evaluation.gfsl import query_logits
from lcwof.evaluation.ifsl import run_streams
from lcwof.learning import Phase2, Phase3
from lcwof.methods import Task
from lcwof.methods.lcwof import LCwoF, LCwoFConfig
from lcwof.methods.pn import Prototypes, PrototypesConfig
from lcwof.models import BaseModel
from lcwof.randomness import Randomness

SHORT = LCwoFConfig(
    weight_constraint=10.0, phase2=Phase2(epochs=40), phase3=Phase3(epochs=60, lr_head=1e-2, lr_tail=1e-3)
)


def test_the_papers_story(strokes: Dataset, strokes_model: BaseModel) -> None:
    """After phase 2 N/J is high, B/J low and B/B kept; phase 3 gives B/J back and balances."""
    method = LCwoF(SHORT)
    base, fitted = prepare(method, strokes_model, strokes)
    source = EpisodeSource.of(strokes, "novel", 5, 1)
    ends = {("phase 2", 0), ("phase 2", 40), ("phase 3", 60)}
    found = {
        m.phase + str(m.epoch): dict(zip(MEASURES, m.values.mean(0).tolist(), strict=True))
        for m in run_episodes(method, base, fitted, source, range(10), lambda p, e: (p, e) in ends)
    }
    start, middle, end = found["phase 20"], found["phase 240"], found["phase 360"]
    assert middle["N/J"] > start["N/J"] + 30
    assert middle["B/J"] < start["B/J"] - 30
    assert middle["B/B"] > start["B/B"] - 5
    assert end["B/J"] > middle["B/J"] + 20
    assert end["hm"] > middle["hm"] + 10


def test_the_end_is_measured_once(strokes: Dataset, strokes_model: BaseModel) -> None:
    method = LCwoF(LCwoFConfig(phase2=Phase2(epochs=2), phase3=Phase3(epochs=3)))
    base, fitted = prepare(method, strokes_model, strokes)
    source = EpisodeSource.of(strokes, "novel", 2, 1)
    moments = [(m.phase, m.epoch) for m in run_episodes(method, base, fitted, source, [0], lambda p, e: e == 0)]
    assert moments == [("phase 2", 0), ("phase 3", 0), ("phase 3", 3)]
    moments = [(m.phase, m.epoch) for m in run_episodes(method, base, fitted, source, [0], lambda p, e: e == 3)]
    assert moments == [("phase 3", 3)]


def test_mirror_images_of_queries_are_asked_too_where_the_model_says_so(
    strokes: Dataset, strokes_model: BaseModel
) -> None:
    queries = strokes.split.test[:6].view(2, 3)
    method = Prototypes(PrototypesConfig())
    task = EpisodeSource.of(strokes, "novel", 2, 1)
    found = {}
    flipped = dataclasses.replace(strokes.images, pixels=strokes.images.pixels.flip(-1))
    for name, model, data in (
        ("plain", strokes_model, strokes),
        ("flipped", strokes_model, dataclasses.replace(strokes, images=flipped)),
        ("both", dataclasses.replace(strokes_model, mirror=True), strokes),
    ):
        base, fitted = prepare(method, strokes_model, strokes)
        draws = Randomness.of_episodes(0, [0, 1])
        *_, state = method.learn(base, fitted, Task.of_shots(task.draw([0, 1]).support, draws, "cpu"))
        found[name] = query_logits(method, state, prepare(method, model, data)[0], queries)
    torch.testing.assert_close(found["both"], (found["plain"] + found["flipped"]) / 2)
    assert not torch.allclose(found["plain"], found["flipped"])


def test_compiled_learners_are_asked_as_many_queries_at_once_however_many_there_are(
    strokes: Dataset, strokes_model: BaseModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gfsl, "_QUERY_CHUNK", {"cpu": 10})
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    method, seen, original = Prototypes(PrototypesConfig()), list[int](), Prototypes.logits
    monkeypatch.setattr(Prototypes, "logits", lambda s, st, maps: seen.append(maps.shape[1]) or original(s, st, maps))
    for compiled, sizes in ((True, {10}), (False, {9, 8})):  # of 35 four times 9, of 24 three times 8
        base, fitted = prepare(method, strokes_model, strokes, Compute(torch.device("cpu"), compiled=compiled))
        shots = EpisodeSource.of(strokes, "novel", 2, 1).draw([0]).support
        *_, state = method.learn(base, fitted, Task.of_shots(shots, Randomness.of_episodes(0, [0]), "cpu"))
        seen.clear()
        for total in (35, 24):
            assert query_logits(method, state, base, strokes.split.test[None, :total]).shape[1] == total
        assert set(seen) == sizes


def test_a_bias_lifts_few_shot_classes_alone(strokes: Dataset, strokes_model: BaseModel) -> None:
    logits, support = [], EpisodeSource.of(strokes, "novel", 2, 1).draw([0]).support
    for bias in (0.0, 2.5):
        method = Prototypes(PrototypesConfig(novel_bias=bias))
        base, fitted = prepare(method, strokes_model, strokes)
        (state,) = method.learn(base, fitted, Task.of_shots(support, Randomness.of_episodes(0, [0]), "cpu"))
        logits.append(query_logits(method, state, base, strokes.split.test[None, :9]))
    known = len(strokes_model.head)
    torch.testing.assert_close(logits[1][..., :known], logits[0][..., :known])
    torch.testing.assert_close(logits[1][..., known:], logits[0][..., known:] + 2.5)


def test_a_broken_method_is_noticed(strokes: Dataset, strokes_model: BaseModel) -> None:
    class Silent(Prototypes):
        def learn(self, *args: object) -> Iterator[object]:  # type: ignore[override]
            return iter(())

    method = Silent()
    base, fitted = prepare(method, strokes_model, strokes)
    with pytest.raises(AssertionError, match="yielded no state"):
        list(run_episodes(method, base, fitted, EpisodeSource.of(strokes, "novel", 2, 1), [0]))


def test_inputs_serve_again_where_they_are_computed_alike_while_they_are_among_the_last_two_used(
    strokes: Dataset, strokes_model: BaseModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gfsl, "_made", [])
    plain, rounded = (Compute(torch.device("cpu"), dtype) for dtype in (torch.float32, torch.bfloat16))
    asked = [plain, rounded, plain, replace(plain, records=True), plain, rounded]
    found = [prepare(Prototypes(), strokes_model, strokes, how)[0].inputs for how in asked]
    assert [inputs.compute for inputs in found] == asked
    assert found[0] is found[2] is found[4] and found[1] is not found[5]


class Watching(Prototypes):
    """Notes what its learners draw by."""

    seen: list[list[int]]

    def grow(self, base: Any, fitted: Any, before: Any, task: Any) -> Iterator[Any]:
        self.seen.append(task.draws.keys.tolist())
        return super().grow(base, fitted, before, task)


def test_the_seed_decides_what_is_drawn_in_learning(strokes: Dataset, strokes_model: BaseModel) -> None:
    method = Watching()
    base, fitted = prepare(method, strokes_model, strokes)
    (streams,) = StreamSource.of(strokes, way=3, shot=1, queries=5).draw([0, 1])
    for learn in (
        lambda seed: list(
            run_episodes(method, base, fitted, EpisodeSource.of(strokes, "novel", 2, 1, seed=seed), [0, 1])
        ),
        lambda seed: list(run_streams(method, base, fitted, streams, seed)),
    ):
        method.seen = []
        for seed in (0, 5):
            learn(seed)
        half = len(method.seen) // 2
        assert half and not {k for keys in method.seen[:half] for k in keys} & {
            k for keys in method.seen[half:] for k in keys
        }
