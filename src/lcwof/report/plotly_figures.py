"""The page's interactive figures, as what plotly.js draws: plain dictionaries of `data` and `layout`. No library is
needed to make them, so a page is quick to write; `markup.py` puts them and the script into it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence, Set
from html import escape
from itertools import takewhile
from math import isnan
from typing import Any

from lcwof.engine.run import Run
from lcwof.report.calibration import Calibration, Reliability
from lcwof.report.compare import label, method_name
from lcwof.report.confusion import ClassAccuracy
from lcwof.report.curves import Curves
from lcwof.report.figures import BASE, FAINT, HM, NOVEL, QUIET
from lcwof.report.tradeoff import Swept, Tradeoff

Spec = dict[str, Any]  # {"data": [...], "layout": {...}}

_FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif'
_LINES: dict[str, Spec] = {  # as the paper draws them: novel red, base blue; joint space solid, own space dashed
    "N/J": {"color": NOVEL, "width": 2.5},
    "B/J": {"color": BASE, "width": 2.5},
    "N/N": {"color": NOVEL, "width": 1.5, "dash": "dash"},
    "B/B": {"color": BASE, "width": 1.5, "dash": "dash"},
    "hm": {"color": HM, "width": 1.2},
}
_BANDS = {"N/J": "rgba(194,51,77,0.15)", "B/J": "rgba(37,99,176,0.15)"}
_OTHERS = (
    "#d98e04",
    "#1b9e77",
    "#56a5d8",
    "#b3589a",
    "#c4511c",
    "#7a6fc0",
    "#8a8f94",
)
_MARKS = ("circle", "square", "diamond", "triangle-up", "cross", "triangle-down", "x", "star")
_NAMED = 30  # classes that bars have names beside; more have theirs on pointing at them
_LONG = 16  # letters of a name beside a bar or in a legend


def curves_figure(curves: Curves) -> Spec:
    """The paper's curves along learning, with 95% intervals of N/J and B/J."""
    data: list[Spec] = []
    for name, colour in _BANDS.items():
        pairs = list(zip(curves.mean[name], curves.interval[name], strict=True))
        edge = {"x": curves.epochs, "mode": "lines", "line": {"width": 0}, "hoverinfo": "skip", "showlegend": False}
        data.append({**edge, "y": [m - _known(i) for m, i in pairs], "legendgroup": name})
        band = {"fill": "tonexty", "fillcolor": colour, "legendgroup": name}
        data.append({**edge, "y": [m + _known(i) for m, i in pairs], **band})
    for name, line in _LINES.items():
        shown = {"name": name, "legendgroup": name, "line": line, "hovertemplate": "%{y:.1f}"}
        data.append({"x": curves.epochs, "y": curves.mean[name], "mode": "lines", **shown})
    shapes, names = [], []
    for number, phase in enumerate(curves.phases):
        names.append(note(plain(phase.name), (phase.start + phase.end) / 2, 1, yref="paper", yanchor="bottom"))
        if number:
            area = {"type": "rect", "x0": phase.start, "x1": phase.end, "y0": 0, "y1": 1, "yref": "paper"}
            shapes.append({**area, "fillcolor": "rgba(0,0,0,0.035)", "line": {"width": 0}, "layer": "below"})
    axes = {"xaxis": axis("epochs", [0, curves.phases[-1].end]), "yaxis": axis("accuracy, %", [0, 101])}
    more: Spec = {"hovermode": "x unified", "shapes": shapes, "annotations": names, "legend_y": 1.08, "top": 62}
    return {"data": data, "layout": layout(axes, **more)}


