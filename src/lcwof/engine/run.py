"""Run folders: results stream to disk as they finish, an interrupted run resumes, a finished one is never half-written.

A run in progress is NAME.partial; it becomes NAME when complete. A report is made from run folders alone.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from lcwof import __version__
from lcwof.data.episodes import EpisodeSource
from lcwof.data.images import Dataset
from lcwof.engine.recipe import Recipe, learners_at_once
from lcwof.errors import LcwofError
from lcwof.evaluation import MEASURES, Measured, mean_and_interval, prepare, run_episodes
from lcwof.learning.inputs import even
from lcwof.methods import Method
from lcwof.models import BaseModel
from lcwof.models.checkpoint import write_aside


@dataclass
class Run:
    """A finished run, as read from its folder."""

    path: Path
    about: dict[str, Any]
    rows: list[dict[str, float]]  # one an episode: "episode" and the measures
    curves: list[dict[str, Any]] = field(default_factory=list)  # one an episode: "phase", "epoch" and measures as lists

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
        if not path.exists():
            raise LcwofError(f"no run folder {path}.")
        if not (path / "run.json").exists():
            raise LcwofError(f"{path} is not a run folder: it has no run.json.")
        if path.name.endswith(".partial"):
            raise LcwofError(f"{path} is unfinished: run its command again to complete it.")
        about = json.loads((path / "run.json").read_text(encoding="utf-8"))
        return cls(path, about, list(_lines(path / "rows.jsonl")), list(_lines(path / "curves.jsonl")))


def find_runs(path: Path) -> list[Path]:
    """The run folders at a path: itself, or those in it. Unfinished ones (NAME.partial) are left out."""
    if (path / "run.json").exists() or not path.is_dir():
        return [path]
    found = sorted(p.parent for p in path.glob("*/run.json") if not p.parent.name.endswith(".partial"))
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
) -> Run:
    """Evaluate a recipe's method on its episodes into the folder `out`, resuming what an earlier attempt left.

    Running out of memory, or having been killed, halves the number of episodes at once; nothing finished is lost.
    """
    model.require_classes(data.split.base)
    method = recipe.kind()(recipe.method_config())
    e = recipe.evaluate
    source = EpisodeSource.of(data, "novel", e.way, e.shot, e.queries, e.seed)
    compute = recipe.compute(method, e.episodes)
    folder = _Folder.open(out, {**_about(recipe, model, data, source), "compute": compute.words}, overwrite)
    total = e.episodes
    progress(len(folder.done & set(range(total))), total)
    todo = [number for number in range(total) if number not in folder.done]
    if todo:
        base, fitted = prepare(method, model, data, compute)
        moments = _moments(method, e.curves)
        at_once = min(recipe.at_once or even(len(todo), learners_at_once(method, model)), len(todo))
        killed = folder.killed_with()
        if killed > 1 and at_once > killed // 2:
            at_once = killed // 2
            notice(f"The last attempt was killed with {killed} episodes at once: going on with {at_once}.")
        while todo:
            numbers = todo[:at_once]
            size = at_once if compute.compiled else len(numbers)
            along: list[Measured] = []
            try:
                with folder.working(size):
                    along = list(run_episodes(method, base, fitted, source, numbers, moments, size))
            except torch.OutOfMemoryError:
                if size == 1:
                    raise
            if not along:  # here, when what filled the memory is let go
                at_once = size // 2
                torch.cuda.empty_cache()
                notice(f"Out of memory with {size} episodes at once: going on with {at_once}.")
                continue
            folder.add(numbers, along, keep_curves=e.curves > 0)
            progress(len(folder.done), total)
            todo = todo[len(numbers) :]
    return folder.finish()


def _moments(method: Method, curves: int) -> Callable[[str, int], bool]:
    """Measure each phase at its start, at about `curves` points, and (always, by the protocol) at the very end."""
    if not curves:
        return lambda phase, epoch: False
    step = {phase: max(1, epochs // curves) for phase, epochs in method.phases().items()}
    return lambda phase, epoch: epoch % step.get(phase, 1) == 0


def _about(recipe: Recipe, model: BaseModel, data: Dataset, source: EpisodeSource) -> dict[str, Any]:
    return {
        "recipe": recipe.resolved(),
        "data": data.name,
        "classes": {part: len(getattr(data.split, part)) for part in ("base", "val", "novel")},
        "queries": {"novel": source.queries, "base": source.base_queries},
        "model": model.about,
        "versions": {"lcwof": __version__, "torch": torch.__version__, "numpy": version("numpy")},
        "hardware": hardware(model.head.device),
    }


def hardware(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{device.type}, {os.cpu_count()} cores, {platform.machine()}"


@dataclass
class _Folder:
    """A run being written."""

    final: Path
    about: dict[str, Any]
    done: set[int] = field(default_factory=set)
    started: float = field(default_factory=time.time)

    @property
    def partial(self) -> Path:
        return self.final.with_name(self.final.name + ".partial")

    @classmethod
    def open(cls, out: Path, about: dict[str, Any], overwrite: bool) -> _Folder:
        folder = cls(out, about)
        if out.exists():
            if not overwrite:
                raise LcwofError(f"{out} exists: choose another --out, or --overwrite to replace it.")
            if not (out / "run.json").exists():
                raise LcwofError(f"{out} is not a run folder; it is not replaced.")
        described = folder.partial / "run.json"
        if described.exists() and overwrite:
            shutil.rmtree(folder.partial)
        if described.exists():
            before = json.loads(described.read_text(encoding="utf-8"))
            if _what_decides(before) != _what_decides(json.loads(json.dumps(about))):
                raise LcwofError(f"{folder.partial} was begun with other settings: use --overwrite, or another --out.")
            folder.started -= before["seconds"]
            folder._keep_whole_episodes()
        else:
            folder._write(lambda: folder.partial.mkdir(parents=True, exist_ok=True))
            folder._describe()
        return folder

    @contextmanager
    def working(self, at_once: int) -> Iterator[None]:
        """While episodes are learned a file says how many: it outlives only a process that was killed."""
        mark = self.partial / "working"
        self._write(lambda: mark.write_text(str(at_once)))
        try:
            yield
        finally:
            mark.unlink(missing_ok=True)

    def killed_with(self) -> int:
        """How many episodes were learned at once when the last attempt was killed; 0: it was not."""
        mark = self.partial / "working"
        found = mark.read_text() if mark.exists() else ""
        return int(found) if found.isdigit() else 0

    def _describe(self) -> None:
        """run.json, with the seconds worked so far (over all attempts)."""
        text = json.dumps({**self.about, "seconds": round(time.time() - self.started, 1)}, indent=1)
        self._write(lambda: write_aside(self.partial / "run.json", text.encode()))

    def _keep_whole_episodes(self) -> None:
        """Drop what a kill cut off: an episode counts when its row, written last, is whole."""
        rows = {int(row["episode"]): row for row in _lines(self.partial / "rows.jsonl")}
        curves = {int(row["episode"]): row for row in _lines(self.partial / "curves.jsonl")}
        self.done = set(rows)
        for name, found in (("rows", rows), ("curves", curves)):
            self._rewrite(name, [found[i] for i in sorted(found) if i in rows])

    def add(self, numbers: list[int], along: list[Measured], keep_curves: bool) -> None:
        rows, curves = [], []
        for i, number in enumerate(numbers):
            last = along[-1].values[i].tolist()
            rows.append({"episode": number, **dict(zip(MEASURES, (round(v, 4) for v in last), strict=True))})
            curve: dict[str, Any] = {"episode": number}
            curve["phase"] = [m.phase for m in along]
            curve["epoch"] = [m.epoch for m in along]
            for at, name in enumerate(MEASURES):
                curve[name] = [round(float(m.values[i, at]), 2) for m in along]
            curves.append(curve)
        if keep_curves:
            self._append("curves.jsonl", curves)
        self._append("rows.jsonl", rows)
        self.done |= set(numbers)
        self._describe()

    def finish(self) -> Run:
        asked = self.about["recipe"]["evaluate"]["episodes"]
        for name in ("rows", "curves"):  # in episode order, whatever order they finished in
            lines = [row for row in _lines(self.partial / f"{name}.jsonl") if row["episode"] < asked]
            self._rewrite(name, sorted(lines, key=lambda row: row["episode"]))
        self._describe()
        if self.final.exists():
            shutil.rmtree(self.final)
        self.partial.rename(self.final)
        return Run.read(self.final)

    def _rewrite(self, name: str, records: list[dict[str, Any]]) -> None:
        text = "".join(json.dumps(record) + "\n" for record in records)
        self._write(lambda: write_aside(self.partial / f"{name}.jsonl", text.encode()))

    def _append(self, name: str, records: list[dict[str, Any]]) -> None:
        def write() -> None:
            with (self.partial / name).open("a", encoding="utf-8") as file:
                file.writelines(json.dumps(record) + "\n" for record in records)

        self._write(write)

    def _write(self, action: Callable[[], object]) -> None:
        try:
            action()
        except (OSError, LcwofError) as error:
            why = getattr(error, "strerror", None) or error
            raise LcwofError(
                f"could not write the run folder {self.partial}: {why}. Finished episodes are kept; "
                "the same command goes on from there."
            ) from error


def _what_decides(about: dict[str, Any]) -> dict[str, Any]:
    """What the numbers of an episode depend on: not the machine, not how many episodes there are or ran at once."""
    recipe = {k: v for k, v in about["recipe"].items() if k not in ("device", "at_once", "compile", "model")}
    recipe["data"] = {k: v for k, v in recipe["data"].items() if k != "root"}
    recipe["evaluate"] = {k: v for k, v in recipe["evaluate"].items() if k != "episodes"}
    precision = about.get("compute", "float32").split(",")[0]
    return {"recipe": recipe, "model": about["model"], "data": about["data"], "precision": precision}


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    """The whole JSON lines of a file; a last line cut off by a kill is left out."""
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                yield json.loads(line)
            except json.JSONDecodeError:
                return
