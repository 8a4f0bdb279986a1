"""Novel against base accuracy, both in the joint space: where each method stands and how far from balance."""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from lcwof.engine.run import Run
from lcwof.report.compare import Setting, label
from lcwof.report.figures import FAINT, HM, QUIET, SIZE, as_svg, quiet_axes

_EQUAL_HM = "#b9bdc2"
_Box = tuple[float, float, float, float]  # left, bottom, right, top, in points


def balance_svg(group: Sequence[Run]) -> str:
    """One point a run of one setting, with its intervals, over lines of equal hm; an <svg> element."""
    setting = Setting.of(group[0])
    return as_svg(balance_figure(group), f"balance {setting}", f"{setting}: N/J against B/J")


def balance_figure(group: Sequence[Run]) -> Figure:
    """The figure of one setting. Both axes span the same range, so that distance from the diagonal is imbalance."""
    figure = Figure(figsize=(5.4, 4.6), dpi=72)
    ax = quiet_axes(figure, (0.085, 0.12, 0.795, 0.785))
    ax.grid(False)
    points = [(run.summary()["N/J"], run.summary()["B/J"]) for run in group]
    limits = _limits([value for point in points for value in point])
    ax.set_xlim(*limits)
    ax.set_ylim(*limits)
    _equal_hm(ax)
    for (x, dx), (y, dy) in points:
        ax.errorbar(x, y, xerr=_known(dx), yerr=_known(dy), fmt="o", color=HM, markersize=5, elinewidth=1.0)
    names = [label(run, group) for run in group]
    leader: dict[str, Any] = {"arrowstyle": "-", "color": QUIET, "linewidth": 0.6, "shrinkA": 0, "shrinkB": 3}
    for ((x, _), (y, _)), (at_x, at_y, side), name in zip(points, _places(ax, points, names), names, strict=True):
        beside = abs(at_y - ax.transData.transform((x, y))[1]) < 1  # there a leader would look like a longer interval
        style = {"color": HM, "fontsize": SIZE, "va": "center", "ha": side, "parse_math": False}
        ax.annotate(
            name, (x, y), (at_x, at_y), textcoords="figure points", arrowprops=None if beside else leader, **style
        )
    ax.set_xlabel("N/J, %", color=QUIET, fontsize=SIZE)
    figure.text(0.005, 0.985, "B/J, %", color=QUIET, fontsize=SIZE, va="top")
    return figure


def _limits(values: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Room around the points, within 0 to 100."""
    low = min(mean - _known(interval) for mean, interval in values)
    high = max(mean + _known(interval) for mean, interval in values)
    margin = max(6.0, (30 - (high - low)) / 2)
    return max(0.0, low - margin), min(100.0, high + margin)


def _equal_hm(ax: Any) -> None:
    """Where hm = 2xy / (x + y) is 10, 20, ..., 90, and the diagonal, where novel and base samples do equally well."""
    low, high = ax.get_xlim()
    ax.plot([low, high], [low, high], color=FAINT, linewidth=1.0, linestyle=(0, (1, 3)))
    style = {"color": QUIET, "fontsize": SIZE - 1.5, "annotation_clip": False, "textcoords": "offset points"}
    for hm in range(10, 100, 10):
        x = np.linspace(max(low, hm / 2 + 0.01), high, 2000)
        y = hm * x / (2 * x - hm)
        seen = (y >= low) & (y <= high)
        if not seen.any():
            continue
        ax.plot(x[seen], y[seen], color=_EQUAL_HM, linewidth=0.7)
        if seen[-1]:
            ax.annotate(f"hm {hm}", (high, y[-1]), (4, 0), va="center", **style)
        else:  # it leaves through the bottom
            ax.annotate(f"hm {hm}", (x[seen][-1], low), (3, 3), va="bottom", **style)


def _places(ax: Any, points: Sequence[Any], names: Sequence[str]) -> list[tuple[float, float, str]]:
    """Where each name stands so as to cover no point, interval or other name: x and y in figure points, alignment."""

    def on_paper(x: float, y: float) -> tuple[float, float]:
        return tuple(ax.transData.transform((x, y)))  # pixels, which are points at 72 dpi

    across, up = ax.figure.get_size_inches() * 72
    far = 1e4
    outside = [(-far, -far, 0, far), (across, -far, far, far), (-far, -far, far, 0), (-far, up, far, far)]
    taken: list[_Box] = []
    for (x, dx), (y, dy) in points:
        (left, middle), (centre, _) = on_paper(x - _known(dx), y), on_paper(x, y)
        right, reach = on_paper(x + _known(dx), y)[0], on_paper(x, y + _known(dy))[1] - middle
        taken.append((min(left, centre - 4), middle - max(4, reach), max(right, centre + 4), middle + max(4, reach)))
    places: list[tuple[float, float, str]] = []
    for (left, bottom, right, top), name in zip(tuple(taken), names, strict=True):
        width, centre, middle = 6.3 * len(name) + 4, (left + right) / 2, (bottom + top) / 2
        tries = [(right + 4, middle, "left"), (left - 4, middle, "right")]
        for step in range(4):
            for y in (top + 8 + 13 * step, bottom - 8 - 13 * step):
                tries += [(centre, y, "center"), (right, y, "right"), (left, y, "left")]
        boxes = []
        for x, y, side in tries:
            start = x - width * {"left": 0, "center": 0.5, "right": 1}[side]
            boxes.append((start, y - 6, start + width, y + 6))
        costs = [sum(_overlap(box, other) for other in taken + outside) for box in boxes]
        best = costs.index(min(costs))
        taken.append(boxes[best])
        places.append(tries[best])
    return places


def _overlap(a: _Box, b: _Box) -> float:
    return max(0.0, min(a[2], b[2]) - max(a[0], b[0])) * max(0.0, min(a[3], b[3]) - max(a[1], b[1]))


def _known(interval: float) -> float:
    return 0.0 if isnan(interval) else interval
