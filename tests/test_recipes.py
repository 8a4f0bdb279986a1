from pathlib import Path

import pytest

import lcwof
from lcwof.engine import read_recipe

RECIPES = sorted((Path(lcwof.__file__).parent / "recipes").glob("*.toml"))


@pytest.mark.parametrize("file", RECIPES, ids=lambda file: file.stem)
def test_every_recipe_reads_and_starts_with_its_command(file: Path) -> None:
    assert file.read_text().startswith("# lcwof ")
    read_recipe([file], {}, []).grid()


def test_the_recipes_are_where_they_are_looked_for() -> None:
    assert {file.stem for file in RECIPES} >= {"demo", "fast", "lcwof-plus", "omniglot", "paper"}
