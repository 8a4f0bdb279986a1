"""Test samples in the plane after each phase: coloured by class, base classes pale, larger where answers are sure."""

from __future__ import annotations

from collections.abc import Sequence
from colorsys import hsv_to_rgb
from typing import TYPE_CHECKING

from lcwof.engine.overview import Points
from lcwof.report.figures import QUIET, SIZE, new_figure
from lcwof.report.plotly_figures import Spec, layout

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_STRONG = ("#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#e377c2", "#7f7f7f", "#bcbd22", "#17becf")
_SMALL, _LARGE = 3.0, 11.0  # pixels across, of answers with confidence 0 and 1


def colour(label: int, novel: bool, base: int) -> str:
    """Novel classes in strong colours, base classes in pale ones around the circle of hues."""
    if novel:
        return _STRONG[(label - base) % len(_STRONG)]
    red, green, blue = (0.55 + 0.45 * c for c in hsv_to_rgb(label / max(1, base), 1.0, 1.0))
    return f"#{round(255 * red):02x}{round(255 * green):02x}{round(255 * blue):02x}"


def _colours(points: Points) -> list[str]:
    base = sum(1 for _ in {c for c, novel in zip(points.classes, points.novel, strict=True) if not novel})
    return [colour(c, novel, base) for c, novel in zip(points.classes, points.novel, strict=True)]


def _sizes(points: Points) -> list[float]:
    return [_SMALL + (_LARGE - _SMALL) * confidence for confidence in points.confidence]


def points_figure(phases: Sequence[Points]) -> Figure:
    """For print: a panel a phase. Crosses are wrong answers."""
    figure = new_figure(4.2 * len(phases), 4.7)
    key = "strong colours: novel classes   pale: base classes   larger: surer of the answer   ×: the answer is wrong"
    figure.text(0.01, 0.02, key, fontsize=SIZE - 1, color=QUIET)
    for at, points in enumerate(phases):
        ax = figure.add_axes((at / len(phases) + 0.01, 0.08, 1 / len(phases) - 0.02, 0.82))
        ax.set_axis_off()
        ax.set_title("\n".join(title_of(points)), loc="left", fontsize=SIZE)
        for right, marker in ((True, "o"), (False, "x")):
            chosen = [i for i, r in enumerate(points.right) if r == right]
            ax.scatter(
                [points.x[i] for i in chosen],
                [points.y[i] for i in chosen],
                s=[_sizes(points)[i] ** 2 * 0.6 for i in chosen],
                c=[_colours(points)[i] for i in chosen],
                marker=marker,
                linewidths=0 if right else 0.8,
            )
    return figure


def points_spec(points: Points) -> Spec:
    """One phase for the page, with class, answer and confidence under the pointer."""
    told = [
        f"{'novel' if novel else 'base'} class {c}, {'right' if right else 'wrong'}, confidence {sure:.2f}"
        for c, novel, right, sure in zip(points.classes, points.novel, points.right, points.confidence, strict=True)
    ]
    symbols = ["circle" if right else "x-thin-open" for right in points.right]
    marker = {"color": _colours(points), "size": _sizes(points), "symbol": symbols}
    data = {"x": points.x, "y": points.y, "mode": "markers", "marker": marker, "text": told, "hoverinfo": "text"}
    axes = {"xaxis": {"visible": False}, "yaxis": {"visible": False}}
    return {"data": [data], "layout": layout(axes, top=10, showlegend=False)}


def title_of(points: Points) -> tuple[str, str]:
    parts = []
    for name, wanted in (("base", False), ("novel", True)):
        right = [r for r, novel in zip(points.right, points.novel, strict=True) if novel == wanted]
        parts.append(f"{name} {100 * sum(right) / max(1, len(right)):.0f}% right")
    return f"after {points.phase}", ", ".join(parts)
