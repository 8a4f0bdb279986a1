"""What the page draws of incremental runs: accuracy by session, by session of origin, and by class."""

from __future__ import annotations

from collections.abc import Sequence

from lcwof.engine.stream import StreamRun
from lcwof.report.compare import method_name
from lcwof.report.confusion import ClassAccuracy
from lcwof.report.figures import BASE, HM, NOVEL, QUIET
from lcwof.report.panels import Line, Panel, panel_spec
from lcwof.report.plotly_figures import Spec, axis, class_bars, layout, looks, roomy, shorts
from lcwof.report.stream_compare import stream_label
from lcwof.report.streams import class_outcomes

_MEASURES = {"hm": HM, "B/J": BASE, "N/J": NOVEL, "J/J": QUIET}
_SESSIONS = (NOVEL, "#e3909f")  # in turn, so that one sees where a session ends


def runs_figures(group: Sequence[StreamRun]) -> dict[str, Spec]:
    """One figure a measure, with a line a run."""
    labels = [stream_label(run, group) for run in group]
    colours = [look["color"] for look in looks([method_name(run) for run in group], labels)]
    found = {}
    for measure in _MEASURES:
        lines = [
            _line(run, measure, name, colour, dashed=colour in colours[:i])  # more runs than colours
            for i, (run, name, colour) in enumerate(zip(group, shorts(labels), colours, strict=True))
        ]
        spec = panel_spec(Panel(measure, tuple(lines), "session", counted=True))
        found[measure] = {**spec, "layout": roomy(spec["layout"], len(group))}
    return found


def measures_figure(run: StreamRun) -> Spec:
    """One run, with a line a measure."""
    lines = [_line(run, measure, measure, colour) for measure, colour in _MEASURES.items()]
    return panel_spec(Panel("", tuple(lines), "session", counted=True))


def _line(run: StreamRun, measure: str, name: str, colour: str, dashed: bool = False) -> Line:
    points = [(at, *found[measure]) for at, found in enumerate(run.summary(), start=1) if measure in found]
    x, y, interval = zip(*points, strict=True)
    return Line(name, colour, x, y, interval, dashed)


def matrix_figure(run: StreamRun) -> Spec:
    """Percent right among all classes as a heat map: a row for each session, a column for each that classes came in."""
    size = run.sessions
    rows = [[round(value, 2) for value in row] + [None] * (size - len(row)) for row in run.matrix()]
    numbers = list(range(1, size + 1))
    shown = {"texttemplate": "%{z:.0f}", "colorscale": [[0, "#ffffff"], [1, BASE]], "zmin": 0, "zmax": 100}
    told = "after session %{y}, classes of session %{x}: %{z:.1f}<extra></extra>"
    cells = {"x": numbers, "y": numbers, "z": rows, "xgap": 1, "ygap": 1, "hoverongaps": False, "showscale": False}
    axes = {
        "xaxis": axis("session that classes came in", [0.5, size + 0.5]),
        "yaxis": axis("after session", [size + 0.5, 0.5]),
    }
    for each in axes.values():
        each |= {"showgrid": False, "dtick": 1}
    return {"data": [{"type": "heatmap", **cells, **shown, "hovertemplate": told}], "layout": layout(axes)}


def session_classes(run: StreamRun) -> list[list[ClassAccuracy]]:
    """Percent right after the last session by class, for each session that classes came in, the highest first."""
    found: list[list[ClassAccuracy]] = [[] for _ in range(run.sessions)]
    for each in class_outcomes(run):
        found[each.session - 1].append(ClassAccuracy(each.name, each.accuracy))
    return [sorted(part, key=lambda c: (-c.accuracy, c.name)) for part in found]


def classes_by_session_figure(classes: Sequence[Sequence[ClassAccuracy]]) -> Spec:
    """Bars by class: the base classes, then session by session."""
    parts = [("base classes", BASE, classes[0])]
    parts += [(f"session {at}", _SESSIONS[at % 2], part) for at, part in enumerate(classes[1:], start=2)]
    return class_bars(parts)
