"""Incremental runs to read: a table by session, accuracy by session as curves, the matrix of sessions as a heat map."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from math import isnan
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from lcwof.engine.stream import StreamRun
from lcwof.report.compare import short_name
from lcwof.report.figures import BASE, HM, NOVEL, QUIET, SIZE, as_svg, new_figure, quiet_axes, spread
from lcwof.report.table import cell

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLUMNS = ("J/J", "B/J", "N/J", "hm", "am", "B/B", "N/N")
_HEADINGS = ("session", "classes", *COLUMNS, "kept")  # kept: images in the exemplar memory
_TOTALS = {
    "drop": "J/J of the first session less that of the last",
    "average": "mean J/J over the sessions",
    "forgetting": "how far classes have fallen from their best, on average",
}


def name_of(run: StreamRun) -> str:
    """Method, what is not the usual about it, and the run's folder."""
    carried = ", calibrated model carried on" if run.about["recipe"]["stream"]["carry"] else ""
    return f"{short_name(run.about['recipe']['method']['name'])}{carried} ({run.path.name})"


def setting_of(run: StreamRun) -> str:
    """What was streamed, and how often."""
    streams = len(run.streams)
    return f"{what_of(run)}: {streams} stream{'' if streams == 1 else 's'}{order_of(run)}"


def what_of(run: StreamRun) -> str:
    ways, base = run.about["ways"], run.about["classes"]["base"]
    count = "1 session" if len(ways) == 1 else f"{len(ways)} sessions"
    sessions = f"{base} base classes, {count} of {'–'.join(map(str, sorted({min(ways), max(ways)})))}"
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
    for row in _cells(run):
        cells = dict(zip(_HEADINGS, row, strict=True))
        table.add_row(*(cells[heading].replace("± ", "±") for heading in shown))
    return table


def sessions_table(runs: Sequence[StreamRun], measure: str) -> Table:
    """One measure by session, one row a run, the best in the last session first: means over the streams, and the
    interval of the last."""
    title = Text(f"{measure} by session: {setting_of(runs[0])}")
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
    table.add_column("method", overflow="fold")
    sessions = [n for n, found in enumerate(runs[0].summary(), start=1) if measure in found]
    for session in sessions:
        table.add_column(str(session), justify="right", no_wrap=True)
    table.add_column("±, last", justify="right", no_wrap=True)
    for run in sorted(runs, key=lambda run: -run.summary()[-1][measure][0]):
        summary = run.summary()
        name = short_name(run.about["recipe"]["method"]["name"])
        interval = summary[-1][measure][1]
        means = [f"{summary[session - 1][measure][0]:.1f}" for session in sessions]
        table.add_row(Text(name), *means, "–" if isnan(interval) else f"{interval:.1f}")
    return table


def streams_markdown(run: StreamRun) -> str:
    """The same rows as a Markdown table."""
    lines = [
        f"**{name_of(run)}**, {setting_of(run)}",
        "",
        "| " + " | ".join(_HEADINGS) + " |",
        "|---:" * len(_HEADINGS) + "|",
        *("| " + " | ".join(row) + " |" for row in _cells(run)),
    ]
    return "\n".join(lines) + "\n"


def _cells(run: StreamRun) -> list[list[str]]:
    rows = []
    for session, summary in enumerate(run.summary(), start=1):
        known = next(row for row in run.rows if row["session"] == session)
        measures = [cell(*summary[name]) if name in summary else "–" for name in COLUMNS]
        rows.append([str(session), str(len(known["classes"])), *measures, str(known["kept"])])
    return rows


def streams_json(runs: Sequence[StreamRun]) -> list[dict[str, Any]]:
    """The same for programs; an interval is None where a single stream gives none."""

    def pair(value: tuple[float, float]) -> dict[str, float | None]:
        return {"mean": round(value[0], 4), "interval": None if isnan(value[1]) else round(value[1], 4)}

    return [
        {
            "protocol": "ifsl",
            "method": short_name(run.about["recipe"]["method"]["name"]),
            "data": run.about["data"],
            "streams": len(run.streams),
            "sessions": [{name: pair(value) for name, value in summary.items()} for summary in run.summary()],
            "matrix": [[round(value, 4) for value in row] for row in run.matrix()],
            **{name: pair(value) for name, value in run.totals().items()},
            "folder": str(run.path),
        }
        for run in runs
    ]


