"""What `lcwof reproduce` finds in its folder and does not show, because it would stand beside what it is not like."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from lcwof.cli import reproduce as cli
from lcwof.cli.main import app
from lcwof.data import Dataset
from lcwof.engine import Study
from lcwof.engine.recipe import Data
from lcwof.errors import LcwofError
from lcwof.models import BaseModel

STUDY = """
table = "batch-norm"
data = "strokes"
episodes = 3
reference = "pn"
[bases]
mlp = { recipe = "video.toml", set = { epochs = 1 } }
[[rows]]
name = "prototypes"
run = "pn"
method = { name = "pn" }
tuned = false
[[rows]]
name = "imprinted"
run = "iw"
method = { name = "iw" }
grid = { head_steps = [5] }
"""


def run(folder: Path, *more: str, text: str = STUDY, error: str = "") -> str:
    (folder / "own.toml").write_text(text)
    words = ["reproduce", str(folder / "own.toml"), "-o", str(folder / "out"), *more]
    result = CliRunner().invoke(app, words)
    assert isinstance(result.exception, LcwofError) == bool(error), result.output
    assert error in str(result.exception)
    return " ".join(result.output.split())


def shown(folder: Path) -> set[str]:
    cells = json.loads((folder / "out" / "own.json").read_text())["cells"]
    return {cell["row"] for cell in cells if cell["mean"] is not None}


def test_runs_on_another_base_model_stand_in_no_table_with_those_on_this_one(tmp_path: Path) -> None:
    run(tmp_path)
    first = tmp_path / "out" / "strokes" / "base-mlp.safetensors"
    model = BaseModel.load(first)
    model.about["test accuracy"] = 12.34
    other = tmp_path / "other.safetensors"
    model.save(other)
    (tmp_path / "out" / "strokes" / "mlp" / "pn-5w1s").rename(tmp_path / "pn-5w1s")
    given = "--base", f"strokes/mlp={other}"
    told = run(tmp_path, *given, error="not all could be run: mlp/iw-5w1s")
    assert "iw-5w1s holds a run of other settings (tuned for something else, model)" in told
    assert shown(tmp_path) == {"prototypes"}
    assert "12.34%" in (tmp_path / "out" / "own.md").read_text()
    told = run(tmp_path, *given, "--only", "pn")
    assert "iw-5w1s is left out: a run on another base model." in told and shown(tmp_path) == {"prototypes"}
    told = run(tmp_path, "--show")
    assert told.count("is left out: a run on another base model.") == 1 and len(shown(tmp_path)) == 1


def test_what_was_chosen_among_other_values_is_a_run_of_other_settings(tmp_path: Path) -> None:
    run(tmp_path)
    assert shown(tmp_path) == {"prototypes", "imprinted"}
    edited = STUDY.replace("[5]", "[7]")
    told = run(tmp_path, "--show", text=edited)
    assert "iw-5w1s is left out: a run of other settings (tune.grid)." in told
    assert shown(tmp_path) == {"prototypes"}
    more = STUDY.replace("[5]", "[5, 7]")  # it may have been chosen among these, but was not
    assert "left out" not in run(tmp_path, "--show", text=more)
    for other in (edited, more):
        told = run(tmp_path, text=other, error="not all could be run: mlp/iw-5w1s")
        assert "iw-5w1s holds a run of other settings (tuned for something else" in told
        assert shown(tmp_path) == {"prototypes"}


def test_a_damaged_run_ends_neither_its_table_nor_the_next(tmp_path: Path) -> None:
    run(tmp_path)
    (tmp_path / "out" / "strokes" / "mlp" / "pn-5w1s" / "rows.jsonl").unlink()
    next_one = tmp_path / "next.toml"
    next_one.write_text(STUDY.replace('run = "iw"', 'run = "iw-again"'))
    told = run(tmp_path, str(next_one), error="not all could be run: mlp/pn-5w1s")
    assert "rows.jsonl is damaged" in told and shown(tmp_path) == {"imprinted"}
    cells = json.loads((tmp_path / "out" / "next.json").read_text())["cells"]
    assert {cell["row"] for cell in cells if cell["mean"] is not None} == {"imprinted"}


def test_data_that_are_not_there_are_said_once(tmp_path: Path) -> None:
    told = run(
        tmp_path, "--root", str(tmp_path / "no"), text=STUDY.replace("strokes", "omniglot"), error="be run: own."
    )
    assert told.count("does not exist") == 1


def test_data_that_one_place_lacks_do_not_end_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load = Study.data

    def lacking(study: Study, data: Data) -> Dataset:
        if study.folder.name == "resnet12":
            raise LcwofError("half of it is not there.")
        return load(study, data)

    monkeypatch.setattr(Study, "data", lacking)
    bases = 'conv4 = { recipe = "fast.toml", set = { epochs = 1, views = [] } }\nresnet12 = { recipe = "fast.toml" }'
    both = STUDY.replace("batch-norm", "mini-gfsl").replace(
        'mlp = { recipe = "video.toml", set = { epochs = 1 } }', bases
    )
    told = run(tmp_path, text=both, error="not all could be run: own resnet12.")
    assert told.count("half of it is not there") == 1
    cells = json.loads((tmp_path / "out" / "own.json").read_text())["cells"]
    assert {cell["backbone"] for cell in cells if cell["mean"] is not None} == {"conv4"}


def test_of_two_processes_the_later_writes_what_both_have_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held_by_another: Callable[[Path], Any]
) -> None:
    """One is about to write: another waits with looking at what is there, too, until it has written."""
    run(tmp_path)
    looked: list[float] = []
    there = cli._there

    def noting(*args: Any) -> Any:
        looked.append(time.monotonic())
        return there(*args)

    monkeypatch.setattr(cli, "_there", noting)
    with held_by_another(tmp_path / "out" / ".own.held") as other:
        ended: list[float] = []

        def end() -> None:
            ended.append(time.monotonic())
            other.kill()

        threading.Timer(2.0, end).start()
        run(tmp_path, "--show")
    assert len(looked) == 1 and looked[0] > ended[0]
