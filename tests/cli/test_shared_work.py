"""Several processes that are asked for the same table share its runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from lcwof.cli.main import app
from lcwof.engine import Study
from lcwof.engine.study import Entry

METHODS = ("pn", "iw", "gfsv", "ilvq")
STUDY = """
table = "batch-norm"
data = "strokes"
episodes = 4
reference = "pn"
[bases]
mlp = { recipe = "video.toml", set = { epochs = 2 } }
""" + "".join(
    f'[[rows]]\nname = "{name}"\nrun = "{name}"\nmethod = {{ name = "{name}" }}\ntuned = false\n' for name in METHODS
)


def ran(out: Path) -> set[str]:
    cells = json.loads((out / "own.json").read_text())["cells"]
    return {cell["row"] for cell in cells if cell["mean"] is not None}


def run(folder: Path) -> str:
    (folder / "own.toml").write_text(STUDY)
    words = ["reproduce", str(folder / "own.toml"), "-o", str(folder / "out")]
    result = CliRunner().invoke(app, words, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_a_run_that_another_process_is_at_is_left_to_it(tmp_path: Path, held_by_another: Callable[[Path], Any]) -> None:
    with held_by_another(tmp_path / "out" / "strokes" / "mlp" / ".iw-5w1s.held"):
        told = run(tmp_path)
    assert "Left to other processes, which are at work on it: mlp/iw-5w1s." in told
    assert ran(tmp_path / "out") == set(METHODS) - {"iw"}
    assert "Left to" not in run(tmp_path), "the other process has ended without it"
    assert ran(tmp_path / "out") == set(METHODS)


def test_what_another_process_has_given_up_is_taken_over_at_the_end(
    tmp_path: Path, held_by_another: Callable[[Path], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with held_by_another(tmp_path / "out" / "strokes" / "mlp" / ".pn-5w1s.held") as other:
        attempt = Study.attempt

        def stopping_the_other(study: Study, entry: Entry) -> Any:
            if entry.name == "ilvq-5w1s":  # the last one
                other.kill()
                other.wait()
            return attempt(study, entry)

        monkeypatch.setattr(Study, "attempt", stopping_the_other)
        assert "Left to" not in run(tmp_path)
    assert ran(tmp_path / "out") == set(METHODS)


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="no Unix: processes are not told apart")
def test_two_processes_make_one_base_model_and_every_run_once(tmp_path: Path) -> None:
    file, out = tmp_path / "own.toml", tmp_path / "out"
    file.write_text(STUDY)
    words = [sys.executable, "-m", "lcwof.cli.main", "reproduce", str(file), "-o", str(out)]
    alone = {**os.environ, "OMP_NUM_THREADS": "1"}
    both = [
        subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=alone) for _ in "ab"
    ]
    told = [each.communicate(timeout=300)[0] for each in both]
    assert [each.returncode for each in both] == [0, 0], told
    assert ran(out) == set(METHODS)
    assert sum(text.count("phase 1 mlp") > 0 for text in told) == 1, told
    for name in METHODS:
        assert sum(f"{name}-5w1s test" in text for text in told) == 1, told
    assert not list(out.rglob("*.held")) and not list(out.rglob("*.partial"))
