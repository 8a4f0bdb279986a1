"""Run folders of streams: what is written, what survives an interruption."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import lcwof.engine.stream as engine
from lcwof.data import Dataset
from lcwof.data.images import Session
from lcwof.engine import Recipe, StreamRun, evaluate_run, read_recipe, read_run, stream_run
from lcwof.errors import LcwofError
from lcwof.methods.lcwof import LCwoF, LCwoFState
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


def same_answers(a: StreamRun, b: StreamRun) -> bool:
    """Confidences up to rounding, which depends on how many streams are learned together."""
    assert a.answers is not None and b.answers is not None
    mine, theirs = a.answers.by_name(), b.answers.by_name()
    named = a.answers.episodes == b.answers.episodes and a.answers.names == b.answers.names
    return named and all(x.shape == y.shape and np.allclose(x, y, atol=2e-3) for x, y in zip(mine, theirs, strict=True))


def require_answers_of_rows(run: StreamRun) -> None:
    """That the answers come to what the rows of the last session say."""
    assert run.answers is not None
    true, answered, _ = run.answers.by_name()
    for number, stream in zip(run.answers.episodes, zip(true, answered, strict=True), strict=True):
        last = run.streams[number][-1]
        asked, right = stream[0] >= 0, stream[0] == stream[1]
        novel = stream[0] >= len(run.answers.base)
        for name, part in (("N/J", novel), ("B/J", asked & ~novel), ("J/J", asked)):
            assert 100 * right[part].mean() == pytest.approx(last[name], abs=1e-3)
        came = [name for row in run.streams[number] for name in row["new"]]
        by_class = [right[stream[0] == run.answers.names.index(name)].mean() for name in (*run.answers.base, *came)]
        assert [100 * share for share in by_class] == pytest.approx(last["classes"], abs=1e-3)


def unequal(strokes: Dataset) -> Dataset:
    """The data set with lists of four classes, tested on 3, 5, 7 and 9 images."""
    names = strokes.split.novel[:4]
    groups = strokes.images.of_classes(names)
    tests = tuple(group[10 : 13 + 2 * i] for i, group in enumerate(groups))
    sessions = (
        Session(names[:1], (groups[0][:2],), tests[:1]),
        Session(names[1:], tuple(g[:2] for g in groups[1:]), tests[1:]),
    )
    return dataclasses.replace(strokes, sessions=sessions)


def test_a_folder_of_streams_tells_the_whole_story(strokes: Dataset, strokes_model: BaseModel, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    run = stream_run(
        recipe(), strokes_model, strokes, tmp_path / "r", progress=lambda done, total: seen.append((done, total))
    )
    assert sorted(p.name for p in run.path.iterdir()) == ["answers.safetensors", "rows.jsonl", "run.json"]
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
    assert streams_markdown(run).count("\n") == 4 + 4 and stream_table(run).row_count == 4
    page = write_report([run], tmp_path / "page.html", "streams").read_text()
    assert (
        page.count('class="plot"') == 5 and "forgetting" in page and "2-shot: 3 streams" in page and "not tuned" in page
    )


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
    with monkeypatch.context() as other, pytest.raises(LcwofError, match=r"chain.safetensors was written by another"):
        other.setattr(LCwoF, "unpack", lambda *_: LCwoFState("resumed", 0, bias=0))  # type: ignore[call-arg]
        stream_run(recipe(), strokes_model, strokes, tmp_path / "r")
    resumed = stream_run(recipe(), strokes_model, strokes, tmp_path / "r")
    assert learned == [1, 2, 3, 4, 1, 2, 3, 4], "two streams together go on with session 4, then comes the third"
    assert resumed.rows == whole.rows and same_answers(resumed, whole)
    assert stream_run(recipe(), strokes_model, strokes, tmp_path / "r").rows == whole.rows and len(learned) == 8, "read"
    fewer = dataclasses.replace(recipe(), stream=dataclasses.replace(recipe().stream, streams=1))
    with pytest.raises(LcwofError, match=r"exists: .* It has 3 episodes or streams, 1 are asked for"):
        stream_run(fewer, strokes_model, strokes, tmp_path / "r")


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
    again = "Out of memory with 2 streams at once: beginning them again, 1 at once."
    assert len(run.rows) == 12 and notices == [again]


def test_out_of_memory_in_a_later_session_loses_no_ended_stream_and_leaves_nothing_behind(
    strokes: Dataset, strokes_model: BaseModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = stream_run(recipe("pn"), strokes_model, strokes, tmp_path / "whole")
    real = engine.run_streams

    def late(method, base, fitted, streams, *args, **options):  # type: ignore[no-untyped-def]
        for session, state in real(method, base, fitted, streams, *args, **options):
            if len(streams.numbers) > 1 and session.number == 3:
                raise torch.OutOfMemoryError
            yield session, state

    monkeypatch.setattr(engine, "run_streams", late)
    run = stream_run(recipe("pn"), strokes_model, strokes, tmp_path / "r")
    assert run.rows == whole.rows and same_answers(run, whole)
    assert sorted(p.name for p in run.path.iterdir()) == ["answers.safetensors", "rows.jsonl", "run.json"]


def test_a_stream_killed_twice_in_a_session_goes_on_with_fewer_at_once(
    strokes: Dataset, strokes_model: BaseModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = stream_run(recipe("pn"), strokes_model, strokes, tmp_path / "whole")
    real, sizes = engine.run_streams, []
    mark = tmp_path / "r.partial" / "working"

    def killed(method, base, fitted, streams, *args, **options):  # type: ignore[no-untyped-def]
        sizes.append(len(streams.numbers))
        for session, state in real(method, base, fitted, streams, *args, **options):
            if session.number == 3 and len(streams.numbers) > 1:
                kept = mark.read_text()
                raise KeyboardInterrupt(kept)
            yield session, state

    monkeypatch.setattr(engine, "run_streams", killed)
    notices: list[str] = []
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt) as stopped:
            stream_run(recipe("pn"), strokes_model, strokes, tmp_path / "r", notice=notices.append)
        mark.write_text(str(stopped.value))  # as a kill would have left it
    assert mark.read_text() == "2 2 2" and not notices
    run = stream_run(recipe("pn"), strokes_model, strokes, tmp_path / "r", notice=notices.append)
    assert sizes == [2, 2, 1, 1, 1] and run.rows == whole.rows and same_answers(run, whole)
    assert notices == ["Killed twice in the same session: beginning its streams again, 1 at once."]


def test_a_smaller_number_at_once_is_heeded_when_going_on(
    strokes: Dataset, strokes_model: BaseModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, sizes = engine.run_streams, []

    def once(method, base, fitted, streams, *args, **options):  # type: ignore[no-untyped-def]
        sizes.append(len(streams.numbers))
        for session, state in real(method, base, fitted, streams, *args, **options):
            yield session, state
            if session.number == 2 and len(sizes) == 1:
                raise KeyboardInterrupt

    monkeypatch.setattr(engine, "run_streams", once)
    with pytest.raises(KeyboardInterrupt):
        stream_run(recipe("pn"), strokes_model, strokes, tmp_path / "r")
    run = stream_run(recipe("pn", at_once=1), strokes_model, strokes, tmp_path / "r")
    assert sizes == [2, 1, 1, 1] and len(run.rows) == 12


def test_more_streams_are_added_to_a_finished_run(strokes: Dataset, strokes_model: BaseModel, tmp_path: Path) -> None:
    whole = stream_run(recipe("pn"), strokes_model, strokes, tmp_path / "whole")
    few = stream_run(recipe("pn", **{"stream.streams": 1}), strokes_model, strokes, tmp_path / "r")
    assert len(few.streams) == 1 and len(whole.streams) == 3
    begun: list[int] = []
    run = stream_run(recipe("pn"), strokes_model, strokes, tmp_path / "r", progress=lambda done, _: begun.append(done))
    assert begun[0] == len(few.rows) and run.rows == whole.rows and same_answers(run, whole)


@pytest.mark.parametrize("shuffle", [False, True])
def test_the_answers_of_the_last_session_are_those_of_the_rows(
    strokes: Dataset, strokes_model: BaseModel, tmp_path: Path, shuffle: bool
) -> None:
    run = stream_run(recipe("pn", **{"stream.shuffle": shuffle}), strokes_model, strokes, tmp_path / "r")
    require_answers_of_rows(run)
    assert run.answers is not None and run.answers.episodes == (0, 1, 2)
    assert run.answers.base == strokes.split.base
    assert run.answers.novel == (*strokes.split.val, *strokes.split.novel)
    queries = run.answers.given.answered.numel()
    assert (run.path / "answers.safetensors").stat().st_size < queries * 4 + 5000


def test_streams_with_other_queries_keep_all_of_theirs(
    strokes: Dataset, strokes_model: BaseModel, tmp_path: Path
) -> None:
    """Only the first session, of one class, is learned; which class it is differs."""
    lists: dict[str, Any] = {"stream.way": None, "stream.shot": None, "stream.sessions": 1, "stream.shuffle": True}
    data = unequal(strokes)
    whole = stream_run(recipe("pn", **lists, **{"stream.streams": 5}), strokes_model, data, tmp_path / "whole")
    require_answers_of_rows(whole)
    assert whole.answers is not None
    asked = (whole.answers.by_name()[0] >= 0).sum(1) - len(strokes.split.test)
    assert asked.tolist() == [3 + 2 * data.split.novel.index(stream[1]["new"][0]) for stream in whole.streams]
    assert len(set(asked.tolist())) > 1
    stream_run(recipe("pn", **lists, **{"stream.streams": 2}), strokes_model, data, tmp_path / "r")
    more = stream_run(recipe("pn", **lists, **{"stream.streams": 5}), strokes_model, data, tmp_path / "r")
    assert same_answers(more, whole)


def test_answers_of_streams_survive_a_kill_before_their_rows(
    strokes: Dataset, strokes_model: BaseModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = stream_run(recipe("pn"), strokes_model, strokes, tmp_path / "whole")

    def killed(*args: object) -> None:
        raise KeyboardInterrupt

    keep = engine.keep_answers
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(engine, "keep_answers", lambda *args: killed(keep(*args)))
        stream_run(recipe("pn"), strokes_model, strokes, tmp_path / "r")
    assert [file.name for file in (tmp_path / "r.partial").glob("answers*")] == ["answers-000000.safetensors"]
    run = stream_run(recipe("pn"), strokes_model, strokes, tmp_path / "r")
    assert run.rows == whole.rows and same_answers(run, whole)
    assert [file.name for file in run.path.glob("answers*")] == ["answers.safetensors"]


def test_a_run_of_streams_without_answers_reads_and_grows(
    strokes: Dataset, strokes_model: BaseModel, tmp_path: Path
) -> None:
    without = recipe("pn", **{"stream.streams": 1, "evaluate.answers": False})
    old = stream_run(without, strokes_model, strokes, tmp_path / "r")
    assert old.answers is None and not list(old.path.glob("answers*"))
    assert "taken for whom" not in write_report([old], tmp_path / "old.html", "old").read_text()
    run = stream_run(recipe("pn"), strokes_model, strokes, tmp_path / "r")
    require_answers_of_rows(run)
    assert run.answers is not None and run.answers.episodes == (1, 2)
    assert "pn, 2 of 3 streams" in write_report([run], tmp_path / "new.html", "new").read_text()


def test_the_folder_of_the_other_protocol_is_not_gone_on_with(
    strokes: Dataset, strokes_model: BaseModel, tmp_path: Path
) -> None:
    def stop(done: int, total: int) -> None:
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        evaluate_run(recipe("pn"), strokes_model, strokes, tmp_path / "r", progress=stop)
    with pytest.raises(LcwofError, match="begun with other settings"):
        stream_run(recipe("pn"), strokes_model, strokes, tmp_path / "r")
    with pytest.raises(LcwofError, match="this backbone has 2 stages"):
        stream_run(recipe(**{"method.adapt": 9}), strokes_model, strokes, tmp_path / "s")
    assert not (tmp_path / "s.partial").exists(), "what was refused is not in the way of the corrected command"


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"method.alternate": 2}, "alternate is for one set of novel classes, and the stream has 2"),
        ({"method.distillation.weight": 1.0, "method.distillation.unlabelled": 5}, "none in streams"),
    ],
)
def test_settings_that_do_not_go_with_streams_are_refused_before_there_is_a_folder(
    settings: dict[str, Any],
    why: str,
    strokes: Dataset,
    strokes_model: BaseModel,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(LCwoF, "fit_base", lambda *_: pytest.fail("begun"))
    with pytest.raises(LcwofError, match=why):
        stream_run(recipe(**{"stream.sessions": 2}, **settings), strokes_model, strokes, tmp_path / "r")
    assert not list(tmp_path.iterdir())


def test_parts_of_what_streams_do_may_be_compiled(strokes: Dataset, strokes_model: BaseModel, tmp_path: Path) -> None:
    """By the compiler's own plain backend, which shows that the same is computed."""
    plain = stream_run(recipe(), strokes_model, strokes, tmp_path / "plain")
    with pytest.MonkeyPatch.context() as patch:
        compiled, compiler = list[str](), torch.compile
        patch.setattr(
            torch, "compile", lambda f, **options: compiled.append(f.__name__) or compiler(f, backend="eager")
        )
        run = stream_run(recipe(compile=True), strokes_model, strokes, tmp_path / "compiled")
    assert set(compiled) == {"network_inputs", "_through_trunk", "update"}
    assert run.about["compute"].endswith(", parts compiled")
    for mine, theirs in zip(run.rows, plain.rows, strict=True):
        assert mine["J/J"] == pytest.approx(theirs["J/J"], abs=0.5)


