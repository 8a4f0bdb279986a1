"""Comparison tables for papers (LaTeX) and for spreadsheets (CSV)."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from io import StringIO
from math import isnan, nan

from lcwof.engine.run import Run
from lcwof.engine.stream import StreamRun
from lcwof.evaluation import MEASURES
from lcwof.report.compare import (
    Paired,
    against,
    by_setting,
    counted_label,
    folder_name,
    label,
    method_name,
    reference,
    to_reference,
)
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
from lcwof.report.table import COLUMNS
from lcwof.report.tradeoff import swept

_TOTALS = ("drop", "average", "forgetting")
_SPECIAL = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{mark: f"\\{mark}" for mark in "&%$#_{}"},
}


def latex_table(runs: Sequence[Run]) -> str:
    r"""A tabular with booktabs rules, ready to \input: a block a setting, the highest hm first and bold."""
    groups = by_setting(runs)
    other = against(groups.values())
    heads = ["method", *COLUMNS, *([f"hm to {other}"] if other else [])]
    lines = [
        r"% Needs \usepackage{booktabs}. Mean and 95% interval over episodes, in percent.",
        *([f"% hm to {other}: over the same episodes; * marks a difference beyond its interval."] if other else []),
        rf"\begin{{tabular}}{{l{'r' * (len(heads) - 1)}}}",
        r"\toprule",
        " & ".join(heads) + r" \\",
    ]
    for setting, group in groups.items():
        counts = sorted({len(run.rows) for run in group})
        over = f"{setting}, {'--'.join(map(str, counts))} episodes"
        lines += [r"\midrule", rf"\multicolumn{{{len(heads)}}}{{l}}{{{latex_text(over)}}} \\"]
        best = group[0].summary()["hm"][0]
        for run in group:
            summary = run.summary()
            cells = {name: _pm(*summary[name]) for name in COLUMNS}
            if summary["hm"][0] == best:
                cells["hm"] = rf"\mathbf{{{cells['hm']}}}"
            shown = [f"${cell}$" for cell in cells.values()]
            shown += [latex_difference(to_reference(run, group))] if other else []
            lines.append(" & ".join([latex_text(counted_label(run, group, runs)), *shown]) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


def latex_streams(runs: Sequence[StreamRun]) -> str:
    r"""For each setting a tabular of hm and one of J/J by session, a row a run, the best of each session bold; then one
    of what the runs come to."""
    tables = []
    for setting, group in alike(runs).items():
        tables += [_latex_sessions(setting, group, measure) for measure in BY_SESSION]
        tables.append(_latex_outcomes(setting, group))
    return "\n".join(tables)


def _latex_outcomes(setting: str, group: Sequence[StreamRun]) -> str:
    heads = ["method", *map(latex_text, outcome_heads(group))]
    lines = [
        r"% Needs \usepackage{booktabs}. After the last session, mean and 95% interval over streams, in percent.",
        *_latex_about(setting, group),
        f"% {heads[2]}: over the same streams; * marks a difference beyond its 95% interval.",
        rf"\begin{{tabular}}{{l{'r' * (len(heads) - 1)}}}",
        r"\toprule",
        " & ".join(heads) + r" \\",
        r"\midrule",
    ]
    best = max(outcome(run)["hm"][0] for run in group)
    for run in group:
        hm, *others = (_pm(*value) for value in outcome(run).values())
        shown = rf"$\mathbf{{{hm}}}$" if outcome(run)["hm"][0] == best else f"${hm}$"
        cells = [shown, latex_difference(stream_to_reference(run, group)), *(f"${other}$" for other in others)]
        lines.append(" & ".join([latex_text(stream_label(run, group)), *cells, str(images_kept(run))]) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


def _latex_about(setting: str, group: Sequence[StreamRun]) -> list[str]:
    return [f"% {setting}; streams: {', '.join(str(len(run.distinct)) for run in group)}."]


def _latex_sessions(setting: str, group: Sequence[StreamRun], measure: str) -> str:
    summaries = [run.summary() for run in group]
    sessions = sessions_of(group, measure)
    best = [max(summary[at - 1][measure][0] for summary in summaries) for at in sessions]
    lines = [
        rf"% Needs \usepackage{{booktabs}}. {measure} by session, mean and 95% interval over streams, in percent.",
        *_latex_about(setting, group),
        rf"\begin{{tabular}}{{l{'r' * len(sessions)}}}",
        r"\toprule",
        " & ".join([rf"{measure}, session", *map(str, sessions)]) + r" \\",
        r"\midrule",
    ]
    for run, summary in zip(group, summaries, strict=True):
        cells = [_pm(*summary[at - 1][measure]) for at in sessions]
        means = [summary[at - 1][measure][0] for at in sessions]
        shown = [rf"$\mathbf{{{c}}}$" if m == top else f"${c}$" for c, m, top in zip(cells, means, best, strict=True)]
        lines.append(" & ".join([latex_text(stream_label(run, group)), *shown]) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


def csv_streams(runs: Sequence[StreamRun]) -> str:
    """One row a session of a run, what the whole run comes to in that of its last; a cell is empty where there is
    nothing to say."""
    out = StringIO()
    measures, totals = ([c for name in names for c in (name, f"{name} interval")] for names in (MEASURES, _TOTALS))
    paired = ["compared with", "hm difference", "hm difference interval", "hm difference clear"]
    write = csv.writer(out, lineterminator="\n").writerow
    write(["data", "method", "run", "streams", "session", "classes", "images kept", *measures, *totals, *paired])
    for group in alike(runs).values():
        paths = [run.path for run in runs]
        other = folder_name(reference(group).path, paths)
        for run in group:
            who = [run.about["data"], method_name(run), folder_name(run.path, paths), len(run.distinct)]
            compared = _paired_cells(other, stream_to_reference(run, group))
            for session, (summary, row) in enumerate(zip(run.summary(), run.streams[0], strict=True), start=1):
                values = [_digits(x) for name in MEASURES for x in summary.get(name, (nan, nan))]
                whole = [_digits(x) for name in _TOTALS for x in run.totals()[name]] + compared
                ending = whole if session == run.sessions else [""] * len(whole)
                write([*who, session, len(row["classes"]), row["kept"], *values, *ending])
    return out.getvalue()


def _pm(mean: float, interval: float, sign: str = "") -> str:
    r"""A number for math mode.

    >>> print(_pm(61.234, 0.5))
    61.23 \pm 0.50
    """
    return f"{mean:{sign}.2f}" + ("" if isnan(interval) else rf" \pm {interval:.2f}")


def latex_difference(paired: Paired | None) -> str:
    if paired is None:
        return "--"
    return f"${_pm(paired.mean, paired.interval, '+')}{'^{*}' if paired.clear else ''}$"


def latex_text(text: str) -> str:
    r"""Text that prints as it is.

    >>> print(latex_text("a_b & 5%"))
    a\_b \& 5\%
    """
    return " ".join("".join(_SPECIAL.get(letter, letter) for letter in text).split())


def csv_table(runs: Sequence[Run]) -> str:
    """One row a run, the highest hm of a setting first; a cell is empty where there is nothing to say."""
    out = StringIO()
    measures = [column for name in (*MEASURES, "AUSUC") for column in (name, f"{name} interval")]
    paired = ["compared with", "hm difference", "hm difference interval", "hm difference clear"]
    write = csv.writer(out, lineterminator="\n").writerow
    write(["data", "way", "shot", "method", "run", "episodes", *measures, *paired])
    for setting, group in by_setting(runs).items():
        for run in group:
            summary = run.summary()
            curve = swept(run)
            area = (nan, nan) if curve is None else curve.area
            values = [_digits(value) for pair in (*(summary[name] for name in MEASURES), area) for value in pair]
            name = folder_name(run.path, [other.path for other in runs])
            who = label(reference(group), group) if len(group) > 1 else ""
            paired = _paired_cells(who, to_reference(run, group))
            write([*setting, method_name(run), name, len(run.rows), *values, *paired])
    return out.getvalue()


def _paired_cells(who: str, paired: Paired | None) -> list[str]:
    if paired is None:
        return ["", "", "", ""]
    return [who, _digits(paired.mean), _digits(paired.interval), "yes" if paired.clear else "no"]


def _digits(value: float) -> str:
    return "" if isnan(value) else f"{value:.4f}"
