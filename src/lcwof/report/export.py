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
    folder_name,
    label,
    method_name,
    reference,
    short_name,
    to_reference,
)
from lcwof.report.streams import name_of, order_of, what_of
from lcwof.report.table import COLUMNS

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
            shown += [_latex_difference(to_reference(run, group))] if other else []
            lines.append(" & ".join([latex_text(label(run, runs)), *shown]) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


def latex_streams(runs: Sequence[StreamRun]) -> str:
    r"""A tabular of hm and one of J/J by session, a row a run, the best of each session bold."""
    tables = []
    for measure in ("hm", "J/J"):
        for setting, group in _alike(runs).items():
            tables.append(_latex_sessions(setting, group, measure))
    return "\n".join(tables)


def _alike(runs: Sequence[StreamRun]) -> dict[str, list[StreamRun]]:
    """Runs by their setting, in words; within one the highest hm in the last session first."""
    groups: dict[str, list[StreamRun]] = {}
    for run in sorted(runs, key=lambda run: -run.summary()[-1]["hm"][0]):
        groups.setdefault(what_of(run) + order_of(run), []).append(run)
    return groups


def _latex_sessions(setting: str, group: Sequence[StreamRun], measure: str) -> str:
    summaries = [run.summary() for run in group]
    sessions = [at for at, found in enumerate(summaries[0]) if measure in found]
    best = [max(summary[at][measure][0] for summary in summaries) for at in sessions]
    lines = [
        rf"% Needs \usepackage{{booktabs}}. {measure} by session, mean and 95% interval over streams, in percent.",
        f"% {setting}; streams: {', '.join(str(len(run.streams)) for run in group)}.",
        rf"\begin{{tabular}}{{l{'r' * len(sessions)}}}",
        r"\toprule",
        " & ".join([rf"{measure}, session", *(str(at + 1) for at in sessions)]) + r" \\",
        r"\midrule",
    ]
    for run, summary in zip(group, summaries, strict=True):
        cells = [_pm(*summary[at][measure]) for at in sessions]
        means = [summary[at][measure][0] for at in sessions]
        shown = [rf"$\mathbf{{{c}}}$" if m == top else f"${c}$" for c, m, top in zip(cells, means, best, strict=True)]
        lines.append(" & ".join([latex_text(name_of(run)), *shown]) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


def csv_streams(runs: Sequence[StreamRun]) -> str:
    """One row a session of a run; a cell is empty where there is nothing to say."""
    out = StringIO()
    measures = [column for name in MEASURES for column in (name, f"{name} interval")]
    write = csv.writer(out, lineterminator="\n").writerow
    write(["data", "method", "run", "streams", "session", "classes", "images kept", *measures])
    for run in runs:
        who = [run.about["data"], short_name(run.about["recipe"]["method"]["name"]), run.path.name, len(run.streams)]
        for session, summary in enumerate(run.summary(), start=1):
            row = next(row for row in run.rows if row["session"] == session)
            values = [_digits(x) for name in MEASURES for x in summary.get(name, (nan, nan))]
            write([*who, session, len(row["classes"]), row["kept"], *values])
    return out.getvalue()


def _pm(mean: float, interval: float, sign: str = "") -> str:
    r"""A number for math mode.

    >>> print(_pm(61.234, 0.5))
    61.23 \pm 0.50
    """
    return f"{mean:{sign}.2f}" + ("" if isnan(interval) else rf" \pm {interval:.2f}")


def _latex_difference(paired: Paired | None) -> str:
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
    measures = [column for name in MEASURES for column in (name, f"{name} interval")]
    paired = ["compared with", "hm difference", "hm difference interval", "hm difference clear"]
    write = csv.writer(out, lineterminator="\n").writerow
    write(["data", "way", "shot", "method", "run", "episodes", *measures, *paired])
    for setting, group in by_setting(runs).items():
        for run in group:
            summary = run.summary()
            values = [_digits(value) for name in MEASURES for value in summary[name]]
            name = folder_name(run.path, [other.path for other in runs])
            write([*setting, method_name(run), name, len(run.rows), *values, *_paired_cells(run, group)])
    return out.getvalue()


def _paired_cells(run: Run, group: Sequence[Run]) -> list[str]:
    paired = to_reference(run, group)
    if paired is None:
        return ["", "", "", ""]
    clear = "yes" if paired.clear else "no"
    return [label(reference(group), group), _digits(paired.mean), _digits(paired.interval), clear]


def _digits(value: float) -> str:
    return "" if isnan(value) else f"{value:.4f}"