def sessions_figure(run: StreamRun) -> Figure:
    """Accuracy in the joint space by session, with 95% intervals."""
    figure = new_figure(5.4, 3.4, dpi=72)
    ax = quiet_axes(figure, (0.085, 0.13, 0.795, 0.79))
    summary, last = run.summary(), []
    for name, colour, width in (("B/J", BASE, 2.2), ("N/J", NOVEL, 2.2), ("J/J", QUIET, 1.6), ("hm", HM, 1.2)):
        points = [(i, *found[name]) for i, found in enumerate(summary, start=1) if name in found]
        if not points:
            continue
        at, mean, interval = zip(*points, strict=True)
        ax.plot(at, mean, color=colour, linewidth=width, marker="o", markersize=3)
        if not isnan(interval[0]):
            low, high = ([m + sign * i for m, i in zip(mean, interval, strict=True)] for sign in (-1, 1))
            ax.fill_between(at, low, high, color=colour, alpha=0.15, linewidth=0)
        last.append((name, colour, mean[-1]))
    ax.set_ylim(0, 100)
    ax.set_xticks(range(1, run.sessions + 1))
    ax.set_xlabel("session", color=QUIET, fontsize=SIZE)
    figure.text(0.005, 0.985, "%", color=QUIET, fontsize=SIZE, va="top")
    for (name, colour, _), y in zip(last, spread([value for *_, value in last], 6.0, 0.0, 100.0), strict=True):
        ax.annotate(name, (1.02, y), xycoords=("axes fraction", "data"), color=colour, fontsize=SIZE, va="center")
    return figure


def matrix_figure(run: StreamRun) -> Figure:
    """Percent right among all classes, a row for each session, a column for each session that classes came in."""
    matrix, size = run.matrix(), run.sessions
    figure = new_figure(5.4, 0.9 + 0.42 * size, dpi=72)
    ax = figure.add_axes((0.1, 0.02, 0.88, 1 - 0.75 / (0.9 + 0.42 * size)))
    shown = [[row[i] if i < len(row) else float("nan") for i in range(size)] for row in matrix]
    ax.imshow(shown, cmap="Blues", vmin=0, vmax=110, aspect="auto")
    for i, row in enumerate(matrix):
        for j, value in enumerate(row):
            ax.text(j, i, f"{value:.0f}", ha="center", va="center", fontsize=SIZE, color="white" if value > 60 else HM)
    ax.spines[:].set_visible(False)
    ax.xaxis.set_ticks_position("top")
    ax.set_xticks(range(size), [str(i + 1) for i in range(size)])
    ax.set_yticks(range(size), [str(i + 1) for i in range(size)])
    ax.tick_params(colors=QUIET, labelsize=SIZE, length=0, pad=4)
    figure.text(0.1, 0.995, "classes that came in session", color=QUIET, fontsize=SIZE, va="top")
    figure.text(0.005, 0.995, "after", color=QUIET, fontsize=SIZE, va="top")
    return figure


def stream_cards(run: StreamRun) -> str:
    """The part of a page about one run: table, both figures, totals."""
    name = name_of(run)
    head = "".join(f'<th scope="col">{escape(heading)}</th>' for heading in _HEADINGS)
    rows = "".join(
        f'<tr><th scope="row">{row[0]}</th>{"".join(f"<td>{escape(value)}</td>" for value in row[1:])}</tr>'
        for row in _cells(run)
    )
    totals = "".join(
        f"<li>{escape(name)} {escape(cell(*value))}: {escape(_TOTALS[name])}</li>"
        for name, value in run.totals().items()
    )
    caption = f"<caption><b>{escape(name_of(run))}</b> {escape(setting_of(run))}; mean and 95% interval, %</caption>"
    curves = as_svg(sessions_figure(run), f"sessions {name}", f"{name}: accuracy by session")
    matrix = as_svg(matrix_figure(run), f"matrix {name}", f"{name}: accuracy by session of origin")
    why = run.about["recipe"]["tuning"].get("why")
    how = "Settings chosen on base classes alone" if why else "Settings of the recipe, not tuned"
    chosen = f"<p>{how}{': ' + escape(why) if why else ''}.</p>"
    return (
        f'<div class="card scroll"><table>{caption}<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'
        f'<div class="card"><ul>{totals}</ul>{chosen}</div>'
        f"<figure><h3>Accuracy among all classes so far</h3>{curves}</figure>"
        f"<figure><h3>By the session that classes came in</h3>{matrix}</figure>"
    )
