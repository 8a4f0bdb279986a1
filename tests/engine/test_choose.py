"""Choosing settings, from a recipe: an interrupted choice goes on with what was not tried yet."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from lcwof.compute import Compute
from lcwof.data import Dataset
from lcwof.data.images import Session
from lcwof.engine import Recipe, choose, choose_stream, read_recipe, write_choice
from lcwof.engine.choose import _at_once, what_is_asked
from lcwof.engine.recipe import Evaluate
from lcwof.errors import LcwofError
from lcwof.methods import get_method
from lcwof.methods.lcwof import LCwoF, LCwoFConfig
from lcwof.models import BaseModel
from lcwof.models.checkpoint import unfinished


@pytest.fixture
def recipe() -> Recipe:
    options = {"data.name": "digits", "method.name": "ft", "evaluate.way": 2, "evaluate.shot": 1, "tune.episodes": 2}
    few = ["method.descent.epochs=4", "tune.grid.adapt=[1, 2]", "tune.grid.descent.lr_head=[0.01, 0.1]"]
    return read_recipe([], {**options, "device": "cpu", "precision": "float32"}, few)


@pytest.fixture
def learned(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """For each learning, how many stages adapt and how many learners there are."""
    found: list[tuple[int, int]] = []
    kind = get_method("ft")
    start = kind.start

    def watched(self: Any, base: Any, fitted: Any, learners: int) -> Any:
        found.append((self.adapt, learners))
        return start(self, base, fitted, learners)

    monkeypatch.setattr(kind, "start", watched)
    return found


def interrupted(done: int, total: int) -> None:
    if 2 * done > total:
        raise KeyboardInterrupt


def test_an_interrupted_choice_goes_on(
    recipe: Recipe, digits: Dataset, digits_model: BaseModel, tmp_path: Path, learned: list[tuple[int, int]]
) -> None:
    out = tmp_path / "tuned.toml"
    whole, _ = choose(recipe, digits_model, digits)
    assert learned == [(1, 4), (2, 4)], "two rates side by side, two episodes each"
    learned.clear()
    with pytest.raises(KeyboardInterrupt):
        choose(recipe, digits_model, digits, interrupted, kept_in=unfinished(out))
    assert learned == [(1, 4), (2, 4)] and unfinished(out).exists()
    learned.clear()
    shown: list[tuple[int, int]] = []
    tuning, chosen = choose(recipe, digits_model, digits, lambda *at: shown.append(at), kept_in=unfinished(out))
    assert learned == [(2, 4)] and shown == [(4, 8), (8, 8)], "learners, of all there are to be"
    assert tuning == whole
    write_choice(tuning, chosen, out)
    assert [file.name for file in sorted(tmp_path.iterdir())] == ["tuned.json", "tuned.toml"]


def test_what_was_tried_for_another_choice_is_not_taken(
    recipe: Recipe, digits: Dataset, digits_model: BaseModel, tmp_path: Path, learned: list[tuple[int, int]]
) -> None:
    more = dataclasses.replace(recipe, tune=dataclasses.replace(recipe.tune, episodes=3))
    other = dataclasses.replace(digits_model, about={**digits_model.about, "epoch": -1})
    rounded = dataclasses.replace(recipe, precision="bfloat16")
    for asked, model in ((more, digits_model), (recipe, other), (rounded, digits_model)):
        with pytest.raises(KeyboardInterrupt):
            choose(recipe, digits_model, digits, interrupted, kept_in=tmp_path / "t.partial")
        learned.clear()
        choose(asked, model, digits, kept_in=tmp_path / "t.partial")
        assert [adapt for adapt, _ in learned] == [1, 2]
        (tmp_path / "t.partial").unlink()


def test_an_interrupted_choice_for_streams_goes_on_for_either_outcome(
    recipe: Recipe, digits: Dataset, digits_model: BaseModel, tmp_path: Path, learned: list[tuple[int, int]]
) -> None:
    stream = dataclasses.replace(recipe.stream, way=1, shot=3)
    tune = dataclasses.replace(recipe.tune, streams=2)
    recipe = dataclasses.replace(recipe, stream=stream, tune=tune, data=dataclasses.replace(recipe.data, pseudo=2))
    model = dataclasses.replace(digits_model, head=digits_model.head[:4], classes=digits_model.classes[:4])
    with pytest.raises(KeyboardInterrupt):
        choose_stream(recipe, model, digits, "balanced", interrupted, kept_in=tmp_path / "t.partial")
    before = len(learned)
    whole = choose_stream(recipe, model, digits, "base-biased")[0]
    in_all = len(learned) - before
    resumed = choose_stream(recipe, model, digits, "base-biased", kept_in=tmp_path / "t.partial")[0]
    assert before > 1 and len(learned) - before - in_all == in_all - (before - 1), "all but what was interrupted"
    assert resumed == whole


def test_a_wider_grid_takes_what_was_tried_of_a_narrower_one(
    recipe: Recipe, digits: Dataset, digits_model: BaseModel, tmp_path: Path, learned: list[tuple[int, int]]
) -> None:
    choose(recipe, digits_model, digits, kept_in=tmp_path / "t.partial")
    grid = {**recipe.tune.grid, "adapt": [1, 2, 0]}
    wider = dataclasses.replace(recipe, tune=dataclasses.replace(recipe.tune, grid=grid))
    learned.clear()
    tuning, _ = choose(wider, digits_model, digits, kept_in=tmp_path / "t.partial")
    assert {adapt for adapt, _ in learned} == {0}
    assert {candidate.settings["adapt"] for candidate in tuning.candidates} == {0, 1, 2}


def test_another_file_in_the_way_is_not_taken_for_what_was_tried(
    recipe: Recipe, digits: Dataset, digits_model: BaseModel, tmp_path: Path
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "text").write_text('{"other": 1}')
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    for name in ("folder", "text", "bytes"):
        with pytest.raises(LcwofError, match=f"{name} is in the way"):
            choose(recipe, digits_model, digits, kept_in=tmp_path / name)


def test_what_was_tried_with_other_settings_or_shots_is_not_taken(
    recipe: Recipe, digits: Dataset, digits_model: BaseModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, learned = recipe.kind(), []
    start = kind.start
    monkeypatch.setattr(kind, "start", lambda self, *asked: learned.append(self.adapt) or start(self, *asked))
    slower = dataclasses.replace(recipe, method={"name": "ft", "descent": {"epochs": 4, "momentum": 0.0}})
    shots = dataclasses.replace(recipe, evaluate=dataclasses.replace(recipe.evaluate, shot=3))
    for name, asked in (("slower", slower), ("shots", shots)):
        tuning, _ = choose(recipe, digits_model, digits, kept_in=tmp_path / name)
        learned.clear()
        choose(asked, digits_model, digits, kept_in=tmp_path / name)
        assert learned == [1, 2] and tuning.setting == "2-way 1-shot"


def test_another_grid_is_another_choice(recipe: Recipe, digits_model: BaseModel) -> None:
    grid = {**(recipe.tune.grid or {}), "adapt": [1, 2, 0]}
    wider = dataclasses.replace(recipe, tune=dataclasses.replace(recipe.tune, grid=grid))
    assert what_is_asked(recipe, digits_model, "gfsl") != what_is_asked(wider, digits_model, "gfsl")


def pseudo(model: BaseModel, **options: object) -> tuple[Recipe, BaseModel]:
    """A choice on the last four of twelve base classes, and a model that does not know them."""
    asked = {"data.name": "strokes", "data.pseudo": 4, "stream.shot": 2, "tune.streams": 1, "device": "cpu"}
    return read_recipe([], {**asked, **options}, []), dataclasses.replace(
        model, head=model.head[:8], classes=model.classes[:8]
    )


def test_what_is_carried_on_is_chosen_so(strokes: Dataset, strokes_model: BaseModel) -> None:
    short = {
        "method.phase2.epochs": 1,
        "method.phase3.epochs": 16,
        "stream.way": 2,
        "tune.grid": {"weight_constraint": [1.0]},
    }
    found = {}
    for carry in (False, True):
        tuning, _ = choose_stream(*pseudo(strokes_model, **short, **{"stream.carry": carry}), strokes)
        found[carry] = {each.settings["phase3.epochs"] for each in tuning.candidates}
    assert found == {False: set(range(17)), True: {0, 1, 2, 4, 8, 16}}, "carried on, each in streams of its own"


def test_pseudo_sessions_are_like_the_real_ones(strokes: Dataset, strokes_model: BaseModel) -> None:
    groups = strokes.images.of_classes(strokes.split.val[:2])
    lists = Session(strokes.split.val[:2], tuple(g[:3] for g in groups), tuple(g[30:40] for g in groups))
    listed = dataclasses.replace(strokes, sessions=(lists,))
    bias = {"method.name": "pn", "tune.grid": {"novel_bias": [0.0]}}
    for asked, data in (({"stream.way": 2, "stream.sessions": 9}, strokes), ({"stream.shot": None}, listed)):
        tuning, _ = choose_stream(*pseudo(strokes_model, **bias, **asked), data)
        assert tuning.setting == "2 sessions of 2 classes"


@pytest.mark.parametrize(
    ("compiled", "at_once", "episodes", "expected"),
    [(True, None, 600, 75), (False, None, 600, 83), (True, 40, 20, 20), (True, 40, 100, 34), (False, 40, 20, 40)],
)
def test_a_search_has_as_many_learners_as_a_compiled_test(
    strokes_model: BaseModel,
    monkeypatch: pytest.MonkeyPatch,
    compiled: bool,
    at_once: int | None,
    episodes: int,
    expected: int,
) -> None:
    """Of 83 that fit, 600 episodes make eight batches of 75, of 40 that are asked for 100 make three of 34."""
    asked = Recipe(evaluate=Evaluate(episodes=episodes), at_once=at_once)
    monkeypatch.setattr(sys.modules[_at_once.__module__], "learners_at_once", lambda method, model: 83)
    monkeypatch.setattr(Recipe, "compute", lambda self, method, n: Compute(torch.device("cpu"), compiled=compiled))
    assert _at_once(asked, LCwoF(LCwoFConfig()), strokes_model) == expected
