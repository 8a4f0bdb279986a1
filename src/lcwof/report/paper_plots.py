"""The plots of the paper, from our runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lcwof.engine.run import Run
from lcwof.errors import LcwofError
from lcwof.report.curves import learning_curves
from lcwof.report.figures import BASE, HM, NOVEL
from lcwof.report.panels import Line, Panel
from lcwof.report.reproduction import OurRow, Reproduction, Runs

_LOOKS = {"N/J": (NOVEL, False), "N/N": (NOVEL, True), "B/J": (BASE, False), "B/B": (BASE, True), "hm": (HM, False)}
_DROP = 1.0  # points that N/J may lie under its best where lambda still serves


def plot_panels(what: Reproduction, runs: Runs) -> list[Panel]:
    """The panels of a figure of the paper, in the order of the file's rows."""
    found = [
        (setting, row, run)
        for place, setting, row in what.wanted()
        if isinstance(run := runs.get((place, setting, row.run)), Run)
    ]
    if not found:
        raise LcwofError(f"{what.key}: none of its runs is there.")
    if what.figure == "lambda-after-phase2":
        settings = dict.fromkeys(setting for setting, _, _ in found)
        return [_lambdas(s, [(row, run) for setting, row, run in found if setting == s]) for s in settings]
    return [_along(row.name, run) for _, row, run in found]


def _along(title: str, run: Run) -> Panel:
    """A run's accuracies along its epochs."""
    curves = learning_curves(run)
    if curves is None:
        raise LcwofError(f"{run.path} has no curves.")
    lines = [
        Line(name, colour, curves.epochs, tuple(curves.mean[name]), tuple(curves.interval[name]), dashed)
        for name, (colour, dashed) in _LOOKS.items()
    ]
    marks = tuple((float(phase.start), phase.name) for phase in curves.phases if phase.end > phase.start)
    return Panel(title, tuple(lines), "epochs", marks=marks)


def _lambdas(setting: str, runs: Sequence[tuple[OurRow, Run]]) -> Panel:
    """Accuracies against lambda; shaded, the values that serve: N/J hardly under its best."""
    values = {float(row.method["weight_constraint"]): run.summary() for row, run in runs}
    x = tuple(sorted(values))
    lines = [
        Line(name, colour, x, tuple(values[v][name][0] for v in x), tuple(values[v][name][1] for v in x), dashed)
        for name, (colour, dashed) in _LOOKS.items()
        if name != "hm"
    ]
    return Panel(setting, tuple(lines), "lambda", log=True, shaded=usable({v: values[v]["N/J"][0] for v in x}))


def usable(novel: Mapping[float, float]) -> tuple[float, float]:
    """From the largest lambda whose N/J lies at most a point under the best, down to the next lower one tried: larger
    ones lose novel classes, smaller ones lose base classes for nothing.

    >>> usable({10.0: 57.0, 100.0: 57.5, 1000.0: 57.1, 10000.0: 40.0})
    (100.0, 1000.0)
    """
    best = max(novel.values())
    serving = [value for value, found in sorted(novel.items()) if found >= best - _DROP]
    return serving[-2] if len(serving) > 1 else serving[-1], serving[-1]
