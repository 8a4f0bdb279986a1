"""Choosing settings on validation classes: the same way for every method, test data out of reach.

Episodes are drawn from the validation classes, base queries from the base images held out of training.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from math import floor, isnan, log10, nan
from typing import Any, Literal

import torch
from torch import Tensor

from lcwof.compute import Compute
from lcwof.config import replace_field
from lcwof.data.episodes import EpisodeSource
from lcwof.data.images import Dataset
from lcwof.data.sessions import StreamSource
from lcwof.errors import LcwofError
from lcwof.evaluation.gfsl import Measured, Moments, prepare, run_episodes
from lcwof.evaluation.ifsl import run_streams
from lcwof.evaluation.metrics import MEASURES, Margins, mean_and_interval
from lcwof.learning.inputs import even
from lcwof.methods import BEST, Base, Fitting, Method
from lcwof.models import BaseModel

Tests = list[tuple[Tensor, Margins]]  # of the same learners, one after the other: measures (E, MEASURES), and margins


@dataclass(frozen=True)
class Candidate:
    """One combination of settings and how it did on validation."""

    settings: dict[str, Any]
    hm: float
    interval: float
    novel: float  # N/J
    base: float  # B/J
    joint: float  # J/J

    @classmethod
    def of(cls, settings: dict[str, Any], values: Tensor) -> Candidate:
        """values: (episodes or streams, measures)."""
        hm, interval = mean_and_interval(values[:, MEASURES.index("hm")].tolist())
        return cls(settings, hm, interval, *(float(values[:, MEASURES.index(m)].mean()) for m in ("N/J", "B/J", "J/J")))


@dataclass(frozen=True)
class Tuning:
    """What was tried and what was chosen."""

    method: str
    setting: str  # "5-way 1-shot"
    over: str  # "50 validation episodes"
    candidates: tuple[Candidate, ...]  # best first
    by: Literal["hm", "J/J"] = "hm"  # whose highest mean was chosen
    found: tuple[str, ...] = ()  # settings whose values were found from what was learned, not tried one by one

    @property
    def best(self) -> Candidate:
        return self.candidates[0]

    def why(self) -> str:
        text = f"{self.by} {_worth(self.best, self.by):.2f}"
        if self.by == "hm" and not isnan(self.best.interval):
            text += f" ± {self.best.interval:.2f}"
        text += f" over {self.over}"
        if self.found:
            text += ", with the bias that is best there"
        if len(self.candidates) > 1:
            second = self.candidates[1]
            text += f", the best of {len(self.candidates)} settings (next {_worth(second, self.by):.2f})"
        if edge := self.at_edge():
            text += f", at the edge of what was tried: {', '.join(edge)}"
        return text

    def at_edge(self) -> list[str]:
        """Numeric settings whose largest or smallest value was chosen, of three or more: beyond may be better still."""
        found = []
        for key, value in self.best.settings.items():
            tried = {candidate.settings[key] for candidate in self.candidates}
            numbers = key not in self.found and all(isinstance(x, (int, float)) for x in tried)
            if numbers and len(tried) > 2 and value and value in (min(tried), max(tried)):
                found.append(key)
        return found

    def as_json(self) -> dict[str, Any]:
        """For files: an interval is None where a single episode gives none."""
        found = asdict(self)
        for candidate in found["candidates"]:
            candidate["interval"] = None if isnan(candidate["interval"]) else candidate["interval"]
        return found

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> Tuning:
        candidates = [
            {**each, "interval": nan if each["interval"] is None else each["interval"]} for each in found["candidates"]
        ]
        tried = tuple(Candidate(**each) for each in candidates)
        return cls(**{**found, "candidates": tried, "found": tuple(found.get("found", ()))})

    def chosen_by(self, by: Literal["hm", "J/J"]) -> Tuning:
        """The same candidates, the best by another measure first."""
        return replace(self, by=by, candidates=tuple(sorted(self.candidates, key=lambda c: -_worth(c, by))))

    def apply(self, config: Any) -> Any:
        for key, value in self.best.settings.items():
            config = replace_field(config, key, value)
        return config


def _worth(candidate: Candidate, by: str) -> float:
    return candidate.hm if by == "hm" else candidate.joint


def combinations(grid: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Every combination of a grid's values.

    >>> combinations({"a": [1, 2], "b": [3]})
    [{'a': 1, 'b': 3}, {'a': 2, 'b': 3}]
    """
    return [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]


