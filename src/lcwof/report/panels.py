"""Figures of several panels of lines, said once and drawn twice: for a page (plotly) and for print (SVG, PNG)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import isnan, log10
from typing import TYPE_CHECKING, Any

from lcwof.report.figures import FAINT, QUIET, SIZE, new_figure, quiet_axes
from lcwof.report.plotly_figures import Spec, axis, error, layout, note, plain

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_FEW = 12  # points, so that a table shows all of them
_LEGEND = 0.5  # inches under printed panels
_NARROW = 0.15  # of the axis: less has no room for a phase's whole name


@dataclass(frozen=True)
class Line:
    """One measure along something."""

    name: str
    colour: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    interval: tuple[float, ...]  # of each point, to both sides
    dashed: bool = False
    under: bool = False  # broad and pale, so that another that runs along it is seen


@dataclass(frozen=True)
class Panel:
    """One pair of axes; accuracies in percent."""

    title: str
    lines: tuple[Line, ...]
    along: str  # what the horizontal axis is
    episodes: int = 0  # that each point is a mean over, where that is to be said
    log: bool = False
    marks: tuple[tuple[float, str], ...] = ()  # where something begins, and its name
    shaded: tuple[float, float] | None = None
    counted: bool = False  # along 1, 2, 3: the page marks the points and draws their intervals as bars
    remark: str = ""  # what needs to be said of it


def panels_figure(panels: Sequence[Panel], columns: int) -> Figure:
    """For print. Lines are named once, under the panels."""
    columns = min(columns, len(panels))
    rows = -(-len(panels) // columns)
    tall = 3.7 * rows + _LEGEND
    figure = new_figure(5.4 * columns, tall)
    for at, panel in enumerate(panels):
        column, row = at % columns, at // columns
        width, height = 1 / columns, 3.7 / tall
        box = (column * width + 0.125 * width, 1 - (row + 1) * height + 0.16 * height, 0.83 * width, 0.68 * height)
        ax = quiet_axes(figure, box)
        ax.set_ylim(0, 100)
        if panel.log:
            ax.set_xscale("log")
        if panel.counted:
            ax.set_xticks(range(round(min(panel.lines[0].x)), round(max(panel.lines[0].x)) + 1))
        if panel.shaded:
            ax.axvspan(*panel.shaded, color="#000000", alpha=0.07, linewidth=0, zorder=0)
        for line in panel.lines:
            low, high = ([y + s * i for y, i in zip(line.y, line.interval, strict=True)] for s in (-1, 1))
            ax.fill_between(line.x, low, high, color=line.colour, alpha=0.13, linewidth=0)
            look: dict[str, Any] = {"linewidth": 5.0, "alpha": 0.4} if line.under else {"linewidth": 1.8}
            ax.plot(line.x, line.y, color=line.colour, ls="--" if line.dashed else "-", label=line.name, **look)
        across = max(max(line.x) for line in panel.lines)
        for at_mark, (where, name) in enumerate(panel.marks):
            ax.axvline(where, color=FAINT, linewidth=1.0, zorder=0)
            ends = panel.marks[at_mark + 1][0] if at_mark + 1 < len(panel.marks) else across
            short = name.removeprefix("phase ") if ends - where < _NARROW * across else name
            style: dict[str, Any] = {"color": QUIET, "fontsize": SIZE - 1, "va": "bottom", "parse_math": False}
            ax.annotate(short, (where, 1), (3, 2), ax.get_xaxis_transform(), "offset points", **style)
        ax.set_title(panel.title, loc="left", fontsize=SIZE + 1, pad=20 if panel.marks else 8, parse_math=False)
        if panel.remark:
            beside: dict[str, Any] = {"ha": "right", "va": "bottom", "transform": ax.transAxes, "parse_math": False}
            ax.text(1, 1.02, panel.remark, color=QUIET, fontsize=SIZE - 2, **beside)
        ax.set_xlabel(panel.along, color=QUIET, fontsize=SIZE)
        if not column:
            ax.set_ylabel("accuracy, %", color=QUIET, fontsize=SIZE)
    names = dict(zip(*reversed(figure.axes[0].get_legend_handles_labels()), strict=True))
    style = {"frameon": False, "fontsize": SIZE - 1, "labelcolor": QUIET}
    figure.legend(names.values(), names, loc="lower center", ncols=min(len(names), 3 * columns), **style)
    return figure


def panel_spec(panel: Panel) -> Spec:
    """For the page: the same, with values under the pointer."""
    data: list[Spec] = [
        {
            "x": line.x,
            "y": line.y,
            "customdata": [f" ± {i:.1f}" if not isnan(i) else "" for i in line.interval],
            "name": plain(line.name),
            "mode": "lines",
            "line": {"color": line.colour, "width": 6 if line.under else 2, "dash": "dash" if line.dashed else "solid"},
            "opacity": 0.4 if line.under else 1,
            "hovertemplate": "%{y:.1f}%{customdata}",
        }
        for line in panel.lines
    ]
    if panel.counted:
        for trace, line in zip(data, panel.lines, strict=True):
            trace |= {"mode": "lines+markers", "error_y": error(line.interval, line.colour)}
    names = [note(name, x, 1, yref="paper", yanchor="bottom", xanchor="left") for x, name in panel.marks]
    shapes = [_upright(x, x, {"line": {"color": FAINT, "width": 1}}) for x, _ in panel.marks]
    if panel.shaded:
        shapes.append(_upright(*panel.shaded, {"fillcolor": "rgba(0,0,0,0.07)", "line": {"width": 0}}))
    ends = min(min(line.x) for line in panel.lines), max(max(line.x) for line in panel.lines)
    along = axis(panel.along, [log10(end) for end in ends] if panel.log else ends)
    if panel.counted:
        along |= {"dtick": 1, "range": [ends[0] - 0.2, ends[1] + 0.2]}
    axes = {"xaxis": {**along, "type": "log" if panel.log else "linear"}, "yaxis": axis("accuracy, %", [0, 101])}
    more: Spec = {"hovermode": "x unified", "shapes": shapes, "annotations": names, "legend_y": 1.08, "top": 62}
    return {"data": data, "layout": layout(axes, **more)}


def panel_json(panel: Panel) -> dict[str, Any]:
    """What is drawn, for programs; an interval is None where a single episode gives none."""
    found = asdict(panel)
    for line in found["lines"]:
        line["interval"] = [None if isnan(i) else i for i in line["interval"]]
    return found


def panel_markdown(panel: Panel) -> str:
    """The values as a table: all where they are few, else those at the beginning and the end of each phase. Lines that
    were measured at other places have a table of their own."""
    together: dict[tuple[float, ...], list[Line]] = {}
    for line in panel.lines:
        together.setdefault(line.x, []).append(line)
    starts = {where for where, _ in panel.marks}
    remark = f"; {panel.remark}" if panel.remark else ""
    found = [f"**{panel.title}**, {panel.episodes} episodes, mean ± 95% interval{remark}", ""]
    for x, lines in together.items():
        heads = [panel.along, *(line.name for line in lines)]
        found += ["| " + " | ".join(heads) + " |", "|" + "---:|" * len(heads)]
        for i, at in enumerate(x):
            again = i > 0 and at == x[i - 1] and all(ln.y[i] == ln.y[i - 1] for ln in lines)
            if not again and (len(x) <= _FEW or at in starts or i == len(x) - 1):
                cells = [f"{ln.y[i]:.2f}" + ("" if isnan(n := ln.interval[i]) else f" ± {n:.2f}") for ln in lines]
                found.append("| " + " | ".join([f"{at:g}", *cells]) + " |")
        found.append("")
    return "\n".join(found)


def _upright(low: float, high: float, look: Spec) -> Spec:
    return {"type": "rect", "x0": low, "x1": high, "y0": 0, "y1": 1, "yref": "paper", "layer": "below", **look}
