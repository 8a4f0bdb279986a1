"""The paper's four curves along learning: novel red, base blue; joint space solid, own space dashed; hm thin black."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from lcwof.engine.run import Run
from lcwof.errors import LcwofError
from lcwof.evaluation import mean_and_interval
from lcwof.report.figures import BASE, HM, NOVEL, QUIET, SIZE, as_svg, quiet_axes, save_png, spread

_LOOKS: dict[str, dict[str, Any]] = {
    "N/N": {"color": NOVEL, "linewidth": 1.3, "dashes": (3, 2)},
    "B/B": {"color": BASE, "linewidth": 1.3, "dashes": (3, 2)},
    "N/J": {"color": NOVEL, "linewidth": 2.0},
    "B/J": {"color": BASE, "linewidth": 2.0},
    "hm": {"color": HM, "linewidth": 0.9},
}
_BANDS = ("N/J", "B/J")


@dataclass(frozen=True)
class Phase:
    """A phase and where it lies on the common axis of epochs."""

    name: str
    start: int
    end: int


@dataclass(frozen=True)
class Curves:
    """What is plotted: measures over epochs, each phase continuing where the one before ended."""

    phases: tuple[Phase, ...]
    epochs: tuple[int, ...]
    phase_of: tuple[str, ...]  # of each point
    mean: dict[str, list[float]]  # over episodes, a value a point
    interval: dict[str, list[float]]
    episodes: int

    def at(self, phase: str, last: bool = True) -> dict[str, float]:
        """The means at the last (or first) point of a phase."""
        points = [i for i, name in enumerate(self.phase_of) if name == phase]
        return {name: values[points[-1 if last else 0]] for name, values in self.mean.items()}


def learning_curves(run: Run) -> Curves | None:
    """The series of a run; None where there is nothing to follow: no curves kept, or a method without epochs."""
    if not run.curves:
        return None
    names, epochs = run.curves[0]["phase"], run.curves[0]["epoch"]
    if any(c["phase"] != names or c["epoch"] != epochs for c in run.curves):
        raise LcwofError(
            f"{run.path}: its episodes were measured at different epochs; evaluate it again with --overwrite."
        )
    if len(epochs) < 2:
        return None
    phases = _phases(run, names, epochs)
    start = {phase.name: phase.start for phase in phases}
    mean: dict[str, list[float]] = {}
    interval: dict[str, list[float]] = {}
    for name in _LOOKS:
        points = [mean_and_interval(values) for values in zip(*(c[name] for c in run.curves), strict=True)]
        mean[name] = [m for m, _ in points]
        interval[name] = [i for _, i in points]
    x = tuple(start[name] + epoch for name, epoch in zip(names, epochs, strict=True))
    return Curves(phases, x, tuple(names), mean, interval, len(run.curves))


def _phases(run: Run, names: Sequence[str], epochs: Sequence[int]) -> tuple[Phase, ...]:
    """A phase is as long as its recipe says, even when its last epoch was not among those measured."""
    settings = run.about["recipe"]["method"]
    phases: list[Phase] = []
    for name in dict.fromkeys(names):
        measured = max(e for n, e in zip(names, epochs, strict=True) if n == name)
        section = settings.get(name.replace(" ", ""))  # "phase 2" is set in [method.phase2]
        length = max(measured, section.get("epochs", 0) if isinstance(section, dict) else 0)
        start = phases[-1].end if phases else 0
        phases.append(Phase(name, start, start + length))
    return tuple(phases)


def learning_curves_figure(curves: Curves) -> Figure:
    """The figure of one run."""
    figure = Figure(figsize=(5.4, 3.6))
    ax = quiet_axes(figure, (0.085, 0.145, 0.755, 0.755))
    end = curves.phases[-1].end
    ax.set_xlim(0, end)
    ax.set_ylim(0, 100)
    for name in _BANDS:
        low = [m - i for m, i in zip(curves.mean[name], curves.interval[name], strict=True)]
        high = [m + i for m, i in zip(curves.mean[name], curves.interval[name], strict=True)]
        ax.fill_between(curves.epochs, low, high, color=_LOOKS[name]["color"], alpha=0.14, linewidth=0)
    for name, look in _LOOKS.items():
        ax.plot(curves.epochs, curves.mean[name], label=name, clip_on=False, **look)
    _name_phases(ax, curves)
    heights = spread([curves.mean[name][-1] for name in _LOOKS], 6.0, 0, 100)
    for (name, look), height in zip(_LOOKS.items(), heights, strict=True):
        text = f"{name} {curves.mean[name][-1]:.1f}"
        style = {"color": look["color"], "va": "center", "fontsize": SIZE, "parse_math": False}
        ax.annotate(text, (end, height), (7, 0), textcoords="offset points", annotation_clip=False, **style)
    ax.set_xlabel("epochs", color=QUIET, fontsize=SIZE)
    figure.text(0.005, 0.985, "accuracy, %", color=QUIET, fontsize=SIZE, va="top")
    return figure


def _name_phases(ax: Any, curves: Curves) -> None:
    """Names on both sides of the line between phases, where there is room however short a phase is."""
    style: dict[str, Any] = {"color": QUIET, "fontsize": SIZE, "va": "bottom", "parse_math": False}
    style |= {"annotation_clip": False, "xycoords": ax.get_xaxis_transform(), "textcoords": "offset points"}
    first, *later = curves.phases
    ax.annotate(first.name, (first.end, 1), (-6 if later else 0, 6), ha="right", **style)
    for phase in later:
        ax.axvspan(phase.start, phase.end, color="#000000", alpha=0.035, linewidth=0, zorder=0)
        ax.axvline(phase.start, color=QUIET, linewidth=0.8)
        ax.annotate(phase.name, (phase.start, 1), (6, 6), ha="left", **style)


def learning_curves_svg(run: Run) -> str | None:
    """The curves as an <svg> element; None where there is nothing to follow."""
    curves = learning_curves(run)
    if curves is None:
        return None
    title = f"{run.title}: accuracy along learning, mean of {curves.episodes} episodes"
    return as_svg(learning_curves_figure(curves), f"curves {run.path}", title)


def learning_curves_png(run: Run, path: Path) -> Path | None:
    """Save the curves as a PNG file; None where there is nothing to follow."""
    curves = learning_curves(run)
    return None if curves is None else save_png(learning_curves_figure(curves), path)
