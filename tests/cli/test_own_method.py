"""A method in a file of the user's own, from the command line."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lcwof.cli.compare import recipes_of
from lcwof.cli.main import app
from lcwof.engine import read_recipe
from lcwof.errors import LcwofError
from lcwof.methods import base as registry
from lcwof.methods import method_names
from lcwof.models import BaseModel

PAGE = Path(__file__).resolve().parents[2] / "docs" / "add-a-method.md"


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The documented method, unregistered again afterwards."""
    monkeypatch.setattr(registry, "_METHODS", dict(registry._METHODS))
    monkeypatch.setenv("LCWOF_CACHE", str(tmp_path / "cache"))
    (code,) = re.findall(r"```python\n(from dataclasses.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    file = tmp_path / "mine.py"
    file.write_text(code, encoding="utf-8")
    return file


def lcwof(*words: object) -> tuple[str, BaseException | None]:
    result = CliRunner().invoke(app, [str(word) for word in words])
    return result.stdout, result.exception


def test_it_is_evaluated_and_compared_and_an_edited_one_is_told_apart(
    mine: Path, digits_model: BaseModel, tmp_path: Path
) -> None:
    model = tmp_path / "base.safetensors"
    digits_model.save(model)
    common = ["--data", "digits", "--model", model, "--way", 2, "--shot", 1]
    words = ["evaluate", *common, "--method", f"{mine}:Mine", "-o", tmp_path / "run", "--json"]
    said, _ = lcwof(*words, "--episodes", 2)
    assert json.loads(said)["episodes"] == 2
    compared = ["compare", *common, "--episodes", 2, "--set", "tune.episodes=2", "-o", tmp_path / "c", "--json"]
    said, _ = lcwof(*compared, "--methods", f"iw,{mine}:Mine")
    assert {row["method"] for row in json.loads(said)} == {"iw", "mine"}, "by the name that it is registered by"
    mine.write_text(mine.read_text().replace("self.config.length * fitted", "2 * self.config.length * fitted"))
    del sys.modules[f"lcwof_method_{mine}"]
    mine.rename(tmp_path / "moved.py")
    _, error = lcwof("evaluate", *common, "--method", "iw", "-o", tmp_path / "run")
    assert isinstance(error, LcwofError) and "exists: choose another --out" in str(error), "its file is not needed"
    (tmp_path / "moved.py").rename(mine)
    for again, why in ((words, "exists: choose another --out"), (compared, "other settings")):
        _, error = lcwof(*again, "--episodes", 3, *(["--methods", f"{mine}:Mine"] if again is compared else []))
        assert isinstance(error, LcwofError) and why in str(error), "what another version did is not gone on with"


def test_names_are_not_taken_twice(mine: Path, tmp_path: Path) -> None:
    start = read_recipe([], {}, [])
    assert set(recipes_of(start, f"all,{mine}:Mine")) == {*method_names(), "mine"}
    tuned = tmp_path / "tuned.toml"
    tuned.write_text(f'[method]\nname = "{mine}:Mine"\nlength = 0.7\n')
    found = recipes_of(read_recipe([tuned], {}, []), f"all,{mine}:Mine")
    assert set(found) == {*method_names(), "mine"} and found["mine"].method["length"] == 0.7, "its recipe names it, too"
    other = tmp_path / "other.py"
    other.write_text(mine.read_text().replace('@register_method("mine")\n', ""))
    twin = tmp_path / "twin.py"
    twin.write_text(other.read_text())
    with pytest.raises(LcwofError, match="two are named 'Mine'; rename one"):
        recipes_of(start, f"{other}:Mine,{twin}:Mine")
    thief = tmp_path / "thief.py"
    thief.write_text(mine.read_text().replace('"mine"', '"iw"', 1))
    with pytest.raises(
        LcwofError, match=r"a method is named 'iw' already, Imprinting of .*iw.py: give yours another name"
    ):
        recipes_of(start, f"{thief}:Mine")


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import torch\nx = undefined", "broken.py, line 2 cannot be read as a method: NameError"),
        ("def f(:\n    pass", "broken.py, line 1 cannot be read as a method: SyntaxError"),
    ],
)
def test_a_file_with_a_mistake_is_told_by_its_line(code: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "broken.py"
    file.write_text(code)
    with pytest.raises(LcwofError, match=said):
        registry.get_method(f"{file}:Mine")


def test_what_a_method_lacks_is_said_when_it_is_loaded(mine: Path) -> None:
    code = mine.read_text()

    def said(old: str, new: str) -> str:
        assert old in code
        mine.write_text(code.replace(old, new).replace('@register_method("mine")\n', ""))
        sys.modules.pop(f"lcwof_method_{mine}", None)
        with pytest.raises(LcwofError) as error:
            registry.get_method(f"{mine}:Mine")
        return str(error.value)

    assert said("def logits", "def logit").endswith("Mine lacks logits.")
    assert "Mine needs a Config, a dataclass" in said("    Config, ", "    Settings, ")
    assert "of Mine.Config length has none" in said("length: float = ", "length: float  # ")
    assert said('"length": (', '"lenght": (').endswith("unknown key Mine.grid.lenght: did you mean 'length'?")
    assert "Mine.grid.length = 0.5: write a list of values to try" in said("(0.25, 0.5, 1.0)", "0.5")
    lost = said("    grid = ", "    stop = ('mine', 'epochs')\n    grid = ")
    assert lost.endswith("Mine.stop: no setting is named 'epochs'.")
    assert "Config.length = '0.5' is a str, expected float" in said("length: float = 0.5", "length: float = '0.5'")


def test_what_is_no_answer_is_not_scored(mine: Path, digits_model: BaseModel, tmp_path: Path) -> None:
    """Too few classes, too many, no numbers: in either protocol."""
    model = tmp_path / "base.safetensors"
    digits_model.save(model)
    common = ["--data", "digits", "--model", model, "--method", f"{mine}:Mine", "-o", tmp_path / "run", "--overwrite"]
    single = [*common, "--way", 2, "--shot", 1, "--episodes", 2]
    code = mine.read_text()
    (given,) = re.findall(r"        return (.*)\n", code[code.index("def logits") :])
    for wrong, why in (
        (f"({given})[..., 1:]", "expected"),
        (f"torch.cat([{given}, {given}], -1)", "expected"),
        (f"({given}) * float('nan')", "answers with NaN"),
    ):
        mine.write_text("import torch\n" + code.replace(f"return {given}", f"return {wrong}"))
        for words in (["evaluate", *single], ["stream", *common, "--set", "stream.way=1", "--set", "stream.shot=1"]):
            sys.modules.pop(f"lcwof_method_{mine}", None)
            registry._METHODS.pop("mine", None)
            _, error = lcwof(*words)
            assert isinstance(error, LcwofError) and why in str(error), (wrong, words[0], error)


@pytest.mark.parametrize("command", ["evaluate", "stream"])
def test_what_a_hook_gets_wrong_is_said(mine: Path, digits_model: BaseModel, tmp_path: Path, command: str) -> None:
    model = tmp_path / "base.safetensors"
    digits_model.save(model)
    code = mine.read_text()
    few = {
        "evaluate": ["--way", 2, "--shot", 1, "--episodes", 2],
        "stream": ["--way", 1, "--shot", 1, "--overwrite"],  # the first session, before it learns, is done
    }[command]
    settles = "    settles = True\n\n    def settle(self, base, fitted, state, memory):\n        "
    for old, new, why in (
        ("yield MyState(", "return MyState(", "Mine.grow must yield states: `yield`, not `return`."),
        ("yield MyState(", "yield (", "Mine.grow yields a tuple, expected a State."),
        ("    def logits", f"{settles}return state\n\n    def logits", "Mine.settle must yield states"),
        (
            "    def logits",
            f"{settles}yield fitted\n\n    def logits",
            "Mine.settle yields a Tensor, expected a State.",
        ),
        ("return maps", "return 1, maps", "Mine.logits returns a tuple, expected a Tensor."),
    ):
        assert old in code
        mine.write_text(code.replace(old, new))
        sys.modules.pop(f"lcwof_method_{mine}", None)
        registry._METHODS.pop("mine", None)
        words = [command, "--data", "digits", "--model", model, "--method", f"{mine}:Mine", "-o", tmp_path / "run"]
        _, error = lcwof(*words, *few)
        assert isinstance(error, LcwofError) and why in str(error), (new, error)


def test_one_that_refuses_streams_is_listed_without_them(mine: Path, digits_model: BaseModel, tmp_path: Path) -> None:
    def told() -> list[str]:
        said, _ = lcwof("methods", f"{mine}:Mine", "--json")
        return list(json.loads(said)[f"{mine}:Mine"]["protocols"])

    assert told() == ["evaluate", "stream"]
    assert "a sequence of sets by `stream`" in lcwof("methods", f"{mine}:Mine")[0]
    hook = "    def require_stream(self, sessions):\n        raise LcwofError('mine is for one set.')\n\n"
    code = mine.read_text().replace("    def logits", f"{hook}    def logits")
    mine.write_text(f"from lcwof.errors import LcwofError\n{code}")
    del sys.modules[f"lcwof_method_{mine}"]
    registry._METHODS.pop("mine")
    assert told() == ["evaluate"]
    assert "but no sequence of sets by `stream`" in " ".join(lcwof("methods", f"{mine}:Mine")[0].split())
    digits_model.save(tmp_path / "base.safetensors")
    common = ["--data", "digits", "--model", tmp_path / "base.safetensors", "--method", f"{mine}:Mine"]
    _, error = lcwof("stream", *common, "--way", 1, "--shot", 1, "-o", tmp_path / "run")
    assert str(error) == "mine is for one set." and not list(tmp_path.glob("run*"))


EMBEDDED = "embedded = base.inputs.plain(task.support)"


@pytest.mark.parametrize(
    ("right", "wrong", "why"),
    [
        (EMBEDDED, f"{EMBEDDED}; embedded = embedded - embedded.mean((0, 1))", "another episode is learned beside it"),
        ("novel], dim=1)", "novel], dim=1)[0]", "another episode is learned beside it"),
        (
            "maps @ state.weights.mT",
            "(9 * maps @ state.weights.mT).long()",
            "Mine.logits returns torch.int64, expected",
        ),
    ],
    ids=["mixes learners", "lacks the leading E", "whole numbers"],
)
def test_mistakes_that_would_give_wrong_figures_are_refused(
    right: str, wrong: str, why: str, mine: Path, digits_model: BaseModel, tmp_path: Path
) -> None:
    model = tmp_path / "base.safetensors"
    digits_model.save(model)
    text = mine.read_text()
    assert right in text
    mine.write_text(text.replace(right, wrong))
    words = ["--data", "digits", "--model", model, "--way", 2, "--shot", 2, "--episodes", 3, "-o", tmp_path / "run"]
    _, error = lcwof("evaluate", *words, "--method", f"{mine}:Mine")
    assert isinstance(error, LcwofError) and why in str(error), error
