"""A run of a second, for the tests of runs."""

from __future__ import annotations

from lcwof.engine import Recipe, read_recipe

SHORT = {"method.phase2.epochs": 4, "method.phase3.epochs": 4}


def recipe(method: str = "pn", episodes: int = 9, curves: int = 0, **settings: object) -> Recipe:
    options = {
        "data.name": "strokes",
        "method.name": method,
        "evaluate.way": 3,
        "evaluate.shot": 1,
        "evaluate.episodes": episodes,
        "evaluate.curves": curves,
        "at_once": 4,
        "device": "cpu",
    }
    return read_recipe([], {**options, **settings}, [])
