"""Our numbers beside the paper's, cell by cell."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from math import isnan
from typing import NamedTuple

from lcwof.engine import Run, StreamRun
from lcwof.report.compare import Paired, paired_difference
from lcwof.report.paper import PaperColumn
from lcwof.report.reproduction import OurRow, Place, Reproduction
from lcwof.report.stream_compare import stream_difference

_ROUNDED = 0.0151  # how far a printed hm may be from that of the printed N/J and B/J, all three rounded


class Compared(NamedTuple):
    """One cell: ours beside the printed one."""

    mean: float | None  # None: not run
    interval: float | None
    over: int  # episodes or streams
    printed: float | None
    of_means: float | None = None  # our hm of the mean N/J and the mean B/J, where the printed hm is that, too

    @property
    def difference(self) -> float | None:
        ours = self.mean if self.of_means is None else self.of_means
        return None if ours is None or self.printed is None else ours - self.printed


class ComparedRow(NamedTuple):
    name: str
    cells: list[Compared]
    apart: dict[str, Paired]  # by setting: hm less that of the reference, over the episodes or streams that both have


class ComparedPart(NamedTuple):
    place: Place
    printed_backbone: str
    columns: tuple[PaperColumn, ...]
    rows: list[ComparedRow]
    reference: str  # the row that the others are compared with, as the table names it


Runs = dict[tuple[Place, str, str], Run | StreamRun]  # by place, setting and the name of the row's run


def compared(what: Reproduction, runs: Runs) -> list[ComparedPart]:
    """The table, cell by cell: the rows that the paper prints in its order, then those that it does not, then what
    others have printed since."""
    assert what.paper is not None
    runs = {key: _first(run, what.episodes) for key, run in runs.items()}
    found: list[ComparedPart] = []
    shown = set()
    for part in what.paper.parts:
        place, ours = what.place_of(part), {row.name: row for row in what.rows_of(part)}
        if not what.same_data:  # nothing printed stands beside ours: what we do not run, or have shown, is not there
            this = place, part.columns, tuple(row.run for row in ours.values())
            if this in shown:
                continue
            shown.add(this)
        times = Counter(each.name for each in part.rows)  # 2: its authors' number, and that of their code run again
        nothing = [None] * len(part.columns)
        lines: list[tuple[str, str, Sequence[float | None]]] = []  # the name as shown, as printed, the printed cells
        if what.same_data:
            for each in part.rows:
                shown_as = f"{each.name} ({each.source})" if times[each.name] > 1 else each.name
                lines.append((shown_as, each.name, each.cells))
        else:
            lines += [(name, name, nothing) for name in times if name in ours]
        lines += [(name, name, nothing) for name in ours if name not in times]
        if what.same_data:
            lines += [(f"{each.name}, since the paper", "", each.cells) for each in part.since]
        rows = []
        for name, as_printed, printed in lines:
            row = ours.get(as_printed)
            cells = _cells(part.columns, printed, place, row, runs)
            apart = {s: p for s in part.settings if (p := _apart(what.reference, place, s, row, runs)) is not None}
            rows.append(ComparedRow(name, cells, apart))
        reference = next((row.name for row in ours.values() if row.run == what.reference), what.reference)
        theirs = part.backbone if what.same_data else place.backbone
        found.append(ComparedPart(place, theirs, part.columns, rows, reference))
    return found


def _first(run: Run | StreamRun, episodes: int) -> Run | StreamRun:
    """The run with a table's episodes alone, so that all its rows are over the same ones."""
    return replace(run, rows=run.rows[:episodes]) if isinstance(run, Run) else run


def _apart(reference: str, place: Place, setting: str, row: OurRow | None, runs: Runs) -> Paired | None:
    ours, other = (runs.get((place, setting, name)) for name in (row.run if row else "", reference))
    if isinstance(ours, StreamRun) and isinstance(other, StreamRun):
        return stream_difference(ours, other)
    if ours is other or not isinstance(ours, Run) or not isinstance(other, Run):
        return None
    return paired_difference(ours, other)


def _cells(
    columns: Sequence[PaperColumn],
    printed: Sequence[float | None],
    place: Place,
    row: OurRow | None,
    runs: Runs,
) -> list[Compared]:
    cells = []
    for column, theirs in zip(columns, printed, strict=True):
        run = runs.get((place, column.setting, row.run)) if row else None
        value = _value(run, column) if run else None
        if value is None or run is None:
            cells.append(Compared(None, None, 0, theirs))
            continue
        count = len(run.rows) if isinstance(run, Run) else len(run.distinct)
        like = _of_means(column, columns, printed, run)
        cells.append(Compared(value[0], None if isnan(value[1]) else value[1], count, theirs, like))
    return cells


def _of_means(
    column: PaperColumn, columns: Sequence[PaperColumn], printed: Sequence[float | None], run: Run | StreamRun
) -> float | None:
    """A mean of the hm of episodes is lower than the hm of their mean N/J and B/J, by half a point with one shot. Which
    of the two a printed one is, the N/J and B/J printed beside it tell."""
    if column.measure != "hm":
        return None
    theirs = dict(zip(columns, printed, strict=True))
    novel, base = (column._replace(measure=measure) for measure in ("N/J", "B/J"))
    nj, bj, hm = theirs.get(novel), theirs.get(base), theirs[column]
    if nj is None or bj is None or hm is None or abs(_harmonic(nj, bj) - hm) > _ROUNDED:  # not known, or a mean
        return None
    ours = _value(run, novel), _value(run, base)
    return None if ours[0] is None or ours[1] is None else _harmonic(ours[0][0], ours[1][0])


def _harmonic(a: float, b: float) -> float:
    return 2 * a * b / (a + b) if a + b else 0.0


def _value(run: Run | StreamRun, column: PaperColumn) -> tuple[float, float] | None:
    """Mean and interval of a run in a column; None where it does not have it (hm before there are novel classes)."""
    if isinstance(run, Run):
        return run.summary()[column.measure]
    summary = run.summary()
    session = column.session or len(summary)
    return summary[session - 1].get(column.measure) if session <= len(summary) else None
