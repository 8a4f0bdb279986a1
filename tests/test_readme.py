"""What README says to type works."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lcwof.data import Dataset
from lcwof.data.episodes import EpisodeSource
from lcwof.data.sessions import StreamSource
from lcwof.errors import LcwofError
from lcwof.evaluation import MEASURES, prepare, run_episodes
from lcwof.evaluation.ifsl import run_streams
from lcwof.methods import base as registry
from lcwof.models import BaseModel

README = Path(__file__).resolve().parents[1] / "README.md"


def test_the_method_in_readme_learns(
    strokes: Dataset, strokes_model: BaseModel, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (code,) = re.findall(r"```python\n(from dataclasses.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
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
