"""The trade-off between novel and base accuracy, N/J against B/J, that the last phase of learning passes through."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import fsum

from lcwof.engine.run import Run
from lcwof.report.curves import learning_curves


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
        """Under N/J against B/J, in 0 to 1, with the ends: all answers novel (0, N/N), all answers base (B/B, 0)."""
        return area_under_tradeoff([0.0, *self.base, self.ends[0]], [self.ends[1], *self.novel, 0.0])

    @property
    def passed(self) -> float:
        """The part of the area that lies under what was passed through; the rest is joined to the ends by straight
        lines."""
        return area_under_tradeoff(self.base, self.novel)


def area_under_tradeoff(base: Sequence[float], novel: Sequence[float]) -> float:
    """AUSUC, the area under N/J against B/J (both in percent) by the trapezoid rule, in 0 to 1.

    sum_i (b_{i+1} - b_i) / 100 * (n_i + n_{i+1}) / 200 over the points (b_i, n_i) sorted by b. Of points with the same
    b the higher n comes first, as on a curve that falls. Only the range of b that there are points for counts.

    From (20, 80) by (60, 70) to (70, 50): 0.4 * 0.75 + 0.1 * 0.6

    >>> round(area_under_tradeoff([20.0, 70.0, 60.0], [80.0, 50.0, 70.0]), 4)
    0.36
    """
    points = sorted(zip(base, novel, strict=True), key=lambda point: (point[0], -point[1]))
    steps = pairwise(points)
    return fsum((b2 - b1) / 100 * (n1 + n2) / 200 for (b1, n1), (b2, n2) in steps)


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
