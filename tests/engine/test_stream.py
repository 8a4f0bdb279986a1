"""Run folders of streams: what is written, what survives an interruption."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import lcwof.engine.stream as engine
from lcwof.data import Dataset
from lcwof.engine import Recipe, StreamRun, read_recipe, read_run, stream_run
from lcwof.errors import LcwofError
from lcwof.models import BaseModel
from lcwof.report import stream_table, streams_json, streams_markdown, write_report


def recipe(method: str = "lcwof", **settings: object) -> Recipe:
    options = {
        "data.name": "strokes",
        "method.name": method,
        "stream.way": 4,
        "stream.shot": 2,
        "stream.streams": 3,
        "stream.queries": 8,
        "at_once": 2,
        "device": "cpu",
    }
    if method == "lcwof":
        options |= {"method.phase2.epochs": 4, "method.phase3.epochs": 4}
    return read_recipe([], {**options, **settings}, [])


def test_a_folder_of_streams_tells_the_whole_story(strokes: Dataset, strokes_model: BaseModel, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    run = stream_run(
        recipe(), strokes_model, strokes, tmp_path / "r", progress=lambda done, total: seen.append((done, total))
    )
    assert sorted(p.name for p in run.path.iterdir()) == ["rows.jsonl", "run.json"]
    assert [(row["stream"], row["session"]) for row in run.rows] == [(i, t) for i in range(3) for t in (1, 2, 3, 4)]
    assert seen[-1] == (12, 12) and seen == sorted(seen)
    assert run.about["protocol"] == "ifsl" and run.about["ways"] == [4, 4, 4] and not run.about["listed"]
    assert run.rows[0]["hm"] is None and run.rows[1]["hm"] is not None
    assert len(run.rows[3]["classes"]) == 24 and len(run.rows[3]["origins"]) == 4 and len(run.rows[3]["new"]) == 4
    assert "hm" not in run.summary()[0] and len(run.matrix()[3]) == 4
    assert set(run.totals()) == {"drop", "average", "forgetting"}
    again = read_run(run.path)
    assert isinstance(again, StreamRun) and again.rows == run.rows
    assert streams_json([run])[0]["sessions"][3]["hm"]["mean"] == pytest.approx(run.summary()[3]["hm"][0], abs=1e-3)
    assert streams_markdown(run).count("\n") == 2 + 4 and stream_table(run).row_count == 4
    page = write_report([run], tmp_path / "page.html", "streams").read_text()
    assert page.count("<svg") == 2 and "images in" not in page.split("<table>")[0] and "forgetting" in page


def test_an_interrupted_stream_goes_on_after_its_last_session(
    strokes: Dataset, strokes_model: BaseModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = stream_run(recipe(), strokes_model, strokes, tmp_path / "whole")
    real, learned = engine.run_streams, []

    def interrupted(*args, **options):  # type: ignore[no-untyped-def]
        for session, state in real(*args, **options):
            learned.append(session.number)
            yield session, state
            if len(learned) == 3:
                raise KeyboardInterrupt

    monkeypatch.setattr(engine, "run_streams", interrupted)
    with pytest.raises(KeyboardInterrupt):
        stream_run(recipe(), strokes_model, strokes, tmp_path / "r")
    assert not (tmp_path / "r").exists() and (tmp_path / "r.partial" / "chain.safetensors").exists()
    with (tmp_path / "r.partial" / "rows.jsonl").open("a") as file:
        file.write('{"stream": 0, "session": 4, "cut off')
    resumed = stream_run(recipe(), strokes_model, strokes, tmp_path / "r")
    assert learned == [1, 2, 3, 4, 1, 2, 3, 4], "two streams together go on with session 4, then comes the third"
    assert resumed.rows == whole.rows
    with pytest.raises(LcwofError, match="exists"):
        stream_run(recipe(), strokes_model, strokes, tmp_path / "r")


def test_running_out_of_memory_goes_on_with_fewer_streams(
    strokes: Dataset, strokes_model: BaseModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, notices = engine.run_streams, []

    def small(method, base, fitted, streams, *args, **options):  # type: ignore[no-untyped-def]
        if len(streams.numbers) > 1:
            raise torch.OutOfMemoryError
        yield from real(method, base, fitted, streams, *args, **options)

    monkeypatch.setattr(engine, "run_streams", small)
    run = stream_run(recipe("pn"), strokes_model, strokes, tmp_path / "r", notice=notices.append)
    assert len(run.rows) == 12 and notices == ["Out of memory with 2 streams at once: going on with 1."]