def stops(longest: int) -> list[int]:
    """Epochs at which stopping is considered: the start, the end and about 20 more, evenly spread.

    >>> stops(45)
    [0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30, 32, 34, 36, 38, 40, 42, 44, 45]
    """
    step = max(1, longest // 20)
    return sorted({*range(0, longest + 1, step), longest})


def tune(
    kind: type[Method],
    config: Any,
    model: BaseModel,
    data: Dataset,
    way: int,
    shot: int,
    episodes: int = 50,
    at_once: int = 25,
    seed: int = 1_000_000,
    compute: Compute | None = None,
    grid: Mapping[str, Sequence[Any]] | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
    fitting: Fitting = lambda what, done, total: None,
) -> Tuning:
    """Try every combination of a grid (the method's own, unless another is given), and every stopping epoch along each,
    on validation episodes."""
    if not data.split.val:
        raise LcwofError(f"{data.name} has no validation classes to tune on: for streams there is `lcwof tune-stream`.")
    grid, way = kind.grid if grid is None else grid, min(way, len(data.split.val))
    source = EpisodeSource.of(data, "val", way, shot, seed=seed)
    tried: list[Candidate] = []
    for method, prepared, settings in _candidates(kind, config, model, data, compute, grid, progress, fitting):
        tried += _along(method, prepared, source, settings, episodes, at_once)
    tried.sort(key=lambda c: -c.hm)
    over = f"{episodes} validation episodes"
    return Tuning(kind.name, f"{way}-way {shot}-shot", over, tuple(tried), found=_found(grid))


def tune_streams(
    kind: type[Method],
    config: Any,
    model: BaseModel,
    data: Dataset,
    source: StreamSource,
    streams: int,
    at_once: int = 25,
    by: Literal["hm", "J/J"] = "hm",
    carry: bool = False,
    compute: Compute | None = None,
    grid: Mapping[str, Sequence[Any]] | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
    fitting: Fitting = lambda what, done, total: None,
) -> Tuning:
    """The same for streams of pseudo-sessions (`data.sessions.pseudo_sessions`): the best mean over their sessions.

    Where settling is a side branch, every stopping epoch is tried along the way. Where later sessions depend on it,
    because it is carried on or part of growing, a few are tried, each in streams of its own.
    """
    grid = dict(kind.grid if grid is None else grid)
    stop = kind(config).stopping()
    along_the_way = kind.settles and stop == kind.stop and not carry
    if stop and not along_the_way:
        longest = kind(config).phases()[stop[0]]
        grid.setdefault(stop[1], sorted({0, *(longest // part for part in (1, 2, 4, 8, 16))}))
    tried: list[Candidate] = []
    for method, prepared, settings in _candidates(kind, config, model, data, compute, grid, progress, fitting, True):
        field, moments = _stopping(method, at_all=along_the_way)
        found: dict[int, list[Tests]] = {}  # by epoch: each group of streams, tested after every session
        todo = list(range(streams))
        while todo:
            numbers, along = source.draw(todo[:at_once])[0], dict[int, Tests]()
            try:
                for session, _ in run_streams(method, *prepared, numbers, source.seed, carry, moments):
                    if session.margins:
                        tests = along.setdefault(session.epoch if field else 0, [])
                        tests.append((session.values.double(), session.margins))
            except torch.OutOfMemoryError:
                if len(numbers.numbers) == 1:
                    raise
                along.clear()
            if not along:
                at_once = len(numbers.numbers) // 2
                torch.cuda.empty_cache()
                continue
            for epoch, tests in along.items():
                found.setdefault(epoch, []).append(tests)
            todo = [number for number in todo if number not in numbers.numbers]
        tried += _tried(settings, field, found, ("hm", "J/J"))
    tried.sort(key=lambda c: -_worth(c, by))
    ways = source.ways
    setting = f"{len(ways)} session{'s' * (len(ways) > 1)} of {ways[0]} classes"
    return Tuning(kind.name, setting, f"{streams} streams of pseudo-sessions", tuple(tried), by, _found(grid))


_BEST_BIAS = ("novel_bias", BEST)


def _found(grid: Mapping[str, Sequence[Any]]) -> tuple[str, ...]:
    return ("novel_bias",) if BEST in grid.get("novel_bias", ()) else ()


def _stopping(method: Method, at_all: bool = True) -> tuple[str, Moments]:
    """The setting that says when to stop ("": none), and where to measure to choose it."""
    phase, field = (method.stopping() if at_all else None) or ("", "")
    asked = set(stops(method.phases()[phase])) if field else set()
    return field, lambda p, e: p == phase and e in asked


def _candidates(
    kind: type[Method],
    config: Any,
    model: BaseModel,
    data: Dataset,
    compute: Compute | None,
    grid: Mapping[str, Sequence[Any]],
    progress: Callable[[int, int], None],
    fitting: Fitting,
    streams: bool = False,
) -> Iterator[tuple[Method, tuple[Base, Any], dict[str, Any]]]:
    """A method for every combination of settings, with what it works with; counts each when it has been tried."""
    settings_tried = combinations(grid)
    of_learning = {"novel_bias", *([kind.stop[1]] if kind.stop else [])}  # the base fit may depend on all others
    prepared, fitted_for = None, dict[str, Any]()
    for done, settings in enumerate(settings_tried):
        candidate = config
        for key, value in settings.items():
            candidate = replace_field(candidate, key, 0.0 if (key, value) == _BEST_BIAS else value)
        method = kind(candidate)
        deciding = {key: value for key, value in settings.items() if key not in of_learning}
        if prepared is None or prepared[0].inputs.adapt != method.adapt:
            prepared = prepare(method, model, data, compute, fitting, streams=streams)
        elif deciding != fitted_for:  # the maps kept so far serve all the same
            prepared = prepared[0], method.fit_base(prepared[0])
        fitted_for = deciding
        yield method, prepared, settings
        progress(done + 1, len(settings_tried))


def _along(
    method: Method,
    prepared: tuple[Base, Any],
    source: EpisodeSource,
    settings: dict[str, Any],
    episodes: int,
    at_once: int,
) -> Iterator[Candidate]:
    field, moments = _stopping(method)
    found: dict[int, list[Tests]] = {}
    base, fitted = prepared
    at_once, done = even(episodes, at_once), 0
    while done < episodes:
        numbers = range(done, min(done + at_once, episodes))
        full = at_once if base.inputs.compute.compiled else 0
        along: list[Measured] = []
        try:
            along = list(run_episodes(method, base, fitted, source, numbers, moments, full))
        except torch.OutOfMemoryError:
            if at_once == 1:
                raise
        if not along:
            at_once //= 2
            torch.cuda.empty_cache()
            continue
        for measured in along:
            tests = [(measured.values.double(), measured.margins)]
            found.setdefault(measured.epoch if field else 0, []).append(tests)
        done += len(numbers)
    return _tried(settings, field, found, ("hm",))


def _tried(
    settings: dict[str, Any], field: str, found: dict[int, list[Tests]], measures: Sequence[str]
) -> Iterator[Candidate]:
    """The candidates that one learning gives: one for every epoch it was tested at or, if the best bias is asked for,
    one for each bias that is best by one of the measures."""
    for epoch, groups in found.items():
        own = {**settings, **({field: epoch} if field else {})}
        if settings.get("novel_bias") != BEST:
            yield Candidate.of(own, _values(groups))
            continue
        for bias in sorted({_best_bias(groups, by) for by in measures}):
            yield Candidate.of({**own, "novel_bias": bias}, _values(groups, bias))


def _values(groups: Sequence[Tests], bias: float | None = None) -> Tensor:
    """(E, measures): the mean over the tests of a learner, with a bias of few-shot classes if there is one."""

    def with_bias(values: Tensor, margins: Margins) -> Tensor:
        return values if bias is None else margins.measures(values, bias)

    return torch.cat([torch.stack([with_bias(*test) for test in tests]).mean(0) for tests in groups])


def _best_bias(groups: Sequence[Tests], by: str) -> float:
    """The bias with the highest mean, to a thousandth of what the margins span; of equals the one nearest to 0."""
    every = [margins for tests in groups for _, margins in tests]
    spread = Margins(*(torch.cat([getattr(m, kind).flatten() for m in every]) for kind in ("novel", "base")))
    tried = spread.worth_trying().tolist()
    digits = 3 - floor(log10(max(tried) - min(tried) or 1.0))
    biases, at = sorted({0.0, *(round(bias, digits) for bias in tried)}, key=abs), MEASURES.index(by)
    return max(biases, key=lambda bias: float(_values(groups, bias)[:, at].mean()))
