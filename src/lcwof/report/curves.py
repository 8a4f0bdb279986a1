"""Accuracies along learning: what figures of a run are drawn from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lcwof.engine.run import Run
from lcwof.errors import LcwofError
from lcwof.evaluation import mean_and_interval

MEASURES = ("N/N", "B/B", "N/J", "B/J", "hm")


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
    for name in MEASURES:
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
        planned = section.get("epochs", 0) if isinstance(section, dict) and not settings.get("alternate") else 0
        length = max(measured, planned)
        start = phases[-1].end if phases else 0
        phases.append(Phase(name, start, start + length))
    return tuple(phases)
