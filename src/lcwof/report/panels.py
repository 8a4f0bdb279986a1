"""Figures of several panels of lines, said once and drawn twice: for a page (plotly) and for print (SVG, PNG)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure

from lcwof.report.figures import FAINT, QUIET, SIZE, quiet_axes
from lcwof.report.plotly_figures import Spec


@dataclass(frozen=True)
class Line:
    """One measure along something."""

    name: str
    colour: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    interval: tuple[float, ...]  # of each point, to both sides
    dashed: bool = False


@dataclass(frozen=True)
class Panel:
    """One pair of axes; accuracies in percent."""

    title: str
    lines: tuple[Line, ...]
    along: str  # what the horizontal axis is
    log: bool = False
    marks: tuple[tuple[float, str], ...] = ()  # where something begins, and its name
    shaded: tuple[float, float] | None = None


def panels_figure(panels: Sequence[Panel], columns: int) -> Figure:
    """For print. Lines are named once, in the first panel's legend."""
    columns = min(columns, len(panels))
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(5.4 * columns, 3.7 * rows))
    for at, panel in enumerate(panels):
        column, row = at % columns, at // columns
        width, height = 1 / columns, 1 / rows
        box = (column * width + 0.09 * width, 1 - (row + 1) * height + 0.16 * height, 0.86 * width, 0.68 * height)
        ax = quiet_axes(figure, box)
        ax.set_ylim(0, 100)
        if panel.log:
            ax.set_xscale("log")
        if panel.shaded:
            ax.axvspan(*panel.shaded, color="#000000", alpha=0.07, linewidth=0, zorder=0)
        for line in panel.lines:
            low, high = ([y + s * i for y, i in zip(line.y, line.interval, strict=True)] for s in (-1, 1))
            ax.fill_between(line.x, low, high, color=line.colour, alpha=0.13, linewidth=0)
            ax.plot(line.x, line.y, color=line.colour, linewidth=1.8, ls="--" if line.dashed else "-", label=line.name)
        for where, name in panel.marks:
            ax.axvline(where, color=FAINT, linewidth=1.0, zorder=0)
            style: dict[str, Any] = {"color": QUIET, "fontsize": SIZE - 1, "va": "bottom", "parse_math": False}
            ax.annotate(name, (where, 1), (3, 2), ax.get_xaxis_transform(), "offset points", **style)
        ax.set_title(panel.title, loc="left", fontsize=SIZE + 1, pad=20 if panel.marks else 8, parse_math=False)
        ax.set_xlabel(panel.along, color=QUIET, fontsize=SIZE)
        if at == 0:
            ax.legend(frameon=False, fontsize=SIZE - 1, ncols=2, labelcolor=QUIET)
    return figure


def panels_spec(panels: Sequence[Panel], columns: int) -> Spec:
    """For the page: the same, with values under the pointer."""
    from plotly.graph_objects import Scatter
    from plotly.subplots import make_subplots

    columns = min(columns, len(panels))
    rows = -(-len(panels) // columns)
    titles = [panel.title for panel in panels]
    figure = make_subplots(rows, columns, subplot_titles=titles, horizontal_spacing=0.08, vertical_spacing=0.16)
    for at, panel in enumerate(panels):
        where = {"row": at // columns + 1, "col": at % columns + 1}
        for line in panel.lines:
            style = {"color": line.colour, "width": 2, "dash": "dash" if line.dashed else "solid"}
            shown = "%{x}: %{y:.2f} ± %{customdata:.2f}<extra>" + line.name + "</extra>"
            trace = Scatter(
                x=line.x,
                y=line.y,
                customdata=line.interval,
                name=line.name,
                legendgroup=line.name,
                showlegend=at == 0,
                mode="lines",
                line=style,
                hovertemplate=shown,
            )
            figure.add_trace(trace, **where)
        if panel.shaded:
            low, high = panel.shaded
            figure.add_vrect(x0=low, x1=high, fillcolor="black", opacity=0.07, line_width=0, **where)
        for x, name in panel.marks:
            figure.add_vline(x=x, line_color=FAINT, annotation_text=name, annotation_font_color=QUIET, **where)
        figure.update_xaxes(title_text=panel.along, type="log" if panel.log else "linear", **where)
        figure.update_yaxes(range=[0, 100], gridcolor=FAINT, **where)
    figure.update_layout(height=360 * rows, template="simple_white", legend={"orientation": "h", "y": 1.12})
    return dict(json.loads(figure.to_json()))
