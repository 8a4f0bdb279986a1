"""Learning curves of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from lcwof.data import Dataset
from lcwof.engine import Recipe, evaluate_run, read_recipe
from lcwof.evaluation import gfsl
from lcwof.methods import Base
from lcwof.models import BaseModel


def recipe(curves: int = 0) -> Recipe:
    """Four episodes of four epochs a phase."""
    evaluate = {"evaluate.way": 3, "evaluate.shot": 1, "evaluate.episodes": 4, "evaluate.curves": curves}
    epochs = {"method.phase2.epochs": 4, "method.phase3.epochs": 4}
    return read_recipe([], {"data.name": "strokes", "at_once": 4, "device": "cpu", **evaluate, **epochs}, [])


def test_curves_are_measured_by_some_base_queries_and_the_result_by_all(
    strokes: Dataset, strokes_model: BaseModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = evaluate_run(recipe(), strokes_model, strokes, tmp_path / "plain")
    asked: list[int] = []
    logits = gfsl.query_logits

    def noting(method: Any, state: Any, base: Base, queries: torch.Tensor) -> torch.Tensor:
        asked.append(queries.shape[1])
        return logits(method, state, base, queries)

    monkeypatch.setattr(gfsl, "query_logits", noting)
    monkeypatch.setattr(gfsl, "_BASE_QUERIES", 24)
    run = evaluate_run(recipe(curves=2), strokes_model, strokes, tmp_path / "curves")
    queries = run.about["queries"]
    assert queries["base"] > 2 and len(strokes.split.base) == 12
    assert asked == [3 * queries["novel"] + 24] * 6 + [3 * queries["novel"] + 12 * queries["base"]]
    assert run.rows == plain.rows
    curve = run.curves[0]
    assert list(zip(curve["phase"], curve["epoch"], strict=True)) == [
        (phase, epoch) for phase in ("phase 2", "phase 3") for epoch in (0, 1, 4)
    ], "the end once"
    assert [c["N/N"][-1] for c in run.curves] == [round(row["N/N"], 2) for row in run.rows], "of all novel queries"
    assert any(c["B/B"][-1] != round(row["B/B"], 2) for c, row in zip(run.curves, run.rows, strict=True)), (
        "the end of a curve is of the same queries as the rest of it"
    )
