"""A study: what is tried once serves every choice that it can serve."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from lcwof.data import Dataset
from lcwof.data.sessions import pseudo_sessions
from lcwof.engine import Entry, StreamRun, Study, read_recipe
from lcwof.engine import study as study_module
from lcwof.errors import LcwofError
from lcwof.evaluation import gfsl
from lcwof.learning import Inputs, Phase1, pretrain
from lcwof.models import BaseModel


def entry(digits: Dataset, digits_model: BaseModel, folder: Path) -> Entry:
    """pn on two sessions of one digit, with a choice on pseudo-sessions."""
    quick = Phase1("mlp", 3, batch=32, lr=0.05, schedule="one-cycle")
    pseudo = pretrain(pseudo_sessions(digits, 2), quick, digits_model.head.device)
    files = {"base": folder / "base.safetensors", "pseudo": folder / "pseudo.safetensors"}
    digits_model.save(files["base"])
    pseudo.save(files["pseudo"])
    options = {
        "data.name": "digits",
        "data.pseudo": 2,
        "method.name": "pn",
        "stream.way": 1,
        "stream.shot": 3,
        "stream.streams": 1,
        "tune.streams": 2,
        "model": str(files["base"]),
        "device": "cpu",
    }
    recipe = read_recipe([], options, ["tune.grid.novel_bias=[-20.0, 0.0, 0.5]"])
    return Entry("balanced", recipe, protocol="ifsl", pseudo_model=str(files["pseudo"]))


def test_what_is_computed_of_images_serves_all_methods(
    digits: Dataset, digits_model: BaseModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pn = entry(digits, digits_model, tmp_path)
    ilvq = dataclasses.replace(pn, name="ilvq", recipe=dataclasses.replace(pn.recipe, method={"name": "ilvq"}))
    made: list[Inputs] = []

    class Counted(Inputs):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            made.append(self)

    monkeypatch.setattr(gfsl, "Inputs", Counted)
    Study(tmp_path / "s").run([pn, ilvq])
    assert len(made) == 2, "of the pseudo-sessions' model, and of the base model"


def test_what_diverges_is_left_out_of_a_study(digits: Dataset, digits_model: BaseModel, tmp_path: Path) -> None:
    pn = dataclasses.replace(entry(digits, digits_model, tmp_path), tuned=False)
    wild = {"name": "ft", "descent": {"lr_head": 1e38, "lr_tail": 1e38, "epochs": 2}}
    ft = dataclasses.replace(pn, name="ft", recipe=dataclasses.replace(pn.recipe, method=wild))
    said: list[str] = []
    (run,) = Study(tmp_path / "s", notice=said.append).run([ft, pn])
    assert run.path.name == "balanced" and len(said) == 1 and said[0].startswith("ft is left out: ")
    with pytest.raises(LcwofError, match="nothing was learned: all of it diverged"):
        Study(tmp_path / "t").run([ft])


def test_a_study_with_settings_that_do_not_go_with_streams_is_refused_before_any_run(
    digits: Dataset, digits_model: BaseModel, tmp_path: Path
) -> None:
    pn = dataclasses.replace(entry(digits, digits_model, tmp_path), tuned=False)
    turns = {"name": "lcwof", "alternate": 2}
    lcwof = dataclasses.replace(pn, name="lcwof", recipe=dataclasses.replace(pn.recipe, method=turns))
    with pytest.raises(LcwofError, match="alternate is for one set of novel classes"):
        Study(tmp_path / "s").run([pn, lcwof])
    assert not (tmp_path / "s").exists()


def test_both_outcomes_are_chosen_from_the_same_candidates(
    digits: Dataset, digits_model: BaseModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    balanced = entry(digits, digits_model, tmp_path)
    recipe = balanced.recipe
    biased = dataclasses.replace(balanced, name="biased", outcome="base-biased")
    first = Study(tmp_path / "s").run_one(balanced)

    def refuse(*_: object) -> None:
        raise AssertionError("tried again")

    monkeypatch.setattr(study_module, "choose_stream", refuse)
    second = Study(tmp_path / "s").run_one(biased)
    assert isinstance(first, StreamRun) and isinstance(second, StreamRun)
    told = [json.loads((tmp_path / "s" / f"{name}.json").read_text()) for name in ("balanced", "biased")]
    assert [one["by"] for one in told] == ["hm", "J/J"]
    for one, measure in zip(told, ("hm", "joint"), strict=True):
        values = [candidate[measure] for candidate in one["candidates"]]
        assert len(values) == 3 and values == sorted(values, reverse=True)
    assert second.about["recipe"]["tuning"]["why"].startswith("base-biased: J/J")
    options = {"base": 5, "val": 2}
    elsewhere = dataclasses.replace(recipe, data=dataclasses.replace(recipe.data, options=options))
    with pytest.raises(LcwofError, match=r"other settings \(.*data"):
        Study(tmp_path / "s").run_one(dataclasses.replace(balanced, recipe=elsewhere))
    with pytest.raises(AssertionError, match="tried again"):
        wider = dataclasses.replace(recipe, tune=dataclasses.replace(recipe.tune, streams=1))
        Study(tmp_path / "s").run_one(dataclasses.replace(biased, name="other", recipe=wider))


def test_a_run_of_another_base_model_is_not_taken(digits: Dataset, digits_model: BaseModel, tmp_path: Path) -> None:
    options = {"data.name": "digits", "method.name": "pn", "evaluate.way": 2, "evaluate.episodes": 2, "device": "cpu"}
    pn = Entry("pn", read_recipe([], {**options, "model": str(tmp_path / "base.safetensors")}, []), tuned=False)
    digits_model.save(tmp_path / "base.safetensors")
    Study(tmp_path / "s").run_one(pn)
    dataclasses.replace(digits_model, about={**digits_model.about, "epoch": -1}).save(tmp_path / "base.safetensors")
    with pytest.raises(LcwofError, match=r"holds a run of other settings \(model\)"):
        Study(tmp_path / "s").run_one(pn)


def test_what_was_chosen_stays_when_episodes_are_added(
    digits: Dataset, digits_model: BaseModel, tmp_path: Path
) -> None:
    digits_model.save(tmp_path / "base.safetensors")
    options = {"data.name": "digits", "method.name": "pn", "evaluate.way": 2, "tune.episodes": 2, "device": "cpu"}

    def pn(episodes: int) -> Entry:
        given = {**options, "model": str(tmp_path / "base.safetensors"), "evaluate.episodes": episodes}
        return Entry("pn", read_recipe([], given, ["tune.grid.novel_bias=[-20.0, 0.0, 0.5]"]))

    study = Study(tmp_path / "s")
    study.run_one(pn(2))
    for file in ("pn.toml", "pn.json"):  # only the run was copied here, from a machine where another came out
        (tmp_path / "s" / file).unlink()
    about = tmp_path / "s" / "pn" / "run.json"
    told = json.loads(about.read_text())
    other = next(bias for bias in (-20.0, 0.0, 0.5) if bias != told["recipe"]["method"]["novel_bias"])
    told["recipe"]["method"]["novel_bias"] = told["recipe"]["tuning"]["settings"]["novel_bias"] = other
    about.write_text(json.dumps(told))
    run = study.run_one(pn(4))
    assert len(run.rows) == 4 and run.about["recipe"]["method"]["novel_bias"] == other
    assert run.about["recipe"]["tuning"] == told["recipe"]["tuning"]
