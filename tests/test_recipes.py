from pathlib import Path

import pytest

import lcwof
from lcwof.engine import read_recipe
from lcwof.errors import LcwofError

RECIPES = sorted((Path(lcwof.__file__).parent / "recipes").glob("*.toml"))


@pytest.mark.parametrize("file", RECIPES, ids=lambda file: file.stem)
def test_every_recipe_reads_and_starts_with_its_command(file: Path) -> None:
    assert file.read_text().startswith("# lcwof ")
    read_recipe([file], {}, []).grid()


def test_the_recipes_are_where_they_are_looked_for() -> None:
    assert {file.stem for file in RECIPES} >= {"demo", "fast", "fscil", "lcwof-plus", "omniglot", "paper"}


def test_a_grid_names_settings_of_the_method_and_lists_values() -> None:
    grid = read_recipe([], {}, ["tune.grid.phase3.lr_head=[0.1, 1]", "tune.grid.novel_bias=[0]"]).grid()
    assert grid == {"phase3.lr_head": [0.1, 1], "novel_bias": [0]}
    with pytest.raises(LcwofError, match=r"unknown key tune\.grid\.novel_bais: did you mean 'novel_bias'"):
        read_recipe([], {}, ["tune.grid.novel_bais=[0]"]).grid()
    with pytest.raises(LcwofError, match="write a list of values"):
        read_recipe([], {}, ["tune.grid.novel_bias=0"]).grid()
