"""Runs of the incremental protocol, from a recipe into a folder: one row a stream and session."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from lcwof.data.images import Dataset
from lcwof.data.sessions import Streams
from lcwof.engine.folder import Row, RunFolder, is_done, read_about, read_lines, require_whole
from lcwof.engine.recipe import Recipe, learners_at_once
from lcwof.engine.recorded import RecordedAnswers, join_answers, keep_answers, read_answers
from lcwof.engine.run import Run, describe, what_decides
from lcwof.errors import LcwofError
from lcwof.evaluation import MEASURES, mean_and_interval, prepare
from lcwof.evaluation.ifsl import Session, run_streams, summary_measures
from lcwof.methods import Base, Fitting, Method, State
from lcwof.models import BaseModel
from lcwof.models.checkpoint import load_tensors, save_tensors

_CHAIN = "chain.safetensors"  # where the streams in progress stand
_KIND = "stream in progress"


@dataclass
class StreamRun:
    """A finished run, as read from its folder."""

    path: Path
    about: dict[str, Any]
    rows: list[Row]  # by stream, then session: the measures, "origins" and "classes" (percent right), "kept" images
    answers: RecordedAnswers | None = None  # those after the last session; None: the run did not record them

    @property
    def sessions(self) -> int:
        return max(row["session"] for row in self.rows)

    @property
    def streams(self) -> list[list[Row]]:
        numbers = sorted({row["stream"] for row in self.rows})
        return [[row for row in self.rows if row["stream"] == number] for number in numbers]

    @property
    def distinct(self) -> list[list[Row]]:
        """The streams to count: one where all of a published list came to the same, since the method has nothing random
        in it. Streams whose images or order were drawn are others, whatever they come to."""
        if not self.about.get("listed") or self.about["recipe"]["stream"]["shuffle"]:
            return self.streams
        first, *others = ([{**row, "stream": 0} for row in stream] for stream in self.streams)
        return self.streams[:1] if all(other == first for other in others) else self.streams

    def summary(self) -> list[dict[str, tuple[float, float]]]:
        """Mean and 95% interval of each measure over the streams, session by session."""
        found = []
        counted = [row for stream in self.distinct for row in stream]
        for session in range(1, self.sessions + 1):
            rows = [row for row in counted if row["session"] == session]
            known = [name for name in MEASURES if rows[0][name] is not None]
            found.append({name: mean_and_interval([row[name] for row in rows]) for name in known})
        return found

    def totals(self) -> dict[str, tuple[float, float]]:
        """Mean and interval of what whole streams come to."""
        each = [summary_measures(stream) for stream in self.distinct]
        return {name: mean_and_interval([one[name] for one in each]) for name in each[0]}

    def matrix(self) -> list[list[float]]:
        """Percent right among all classes: a row for each session, by the session that classes came in."""
        found = []
        for session in range(1, self.sessions + 1):
            rows = [row["origins"] for row in self.rows if row["session"] == session]
            found.append([fmean(values) for values in zip(*rows, strict=True)])
        return found

    @classmethod
    def read(cls, path: Path) -> StreamRun:
        about, rows = read_about(path), list(read_lines(path / "rows.jsonl"))
        expected = about["recipe"]["stream"]["streams"] * (1 + len(about["ways"]))
        require_whole(path, rows, expected, ("stream", "session"), MEASURES)
        return cls(path, about, rows, read_answers(path))


def read_run(path: Path) -> Run | StreamRun:
    """The finished run in a folder, of either protocol."""
    return StreamRun.read(path) if read_about(path).get("protocol") == "ifsl" else Run.read(path)


def stream_run(
    recipe: Recipe,
    model: BaseModel,
    data: Dataset,
    out: Path,
    overwrite: bool = False,
    progress: Callable[[int, int], None] = lambda done, total: None,
    notice: Callable[[str], None] = lambda text: None,
    fitting: Fitting = lambda what, done, total: None,
) -> StreamRun:
    """Evaluate a recipe's method on its streams into the folder `out`; to a finished run of fewer the rest are added,
    and one of as many is read.

    An interrupted run goes on after the last session that was finished. Running out of memory, or being killed twice in
    the same session, begins the streams in progress again, half as many at once.
    """
    model.require(data)
    method = recipe.kind()(recipe.method_config())
    how = recipe.stream
    source = how.source(data)
    method.require_stream(len(source.ways))
    compute = recipe.compute(method, how.streams, 1 + len(source.ways))
    shown = {"protocol": "ifsl", "listed": source.listed, "ways": source.ways, "shot": source.shot}
    shown["base"] = data.split.base
    fits = learners_at_once(method, model)  # before the folder: it refuses what the backbone cannot do
    at_once = recipe.at_once or fits
    about = {**describe(recipe, model, data, compute), **shown}
    if not overwrite and is_done(out, about, _what_decides, _streams):
        notice(f"{out} is there already: nothing is left to do.")
        return StreamRun.read(out)
    folder = RunFolder.open(out, about, overwrite, _what_decides, _streams)
    total = 1 + len(source.ways)
    attempt, fewer = _attempt(folder)
    if fewer:
        notice(f"Killed twice in the same session: beginning its streams again, {fewer} at once.")
        at_once = min(at_once, fewer)
    prepared: tuple[Base, Any] | None = None
    while todo := _keep_whole(folder, how.streams, total):
        progress((how.streams - len(todo)) * total, how.streams * total)
        prepared = prepared or prepare(method, model, data, compute, fitting, streams=True)
        standing = _standing(folder, method, prepared, todo, at_once)
        numbers, resume = standing or (todo[:at_once], None)
        streams = source.draw(numbers)[0]  # of several shapes, the first
        size = len(streams.numbers)
        before = (how.streams - len(todo)) * total
        ended = False
        try:
            with folder.working(size, resume[0] if resume else 0, attempt) as mark:
                for session, state in run_streams(method, *prepared, streams, how.seed, how.carry, resume=resume):
                    if session.number == total and recipe.evaluate.answers:  # before the rows that end the streams
                        keep_answers(folder, data.split.base, streams.novel, streams.numbers, session.answers)
                    folder.append("rows", _rows(streams, session))
                    _stand(folder, method, streams, session, state)
                    folder.describe()
                    mark(size, session.number, attempt := 1)
                    progress(before + size * session.number, how.streams * total)
                ended = True
        except torch.OutOfMemoryError:
            if size == 1:
                raise
        _forget(folder)
        if not ended:
            at_once = size // 2
            torch.cuda.empty_cache()
            notice(f"Out of memory with {size} streams at once: beginning them again, {at_once} at once.")
    rows = [row for row in folder.rows("rows") if row["stream"] < how.streams]
    folder.rewrite("rows", sorted(rows, key=lambda row: (row["stream"], row["session"])))
    join_answers(folder, how.streams)
    _forget(folder)
    return StreamRun.read(folder.finish())


def _rows(streams: Streams, session: Session) -> list[Row]:
    rows = []
    for i, number in enumerate(streams.numbers):
        values = {
            name: None if value != value else round(value, 4)
            for name, value in zip(MEASURES, session.values[i].tolist(), strict=True)
        }
        lists = {name: [round(v, 4) for v in getattr(session, name)[i].tolist()] for name in ("origins", "classes")}
        names = streams.steps[session.number - 2].classes[i] if session.number > 1 else ()
        rows.append(
            {
                "stream": number,
                "session": session.number,
                **values,
                **lists,
                "kept": session.kept,
                "new": list(names),
                "epoch": session.epoch,
            }
        )
    return rows


def _stand(folder: RunFolder, method: Method, streams: Streams, session: Session, state: State) -> None:
    """Keep where the streams stand, after their rows."""
    if session.number < streams.count:
        about = {"numbers": list(streams.numbers), "session": session.number}
        folder.write(lambda: save_tensors(folder.partial / _CHAIN, _KIND, method.pack(state), about))


def _forget(folder: RunFolder) -> None:
    for file in folder.partial.glob(f"*{_CHAIN}*"):  # what a kill has left of a save, too
        file.unlink()


def _attempt(folder: RunFolder) -> tuple[int, int]:
    """Which attempt at its session this is; after two that were killed, how many streams to take at once instead."""
    killed = folder.killed_with()
    if len(killed) < 3:
        return 1, 0
    size, _, attempts = killed
    if attempts < 2 or size < 2:
        return attempts + 1, 0
    _forget(folder)
    return 1, size // 2


def _standing(
    folder: RunFolder, method: Method, prepared: tuple[Base, Any], todo: list[int], at_once: int
) -> tuple[list[int], tuple[int, State]] | None:
    """The streams that were in progress, their last finished session and its state; more than fit are begun again."""
    file = folder.partial / _CHAIN
    if not file.exists():
        return None
    tensors, about = load_tensors(file, _KIND)
    if not set(about["numbers"]) <= set(todo) or len(about["numbers"]) > at_once:
        _forget(folder)
        return None
    device = prepared[0].inputs.device
    try:
        state = method.unpack(*prepared, {name: tensor.to(device) for name, tensor in tensors.items()})
    except (TypeError, KeyError) as error:
        raise LcwofError(
            f"{file} was written by another version of {method.name}: use --overwrite, or another --out."
        ) from error
    return about["numbers"], (about["session"], state)


def _keep_whole(folder: RunFolder, streams: int, total: int) -> list[int]:
    """Drop rows of streams that neither ended nor stand somewhere; returns the streams that have not ended."""
    file = folder.partial / _CHAIN
    standing: dict[int, int] = {}
    if file.exists():
        about = load_tensors(file, _KIND)[1]
        standing = {number: about["session"] for number in about["numbers"]}
    rows = {(row["stream"], row["session"]): row for row in folder.rows("rows")}
    ended = {stream for stream, session in rows if session == total}
    kept = [key for key in sorted(rows) if key[0] in ended or key[1] <= standing.get(key[0], 0)]
    folder.rewrite("rows", [rows[key] for key in kept])
    return [number for number in range(streams) if number not in ended]


def _streams(about: dict[str, Any]) -> int:
    return int(about["recipe"]["stream"]["streams"])


def _what_decides(about: dict[str, Any]) -> dict[str, Any]:
    found = what_decides(about)
    found["recipe"]["stream"] = {k: v for k, v in found["recipe"]["stream"].items() if k != "streams"}
    return found
