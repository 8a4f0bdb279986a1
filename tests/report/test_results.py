"""What results/ says is what its episodes come to."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from typer.testing import CliRunner

from lcwof.cli.main import app
from lcwof.engine import read_recipe
from lcwof.engine.choose import what_is_asked
from lcwof.models import BaseModel
from lcwof.report.reproduction import read_reproduction, reproductions

ROOT = Path(__file__).parents[2]
EPISODES = ROOT / "results" / "episodes" / "mini-imagenet"

KEYS = [
    *("mini-gfsl", "alternate-phases", "batch-norm", "batch-ratios", "cosine-bias", "distillation"),
    "distillation-more-ways",
    *("early-stop", "lambda-after-phase2", "lambda-after-phase3", "length-of-phase2", "no-phase2", "overview"),
    *("training-curves", "weight-decay", "benchmarks/no-bias.toml", "benchmarks/views.toml"),
]


@pytest.mark.parametrize("asked", KEYS)
def test_what_is_published_is_what_the_published_episodes_come_to(asked: str, tmp_path: Path) -> None:
    name = Path(asked).stem
    shutil.copytree(EPISODES, tmp_path / "mini-imagenet")
    key = str(ROOT / asked) if asked.endswith(".toml") else asked
    result = CliRunner().invoke(app, ["reproduce", key, "--show", "-o", str(tmp_path)])
    assert result.exit_code == 0, result.output
    found, told = (json.loads((folder / f"{name}.json").read_text()) for folder in (tmp_path, ROOT / "results"))
    assert found == told
    lines = [line for panel in found.get("panels", []) for line in panel["lines"]]
    assert any(line["y"] for line in lines) or any(cell["over"] for cell in found["cells"]), "not empty"


@pytest.mark.parametrize("asked", KEYS)
def test_published_runs_can_be_gone_on_with(asked: str) -> None:
    what = read_reproduction(ROOT / asked) if asked.endswith(".toml") else reproductions()[asked]
    looked_at = 0
    for place, setting, row in what.wanted():
        entry = what.entry(place, setting, row, read_recipe([], {}, []), "", None)
        file = EPISODES / str(place) / entry.name / "run.json"
        if not file.exists() or not entry.tuned:
            continue
        about: dict[str, Any] = json.loads(file.read_text())
        model = cast(BaseModel, SimpleNamespace(told=lambda about=about: about["model"]))
        now = what_is_asked(entry.recipe, model, "gfsl", entry.outcome)
        assert about["recipe"]["tuning"]["asked"] == now, f"{file}: its settings were chosen for something else"
        looked_at += 1
    assert looked_at or not any(row.tuned for _, _, row in what.wanted())
