"""A study: what is tried once serves every choice that it can serve."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from lcwof.data import Dataset
from lcwof.data.sessions import pseudo_sessions
from lcwof.engine import Entry, StreamRun, Study, read_recipe
from lcwof.engine import study as study_module
from lcwof.errors import LcwofError
from lcwof.learning import Phase1, pretrain
from lcwof.models import BaseModel


def test_both_outcomes_are_chosen_from_the_same_candidates(
    digits: Dataset, digits_model: BaseModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick = Phase1("mlp", 3, batch=32, lr=0.05, schedule="one-cycle")
    pseudo = pretrain(pseudo_sessions(digits, 2), quick, digits_model.head.device)
    files = {"base": tmp_path / "base.safetensors", "pseudo": tmp_path / "pseudo.safetensors"}
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
    balanced = Entry("balanced", recipe, protocol="ifsl", pseudo_model=str(files["pseudo"]))
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
