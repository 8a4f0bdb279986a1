"""Incremental runs written by hand, so that every expected number can be worked out on paper."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lcwof.engine import StreamRun
from lcwof.evaluation import MEASURES


def make_stream(method: str, last: list[float], folder: str | None = None, **how: Any) -> StreamRun:
    """Three base classes, then a session of the classes x, y and z; every measure of the second session is `last`,
    stream by stream, and so is the accuracy of y. Base classes have 90, 80 and 70, in the second session 10 less."""
    rows: list[dict[str, Any]] = []
    for stream, value in enumerate(last):
        first = {name: 80.0 if name in ("B/B", "B/J", "J/J") else None for name in MEASURES}
        base = {"classes": [90.0, 80.0, 70.0], "origins": [80.0], "kept": 10, "new": []}
        rows.append({"stream": stream, "session": 1, **first, **base})
        classes = [80.0, 70.0, 60.0, 20.0, value, 0.0]
        joint = {"classes": classes, "origins": [70.0, (20.0 + value) / 3], "kept": 20, "new": ["x", "y", "z"]}
        rows.append({"stream": stream, "session": 2, **dict.fromkeys(MEASURES, value), **joint})
    stream_settings = {"carry": False, "shuffle": False, "seed": 0, "queries": 100, **how}
    recipe = {"method": {"name": method}, "stream": stream_settings, "tuning": {}}
    about = {"recipe": recipe, "data": "a_b", "ways": [3], "classes": {"base": 3}, "listed": False, "shot": 5}
    return StreamRun(Path(folder or method), about, rows)


def unequal(run: StreamRun) -> StreamRun:
    """Every measure of the last session another."""
    for row in run.rows:
        if row["session"] == 2:
            row |= {name: 10.0 * (at + 1) for at, name in enumerate(MEASURES)}
    return run
