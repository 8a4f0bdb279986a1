"""What the documentation says to type works."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer

from lcwof.cli.main import app
from lcwof.data import Dataset
from lcwof.data.episodes import EpisodeSource
from lcwof.data.sessions import StreamSource
from lcwof.errors import LcwofError
from lcwof.evaluation import MEASURES, prepare, run_episodes
from lcwof.evaluation.ifsl import run_streams
from lcwof.methods import base as registry
from lcwof.models import BaseModel

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "add-a-method.md"
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "results").glob("*.md")])


def test_the_documented_method_learns(
    strokes: Dataset, strokes_model: BaseModel, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (code,) = re.findall(r"```python\n(from dataclasses.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    monkeypatch.setattr(registry, "_METHODS", dict(registry._METHODS))
    (tmp_path / "mine.py").write_text(code, encoding="utf-8")
    method = registry.get_method(f"{tmp_path / 'mine.py'}:Mine")()
    assert registry.get_method("mine") is type(method), "it registers itself too"
    with pytest.raises(LcwofError, match=r"has no method class 'Yours'; its method classes: Mine"):
        registry.get_method(f"{tmp_path / 'mine.py'}:Yours")
    with pytest.raises(LcwofError, match="no file"):
        registry.get_method("nowhere.py:Mine")
    base, fitted = prepare(method, strokes_model, strokes)
    found = list(run_episodes(method, base, fitted, EpisodeSource.of(strokes, "novel", 3, 5), [0, 1]))[-1]
    assert found.values[:, MEASURES.index("N/N")].mean() > 60
    (streams,) = StreamSource.of(strokes, way=4, shot=2, queries=5).draw([0, 1])
    sessions = list(run_streams(method, base, fitted, streams, 0))
    again = method.unpack(base, fitted, method.pack(sessions[1][1]))
    assert len(list(run_streams(method, base, fitted, streams, 0, resume=(2, again)))) == 2


def commands(page: Path) -> list[list[str]]:
    """Every call of lcwof in the code blocks of a page, as words."""
    blocks = re.findall(r"```(\w*)\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    shell = [block for language, block in blocks if not language]
    lines = [line.partition("lcwof ")[2] for block in shell for line in block.splitlines() if "lcwof " in line]
    return [shlex.split(line.split(" & ")[0], comments=True) for line in lines]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_and_options_exist(page: Path) -> None:
    for words in commands(page):
        command: Any = typer.main.get_command(app)
        while hasattr(command, "commands"):
            assert words[0] in command.commands, f"{page.name}: lcwof {words[0]}"
            command, words = command.commands[words[0]], words[1:]
        known = {name for option in command.params for name in (*option.opts, *option.secondary_opts)}
        asked = {word.split("=")[0] for word in words if word.startswith("-")}
        assert asked <= known, f"{page.name}: {command.name} has no {', '.join(sorted(asked - known))}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\((?!https?:)([^)\s]+)\)", page.read_text(encoding="utf-8")):
        file, _, heading = link.partition("#")
        target = page.parent / file if file else page
        assert target.exists(), f"{page.name}: {link}"
        if heading:
            titles = re.findall(r"^#+ (.*)$", target.read_text(encoding="utf-8"), re.MULTILINE)
            slugs = {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
            assert heading in slugs, f"{page.name}: {link}"
