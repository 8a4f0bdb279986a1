"""Choosing settings on validation classes: the same way for every method, test data out of reach.

Episodes are drawn from the validation classes, base queries from the base images held out of training.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch

from lcwof.compute import Compute
from lcwof.config import replace_field
from lcwof.data.episodes import EpisodeSource
from lcwof.data.images import Dataset
from lcwof.evaluation.gfsl import Measured, Moments, prepare, run_episodes
from lcwof.evaluation.metrics import MEASURES, mean_and_interval
from lcwof.learning.inputs import even
from lcwof.methods import Base, Method
from lcwof.models import BaseModel


@dataclass(frozen=True)
class Candidate:
    """One combination of settings and how it did on validation."""

    settings: dict[str, Any]
    hm: float
    interval: float
    novel: float  # N/J
    base: float  # B/J


@dataclass(frozen=True)
class Tuning:
    """What was tried and what was chosen: the highest mean hm."""

    method: str
    way: int
    shot: int
    episodes: int
    candidates: tuple[Candidate, ...]  # best first

    @property
    def best(self) -> Candidate:
        return self.candidates[0]

    def why(self) -> str:
        text = f"hm {self.best.hm:.2f} ± {self.best.interval:.2f} over {self.episodes} validation episodes"
        if len(self.candidates) > 1:
            text += f", the best of {len(self.candidates)} settings (next {self.candidates[1].hm:.2f})"
        return text

    def apply(self, config: Any) -> Any:
        for key, value in self.best.settings.items():
            config = replace_field(config, key, value)
        return config


def combinations(grid: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Every combination of a grid's values.

    >>> combinations({"a": [1, 2], "b": [3]})
    [{'a': 1, 'b': 3}, {'a': 2, 'b': 3}]
    """
    return [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]


def stops(longest: int) -> list[int]:
    """Epochs at which stopping is considered: the start and about 20 more, evenly spread up to the longest."""
    step = max(1, longest // 20)
    return list(range(0, longest + 1, step))


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
) -> Tuning:
    """Try every combination of a grid (the method's own, unless another is given), and every stopping epoch along each,
    on validation episodes."""
    way = min(way, len(data.split.val))
    source = EpisodeSource.of(data, "val", way, shot, seed=seed)
    tried: list[Candidate] = []
    settings_tried = combinations(kind.grid if grid is None else grid)
    not_own = set(settings_tried[0]) - set(kind.grid)  # a method's own grid holds settings of `learn` alone
    prepared: tuple[Base, Any] | None = None
    for done, settings in enumerate(settings_tried):
        candidate = config
        for key, value in settings.items():
            candidate = replace_field(candidate, key, value)
        method = kind(candidate)
        if prepared is None or prepared[0].inputs.adapt != method.adapt:
            prepared = prepare(method, model, data, compute)
        elif not_own:  # the base fit may depend on it; the maps kept so far serve all the same
            prepared = prepared[0], method.fit_base(prepared[0])
        tried += _along(method, prepared, source, settings, episodes, at_once)
        progress(done + 1, len(settings_tried))
    tried.sort(key=lambda c: -c.hm)
    return Tuning(kind.name, way, shot, episodes, tuple(tried))


def _along(
    method: Method,
    prepared: tuple[Base, Any],
    source: EpisodeSource,
    settings: dict[str, Any],
    episodes: int,
    at_once: int,
) -> Iterator[Candidate]:
    phase, field = method.stop or ("", "")
    asked = set(stops(method.phases()[phase])) if field else set()
    found: dict[int, list[torch.Tensor]] = {}
    base, fitted = prepared
    moments: Moments = lambda p, e: p == phase and e in asked  # noqa: E731
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
            found.setdefault(measured.epoch if field else 0, []).append(measured.values)
        done += len(numbers)
    for epoch, parts in found.items():
        values = torch.cat(parts).double()
        hm, interval = mean_and_interval(values[:, MEASURES.index("hm")].tolist())
        means = values.mean(0)
        chosen = {**settings, **({field: epoch} if field else {})}
        yield Candidate(chosen, hm, interval, float(means[MEASURES.index("N/J")]), float(means[MEASURES.index("B/J")]))
