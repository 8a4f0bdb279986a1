"""What is written of a table's runs: where each was computed, and on which base model."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from runs_by_hand import make_run

from lcwof.engine import Run
from lcwof.report import written
from lcwof.report.reproduction import Place, reproductions


def test_a_run_begun_elsewhere_says_so() -> None:
    there = {
        "date": "2026-01-31",
        "hardware": "a card",
        "compute": "bfloat16",
        "versions": {"lcwof": "1", "numpy": "2"},
    }
    here = {**there, "date": None, "hardware": "cpu", "before": [{**there, "seconds": 3.0}]}
    assert written._origin(here) == "cpu, bfloat16, lcwof 1; begun on a card, bfloat16, lcwof 1, 2026-01-31"


def test_notes_tell_of_the_base_model_of_every_split() -> None:
    about = {"data": "ucf101", "recipe": {}, "hardware": "cpu", "compute": "float32", "versions": {}}
    models = {"original": {"mirror": True, "test accuracy": 80.0}, "protogan": {"test accuracy": 70.0}}
    runs = {
        (Place("mlp", split), "5w1s", "pn"): Run(Path(split), {**about, "model": m}, []) for split, m in models.items()
    }
    assert [note for note in written._notes(reproductions()["ucf-gfsl"], runs) if note.startswith("Base model")] == [  # type: ignore[arg-type]
        "Base model mlp-original: base test accuracy 80.0%, tests on the mean over image and mirror image.",
        "Base model mlp-protogan: base test accuracy 70.0%.",
    ]


def test_a_figure_says_how_far_its_runs_end_from_one_of_them() -> None:
    place, what = Place("resnet12"), reproductions()["weight-decay"]
    runs = {
        (place, "5w1s", "curves-both"): make_run("lcwof", [50.0, 60.0, 70.0]),
        (place, "5w1s", "curves-no-decay"): make_run("lcwof", [51.0, 63.0, 72.0]),
    }
    # 1, 3 and 2 points: mean 2, deviation 1, 1.96 / sqrt(3) of it
    assert written._apart(what, runs) == [  # type: ignore[arg-type]
        "curves-no-decay-5w1s (resnet12) ends, in hm less that of curves-both, by episode: +2.00 ± 1.13."
    ]
    table = dataclasses.replace(reproductions()["batch-norm"], reference="curves-both")
    assert not written._apart(table, runs), "tables have columns for it"  # type: ignore[arg-type]
