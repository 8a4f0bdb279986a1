"""Progress where nobody can watch a bar move."""

from __future__ import annotations

from io import StringIO
from types import SimpleNamespace

import pytest
from rich.console import Console

from lcwof.cli import console


def shown(monkeypatch: pytest.MonkeyPatch, terminal: bool, seconds: list[float]) -> str:
    """What a bar of three steps leaves, done at the given seconds."""
    out, clock = StringIO(), iter([0.0, *seconds])
    monkeypatch.setattr(console, "errors", Console(file=out, force_terminal=terminal, width=100))
    monkeypatch.setattr(console, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    with console.progress_bar("tune  ") as show:
        for step in (1, 2, 3):
            show(step, 3, f"loss [{step}]")
    return out.getvalue()


def test_in_a_file_a_line_a_minute_tells_how_far_the_work_is(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = shown(monkeypatch, terminal=False, seconds=[59.0, 61.0, 119.0]).splitlines()
    assert lines[0] == "tune 2/3 after 0:01:01, loss [2]"
    assert len(lines) == 2 and "3/3" in lines[1], "and the whole bar when all is done"


def test_on_a_terminal_the_bar_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "after" not in shown(monkeypatch, terminal=True, seconds=[59.0, 200.0, 400.0])
