"""Incremental runs to read, each by itself: a table by session for the terminal, for Markdown and for programs."""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan
from statistics import fmean
from typing import NamedTuple

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from lcwof.engine.stream import StreamRun
from lcwof.evaluation.ifsl import forgotten
from lcwof.report.compare import folder_name, method_name
from lcwof.report.table import cell

COLUMNS = ("J/J", "B/J", "N/J", "hm", "am", "B/B", "N/N")
HEADINGS = ("session", "classes", *COLUMNS, "kept")  # kept: images in the exemplar memory


def kind_of(run: StreamRun) -> str:
    """Method, and what is not the usual about it."""
    return method_name(run) + (", calibrated model carried on" if run.about["recipe"]["stream"]["carry"] else "")


def name_of(run: StreamRun, among: Sequence[StreamRun] = ()) -> str:
    """The same with the run's folder, and as many above it as tell it from the others."""
    return f"{kind_of(run)} ({folder_name(run.path, [other.path for other in among])})"


def setting_of(run: StreamRun) -> str:
    """What was streamed, and how often."""
    return f"{what_of(run)}: {count_of(len(run.distinct))}{order_of(run)}"


def count_of(streams: int) -> str:
    return "1 stream" if streams == 1 else f"{streams} streams"


def what_of(run: StreamRun) -> str:
    ways, base = run.about["ways"], run.about["classes"]["base"]
    count = "1 session" if len(ways) == 1 else f"{len(ways)} sessions"
    sessions = f"{base} base classes (session 1), {count} of {'–'.join(map(str, sorted({min(ways), max(ways)})))}"
    shots = "published lists" if run.about["listed"] else f"{run.about['shot']}-shot"
    return f"{run.about['data']}, {sessions}, {shots}"


def order_of(run: StreamRun) -> str:
    return ", classes in another order in each" if run.about["recipe"]["stream"]["shuffle"] else ""


def stream_table(run: StreamRun) -> Table:
    """One row a session, mean and interval over the streams."""
    totals = "; ".join(f"{name} {cell(*value)}" for name, value in run.totals().items())
    title = f"{name_of(run)}: {setting_of(run)}"
    table = Table(title=title, caption=totals, box=SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
    shown = ("session", "classes", *COLUMNS[:4], "kept")  # what fits a terminal of 80 columns
    for heading in shown:
        table.add_column(heading, justify="right", no_wrap=True)
    for row in session_cells(run):
        cells = dict(zip(HEADINGS, row, strict=True))
        table.add_row(*(cells[heading].replace("± ", "±") for heading in shown))
    return table


def sessions_table(runs: Sequence[StreamRun], measure: str) -> Table:
    """One measure by session, one row a run, the best in the last session first: means over the streams, and the
    interval of the last."""
    title = Text(f"{measure} by session, ± of the last: {setting_of(runs[0])}")
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
    table.add_column("method", overflow="fold")
    sessions = [n for n, found in enumerate(runs[0].summary(), start=1) if measure in found]
    for session in sessions:
        table.add_column(str(session), justify="right", no_wrap=True)
    table.add_column("±", justify="right", no_wrap=True)
    for run in sorted(runs, key=lambda run: -run.summary()[-1][measure][0]):
        summary = run.summary()
        interval = summary[-1][measure][1]
        means = [f"{summary[session - 1][measure][0]:.1f}" for session in sessions]
        table.add_row(Text(method_name(run)), *means, "–" if isnan(interval) else f"{interval:.1f}")
    return table


def streams_markdown(run: StreamRun, among: Sequence[StreamRun] = ()) -> str:
    """The same rows as a Markdown table."""
    lines = [
        f"**{name_of(run, among)}**, {setting_of(run)}",
        "",
        "| " + " | ".join(HEADINGS) + " |",
        "|---:" * len(HEADINGS) + "|",
        *("| " + " | ".join(row) + " |" for row in session_cells(run)),
    ]
    return "\n".join(lines) + "\n"


def session_cells(run: StreamRun) -> list[list[str]]:
    """What stands under `HEADINGS`, a row a session."""
    rows = []
    for session, summary in enumerate(run.summary(), start=1):
        known = next(row for row in run.rows if row["session"] == session)
        measures = [cell(*summary[name]) if name in summary else "–" for name in COLUMNS]
        rows.append([str(session), str(len(known["classes"])), *measures, str(known["kept"])])
    return rows


class ClassOutcome(NamedTuple):
    """A class after the last session, over the streams in which it came in a session."""

    name: str
    session: int  # that it came in
    accuracy: float  # among all classes, percent
    forgotten: float | None  # its best in an earlier session less that; None: there was none


def class_outcomes(run: StreamRun) -> list[ClassOutcome]:
    """By session and then in the order in which classes came. Older runs do not have the names of base classes."""
    found: dict[tuple[int, str], list[tuple[float, float | None]]] = {}
    for stream in run.streams:
        base = run.about.get("base") or [f"base class {n}" for n in range(1, len(stream[0]["classes"]) + 1)]
        names = [(1, name) for name in base]
        names += [(row["session"], name) for row in stream[1:] for name in row["new"]]
        fallen = [*forgotten(stream), *[None] * len(names)]
        for who, last, fell in zip(names, stream[-1]["classes"], fallen, strict=False):
            found.setdefault(who, []).append((last, fell))
    outcomes = []
    for (session, name), values in sorted(found.items(), key=lambda item: item[0][0]):
        accuracy = fmean(last for last, _ in values)
        lost = [value for _, value in values if value is not None]
        outcomes.append(ClassOutcome(name, session, accuracy, fmean(lost) if lost else None))
    return outcomes
