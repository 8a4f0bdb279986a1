"""The part of a page about incremental runs: those of one setting compared, then each by itself."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from statistics import fmean

from lcwof.engine.stream import StreamRun
from lcwof.report.answers_page import stream_answers_sections
from lcwof.report.confusion import ClassAccuracy
from lcwof.report.markup import difference_cell, figure, figures, heads, number, row, table
from lcwof.report.stream_compare import (
    BY_SESSION,
    alike,
    images_kept,
    outcome,
    outcome_heads,
    sessions_of,
    stream_label,
    stream_to_reference,
)
from lcwof.report.stream_figures import (
    classes_by_session_figure,
    matrix_figure,
    measures_figure,
    runs_figures,
    session_classes,
)
from lcwof.report.streams import HEADINGS, class_outcomes, count_of, name_of, session_cells, setting_of
from lcwof.report.table import cell

STREAM_MEANINGS = {
    "J/J": "all samples, base and novel, classified among all classes so far",
    "drop": "J/J of the first session less that of the last",
    "average": "mean J/J over the sessions",
    "forgetting": "how far classes have fallen from their best in an earlier session, on average",
    "images kept": "images in the exemplar memory after the last session",
}


def stream_sections(runs: Sequence[StreamRun]) -> str:
    """Tables and curves of all runs of a setting together, where there are several; then every run, then their
    answers."""
    groups = alike(runs)
    compared = {setting: group for setting, group in groups.items() if len(group) > 1}
    parts = ["<h2>Session after session</h2>"]
    if compared:
        note = (
            "After the last session, then session by session. Beside hm stands what it is above or below that of the "
            "named run, stream by stream over the same streams; where within its own 95% interval it may be chance. A "
            "dash: there is nothing to compare, or the streams are others."
        )
        parts.append(f'<p class="soft">{note}</p>')
    for setting, group in compared.items():
        parts += [_outcomes(setting, group), *(_by_session(setting, group, measure) for measure in BY_SESSION)]
        drawn = runs_figures(group).items()
        parts.append(figures([figure(f"{measure} by session", setting, spec) for measure, spec in drawn]))
    if compared:
        parts.append("<h2>Run by run</h2>")
    parts += [_run(run, runs) for group in groups.values() for run in group]
    return "".join(parts) + stream_answers_sections(groups)


def _outcomes(setting: str, group: Sequence[StreamRun]) -> str:
    best = max(outcome(run)["hm"][0] for run in group)
    counts = {len(run.distinct) for run in group}
    many = len(counts) > 1
    rows = []
    for run in group:
        found = outcome(run)
        hm, *others = (number(*value) for value in found.values())
        to = difference_cell(stream_to_reference(run, group))
        cells = [f"<td>{len(run.distinct)}</td>"] if many else []
        cells += [f'<td class="hm">{hm}</td>', to, *(f"<td>{other}</td>" for other in others)]
        cells.append(f"<td>{images_kept(run)}</td>")
        rows.append(row(stream_label(run, group), cells, "first" if found["hm"][0] == best else ""))
    names = heads(["method", *(["streams"] if many else []), *outcome_heads(group)])
    over = "streams" if many else count_of(counts.pop())
    return table(f"<b>After the last session</b> {escape(setting)}; mean and 95% interval over {over}, %", names, rows)


def _by_session(setting: str, group: Sequence[StreamRun], measure: str) -> str:
    sessions = sessions_of(group, measure)
    rows = [
        row(stream_label(run, group), [f"<td>{number(*run.summary()[at - 1][measure])}</td>" for at in sessions])
        for run in group
    ]
    caption = f"<b>{measure} by session</b> {escape(setting)}; mean and 95% interval over streams, %"
    return table(caption, heads(["method", *map(str, sessions)]), rows)


def _run(run: StreamRun, among: Sequence[StreamRun]) -> str:
    name = name_of(run, among)
    rows = [row(first, [f"<td>{escape(value)}</td>" for value in rest]) for first, *rest in session_cells(run)]
    caption = f"<b>{escape(name)}</b> {escape(setting_of(run))}; mean and 95% interval, %"
    totals = "".join(
        f"<li>{escape(name)} {escape(cell(*value))}: {escape(STREAM_MEANINGS[name])}</li>"
        for name, value in run.totals().items()
    )
    why = run.about["recipe"]["tuning"].get("why")
    how = "Settings chosen on base classes alone" if why else "Settings of the recipe, not tuned"
    chosen = f"<p>{how}{': ' + escape(why) if why else ''}.</p>"
    classes = session_classes(run)
    drawn = [
        figure("Accuracy among all classes so far", name, measures_figure(run)),
        figure("By the session that classes came in", name, matrix_figure(run)),
        figure("Class by class, after the last session", name, classes_by_session_figure(classes)),
        _best_and_worst(run, name, classes),
    ]
    return f'{table(caption, heads(HEADINGS), rows)}<div class="card"><ul>{totals}</ul>{chosen}</div>{figures(drawn)}'


def _best_and_worst(run: StreamRun, name: str, classes: Sequence[Sequence[ClassAccuracy]]) -> str:
    rows = []
    outcomes = class_outcomes(run)
    for at, part in enumerate(classes, start=1):
        mean = fmean(c.accuracy for c in part)
        fallen = [c.forgotten for c in outcomes if c.session == at and c.forgotten is not None]
        fell = f"{round(fmean(fallen), 1) + 0.0:.1f}" if fallen else "–"  # no -0.0
        ends = [f"<td>{escape(c.name)}<i>{c.accuracy:.1f}</i></td>" for c in (part[0], part[-1])]
        rows.append(row("1, base" if at == 1 else str(at), [f"<td>{mean:.1f}</td>", f"<td>{fell}</td>", *ends]))
    caption = f"<b>{escape(name)}</b> right in the end by the session that classes came in, %"
    return table(caption, heads(["session", "mean", "forgotten", "best class", "worst class"]), rows)