def balance_figure(group: Sequence[Run]) -> Spec:
    """N/J against B/J, one point a run of one setting with its intervals, over lines of equal hm."""
    points = [(run.summary()["B/J"], run.summary()["N/J"]) for run in group]
    ends = [mean + sign * _known(interval) for point in points for mean, interval in point for sign in (-1, 1)]
    margin = max(4.0, (24 - (max(ends) - min(ends))) / 2)
    low, high = max(0.0, min(ends) - margin), min(100.0, max(ends) + margin)
    data, notes = _equal_hm(low, high)
    for run, name, (x, y), look in zip(group, _names_of(group), points, _looks_of(group), strict=True):
        bars = {f"error_{axis}": error([interval], look["color"]) for axis, (_, interval) in (("x", x), ("y", y))}
        told = f"B/J {x[0]:.2f}<br>N/J {y[0]:.2f}<br>hm {run.summary()['hm'][0]:.2f}"
        point = {"x": [x[0]], "y": [y[0]], "mode": "markers", "marker": {**look, "size": 10}}
        data.append({**point, **bars, "name": name, "hovertemplate": told})
    return {"data": data, "layout": roomy(layout(_joint_axes(low, high), annotations=notes), len(group))}


def tradeoff_figure(group: Sequence[Run], found: Sequence[Swept | None], paths: Sequence[Tradeoff | None]) -> Spec:
    """N/J against B/J for every bias of novel classes, a large mark where each run ends, and, dotted, how the last
    phase of those with curves led there."""
    data, notes = _equal_hm(0.0, 100.0)
    for run, name, curve, path, look in zip(group, _names_of(group), found, paths, _looks_of(group), strict=True):
        colour, of = {"color": look["color"]}, {"name": name, "legendgroup": name}
        if curve is not None:
            told = f"{name}, another bias<br>B/J %{{x:.1f}}<br>N/J %{{y:.1f}}<extra></extra>"
            line = {"mode": "lines", "line": {**colour, "width": 2}, "showlegend": False, "hovertemplate": told}
            data.append({"x": curve.base, "y": curve.novel, **of, **line})
        if path is not None:
            epochs = [f"{plain(path.phase)}, epoch {epoch}" for epoch in path.epochs]
            shown = {"text": epochs, "hovertemplate": "%{text}<br>B/J %{x:.1f}<br>N/J %{y:.1f}", "showlegend": False}
            line = {"mode": "lines+markers", "line": {**colour, "width": 1, "dash": "dot"}}
            data.append({"x": path.base, "y": path.novel, **of, **line, **shown, "marker": {**look, "size": 4}})
        if curve is not None or path is not None:
            x, y = (run.summary()[measure][0] for measure in ("B/J", "N/J"))
            told = f"{name} as it is<br>B/J {x:.1f}<br>N/J {y:.1f}<extra></extra>"
            mark = {"mode": "markers", "marker": {**look, "size": 11}, "hovertemplate": told}
            data.append({"x": [x], "y": [y], **of, **mark})
    named = sum(curve is not None or path is not None for curve, path in zip(found, paths, strict=True))
    return {"data": data, "layout": roomy(layout(_joint_axes(0, 100), annotations=notes), named)}


def reliability_figure(found: Calibration) -> Spec:
    """How many answers are right, by how sure they were; the area of a mark is the share of answers in its bin."""
    even = {"x": [0, 100], "y": [0, 100], "mode": "lines", "line": {"color": QUIET, "width": 1, "dash": "dot"}}
    data: list[Spec] = [{**even, "hoverinfo": "skip", "showlegend": False}]
    for name, part, colour in (("base samples", found.base, BASE), ("novel samples", found.novel, NOVEL)):
        data.append(_reliability_line(part, name, colour))
    axes = {"xaxis": axis("confidence, %", [0, 103]), "yaxis": axis("right, %", [0, 103])}
    return {"data": data, "layout": layout(axes)}


def _reliability_line(part: Reliability, name: str, colour: str) -> Spec:
    bins = [b for b in range(len(part.count)) if part.count[b]]
    share = [float(part.count[b] / part.count.sum()) for b in bins]
    x, y = ([round(float(values[b]), 2) for b in bins] for values in (part.confidence, part.right))
    told = [f"{int(part.count[b])} of {int(part.count.sum())} answers" for b in bins]
    marker = {"color": colour, "opacity": 0.85, "size": [5 + 22 * s**0.5 for s in share]}
    shown = {"text": told, "hovertemplate": "confidence %{x:.1f}, right %{y:.1f}<br>%{text}", "cliponaxis": False}
    return {"x": x, "y": y, **shown, "name": name, "mode": "lines+markers", "marker": marker, "line": {"color": colour}}


