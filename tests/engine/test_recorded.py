"""Recorded answers: small, named, whole after an interruption."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from lcwof.data import Dataset
from lcwof.engine import Recipe, Run, evaluate_run, read_recipe
from lcwof.engine.recorded import RecordedAnswers
from lcwof.evaluation import Answers
from lcwof.models import BaseModel
from lcwof.models.checkpoint import load_tensors, save_tensors


def recipe(episodes: int = 9, answers: bool = True, **settings: object) -> Recipe:
    options = {"data.name": "strokes", "method.name": "pn", "evaluate.way": 3, "evaluate.shot": 1, "at_once": 4}
    counts = {"evaluate.episodes": episodes, "evaluate.answers": answers, "device": "cpu"}
    return read_recipe([], {**options, **counts, **settings}, [])


def stop_at(episodes: int):  # type: ignore[no-untyped-def]
    def stop(done: int, total: int) -> None:
        if done == episodes:
            raise KeyboardInterrupt

    return stop


def same(a: RecordedAnswers | None, b: RecordedAnswers | None) -> bool:
    assert a is not None and b is not None
    pairs = zip(dataclasses.astuple(a.given), dataclasses.astuple(b.given), strict=True)
    return a.episodes == b.episodes and a.names == b.names and all(torch.equal(x, y) for x, y in pairs)


def test_novel_classes_have_the_names_of_their_episode() -> None:
    """Joint positions 0 and 1 are the base classes; 2 and 3 are d, c in one episode and c, e in the other."""
    classes, true = torch.tensor([[1, 0], [0, 2]]), torch.tensor([2, 3, 0])
    given = Answers(classes, true, torch.tensor([[2, 1, 3], [3, 3, 0]]), torch.full((2, 3), 0.5))
    recorded = RecordedAnswers(("a", "b"), ("c", "d", "e"), (0, 1), given)
    named = [["".join(recorded.names[i] for i in row) for row in part] for part in recorded.by_name()[:2]]
    assert named == [["dca", "cea"], ["dbc", "eea"]]


def test_every_answer_is_recorded_in_six_bytes_a_query(
    strokes: Dataset, strokes_model: BaseModel, tmp_path: Path
) -> None:
    run = evaluate_run(recipe(), strokes_model, strokes, tmp_path / "r")
    assert run.answers is not None and run.answers.episodes == tuple(range(9))
    assert run.answers.base == strokes.split.base and run.answers.novel == strokes.split.novel
    true, answered, confidence = run.answers.by_name()
    queries = 3 * run.about["queries"]["novel"] + 12 * run.about["queries"]["base"]
    assert true.shape == answered.shape == confidence.shape == (9, queries)
    novel = true >= 12
    for i, row in enumerate(run.rows):
        assert 100 * (true == answered)[i][novel[i]].mean() == pytest.approx(row["N/J"], abs=1e-3)
    bound = run.answers.given.bound
    assert bound is not None
    right = np.where(novel, bound.numpy() < 0, bound.numpy() >= 0)
    assert (right != (true == answered)).mean() < 0.001, "but where half precision makes a tie"
    assert (run.path / "answers.safetensors").stat().st_size < 9 * queries * 6 + 5000


def test_answers_survive_an_interruption(strokes: Dataset, strokes_model: BaseModel, tmp_path: Path) -> None:
    whole = evaluate_run(recipe(), strokes_model, strokes, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        evaluate_run(recipe(), strokes_model, strokes, tmp_path / "cut", progress=stop_at(8))
    partial = tmp_path / "cut.partial"
    assert sorted(p.name for p in partial.glob("answers*")) == [
        "answers-000000.safetensors",
        "answers-000004.safetensors",
    ]
    rows = (partial / "rows.jsonl").read_text().splitlines()
    (partial / "rows.jsonl").write_text("\n".join(rows[:6]) + "\n" + rows[6][:20])  # as a kill leaves it
    again = evaluate_run(recipe(), strokes_model, strokes, tmp_path / "cut")
    assert again.rows == whole.rows and same(again.answers, whole.answers)
    assert [p.name for p in again.path.glob("answers*")] == ["answers.safetensors"]


def test_answers_joined_before_a_kill_are_joined_again(
    strokes: Dataset, strokes_model: BaseModel, tmp_path: Path
) -> None:
    run = evaluate_run(recipe(), strokes_model, strokes, tmp_path / "r")
    whole = evaluate_run(recipe(12), strokes_model, strokes, tmp_path / "whole")
    run.path.rename(tmp_path / "r.partial")  # killed just before its last step, then asked for more
    assert same(evaluate_run(recipe(12), strokes_model, strokes, tmp_path / "r").answers, whole.answers)


def test_a_run_without_answers_goes_on_with_them_for_the_rest(
    strokes: Dataset, strokes_model: BaseModel, tmp_path: Path
) -> None:
    with pytest.raises(KeyboardInterrupt):
        evaluate_run(recipe(answers=False), strokes_model, strokes, tmp_path / "r", progress=stop_at(4))
    about = tmp_path / "r.partial" / "run.json"
    before = json.loads(about.read_text())
    del before["recipe"]["evaluate"]["answers"]  # as runs begun before there were answers
    about.write_text(json.dumps(before))
    run = evaluate_run(recipe(), strokes_model, strokes, tmp_path / "r")
    assert len(run.rows) == 9 and run.answers is not None and run.answers.episodes == (4, 5, 6, 7, 8)


def test_a_run_begun_before_there_were_bounds_goes_on_and_has_none(
    strokes: Dataset, strokes_model: BaseModel, tmp_path: Path
) -> None:
    with pytest.raises(KeyboardInterrupt):
        evaluate_run(recipe(), strokes_model, strokes, tmp_path / "r", progress=stop_at(4))
    (file,) = (tmp_path / "r.partial").glob("answers*")
    tensors, about = load_tensors(file, "answers")
    save_tensors(file, "answers", {name: tensor for name, tensor in tensors.items() if name != "bound"}, about)
    run = evaluate_run(recipe(), strokes_model, strokes, tmp_path / "r")
    assert run.answers is not None and len(run.answers.episodes) == 9 and run.answers.given.bound is None


def test_answers_need_not_be_recorded(strokes: Dataset, strokes_model: BaseModel, tmp_path: Path) -> None:
    run = evaluate_run(recipe(answers=False), strokes_model, strokes, tmp_path / "r")
    assert run.answers is None and Run.read(run.path).answers is None
    assert not list(run.path.glob("answers*"))


def test_the_answers_are_those_at_the_end_where_curves_are_measured(
    strokes: Dataset, strokes_model: BaseModel, tmp_path: Path
) -> None:
    longer = {"method.phase2.epochs": 30, "method.phase3.epochs": 0, "method.weight_constraint": 10.0}
    curves = {"method.name": "lcwof", "evaluate.curves": 2}
    run = evaluate_run(recipe(2, **longer, **curves), strokes_model, strokes, tmp_path / "r")
    assert run.answers is not None and run.curves[0]["N/J"][0] != run.rows[0]["N/J"]
    true, answered, _ = run.answers.by_name()
    for i, row in enumerate(run.rows):
        assert 100 * (true == answered)[i][true[i] >= 12].mean() == pytest.approx(row["N/J"], abs=1e-3)


def test_answers_are_those_of_the_episodes_asked_for(
    strokes: Dataset, strokes_model: BaseModel, tmp_path: Path
) -> None:
    with pytest.raises(KeyboardInterrupt):
        evaluate_run(recipe(), strokes_model, strokes, tmp_path / "r", progress=stop_at(4))
    run = evaluate_run(recipe(episodes=3), strokes_model, strokes, tmp_path / "r")
    assert run.answers is not None and run.answers.episodes == (0, 1, 2) and len(run.rows) == 3