def test_every_stream_has_the_names_of_its_own_classes(
    strokes: Dataset, strokes_model: BaseModel, tmp_path: Path
) -> None:
    asked = recipe(**{"stream.shuffle": True})
    run = stream_run(asked, strokes_model, strokes, tmp_path / "r")
    for number, stream in enumerate(run.streams):
        (drawn,) = asked.stream.source(strokes).draw([number])
        assert [row["new"] for row in stream[1:]] == [list(step.classes[0]) for step in drawn.steps]
    assert len({tuple(row["new"]) for row in run.rows if row["session"] == 2}) > 1


def test_what_is_carried_on_is_another_run(strokes: Dataset, strokes_model: BaseModel, tmp_path: Path) -> None:
    rates = {
        "stream.streams": 1,
        "method.phase3.lr_head": 0.1,
        "method.phase3.lr_tail": 0.1,
        "method.weight_constraint": 0.0,
    }
    aside, carried = (recipe("lcwof", **rates, **{"stream.carry": carry}) for carry in (False, True))
    first = stream_run(aside, strokes_model, strokes, tmp_path / "r")
    second = stream_run(carried, strokes_model, strokes, tmp_path / "s")
    assert second.rows[:2] == first.rows[:2] and second.rows[2:] != first.rows[2:], "from the second session on"
    more = dataclasses.replace(carried, stream=dataclasses.replace(carried.stream, streams=2))
    with pytest.raises(LcwofError, match="exists: choose another --out"):
        stream_run(more, strokes_model, strokes, tmp_path / "r")


def test_the_seed_decides_what_is_learned_too(
    strokes: Dataset, strokes_model: BaseModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import lcwof.engine.stream as engine

    seeds: list[int] = []
    real = engine.run_streams

    def noting(method: Any, base: Any, fitted: Any, drawn: Any, seed: int, *rest: Any, **options: Any) -> Any:
        seeds.append(seed)
        return real(method, base, fitted, drawn, seed, *rest, **options)

    monkeypatch.setattr(engine, "run_streams", noting)
    stream_run(recipe(**{"stream.seed": 7}), strokes_model, strokes, tmp_path / "r")
    assert set(seeds) == {7}
