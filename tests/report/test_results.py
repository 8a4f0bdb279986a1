"""What results/ says is what its episodes come to."""

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lcwof.cli.main import app

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(("asked", "name"), [("mini-gfsl", "mini-gfsl"), ("benchmarks/views.toml", "views")])
def test_published_tables_are_those_of_the_published_episodes(asked: str, name: str, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "results" / "episodes" / "mini-imagenet", tmp_path / "mini-imagenet")
    key = str(ROOT / asked) if asked.endswith(".toml") else asked
    result = CliRunner().invoke(app, ["reproduce", key, "--show", "-o", str(tmp_path)])
    assert result.exit_code == 0, result.output
    found, told = (json.loads((folder / f"{name}.json").read_text()) for folder in (tmp_path, ROOT / "results"))
    assert found == told
    assert any(cell["over"] for cell in found["cells"])
