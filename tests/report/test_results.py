"""What results/ says is what its episodes come to."""

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lcwof.cli.main import app

ROOT = Path(__file__).parents[2]


KEYS = [
    *("mini-gfsl", "alternate-phases", "batch-norm", "batch-ratios", "cosine-bias", "distillation-more-ways"),
    *("early-stop", "lambda-after-phase2", "lambda-after-phase3", "length-of-phase2", "no-phase2", "overview"),
    *("training-curves", "weight-decay", "benchmarks/views.toml"),
]


@pytest.mark.parametrize("asked", KEYS)
def test_what_is_published_is_what_the_published_episodes_come_to(asked: str, tmp_path: Path) -> None:
    name = Path(asked).stem
    shutil.copytree(ROOT / "results" / "episodes" / "mini-imagenet", tmp_path / "mini-imagenet")
    key = str(ROOT / asked) if asked.endswith(".toml") else asked
    result = CliRunner().invoke(app, ["reproduce", key, "--show", "-o", str(tmp_path)])
    assert result.exit_code == 0, result.output
    found, told = (json.loads((folder / f"{name}.json").read_text()) for folder in (tmp_path, ROOT / "results"))
    assert found == told
    lines = [line for panel in found.get("panels", []) for line in panel["lines"]]
    assert any(line["y"] for line in lines) or any(cell["over"] for cell in found["cells"]), "not empty"