def classes_figure(base: Sequence[ClassAccuracy], novel: Sequence[ClassAccuracy]) -> Spec:
    """Accuracy in the joint space by class, sorted."""
    return class_bars([("novel classes", NOVEL, novel), ("base classes", BASE, base)])


def class_bars(parts: Sequence[tuple[str, str, Sequence[ClassAccuracy]]]) -> Spec:
    """Accuracy in the joint space by class, for groups of classes by name and colour; few classes lie with their names,
    many stand without."""
    classes = [c for _, _, part in parts for c in part]
    lying = len(classes) <= _NAMED
    data: list[Spec] = []
    start = 0
    for name, colour, part in parts:
        at, values = list(range(start, start + len(part))), [round(c.accuracy, 2) for c in part]
        told = [f"{plain(c.name)}: {c.accuracy:.1f}%{f' of {c.queries}' if c.queries else ''}" for c in part]
        bars = {"x": values, "y": at, "orientation": "h"} if lying else {"x": at, "y": values}
        shown = {"name": name, "marker": {"color": colour}, "hovertext": told, "hoverinfo": "text"}
        data.append({"type": "bar", **bars, **shown})
        start += len(part)
    names = [plain(name) for name in shorts([c.name for c in classes])]
    by_class: Spec = {"range": [-0.6, len(names) - 0.4], "showgrid": False, "zeroline": False, "fixedrange": True}
    if lying:
        by_class |= {"tickvals": list(range(len(names))), "ticktext": names, "automargin": True}
        by_class["range"] = by_class["range"][::-1]
        axes = {"xaxis": axis("right among all classes, %", [0, 100]), "yaxis": by_class}
        return {"data": data, "layout": layout(axes, height=max(360, 120 + 22 * len(names)), bargap=0.25)}
    axes = {"xaxis": {**by_class, "showticklabels": False}, "yaxis": axis("right among all classes, %", [0, 100])}
    return {"data": data, "layout": layout(axes, height=360, bargap=0.1)}


def _equal_hm(low: float, high: float) -> tuple[list[Spec], list[Spec]]:
    """Where hm = 2xy / (x + y) is 10, 20, ..., 90, and the diagonal; with their names where they come in."""
    quiet = {"mode": "lines", "hoverinfo": "skip", "showlegend": False}
    data: list[Spec] = [{**quiet, "x": [low, high], "y": [low, high], "line": {"color": FAINT, "dash": "dot"}}]
    notes = []
    for hm in range(10, 100, 10):
        start = max(low, hm / 2 + 0.01)
        even = [start + (high - start) * i / 200 for i in range(201)]
        x = sorted({*even, *(hm * y / (2 * y - hm) for y in even)})  # as close where the line is steep
        seen = [(a, b) for a in x if low <= a <= high and low <= (b := hm * a / (2 * a - hm)) <= high]
        if len(seen) < 2:
            continue
        line = {"x": [round(a, 2) for a, _ in seen], "y": [round(b, 2) for _, b in seen]}
        data.append({**quiet, **line, "line": {"color": "#c9ccd0", "width": 1}})
        if high - low > 60 and hm % 20:  # little room
            continue
        at, height = seen[0]
        through = "top" if height > high - 0.05 * (high - low) else "bottom"  # the top, or else the left
        notes.append(note(f"hm {hm}", at, height, xanchor="left", yanchor=through))
    return data, notes


def _names_of(group: Sequence[Run]) -> list[str]:
    return [plain(name) for name in shorts([label(run, group) for run in group])]


def _looks_of(group: Sequence[Run]) -> list[Spec]:
    return looks([method_name(run) for run in group], [label(run, group) for run in group])


def looks(methods: Sequence[str], labels: Sequence[str]) -> list[Spec]:
    """A colour and a mark a run: lcwof black, the others by label, the same in every figure of a setting."""
    order = sorted(range(len(labels)), key=lambda i: (methods[i] != "lcwof", labels[i]))
    found: list[Spec] = [{} for _ in labels]
    for place, i in enumerate(order):
        colour = HM if place == 0 else _OTHERS[(place - 1) % len(_OTHERS)]
        found[i] = {"color": colour, "symbol": _MARKS[place % len(_MARKS)]}
    return found


