"""A study: methods, or variants of one, chosen for without test data and run one after the other into one folder."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from lcwof.data.episodes import EpisodeSource
from lcwof.data.images import Dataset
from lcwof.data.sessions import pseudo_sessions
from lcwof.engine.choose import (
    OUTCOMES,
    Outcome,
    choose,
    choose_stream,
    chosen_stream,
    require_pseudo,
    what_is_asked,
    write_choice,
)
from lcwof.engine.hold import holding
from lcwof.engine.recipe import Data, Recipe, read_recipe, set_apart
from lcwof.engine.run import Run, evaluate_run
from lcwof.engine.stream import StreamRun, read_run, stream_run
from lcwof.errors import Diverged, LcwofError, OtherSettings
from lcwof.evaluation import Tuning
from lcwof.methods import BEST, own_code
from lcwof.models import BaseModel
from lcwof.models.checkpoint import unfinished

Show = Callable[..., None]  # (done, total) and, if need be, a short text
Bars = Callable[[str], AbstractContextManager[Show]]  # a progress bar by its label
Notice = Callable[[str], None]


@dataclass(frozen=True)
class Entry:
    """One run of a study."""

    name: str  # of its folder
    recipe: Recipe
    tuned: bool = True  # choose settings first, on validation classes or on pseudo-sessions
    protocol: Literal["gfsl", "ifsl"] = "gfsl"
    outcome: Outcome = "balanced"
    pseudo_model: str | None = None  # for the choice in the incremental protocol, with recipe.data.pseudo


@contextmanager
def no_bar(label: str) -> Iterator[Show]:
    yield lambda done, total, text="": None


class Study:
    """A folder of runs. What is there already is not done again, so an interrupted study goes on; several processes may
    work in one folder, each on a run of its own."""

    def __init__(self, folder: Path, bars: Bars = no_bar, notice: Notice = lambda text: None) -> None:
        self.folder, self.bars, self.notice = folder, bars, notice
        self._models: dict[str, BaseModel] = {}
        self._data: dict[str, Dataset] = {}

    def run(self, entries: Sequence[Entry]) -> list[Run | StreamRun]:
        """All that can be learned. What cannot work is found before any work starts."""
        for entry in entries:
            entry.recipe.method_config()
            if entry.tuned:
                entry.recipe.grid()
            self.model(entry.recipe)
            self.require_possible(entry)
        runs = [run for entry in entries if (run := self.attempt(entry))]
        if entries and not runs:
            raise LcwofError("nothing was learned: all of it diverged.")
        return runs

    def attempt(self, entry: Entry) -> Run | StreamRun | None:
        """The run, or a notice where it diverges: the others of a study may go well."""
        try:
            return self.run_one(entry)
        except Diverged as error:
            self.notice(f"{entry.name} is left out: {error}")
            return None

    def run_one(self, entry: Entry) -> Run | StreamRun:
        """The run, settings chosen first; `Held` where another process is at it."""
        with holding(self.folder / entry.name):
            return self._run_one(entry)

    def _run_one(self, entry: Entry) -> Run | StreamRun:
        out, recipe = self.folder / entry.name, entry.recipe
        if out.exists():
            run = self._same(read_run(out), entry)
            if not self._lacks(run, entry):
                return run
            found = run.about["recipe"]  # what was chosen stays: elsewhere another choice might come out
            recipe = dataclasses.replace(recipe, method=found["method"], tuning=found.get("tuning") or {})
        elif entry.tuned:
            recipe = self._chosen(entry)
        recipe = dataclasses.replace(recipe, data=dataclasses.replace(recipe.data, pseudo=0))
        model, data = self.model(recipe), self.data(recipe.data)
        with self.bars(f"{entry.name} test".ljust(16)) as show:
            fitting = fitting_on(show)
            if entry.protocol == "ifsl":
                return stream_run(recipe, model, data, out, False, show, self.notice, fitting)
            return evaluate_run(recipe, model, data, out, False, show, self.notice, fitting)

    def require_possible(self, entry: Entry) -> None:
        """Refuse episodes, or streams, that the data set has not the classes or images for, and settings that do not go
        with streams."""
        data, e = self.data(entry.recipe.data), entry.recipe.evaluate
        if entry.protocol == "ifsl":
            sessions = len(entry.recipe.stream.source(data).ways)
            entry.recipe.kind()(entry.recipe.method_config()).require_stream(sessions)
        else:
            EpisodeSource.of(data, "novel", e.way, e.shot, e.queries, e.seed)

    def model(self, recipe: Recipe) -> BaseModel:
        key = str(recipe.model)
        if key not in self._models:
            self._models[key] = recipe.load_model()
        return self._models[key]

    def data(self, data: Data) -> Dataset:
        data = dataclasses.replace(data, pseudo=0)
        if str(data) not in self._data:
            self._data[str(data)] = data.load()
        return self._data[str(data)]

    def _chosen(self, entry: Entry) -> Recipe:
        recipe, file = entry.recipe, self.folder / f"{entry.name}.toml"
        if file.exists():
            chosen = read_recipe([file], {}, [])
            if chosen.tuning.get("asked") != self._asked(entry):
                raise LcwofError(f"{file} was tuned for other settings: choose another --out, or remove it.")
            return dataclasses.replace(recipe, method=chosen.method, tuning=chosen.tuning)
        started = time.monotonic()
        if known := self._tried(entry):
            tuning = known.chosen_by(OUTCOMES[entry.outcome])
            chosen = chosen_stream(recipe, tuning, entry.outcome)
        else:
            with self.bars(f"{entry.name} tune".ljust(16)) as show:
                tuning, chosen = self._choose(entry, show, unfinished(file))
        more = {"asked": self._asked(entry), "seconds": round(time.monotonic() - started, 1)}
        if entry.protocol == "ifsl":
            more["tried"] = self._asked(entry, whatever_outcome=True)
        chosen = dataclasses.replace(chosen, tuning={**chosen.tuning, **more})
        write_choice(tuning, chosen, file)
        return chosen

    def _choose(self, entry: Entry, show: Show, kept_in: Path) -> tuple[Tuning, Recipe]:
        recipe, data = entry.recipe, self.data(entry.recipe.data)
        if entry.protocol == "gfsl":
            return choose(recipe, self.model(recipe), data, show, fitting_on(show), kept_in)
        if entry.pseudo_model is None:
            raise LcwofError(
                "no model to choose settings with: give --pseudo-model FILE, made by `lcwof pretrain --pseudo "
                "N`, and --pseudo N, or --no-tune."
            )
        require_pseudo(recipe, entry.outcome)
        model = self.model(dataclasses.replace(recipe, model=entry.pseudo_model))
        key = f"{recipe.data}, pseudo"  # kept, so that what is computed of its images serves all methods
        if key not in self._data:
            self._data[key] = pseudo_sessions(data, recipe.data.pseudo)
        return choose_stream(recipe, model, data, entry.outcome, show, fitting_on(show), self._data[key], kept_in)

    def _tried(self, entry: Entry) -> Tuning | None:
        """What was tried for the same run when the other outcome was asked for: the candidates are the same."""
        if entry.protocol == "gfsl":
            return None
        for file in sorted(self.folder.glob("*.toml")):
            candidates = file.with_suffix(".json")
            tried = read_recipe([file], {}, []).tuning.get("tried") if candidates.exists() else None
            if tried == self._asked(entry, whatever_outcome=True):
                return Tuning.from_json(json.loads(candidates.read_text(encoding="utf-8")))
        return None

    def _asked(self, entry: Entry, whatever_outcome: bool = False) -> str:
        """What a choice depends on, in short."""
        file = entry.pseudo_model if entry.protocol == "ifsl" else entry.recipe.model
        model = self.model(dataclasses.replace(entry.recipe, model=file)) if file else None
        return what_is_asked(entry.recipe, model, entry.protocol, "" if whatever_outcome else entry.outcome)

    def _lacks(self, run: Run | StreamRun, entry: Entry) -> bool:
        """Whether more episodes, or streams, are asked for than the run has."""
        if isinstance(run, StreamRun):
            return bool(entry.recipe.stream.streams > run.about["recipe"]["stream"]["streams"])
        return bool(entry.recipe.evaluate.episodes > run.about["recipe"]["evaluate"]["episodes"])

    def _same(self, run: Run | StreamRun, entry: Entry) -> Run | StreamRun:
        """A run that is there already, where it is the one asked for, or the beginning of it."""
        section, number = ("stream", "streams") if entry.protocol == "ifsl" else ("evaluate", "episodes")
        asked, found = (json.loads(json.dumps(x)) for x in (entry.recipe.resolved(), run.about["recipe"]))
        added = {"answers"} | ({number} if self._lacks(run, entry) else set())  # runs before recorded no answers
        deciding = {key: value for key, value in asked[section].items() if key not in added}
        other = [key for key, value in deciding.items() if found[section].get(key) != value]
        why = found.get("tuning") or {}
        if entry.tuned != bool(why):
            other.append("tuned" if why else "not tuned")
        elif why and why.get("asked", "") not in ("", self._asked(entry)):
            other.append("tuned for something else")
        about = json.loads(json.dumps(self.model(entry.recipe).told()))
        other += ["model"] if run.about["model"] != about else []
        other += other_settings(run, entry)
        if other == [number]:
            raise LcwofError(
                f"{run.path} has {found[section][number]} {number}, more than the {asked[section][number]} asked for: "
                "ask for as many, or choose another --out."
            )
        if other:
            raise OtherSettings(f"{run.path} holds a run of other settings ({', '.join(other)}): choose another --out.")
        return run


def other_settings(run: Run | StreamRun, entry: Entry) -> list[str]:
    """What of a run is other than asked for, as far as can be told without its base model."""
    asked, found = (json.loads(json.dumps(x)) for x in (entry.recipe.resolved(), run.about["recipe"]))
    other = ["data"] if any(asked["data"][k] != found["data"].get(k) for k in ("name", "options")) else []
    chosen = (found.get("tuning") or {}).get("settings", {})
    grid = json.loads(json.dumps(entry.recipe.grid())) if entry.tuned else {}
    offered = {key: values for key, values in grid.items() if BEST not in values}
    other += ["tune.grid"] if any(chosen.get(key, values[0]) not in values for key, values in offered.items()) else []
    mine, theirs = (
        {key: value for key, value in set_apart(x["method"]).items() if key not in chosen} for x in (asked, found)
    )
    other += [] if mine == theirs else ["method"]
    return other + (["the method's code"] if run.about.get("code") != own_code(entry.recipe.kind()) else [])


def fitting_on(show: Show) -> Callable[[str, int, int], None]:
    """How far a base fit is, on a bar."""
    return lambda what, done, total: show(done, total, what)
