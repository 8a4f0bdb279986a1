"""The trade-off between novel and base accuracy, N/J against B/J: along the last phase of learning, and for every bias
that novel classes might be given in the end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import fsum

import numpy as np

from lcwof.engine.run import Run
from lcwof.evaluation import mean_and_interval
from lcwof.report.compare import Paired, pair_up, same_episodes
from lcwof.report.curves import learning_curves

_DRAWN = 100  # points of a curve, about


@dataclass(frozen=True)
class Swept:
    """What each episode's learner reaches, for every bias of its novel classes."""

    base: tuple[float, ...]  # B/J in percent, rising
    novel: tuple[float, ...]  # the mean over episodes of the highest N/J that leaves so much B/J, in percent
    areas: dict[float, float]  # AUSUC by episode, in percent

    @property
    def area(self) -> tuple[float, float]:
        """Mean and 95% interval over episodes."""
        return mean_and_interval(list(self.areas.values()))


def swept(run: Run) -> Swept | None:
    """The trade-off of a run's learners as they are in the end; None where no answers, or older ones, were recorded.

    A bias above a novel sample's bound and up to a base sample's makes both right, so of an episode
    AUSUC = 100 * mean over base samples i and novel samples j of [bound_j < bound_i].
    """
    if run.answers is None or run.answers.given.bound is None:
        return None
    is_novel = run.answers.given.true.numpy() >= len(run.answers.base)
    bounds = run.answers.given.bound.float().numpy()
    areas: dict[float, float] = {}
    curves = []
    for number, bound in zip(run.answers.episodes, bounds, strict=True):
        novel, base = np.sort(bound[is_novel]), np.sort(bound[~is_novel])[::-1]
        beside = np.searchsorted(novel, base) / len(novel)  # N/J with a bias that leaves the first so many base samples
        areas[number] = 100 * float(beside.mean())
        curves.append([np.isfinite(novel).mean(), *beside])
    mean = 100 * np.mean(curves, axis=0)
    shown = np.unique(np.linspace(0, len(mean) - 1, _DRAWN + 1).round().astype(int))
    base_right = 100 * shown / (len(mean) - 1)
    return Swept(tuple(base_right.tolist()), tuple(mean[shown].tolist()), areas)


def swept_difference(run: Run, other: Run) -> Paired | None:
    """A run's AUSUC minus another's, episode by episode over those both recorded; None where they are other ones."""
    mine, theirs = swept(run), swept(other)
    if run is other or mine is None or theirs is None or not same_episodes(run, other):
        return None
    return pair_up(mine.areas, theirs.areas)


@dataclass(frozen=True)
class Tradeoff:
    """The means over episodes along the last phase, epoch by epoch, and what each side reaches by itself; percent."""

    phase: str  # "phase 3" of lcwof
    epochs: tuple[int, ...]  # of that phase
    base: tuple[float, ...]  # B/J
    novel: tuple[float, ...]  # N/J
    ends: tuple[float, float]  # the highest B/B and N/N on the way

    @property
    def area(self) -> float:
        """Under N/J against B/J, in percent, with the ends: all answers novel (0, N/N), all answers base (B/B, 0)."""
        return area_under_tradeoff([0.0, *self.base, self.ends[0]], [self.ends[1], *self.novel, 0.0])


def area_under_tradeoff(base: Sequence[float], novel: Sequence[float]) -> float:
    """The area under N/J against B/J by the trapezoid rule, all in percent.

    sum_i (b_{i+1} - b_i) * (n_i + n_{i+1}) / 200 over the points (b_i, n_i) sorted by b, but for those that
    another one passes in both. Only the range of b that there are points for counts.

    From (20, 80) by (60, 70) to (70, 50): 40 * 0.75 + 10 * 0.6; (50, 60) does not count beside (60, 70).

    >>> area_under_tradeoff([20.0, 70.0, 50.0, 60.0], [80.0, 50.0, 60.0, 70.0])
    36.0
    """
    points: list[tuple[float, float]] = []
    for point in sorted(zip(base, novel, strict=True), reverse=True):  # the highest B/J first
        if not points or point[1] > points[-1][1]:
            points.append(point)
    steps = pairwise(reversed(points))
    return fsum((b2 - b1) * (n1 + n2) / 200 for (b1, n1), (b2, n2) in steps)


def tradeoff(run: Run) -> Tradeoff | None:
    """The trade-off along a run's last phase; None where no curves were recorded, or at a single point of it."""
    curves = learning_curves(run)
    if curves is None:
        return None
    phase = curves.phases[-1]
    points = [i for i, name in enumerate(curves.phase_of) if name == phase.name]
    if len(points) < 2:
        return None
    base, novel = (tuple(curves.mean[name][i] for i in points) for name in ("B/J", "N/J"))
    ends = max(curves.mean["B/B"][i] for i in points), max(curves.mean["N/N"][i] for i in points)
    return Tradeoff(phase.name, tuple(curves.epochs[i] - phase.start for i in points), base, novel, ends)