def _joint_axes(low: float, high: float) -> Spec:
    room = 0.02 * (high - low)
    limits = [low - room, high + room]
    axes = {"xaxis": axis("B/J, %", limits), "yaxis": axis("N/J, %", limits)}
    for each in axes.values():
        each["showgrid"] = False
    return axes


def axis(title: str, limits: Sequence[float]) -> Spec:
    lines = {"gridcolor": FAINT, "zeroline": False, "showline": True, "linecolor": FAINT, "automargin": True}
    return {"title": {"text": title, "standoff": 8, "font": {"size": 13}}, "range": list(limits), **lines}


def layout(axes: Spec, height: int = 390, legend_y: float = 1.02, top: int = 50, **more: Any) -> Spec:
    """top: room for the legend and, above it, the buttons that show on pointing at a figure."""
    legend = {"orientation": "h", "x": 0, "xanchor": "left", "y": legend_y, "yanchor": "bottom"}
    clear = "rgba(0,0,0,0)"
    return {
        "height": height,
        "margin": {"l": 48, "r": 14, "t": top, "b": 46},
        "modebar": {"bgcolor": clear, "color": QUIET, "activecolor": HM},
        "font": {"family": _FONT, "size": 13, "color": QUIET},
        "legend": {**legend, "font": {"color": HM}},
        "hoverlabel": {"font": {"family": _FONT}},
        "paper_bgcolor": clear,
        "plot_bgcolor": clear,
        **axes,
        **more,
    }


def roomy(layout: Spec, runs: int) -> Spec:
    """The layout with a legend of two columns, and higher by its rows, where the runs do not fit one."""
    if runs <= 4:
        return layout
    legend = {**layout["legend"], "entrywidth": 0.5, "entrywidthmode": "fraction", "font": {"color": HM, "size": 12}}
    return {**layout, "legend": legend, "height": layout["height"] + 20 * ((runs - 1) // 2)}


def note(text: str, x: float, y: float, **more: Any) -> Spec:
    return {"text": text, "x": x, "y": y, "showarrow": False, "font": {"size": 12, "color": QUIET}, **more}


def error(intervals: Sequence[float], colour: str) -> Spec:
    """The bars of points; none where a single episode or stream gives no interval."""
    return {"type": "data", "array": [_known(i) for i in intervals], "color": colour, "thickness": 1.2, "width": 0}


def plain(text: str) -> str:
    """Text that plotly shows as it is: it reads a few HTML tags and entities in labels."""
    return escape(text, quote=False)


def shorts(names: Sequence[str]) -> list[str]:
    """Names as a legend or an axis has room for: cut at their ends or, of those that begin alike, at the beginning that
    they share.

    >>> shorts(["pn", "iw (resnet12/iw-5w1s)", "lcwof (curves-both-5w1s)", "lcwof (curves-constraint-5w1s)"])
    ['pn', 'iw (resnet12/iw…', '…both-5w1s)', '…constraint-5w1…']
    """
    return [_short(name, set(names), 0, _LONG // 2) for name in names]


def _short(name: str, among: Set[str], skipped: int, alike_up_to: int) -> str:
    def cut(text: str) -> str:
        text = f"…{text[skipped:]}" if skipped else text
        return text if len(text) <= _LONG else text[: _LONG - 1] + "…"

    alike = {other for other in among if cut(other)[:alike_up_to] == cut(name)[:alike_up_to]}
    if len(alike) < 2 or not cut(name).endswith("…"):
        return cut(name)
    letters = zip(min(alike), max(alike), strict=False)
    shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], letters))
    word = max((found.end() for found in re.finditer(r"[\W_]", name[:shared])), default=0)
    return _short(name, alike, word if shared - word < _LONG // 2 else shared - 3, _LONG)


def _known(interval: float) -> float:
    return 0.0 if isnan(interval) else interval
