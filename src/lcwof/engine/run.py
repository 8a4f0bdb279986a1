"""Runs of the generalized protocol, from a recipe into a folder. A report is made from run folders alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from lcwof.compute import Compute
from lcwof.data.episodes import EpisodeSource
from lcwof.data.images import Dataset
from lcwof.engine.folder import RunFolder, is_done, read_about, read_lines, require_whole
from lcwof.engine.origin import hardware, versions
from lcwof.engine.recipe import Recipe, learners_at_once, set_apart
from lcwof.engine.recorded import RecordedAnswers, join_answers, keep_answers, read_answers
from lcwof.errors import LcwofError
from lcwof.evaluation import MEASURES, Measured, mean_and_interval, prepare, run_episodes
from lcwof.learning.inputs import even
from lcwof.methods import Fitting, Method, own_code
from lcwof.models import BaseModel


@dataclass
class Run:
    """A finished run, as read from its folder."""

    path: Path
    about: dict[str, Any]
    rows: list[dict[str, float]]  # one an episode: "episode" and the measures
    curves: list[dict[str, Any]] = field(default_factory=list)  # one an episode: "phase", "epoch" and measures as lists
    answers: RecordedAnswers | None = None  # None: the run did not record them

    @property
    def title(self) -> str:
        """Method and setting, as tables name the run."""
        e = self.about["recipe"]["evaluate"]
        return f"{self.about['recipe']['method']['name']} {e['way']}w{e['shot']}s"

    def summary(self) -> dict[str, tuple[float, float]]:
        """Mean and 95% interval of each measure."""
        return {name: mean_and_interval([row[name] for row in self.rows]) for name in MEASURES}

    @classmethod
    def read(cls, path: Path) -> Run:
        rows, curves = (list(read_lines(path / f"{name}.jsonl")) for name in ("rows", "curves"))
        about = read_about(path)
        require_whole(path, rows, about["recipe"]["evaluate"]["episodes"], ("episode",), MEASURES)
        return cls(path, about, rows, curves, read_answers(path))


def find_runs(path: Path) -> list[Path]:
    """The run folders at a path: itself, or those in it, however deep. Unfinished ones (NAME.partial) are left out."""
    if (path / "run.json").exists() or not path.is_dir():
        return [path]
    found = sorted(p.parent for p in path.rglob("run.json") if not p.parent.name.endswith(".partial"))
    if not found:
        raise LcwofError(f"{path} is not a run folder and holds none.")
    return found


def evaluate_run(
    recipe: Recipe,
    model: BaseModel,
    data: Dataset,
    out: Path,
    overwrite: bool = False,
    progress: Callable[[int, int], None] = lambda done, total: None,
    notice: Callable[[str], None] = lambda text: None,
    fitting: Fitting = lambda what, done, total: None,
) -> Run:
    """Evaluate a recipe's method on its episodes into the folder `out`, resuming what an earlier attempt left; to a
    finished run of fewer episodes those that it lacks are added, and one of as many is read.

    Running out of memory halves the number of episodes at once, and having been killed before any batch was done one
    that nobody asked for; nothing finished is lost.
    """
    model.require(data)
    method = recipe.kind()(recipe.method_config())
    e = recipe.evaluate
    source = EpisodeSource.of(data, "novel", e.way, e.shot, e.queries, e.seed)
    compute = recipe.compute(method, e.episodes)
    queries = {"novel": source.queries, "base": source.base_queries}
    about = {**describe(recipe, model, data, compute), "queries": queries}
    fits = learners_at_once(method, model)  # before the folder: it refuses what the backbone cannot do
    if not overwrite and is_done(out, about, what_decides, _episodes):
        notice(f"{out} is there already: nothing is left to do.")
        return Run.read(out)
    folder = RunFolder.open(out, about, overwrite, what_decides, _episodes)
    total, done = e.episodes, _whole_episodes(folder)
    todo = [number for number in range(total) if number not in done]
    progress(total - len(todo), total)
    if todo:
        base, fitted = prepare(method, model, data, compute, fitting)
        moments = _moments(method, e.curves)
        asked = None if compute.compiled else recipe.at_once  # what is compiled is filled up: rather nothing to fill
        at_once = asked or even(total, recipe.at_once or fits)
        batches = 0
        killed, before = [*folder.killed_with(), 0, 0][:2]  # batches done before it, in the same attempt: so many fit
        if killed > 1 and not before and at_once > killed // 2:
            with_so_many = f"The last attempt was killed with {killed} episodes at once"
            if recipe.at_once:
                notice(f"{with_so_many}: if it was for want of memory, --at-once {killed // 2} takes less.")
            else:
                at_once = killed // 2
                notice(f"{with_so_many}: going on with {at_once}.")
        while todo:
            numbers = todo[:at_once]
            size = at_once if compute.compiled else len(numbers)
            along: list[Measured] = []
            try:
                with folder.working(size, batches):
                    along = list(run_episodes(method, base, fitted, source, numbers, moments, size))
            except torch.OutOfMemoryError:
                if size == 1:
                    raise
            if not along:  # here, when what filled the memory is let go
                at_once = size // 2
                torch.cuda.empty_cache()
                notice(f"Out of memory with {size} episodes at once: going on with {at_once}.")
                continue
            if e.answers:  # before the rows: an episode counts when its row is there
                keep_answers(folder, data.split.base, data.split.novel, numbers, along[-1].answers)
            _add(folder, numbers, along, keep_curves=e.curves > 0)
            todo, batches = todo[len(numbers) :], batches + 1
            progress(total - len(todo), total)
    return _finish(folder, total)


def _episodes(about: dict[str, Any]) -> int:
    return int(about["recipe"]["evaluate"]["episodes"])


def _moments(method: Method, curves: int) -> Callable[[str, int], bool]:
    """Measure each phase at its start, at about `curves` points after it, the end among them (which the protocol always
    has of the last), closer together at first, where most changes."""
    if not curves:
        return lambda phase, epoch: False
    parts = [(i / curves) ** 2 for i in range(curves + 1)]
    asked = {phase: {round(part * epochs) for part in parts} for phase, epochs in method.phases().items()}
    return lambda phase, epoch: epoch in asked.get(phase, {epoch})


def describe(recipe: Recipe, model: BaseModel, data: Dataset, compute: Compute) -> dict[str, Any]:
    """What a run folder says of its run."""
    return {
        "recipe": {key: value for key, value in recipe.resolved().items() if key != "phase1"},  # that is the model's
        "data": data.name,
        "classes": {part: len(getattr(data.split, part)) for part in ("base", "val", "novel")},
        "model": model.told(),
        "date": datetime.now(UTC).date().isoformat(),
        "versions": versions(),
        "hardware": hardware(model.head.device),
        "compute": compute.words,
        **({"code": code, "known as": recipe.kind().name} if (code := own_code(recipe.kind())) else {}),
    }


def _whole_episodes(folder: RunFolder) -> set[int]:
    """Drop what a kill cut off, and say what is there: an episode counts when its row, written last, is whole."""
    rows, curves = ({int(row["episode"]): row for row in folder.rows(name)} for name in ("rows", "curves"))
    for name, found in (("rows", rows), ("curves", curves)):
        folder.rewrite(name, [found[i] for i in sorted(found) if i in rows])
    return set(rows)


def _add(folder: RunFolder, numbers: list[int], along: list[Measured], keep_curves: bool) -> None:
    rows, curves, end = [], [], along[-1]
    if [(m.phase, m.epoch) for m in along[-2:-1]] == [(end.phase, end.epoch)]:
        along = along[:-1]  # a curve is of the same queries throughout: measured by more, its end would seem to turn
    for i, number in enumerate(numbers):
        last = end.values[i].tolist()
        rows.append({"episode": number, **dict(zip(MEASURES, (round(v, 4) for v in last), strict=True))})
        curve: dict[str, Any] = {"episode": number}
        curve["phase"] = [m.phase for m in along]
        curve["epoch"] = [m.epoch for m in along]
        for at, name in enumerate(MEASURES):
            curve[name] = [round(float(m.values[i, at]), 2) for m in along]
        curves.append(curve)
    if keep_curves:
        folder.append("curves", curves)
    folder.append("rows", rows)
    folder.describe()


def _finish(folder: RunFolder, asked: int) -> Run:
    for name in ("rows", "curves"):  # in episode order, whatever order they finished in
        lines = [row for row in folder.rows(name) if row["episode"] < asked]
        folder.rewrite(name, sorted(lines, key=lambda row: row["episode"]))
    join_answers(folder, asked)
    return Run.read(folder.finish())


def what_decides(about: dict[str, Any]) -> dict[str, Any]:
    """What the numbers of an episode depend on: not the machine, not how many episodes there are or ran at once."""
    without = ("device", "precision", "at_once", "compile", "model", "phase1", "tune", "tuning")
    recipe = {k: v for k, v in about["recipe"].items() if k not in without}
    recipe["data"] = {k: v for k, v in recipe["data"].items() if k != "root"}
    recipe["evaluate"] = {k: v for k, v in recipe["evaluate"].items() if k not in ("episodes", "answers")}
    recipe["method"] = set_apart(recipe["method"])
    precision = about.get("compute", "float32").split(",")[0]
    same = {key: about.get(key) for key in ("model", "data", "protocol", "code")}
    return {"recipe": recipe, "precision": precision, **same}
