"""The base models of a study: in which order they are made, which are taken."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from lcwof.cli import reproduce as cli
from lcwof.cli.main import app
from lcwof.engine import Recipe, Study
from lcwof.errors import LcwofError
from lcwof.learning import Phase1
from lcwof.models import BaseModel
from lcwof.report.reproduction import (
    OurRow,
    Place,
    Reproduction,
    reproductions,
)

KNOWN = reproductions()


def test_a_base_model_is_made_after_its_teacher_and_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: dict[str, tuple[str, ...]] = {}

    def noting(data: object, how: Phase1, device: str, file: Path, title: str) -> None:
        made[file.name] = how.teachers
        file.touch()

    monkeypatch.setattr(cli, "make_base", noting)
    bases = {"conv4": {"recipe": "fast.toml", "taught_by": "mlp"}, "mlp": {"recipe": "video.toml"}}
    what = Reproduction("strokes", bases, 1, table="batch-norm", key="own")
    teacher = str(tmp_path / "strokes" / "base-mlp.safetensors")
    study = Study(tmp_path)
    cli._base(what, Place("conv4"), Recipe(), tmp_path, {}, 0, study)
    assert made == {"base-mlp.safetensors": (), "base-conv4.safetensors": (teacher,)}
    assert next(iter(made)) == "base-mlp.safetensors"
    cli._base(what, Place("conv4"), Recipe(), tmp_path / "given", {"strokes/mlp": "other.safetensors"}, 0, study)
    assert made["base-conv4.safetensors"] == ("other.safetensors",), "one that is given teaches, too"
    for taught_by in ("conv4", "resnet12"):
        crooked = dataclasses.replace(what, bases={**bases, "conv4": {**bases["conv4"], "taught_by": taught_by}})
        with pytest.raises(LcwofError, match=f"cannot be taught by {taught_by}; those without a teacher can: mlp"):
            crooked.base("conv4")
    twice = dataclasses.replace(what, bases={**bases, "conv4": {**bases["conv4"], "set": {"teachers": ["a"]}}})
    with pytest.raises(LcwofError, match="conv4 has both taught_by and teachers"):
        twice.base("conv4")
    assert what._parts().__next__()[0] == Place("conv4"), "a teacher stands in for no backbone of the table"


def test_a_base_model_made_otherwise_is_told_by_what_is_other(strokes_model: BaseModel) -> None:
    how = Phase1(backbone="conv4", epochs=3, crop=(0.5, 1.0), teachers=("here/a.safetensors",))
    kept = json.loads(json.dumps({**dataclasses.asdict(how), "teachers": ["elsewhere/a.safetensors"]}))

    def other(asked: Phase1, **was: object) -> list[str]:
        return cli._other_phase1(dataclasses.replace(strokes_model, about={"phase1": {**kept, **was}}), asked)

    assert other(how) == [], "a teacher may have moved"
    assert other(dataclasses.replace(how, teachers=())) == ["teachers"]
    assert other(how, epochs=4, crop=None) == ["epochs", "crop"]
    del kept["repeatable"]  # as those made before there was the setting
    assert other(how) == [] and other(dataclasses.replace(how, repeatable=True)) == ["repeatable"]


def test_tables_of_one_base_model_load_it_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = {"mlp": {"recipe": "video.toml", "set": {"epochs": 1}}}
    rows = [OurRow("yes", name, {"name": name}, tuned=False) for name in ("pn", "gfsv")]
    one, other = (
        Reproduction("strokes", base, 1, (row,), "batch-norm", episodes=1, key=key)
        for row, key in zip(rows, ("one", "other"), strict=True)
    )
    monkeypatch.setattr(cli, "reproductions", lambda: {"one": one, "other": other})
    loaded: list[BaseModel] = []
    load = Recipe.load_model

    def noted(recipe: Recipe) -> BaseModel:
        loaded.append(load(recipe))
        return loaded[-1]

    monkeypatch.setattr(Recipe, "load_model", noted)
    words = ["reproduce", "one", "other", "-o", str(tmp_path), "--only"]
    result = CliRunner().invoke(app, [*words, "pn,gfsv-5w1s"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert len(loaded) == 1
    assert {file.parent.name for file in tmp_path.rglob("run.json")} == {"pn-5w1s", "gfsv-5w1s"}
    refused = CliRunner().invoke(app, [*words, "pn,nn"])
    assert str(refused.exception) == "--only nn: the runs of one, other are gfsv, pn."


def test_the_teacher_of_a_model_for_choices_does_not_know_the_held_out_classes_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: dict[str, tuple[int, tuple[str, ...]]] = {}

    def noting(data: Any, how: Phase1, device: str, file: Path, title: str) -> None:
        made[file.name] = len(data.split.base), how.teachers
        file.touch()

    monkeypatch.setattr(cli, "make_base", noting)
    bases = {"conv4": {"recipe": "fast.toml", "taught_by": "mlp"}, "mlp": {"recipe": "video.toml"}}
    what = Reproduction("digits", bases, 1, table="batch-norm", key="own")
    cli._base(what, Place("conv4"), Recipe(), tmp_path, {}, 2, Study(tmp_path))
    teacher = "base-mlp-pseudo2.safetensors"
    assert made == {teacher: (4, ()), "base-conv4-pseudo2.safetensors": (4, (str(tmp_path / "digits" / teacher),))}
