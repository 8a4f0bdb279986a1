"""The choice of settings on validation classes."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import pytest
import torch
from torch import Tensor

from lcwof.compute import Compute
from lcwof.data import Dataset
from lcwof.data.episodes import EpisodeSource
from lcwof.errors import Diverged
from lcwof.evaluation import MEASURES, gfsl, prepare, run_episodes, tune
from lcwof.evaluation.candidates import Candidate, Tried, Tuning, _best_bias, _values, candidates_of
from lcwof.evaluation.metrics import Margins
from lcwof.evaluation.tune import stops
from lcwof.learning import Inputs, Phase2, Phase3
from lcwof.methods import BEST, Method
from lcwof.methods.lcwof import LCwoF, LCwoFConfig
from lcwof.methods.pn import Prototypes, PrototypesConfig
from lcwof.models import BaseModel

SHORT = LCwoFConfig(
    weight_constraint=10.0, phase2=Phase2(epochs=40), phase3=Phase3(epochs=60, lr_head=1e-2, lr_tail=1e-3)
)


def test_tuning_reads_no_novel_class_and_no_test_image(
    strokes: Dataset, strokes_model: BaseModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: set[int] = set()
    plain, augmented = Inputs.plain, Inputs.augmented

    def watch(self: Inputs, index: Tensor, *rest: object) -> Tensor:
        seen.update(index.flatten().tolist())
        return (augmented if rest else plain)(self, index, *rest)  # type: ignore[operator]

    monkeypatch.setattr(Inputs, "plain", watch)
    monkeypatch.setattr(Inputs, "augmented", watch)
    config = LCwoFConfig(phase2=Phase2(epochs=2), phase3=Phase3(epochs=2))
    tune(LCwoF, config, strokes_model, strokes, way=3, shot=1, episodes=2)
    tune(Prototypes, PrototypesConfig(), strokes_model, strokes, way=3, shot=1, episodes=2)
    forbidden = set(torch.cat(strokes.images.of_classes(strokes.split.novel)).tolist())
    forbidden |= set(strokes.split.test.tolist())
    assert seen and not seen & forbidden


@pytest.mark.parametrize(("enough", "of_a_class"), [(24, 2), (25, 3), (10_000, None)])
def test_tuning_asks_as_many_base_queries_as_tell_enough(
    strokes: Dataset, strokes_model: BaseModel, monkeypatch: pytest.MonkeyPatch, enough: int, of_a_class: int | None
) -> None:
    asked: list[EpisodeSource] = []

    def noting(method: Method, base: Any, fitted: Any, source: EpisodeSource, *rest: Any) -> Iterator[Any]:
        asked.append(source)
        return run_episodes(method, base, fitted, source, *rest)

    module = sys.modules[tune.__module__]
    monkeypatch.setattr(module, "run_episodes", noting)
    monkeypatch.setattr(gfsl, "_BASE_QUERIES", enough)
    tune(Prototypes, PrototypesConfig(), strokes_model, strokes, way=3, shot=1, episodes=2)
    all_there_are = EpisodeSource.of(strokes, "val", 3, 1)
    assert len(strokes.split.base) == 12
    assert {source.base_queries for source in asked} == {of_a_class or all_there_are.base_queries}
    assert {source.queries for source in asked} == {all_there_are.queries}


@pytest.mark.parametrize(("compiled", "sizes"), [(False, [5, 2]), (True, [25, 12, 6, 3, 1])])
def test_tuning_goes_on_with_fewer_at_once_when_memory_runs_out(
    strokes: Dataset, strokes_model: BaseModel, monkeypatch: pytest.MonkeyPatch, compiled: bool, sizes: list[int]
) -> None:
    """Compiled, learners are filled up to 25, and it is these that take memory."""
    whole = tune(Prototypes, PrototypesConfig(), strokes_model, strokes, way=3, shot=1, episodes=5)
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    learn, seen = Prototypes.learn, list[int]()

    def small(self: Prototypes, base: Any, fitted: Any, task: Any) -> Any:
        seen.append(len(task.support))
        if len(task.support) > 2:
            raise torch.OutOfMemoryError
        return learn(self, base, fitted, task)

    monkeypatch.setattr(Prototypes, "learn", small)
    how = Compute(torch.device("cpu"), compiled=compiled)
    found = tune(Prototypes, PrototypesConfig(), strokes_model, strokes, way=3, shot=1, episodes=5, compute=how)
    assert list(dict.fromkeys(seen))[: len(sizes)] == sizes
    assert [c.settings for c in found.candidates] == [c.settings for c in whole.candidates]
    assert [c.hm for c in found.candidates] == pytest.approx([c.hm for c in whole.candidates])


def test_compiled_steps_have_as_many_learners_as_the_test_whatever_is_left_to_try(
    strokes: Dataset, strokes_model: BaseModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = LCwoFConfig(phase2=Phase2(epochs=5), phase3=Phase3(epochs=5))
    grid = {"weight_constraint": [1.0, 10.0, 1e3]}
    asked = (LCwoF, config, strokes_model, strokes, 3, 1, 5, 8)
    plain = tune(*asked, grid=grid)
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    sizes: list[int] = []
    start = LCwoF.start
    monkeypatch.setattr(LCwoF, "start", lambda self, b, f, n: sizes.append(n) or start(self, b, f, n))
    filled = tune(*asked, grid=grid, compute=Compute(torch.device("cpu"), compiled=True, parts=True))
    assert sizes == [8] * 3, "three candidates on two of five episodes, filled up to eight: compiled once for all"
    hm = [{str(c.settings): c.hm for c in tuning.candidates} for tuning in (filled, plain)]
    assert hm[0] == pytest.approx(hm[1], abs=1.0)


@pytest.mark.parametrize(
    ("values", "compiled", "sizes"),
    [
        (4, True, [10] * 4),  # two candidates on five episodes, twice: all four on two would take five times
        (3, True, [10] * 3),  # two candidates, then one on all ten
        (2, True, [10] * 2),
        (4, False, [8] * 5),
    ],
)
def test_learners_are_not_filled_up_where_fewer_candidates_side_by_side_fill_them(
    strokes: Dataset,
    strokes_model: BaseModel,
    monkeypatch: pytest.MonkeyPatch,
    values: int,
    compiled: bool,
    sizes: list[int],
) -> None:
    config = LCwoFConfig(phase2=Phase2(epochs=1), phase3=Phase3(epochs=1))
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    seen: list[int] = []
    start = LCwoF.start
    monkeypatch.setattr(LCwoF, "start", lambda self, b, f, n: seen.append(n) or start(self, b, f, n))
    grid = {"weight_constraint": [1.0, 10.0, 100.0, 1e3][:values]}
    how = Compute(torch.device("cpu"), compiled=compiled, parts=compiled)
    found = tune(LCwoF, config, strokes_model, strokes, 3, 1, 10, 10, grid=grid, compute=how)
    assert seen == sizes
    assert {c.settings["weight_constraint"] for c in found.candidates} == set(grid["weight_constraint"])


def test_a_grid_may_vary_what_the_base_fit_depends_on(strokes: Dataset, strokes_model: BaseModel) -> None:
    config = LCwoFConfig(phase2=Phase2(epochs=0), phase3=Phase3(epochs=0), start="mean")
    in_grids: list[tuple[type[Method], Any, dict[str, list[Any]]]] = [
        (LCwoF, config, {"head": ["linear", "cosine"]}),
        (LCwoF, config, {"adapt": [1, 2]}),
        (Prototypes, PrototypesConfig(meta_lr=0.01), {"meta_steps": [0, 2, 20]}),
    ]
    for kind, settings, grid in in_grids:
        together = tune(kind, settings, strokes_model, strokes, way=3, shot=1, episodes=4, grid=grid)
        assert len({candidate.hm for candidate in together.candidates}) > 1 or "adapt" in grid
        for candidate in together.candidates:
            alone = {name: [candidate.settings[name]] for name in grid}
            again = tune(kind, settings, strokes_model, strokes, way=3, shot=1, episodes=4, grid=alone)
            assert again.best == candidate


def test_settings_that_diverge_are_left_out_of_a_choice(strokes: Dataset, strokes_model: BaseModel) -> None:
    config = LCwoFConfig(phase2=Phase2(epochs=2), phase3=Phase3(epochs=0))
    asked = (LCwoF, config, strokes_model, strokes, 3, 1, 4)
    rates = {"weight_constraint": [0.0], "phase2.lr_head": [1e-2, 1e38, 1e-3]}
    kept = Kept()
    shown: list[tuple[int, int]] = []
    found = tune(*asked, grid=rates, known=kept, progress=lambda done, total: shown.append((done, total)))
    alone = tune(*asked, grid={**rates, "phase2.lr_head": [1e-2, 1e-3]})
    assert found.candidates == alone.candidates and not alone.diverged
    assert found.diverged == ({"weight_constraint": 0.0, "phase2.lr_head": 1e38},)
    assert found.why().endswith("1 more diverged") and shown[-1] == (12, 12)
    assert Tuning.from_json(json.loads(json.dumps(found.as_json()))) == found
    assert tune(*asked, grid=rates, known=kept) == found, "an interrupted choice remembers what diverged"
    with pytest.raises(Diverged, match=r"phase 2, epoch 2, .*the loss is not a number"):
        tune(*asked, grid={**rates, "phase2.lr_head": [1e37, 1e38]})


class Kept(Tried):
    def __init__(self) -> None:
        self.known: dict[str, list[Candidate]] = {}

    def get(self, settings: dict[str, Any]) -> list[Candidate] | None:
        return self.known.get(str(settings))

    def add(self, settings: dict[str, Any], candidates: list[Candidate]) -> None:
        self.known[str(settings)] = candidates


def test_tuning_chooses_the_best_and_stopping_early_is_the_shorter_run(
    strokes: Dataset, strokes_model: BaseModel
) -> None:
    tuning = tune(LCwoF, SHORT, strokes_model, strokes, way=3, shot=1, episodes=6, at_once=4)
    assert len(tuning.candidates) == prod(map(len, LCwoF.grid.values())) * len(stops(60))
    assert [c.hm for c in tuning.candidates] == sorted((c.hm for c in tuning.candidates), reverse=True)
    assert "6 validation episodes" in tuning.why()
    chosen = tuning.apply(SHORT)
    assert chosen.phase3.epochs == tuning.best.settings["phase3.epochs"]
    method = LCwoF(chosen)
    base, fitted = prepare(method, strokes_model, strokes)
    source = EpisodeSource.of(strokes, "val", 3, 1, seed=1_000_000)
    *_, last = run_episodes(method, base, fitted, source, range(6))
    assert float(last.values[:, MEASURES.index("hm")].mean()) == pytest.approx(tuning.best.hm, abs=1.0)


def test_the_best_bias_is_found_without_learning_again(strokes: Dataset, strokes_model: BaseModel) -> None:
    asked = {"model": strokes_model, "data": strokes, "way": 3, "shot": 1, "episodes": 6}
    settings = PrototypesConfig(novel_bias=-50.0)  # what a recipe says of it has no say here
    tuning = tune(Prototypes, settings, grid={"novel_bias": [BEST]}, **asked)
    assert len(tuning.candidates) == 1 and tuning.found == ("novel_bias",) and not tuning.at_edge()
    found = tuning.best.settings["novel_bias"]
    around = sorted({found, *torch.linspace(-100, 200, 61).tolist()})
    one_by_one = tune(Prototypes, PrototypesConfig(), grid={"novel_bias": around}, **asked)
    again = {c.settings["novel_bias"]: c.hm for c in one_by_one.candidates}
    assert again[found] == pytest.approx(tuning.best.hm, abs=1e-4), "with the bias in the logits it is the same"
    assert one_by_one.best.hm <= tuning.best.hm + 0.5
    assert again[min(around)] < tuning.best.hm - 5 and again[max(around)] < tuning.best.hm - 5


def test_stops_go_from_none_to_the_longest() -> None:
    assert stops(200) == list(range(0, 201, 10))
    assert stops(7) == [0, 1, 2, 3, 4, 5, 6, 7]


def test_a_choice_at_the_edge_of_what_was_tried_is_told() -> None:
    def tuning(*settings: dict[str, object]) -> Tuning:
        return Tuning("m", "5w1s", "2 episodes", tuple(Candidate(s, 50.0, 1.0, 1.0, 1.0, 1.0) for s in settings))

    assert tuning({"a": 3, "b": 2, "c": "x"}, {"a": 1, "b": 1, "c": "y"}, {"a": 2, "b": 3, "c": "x"}).at_edge() == ["a"]
    assert tuning({"a": 3}).at_edge() == [], "a single value has no edge"
    assert tuning({"a": 3}, {"a": 1}, {"a": 2}).why().endswith("at the edge of what was tried: a")
    found = tuning({"novel_bias": 3.0}, {"novel_bias": 1.0}, {"novel_bias": 2.0})
    assert found.at_edge() == ["novel_bias"]
    assert replace(found, found=("novel_bias",)).at_edge() == [], "what was found was not tried up to an edge"


@pytest.mark.parametrize(("centre", "width"), [(0.0, 1.0), (1004.6, 1.0), (54.55, 0.1), (-3e-4, 1e-5)])
def test_the_best_bias_is_fine_enough_wherever_the_margins_lie(centre: float, width: float) -> None:
    random = torch.Generator().manual_seed(0)
    novel = centre + width * (torch.randn(4, 50, generator=random, dtype=torch.double) - 1)
    base = centre + width * (torch.randn(4, 80, generator=random, dtype=torch.double) + 1)
    groups = [[(torch.zeros(4, len(MEASURES), dtype=torch.double), Margins(novel, base))]]

    def worth(bias: float) -> float:
        return float(_values(groups, bias)[:, MEASURES.index("hm")].mean())

    attainable = max(map(worth, novel.flatten().tolist()))
    assert worth(_best_bias(groups, "hm")) > attainable - 0.5 and attainable > 70
    wide = [[(groups[0][0][0], Margins(novel - centre - 1e3, base - centre + 1e3))]]  # any bias near 0 will do
    assert _best_bias(wide, "hm") == 0.0


def test_only_a_bias_can_be_asked_to_be_the_best(strokes: Dataset, strokes_model: BaseModel) -> None:
    @dataclass(frozen=True)
    class Picky(PrototypesConfig):
        pick: str = "mean"

    class Picking(Prototypes):
        Config = Picky

        def start(self, *args: Any) -> Any:
            assert self.config.pick in ("best", "mean")  # type: ignore[attr-defined]
            return super().start(*args)

    Picking.name = "picking"
    asked = {"way": 2, "shot": 1, "episodes": 2, "grid": {"pick": ["best", "mean"]}}
    tuning = tune(Picking, Picky(), strokes_model, strokes, **asked)  # type: ignore[arg-type]
    assert {c.settings["pick"] for c in tuning.candidates} == {"best", "mean"} and not tuning.found


def test_a_candidate_has_the_means_of_its_own_measures() -> None:
    values = torch.tensor([[10.0 * (at + 1) for at in range(len(MEASURES))]] * 2)
    found = Candidate.of({}, values)
    assert (found.novel, found.base, found.joint, found.hm) == (30.0, 40.0, 50.0, 60.0)


def test_a_learner_tested_in_several_sessions_counts_with_their_mean() -> None:
    """With a bias of 1 the novel sample of the first test is right, and the base sample of the second."""
    tests = [
        (torch.full((1, len(MEASURES)), value), Margins(torch.tensor([[margin]]), torch.tensor([[margin]])))
        for value, margin in ((40.0, 0.0), (60.0, 5.0))
    ]
    assert _values([tests]).tolist() == [[50.0] * len(MEASURES)]
    found = dict(zip(MEASURES, _values([tests], 1.0)[0].tolist(), strict=True))
    assert found["N/J"] == found["B/J"] == 50.0


def test_none_of_a_setting_is_no_edge() -> None:
    tried = tuple(Candidate({"a": value}, 50.0, 1.0, 1.0, 1.0, 1.0) for value in (0, 1, 2))
    assert Tuning("m", "5w1s", "2 episodes", tried).at_edge() == [], "there is nothing below"


def test_each_measure_has_the_bias_that_is_best_by_it() -> None:
    """One novel query beside nine base ones: J/J would rather have all base queries right."""
    base = torch.tensor([[0.0, 1.0, 2.0, 6.0, 6.0, 6.0, 6.0, 6.0, 6.0]])
    tests = [(torch.zeros(1, len(MEASURES)), Margins(torch.tensor([[4.0]]), base))]
    found = list(candidates_of({"novel_bias": BEST}, "", {0: [tests]}, ("hm", "J/J")))
    assert len(found) == 2
    by_joint = max(found, key=lambda c: c.joint)
    assert (by_joint.base, by_joint.joint) == (100.0, 90.0) and max(c.hm for c in found) > 0 == by_joint.hm


def test_an_empty_grid_tries_only_when_to_stop(strokes: Dataset, strokes_model: BaseModel) -> None:
    config = LCwoFConfig(phase2=Phase2(epochs=1), phase3=Phase3(epochs=3))
    found = tune(LCwoF, config, strokes_model, strokes, way=3, shot=1, episodes=2, grid={})
    assert sorted(c.settings["phase3.epochs"] for c in found.candidates) == [0, 1, 2, 3]
    assert {tuple(c.settings) for c in found.candidates} == {("phase3.epochs",)}
