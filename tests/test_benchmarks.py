"""The scripts beside the package go on working when it changes."""

from __future__ import annotations

import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
STUDY = """
table = "batch-norm"
data = "strokes"
episodes = 5
[bases]
mlp = { recipe = "video.toml" }
[[rows]]
name = "one"
run = "one"
method = { name = "lcwof", "phase3.replay_per_class" = 1 }
tuned = false
[[rows]]
name = "another lambda and length"
run = "two"
method = { name = "lcwof", "phase3.replay_per_class" = 1, weight_constraint = 7.0, "phase3.epochs" = 9 }
tuned = false
[[rows]]
name = "a choice"
run = "three"
method = { name = "lcwof", "phase3.replay_per_class" = 1 }
grid = { weight_constraint = [5e2, 5e3] }
"""


def test_ahead_runs_each_shape_once_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "own.toml").write_text(STUDY)
    monkeypatch.chdir(tmp_path)
    words = ["ahead.py", "own.toml", "--at-once", "4", "--backbone", "mlp", "--view", "28"]
    monkeypatch.setattr(sys, "argv", words)
    runpy.run_path(str(BENCHMARKS / "ahead.py"), run_name="ahead")["main"]()
    said = [line.partition(": ")[::2] for line in capsys.readouterr().out.splitlines()]
    assert [name for name, _ in said] == ["own.toml mlp/one-5w1s", "own.toml mlp/three-5w1s"]
    assert all(took.endswith(" s") for _, took in said), said
    assert [file.name for file in tmp_path.iterdir()] == ["own.toml"]


@pytest.mark.skipif(shutil.which("nvidia-cuda-mps-control") is not None, reason="the card's own server would start")
def test_one_card_makes_the_base_model_once_then_runs_what_is_missing(tmp_path: Path) -> None:
    """With a stand-in for the package that notes what it is asked."""
    fake = tmp_path / "python"
    fake.write_text(
        '#!/bin/bash\necho "$*" >>"$NOTES"\ncase "$*" in\n'
        '  *ahead.py*) exec sleep 60 ;;\n  *pretrain*) mkdir -p "$(dirname "${@: -1}")" && touch "${@: -1}" ;;\n'
        "  *early-stop*) exit 3 ;;\nesac\n"
    )
    fake.chmod(0o755)
    notes, runs = tmp_path / "notes", tmp_path / "runs"
    env = {**os.environ, "PYTHON": str(fake), "NOTES": str(notes), "TABLES": "batch-norm early-stop"}
    command = ["bash", str(BENCHMARKS / "one-card.sh"), str(tmp_path / "data"), str(runs)]
    for _ in range(2):
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=30)
        assert done.returncode == 0, done.stderr
    asked = [line.removeprefix("-m lcwof.cli.main ") for line in notes.read_text().splitlines()]
    base = runs / "mini-imagenet" / "base-resnet12.safetensors"
    assert asked.count(f"pretrain fast.toml --data mini-imagenet -o {base}") == 1 and base.exists()
    tables = [line for line in asked if line.startswith("reproduce batch-norm early-stop")]
    assert len(tables) == 4, "two processes, twice"
    assert sum("ahead.py batch-norm early-stop" in line for line in asked) == 1
    assert sum(line.startswith("reproduce mini-gfsl --only conv4-wide/") for line in asked) == 2
    log = (runs / "logs" / "second.log").read_text()
    assert log.count("lcwof reproduce") == 2 and log.count("status 3") == 2
