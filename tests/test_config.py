from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest

from lcwof.config import build, read_toml, to_toml
from lcwof.engine import read_recipe
from lcwof.errors import LcwofError


@dataclass(frozen=True)
class Inner:
    rate: float = 0.1
    steps: tuple[int, ...] = (1, 2)


@dataclass(frozen=True)
class Outer:
    name: Literal["a", "b"] = "a"
    count: int = 3
    maybe: int | None = None
    on: bool = False
    more: dict[str, int] = field(default_factory=dict)
    inner: Inner = field(default_factory=Inner)


def test_nested_values_are_converted() -> None:
    built = build(Outer, {"name": "b", "maybe": 4, "inner": {"rate": 1, "steps": [5]}}, "x")
    assert built == Outer("b", 3, 4, False, inner=Inner(1.0, (5,)))
    assert isinstance(built.inner.rate, float)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"cuont": 3}, r"unknown key x.cuont: did you mean 'count'\?"),
        ({"inner": {"zzz": 3}}, r"unknown key x.inner.zzz: known keys: rate, steps"),
        ({"count": 1.5}, r"x.count = 1.5 is a float, expected int"),
        ({"count": True}, r"x.count = True is a bool, expected int"),
        ({"name": "c"}, r"x.name = 'c': choose one of 'a', 'b'"),
        ({"inner": 3}, r"x.inner = 3 is a int, expected Inner"),
        ({"on": "yes"}, r"x.on = 'yes' is a str, expected bool"),
        ({"inner": {"steps": 3}}, r"x.inner.steps = 3 is a int, expected a list"),
        ({"more": 3}, r"x.more = 3 is a int, expected a table"),
    ],
)
def test_wrong_keys_and_types_are_errors(values: dict[str, object], words: str) -> None:
    with pytest.raises(LcwofError, match=words):
        build(Outer, values, "x")


def test_what_has_no_default_must_be_there() -> None:
    @dataclass(frozen=True)
    class Needy:
        first: int
        second: str
        third: int = 3

    with pytest.raises(LcwofError, match=r"^x lacks first, second\.$"):
        build(Needy, {"third": 4}, "x")
    assert build(Needy, {"first": 1, "second": "b"}, "x") == Needy(1, "b")


def test_command_line_wins_over_file_and_set_over_both(tmp_path: Path) -> None:
    file = tmp_path / "r.toml"
    file.write_text('[evaluate]\nway = 2\nshot = 5\n[method]\nname = "lcwof"\nphase3.epochs = 10\n')
    recipe = read_recipe([file], {"evaluate.way": 3, "evaluate.shot": None}, ["method.phase3.epochs=20"])
    assert (recipe.evaluate.way, recipe.evaluate.shot, recipe.method_config().phase3.epochs) == (3, 5, 20)


def test_naming_another_method_drops_the_settings_of_the_first(tmp_path: Path) -> None:
    file = tmp_path / "r.toml"
    file.write_text('[method]\nname = "lcwof"\nphase3.epochs = 10\n')
    assert read_recipe([file], {"method.name": "pn"}, []).method == {"name": "pn"}
    assert read_recipe([file], {"method.name": "lcwof"}, []).method_config().phase3.epochs == 10


def test_mistakes_are_found_before_work_starts(tmp_path: Path) -> None:
    for text, words in (
        ("[evaluate]\nways = 3", "unknown key recipe.evaluate.ways"),
        ("[method]\nname = 'pn'\nphase3.epochs = 3", "unknown key method.phase3"),
        ("[method]\nname = 'nope'", "no method named 'nope'"),
        ("[evaluate", "not valid TOML"),
    ):
        file = tmp_path / "r.toml"
        file.write_text(text)
        with pytest.raises(LcwofError, match=words):
            read_recipe([file], {}, [])
    with pytest.raises(LcwofError, match=r"write section\.key=value"):
        read_recipe([], {}, ["epochs"])
    with pytest.raises(LcwofError, match="no recipe"):
        read_toml(tmp_path / "absent.toml")


def test_recipes_that_come_with_lcwof_are_found_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert read_recipe([Path("fast.toml")], {}, []).phase1.cutmix == 0.5
    (tmp_path / "fast.toml").write_text("[phase1]\ncutmix = 0.25")
    assert read_recipe([Path("fast.toml")], {}, []).phase1.cutmix == 0.25, "one's own comes first"
    with pytest.raises(LcwofError, match=r"no recipe fats.toml here.*fast\.toml.*paper\.toml"):
        read_recipe([Path("fats.toml")], {}, [])
    with pytest.raises(LcwofError, match="no recipe"):
        read_recipe([tmp_path / "none" / "paper.toml"], {}, [])


def test_a_grid_goes_with_the_method_it_was_for() -> None:
    for name in ("omniglot.toml", "paper.toml", "fscil.toml"):
        assert "weight_constraint" in read_recipe([Path(name)], {}, []).grid()
        assert "novel_bias" in read_recipe([Path(name)], {"method.name": "pn"}, []).grid()


def test_a_resolved_recipe_reads_back(tmp_path: Path) -> None:
    recipe = read_recipe([], {"evaluate.way": 3}, ["method.weight_constraint=50"])
    file = tmp_path / "again.toml"
    file.write_text(to_toml(recipe.resolved()))
    assert read_recipe([file], {}, []).resolved() == recipe.resolved()
