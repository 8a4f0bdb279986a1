"""What is written of a table's runs: where each was computed, and on which base model."""

from __future__ import annotations

from pathlib import Path

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
