"""Choosing settings on validation classes: the same way for every method, test data out of reach.

Episodes are drawn from the validation classes, base queries from the base images held out of training.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Literal

import torch
from torch import Tensor

from lcwof.compute import Compute
from lcwof.config import replace_field
from lcwof.data.episodes import EpisodeSource
from lcwof.data.images import Dataset
from lcwof.data.sessions import StreamSource
from lcwof.errors import Diverged, LcwofError
from lcwof.evaluation.candidates import Candidate, Settings, Tests, Tried, Tuning, candidates_of, worth
from lcwof.evaluation.gfsl import Moments, base_queries, prepare, run_episodes
from lcwof.evaluation.ifsl import run_streams
from lcwof.evaluation.metrics import Margins
from lcwof.learning.inputs import even
from lcwof.methods import BEST, Base, Fitting, Method
from lcwof.models import BaseModel


def combinations(grid: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Every combination of a grid's values.

    >>> combinations({"a": [1, 2], "b": [3]})
    [{'a': 1, 'b': 3}, {'a': 2, 'b': 3}]
    """
    return [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]


def stops(longest: int) -> list[int]:
    """Epochs at which stopping is considered: the start, the end and about 20 more, evenly spread, or as many as it
    takes for no more than ten epochs between two: the best may be a short passage.

    >>> stops(45)
    [0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30, 32, 34, 36, 38, 40, 42, 44, 45]
    >>> stops(200) == list(range(0, 201, 10)), len(stops(1500))
    (True, 151)
    """
    step = max(1, min(10, longest // 20))
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
    known: Tried = Tried(),
) -> Tuning:
    """Try every combination of a grid (the method's own, unless another is given), and every stopping epoch along each,
    on validation episodes."""
    if not data.split.val:
        raise LcwofError(f"{data.name} has no validation classes to tune on: for streams there is `lcwof tune-stream`.")
    grid, way = kind.grid if grid is None else grid, min(way, len(data.split.val))
    source = EpisodeSource.of(data, "val", way, shot, seed=seed)
    source = replace(source, base_queries=min(source.base_queries, base_queries(len(data.split.base))))

    def learn(method: Method, prepared: tuple[Base, Any], numbers: list[int], moments: Moments, full: int) -> Learned:
        for found in run_episodes(method, *prepared, source, numbers, moments, full):
            yield found.epoch, found.values, found.margins

    compiled = compute is not None and compute.compiled
    search = _Search(kind, config, range(episodes), at_once, learn, ("hm",), fills=compiled)
    tried, diverged = search.over(grid, lambda method: prepare(method, model, data, compute, fitting), known, progress)
    tried.sort(key=lambda c: -c.hm)
    over = f"{episodes} validation episodes"
    setting = f"{way}-way {shot}-shot"
    return Tuning(kind.name, setting, over, tuple(tried), found=_found(grid), diverged=tuple(diverged))


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
    known: Tried = Tried(),
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

    def learn(method: Method, prepared: tuple[Base, Any], numbers: list[int], moments: Moments, full: int) -> Learned:
        (together,) = source.draw(numbers)
        for session, _ in run_streams(method, *prepared, together, source.seed, carry, moments):
            if session.margins:
                yield session.epoch, session.values, session.margins

    search = _Search(kind, config, range(streams), at_once, learn, ("hm", "J/J"), along_the_way)
    search.pick = lambda numbers: list(source.draw(numbers)[0].numbers)  # of several shapes, the first
    for settings in combinations(grid):
        search._method([settings]).require_stream(len(source.ways))
    tried, diverged = search.over(
        grid, lambda method: prepare(method, model, data, compute, fitting, streams=True), known, progress
    )
    tried.sort(key=lambda c: -worth(c, by))
    ways = source.ways
    setting = f"{len(ways)} session{'s' * (len(ways) > 1)} of {ways[0]} classes"
    over = f"{streams} streams of pseudo-sessions"
    return Tuning(kind.name, setting, over, tuple(tried), by, _found(grid), tuple(diverged))


_BEST_BIAS = ("novel_bias", BEST)


def _found(grid: Mapping[str, Sequence[Any]]) -> tuple[str, ...]:
    return ("novel_bias",) if BEST in grid.get("novel_bias", ()) else ()


Learned = Iterator[tuple[int, Tensor, Margins]]  # epoch, measures (E, MEASURES) and margins of what was learned


_SIDE_BY_SIDE = 4  # candidates at most: more would share more work, but an interruption would lose more


@dataclass
class _Search:
    """Every combination of a grid tried on the same episodes or streams; those that differ in `per_learner` settings
    alone side by side, as more learners of the same step."""

    kind: type[Method]
    config: Any
    numbers: Sequence[int]  # of the episodes or streams
    at_once: int  # learners
    learn: Callable[[Method, tuple[Base, Any], list[int], Moments, int], Learned]
    measures: Sequence[str]  # by which a bias may be best
    along_the_way: bool = True  # stopping epochs are tried along one learning
    pick: Callable[[list[int]], list[int]] = list  # of some numbers, those that can be learned together
    fills: bool = False  # code is compiled for `at_once` learners: fewer are filled up to it

    def over(
        self,
        grid: Mapping[str, Sequence[Any]],
        prepared_for: Callable[[Method], tuple[Base, Any]],
        known: Tried,
        progress: Callable[[int, int], None],
    ) -> tuple[list[Candidate], list[Settings]]:
        """All candidates, in the grid's order, and the combinations that have none because they diverged. progress:
        learners that have learned, of how many."""
        every = combinations(grid)
        before = {at: known.get(settings) for at, settings in enumerate(every)}
        tried = {at: candidates for at, candidates in before.items() if candidates is not None}
        done, total = len(tried) * len(self.numbers), len(every) * len(self.numbers)
        if done:
            progress(done, total)
        of_learning = {"novel_bias", *([self.kind.stop[1]] if self.kind.stop else []), *self._per_learner}
        prepared, fitted_for, failure = None, Settings(), Diverged("nothing can be learned: every setting diverged.")
        groups = self._side_by_side(every, [at for at in range(len(every)) if at not in tried])
        while groups:
            places = groups.pop(0)
            group = [every[at] for at in places]
            method = self._method(group[:1])
            deciding = {key: value for key, value in group[0].items() if key not in of_learning}  # about the base fit
            try:
                if prepared is None or prepared[0].inputs.adapt != method.adapt:
                    prepared = prepared_for(method)
                elif deciding != fitted_for:  # the maps kept so far serve all the same
                    prepared = prepared[0], method.fit_base(prepared[0])
                fitted_for = deciding
                found = self._candidates(group, prepared, done, total, progress)
            except Diverged as error:
                failure = error
                if len(group) > 1:  # others beside it may do better
                    groups = [[at] for at in places] + groups
                    continue
                found = [[]]
                progress(done + len(self.numbers), total)
            done += len(group) * len(self.numbers)
            for at, candidates in zip(places, found, strict=True):
                tried[at] = candidates
                known.add(every[at], candidates)
        if not any(tried.values()):
            raise failure
        return (
            [candidate for at in range(len(every)) for candidate in tried[at]],
            [settings for at, settings in enumerate(every) if not tried[at]],
        )

    def _candidates(
        self,
        group: list[Settings],
        prepared: tuple[Base, Any],
        done: int,
        total: int,
        progress: Callable[[int, int], None],
    ) -> list[list[Candidate]]:
        """Those of each combination of a group."""
        field, moments = _stopping(self._method(group[:1]), self.along_the_way)
        found: list[dict[int, list[Tests]]] = [{} for _ in group]
        for numbers, tests in self._learned(group, prepared, moments):
            for all_of_it, along in zip(found, tests, strict=True):
                for epoch, each in along.items():
                    all_of_it.setdefault(epoch if field else 0, []).append(each)
            done += len(group) * len(numbers)
            progress(done, total)
        return [
            list(candidates_of(settings, field, mine, self.measures))
            for settings, mine in zip(group, found, strict=True)
        ]

    @property
    def _per_learner(self) -> frozenset[str]:
        """A class derived from a method may use its settings otherwise: it must say so itself."""
        return self.kind.per_learner if "per_learner" in vars(self.kind) else frozenset()

    def _side_by_side(self, every: Sequence[Settings], todo: Sequence[int]) -> list[list[int]]:
        """Groups of places. What is 0 or no number stays apart: a rate of 0 fixes a weight."""
        groups: dict[str, list[int]] = {}
        for at in todo:
            settings = every[at]
            free = {
                k for k in self._per_learner & settings.keys() if isinstance(settings[k], (int, float)) and settings[k]
            }
            groups.setdefault(str({k: None if k in free else v for k, v in settings.items()}), []).append(at)
        parts = []
        for group in groups.values():
            size = self._candidates_at_once(len(group))
            parts += [group[at : at + size] for at in range(0, len(group), size)]
        return parts

    def _candidates_at_once(self, many: int) -> int:
        """How many of so many learn side by side: as many as may but, where learners are filled up, only if that takes
        no more passes than fewer would."""
        most = even(many, _SIDE_BY_SIDE)

        def passes(size: int) -> int:
            groups = [size] * (many // size) + [many % size] * bool(many % size)
            return sum(
                -(-len(self.numbers) // max(1, self.at_once // each)) * -(-each // self.at_once) for each in groups
            )

        return min(range(most, 0, -1), key=passes) if self.fills else most

    def _method(
        self, group: Sequence[Settings], each: int = 1, filled_to: int = 0, device: torch.device | None = None
    ) -> Method:
        """For `each` learners of every candidate, one candidate after the other, and some more of the last."""
        config = self.config
        for key in group[0]:
            values = [0.0 if (key, settings[key]) == _BEST_BIAS else settings[key] for settings in group]
            value = values[0]
            if any(other != value for other in values):
                of_learners = [v for v in values for _ in range(each)]
                of_learners += [values[-1]] * (filled_to - len(of_learners))
                value = torch.tensor(of_learners, dtype=torch.float, device=device)
            config = replace_field(config, key, value)
        return self.kind(config)

    def _learned(
        self, group: list[Settings], prepared: tuple[Base, Any], moments: Moments
    ) -> Iterator[tuple[list[int], list[dict[int, Tests]]]]:
        """Some numbers after the other, with what each combination came to on them: tests, by epoch."""
        todo = list(self.numbers)
        while todo:
            many = even(len(self.numbers), max(1, self.at_once // len(group)))
            numbers = self.pick(todo[:many])
            size = max(1, self.at_once // len(numbers))  # of candidates, where not even one number of each fits
            tests: list[dict[int, Tests]] = []
            parts = [group[at : at + size] for at in range(0, len(group), size)]
            # To as many as the test will have: compiling for other numbers takes longer than learners for nothing.
            full = self.at_once if self.fills else 0
            try:
                for part in parts:
                    tests += self._together(part, prepared, numbers, moments, full)
            except torch.OutOfMemoryError:
                if max(full, len(parts[0]) * len(numbers)) == 1:
                    raise
                tests.clear()
            if not tests:  # here, where what was allocated is no longer held by the error
                self.at_once = max(full, len(parts[0]) * len(numbers)) // 2
                torch.cuda.empty_cache()
                continue
            todo = [number for number in todo if number not in numbers]
            yield numbers, tests

    def _together(
        self, group: list[Settings], prepared: tuple[Base, Any], numbers: list[int], moments: Moments, full: int
    ) -> list[dict[int, Tests]]:
        """What each of a group came to on the numbers, by epoch. full: learners to fill up to, 0: as many as asked."""
        found = [dict[int, Tests]() for _ in group]
        method = self._method(group, len(numbers), full, prepared[0].inputs.device)
        for epoch, values, margins in self.learn(method, prepared, numbers * len(group), moments, full):
            split = values.double().split(len(numbers)), margins.split(len(numbers))
            for mine, *test in zip(found, *split, strict=True):
                mine.setdefault(epoch, []).append((test[0], test[1]))
        return found


def _stopping(method: Method, at_all: bool = True) -> tuple[str, Moments]:
    """The setting that says when to stop ("": none), and where to measure to choose it."""
    phase, field = (method.stopping() if at_all else None) or ("", "")
    asked = set(stops(method.phases()[phase])) if field else set()
    return field, lambda p, e: p == phase and e in asked
