"""The plots of the paper, from our runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lcwof.engine.run import Run
from lcwof.errors import LcwofError
from lcwof.report.cells import Runs
from lcwof.report.curves import Curves, learning_curves
from lcwof.report.figures import BASE, HM, NOVEL
from lcwof.report.panels import Line, Panel
from lcwof.report.reproduction import OurRow, Reproduction

_LOOKS = {"N/J": (NOVEL, False), "N/N": (NOVEL, True), "B/J": (BASE, False), "B/B": (BASE, True), "hm": (HM, False)}
_DROP = {"N/J": 1.0, "B/B": 3.0}  # points that a measure may lie under its best where lambda still serves


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
    if what.figure == "weight-decay":
        settings = dict.fromkeys(setting for setting, _, _ in found)
        return [_overlaid(s, [(row, run) for setting, row, run in found if setting == s]) for s in settings]
    panels = [_along(row.name, run) for _, row, run in found]
    if what.figure == "overview":
        panels.insert(0, _after_each_phase(found[0][2]))
    return panels


def _curves(run: Run) -> Curves:
    curves = learning_curves(run)
    if run.about["recipe"]["evaluate"].get("curves") and not run.curves:
        raise LcwofError(f"{run.path / 'curves.jsonl'} is gone or empty: remove the folder and run it again.")
    if curves is None:
        raise LcwofError(
            f"{run.path} has no curves to draw: its method learns in one step, or the study lacks `curves`, the number "
            "of points a phase."
        )
    return curves


def _after_each_phase(run: Run) -> Panel:
    """Where each phase ends; phase 1 ends where phase 2 begins, with novel weights that have learned nothing."""
    curves = _curves(run)
    ends = [0, *(max(i for i, name in enumerate(curves.phase_of) if name == phase.name) for phase in curves.phases)]
    x = tuple(float(phase) for phase in range(1, len(ends) + 1))
    lines = [
        Line(
            name,
            colour,
            x,
            tuple(curves.mean[name][i] for i in ends),
            tuple(curves.interval[name][i] for i in ends),
            dashed,
        )
        for name, (colour, dashed) in _LOOKS.items()
    ]
    return Panel("after each phase", tuple(lines), "phase", curves.episodes, counted=True)


def _overlaid(setting: str, runs: Sequence[tuple[OurRow, Run]]) -> Panel:
    """Runs in one panel, the first broad, the others dashed upon it: what a small difference is seen by."""
    lines = []
    for at, (row, run) in enumerate(runs):
        curves = _curves(run)
        for name in ("N/J", "B/J", "hm"):
            values = tuple(curves.mean[name]), tuple(curves.interval[name])
            title, colour = f"{name}, {row.name}", _LOOKS[name][0]
            lines.append(Line(title, colour, curves.epochs, *values, dashed=at > 0, under=at == 0))
    first = _curves(runs[0][1])
    return Panel(setting, tuple(lines), "epochs", first.episodes, marks=_marks(first))


def _marks(curves: Curves) -> tuple[tuple[float, str], ...]:
    return tuple((float(phase.start), phase.name) for phase in curves.phases if phase.end > phase.start)


def _along(title: str, run: Run) -> Panel:
    """A run's accuracies along its epochs."""
    curves = _curves(run)
    lines = [
        Line(name, colour, curves.epochs, tuple(curves.mean[name]), tuple(curves.interval[name]), dashed)
        for name, (colour, dashed) in _LOOKS.items()
    ]
    return Panel(title, tuple(lines), "epochs", curves.episodes, marks=_marks(curves))


def _lambdas(setting: str, runs: Sequence[tuple[OurRow, Run]]) -> Panel:
    """Accuracies against lambda; shaded, the values that serve."""
    values = {float(row.method["weight_constraint"]): run.summary() for row, run in runs}
    x = tuple(sorted(values))
    lines = [
        Line(name, colour, x, tuple(values[v][name][0] for v in x), tuple(values[v][name][1] for v in x), dashed)
        for name, (colour, dashed) in _LOOKS.items()
        if name != "hm"
    ]
    shaded = usable({v: {name: values[v][name][0] for name in _DROP} for v in x})
    said = ", ".join(f"{name} within {drop:g}" for name, drop in _DROP.items())
    remark = f"shaded: {said} of the best" if shaded else ""
    return Panel(setting, tuple(lines), "lambda", len(runs[0][1].rows), log=True, shaded=shaded, remark=remark)


def usable(found: Mapping[float, Mapping[str, float]]) -> tuple[float, float] | None:
    """The lambdas that serve both ends: novel classes are learned and base classes kept, N/J and B/B hardly under their
    best. Larger ones lose the first, smaller ones the second. The longest row of such values; None where none does.

    >>> curve = {1e2: (57, 70), 1e3: (57.5, 77), 1e4: (56.8, 79), 1e5: (40, 80)}
    >>> usable({value: {"N/J": novel, "B/B": base} for value, (novel, base) in curve.items()})
    (1000.0, 10000.0)
    >>> usable({10.0: {"N/J": 50, "B/B": 80}, 20.0: {"N/J": 50, "B/B": 70}, 40.0: {"N/J": 40, "B/B": 80}})
    (7.071067811865475, 14.142135623730951)
    """
    best = {name: max(each[name] for each in found.values()) for name in _DROP}
    longest: list[float] = []
    serving: list[float] = []  # in a row
    for value in sorted(found):
        serves = all(found[value][name] >= best[name] - drop for name, drop in _DROP.items())
        serving = [*serving, value] if serves else []
        longest = max(longest, serving, key=len)
    if len(longest) == 1:  # as broad as can be seen
        return longest[0] / 2**0.5, longest[0] * 2**0.5
    return (longest[0], longest[-1]) if longest else None
