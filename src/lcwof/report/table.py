"""Results as a table for the terminal, for Markdown and for programs."""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.table import Table
from rich.text import Text

from lcwof.engine.run import Run
from lcwof.engine.stream import StreamRun
from lcwof.evaluation import MEASURES
from lcwof.report.compare import (
    Paired,
    Setting,
    against,
    by_setting,
    counted_label,
    label,
    method_name,
    reference,
    to_reference,
)
from lcwof.report.tradeoff import swept

COLUMNS = ("N/N", "B/B", "N/J", "B/J", "hm", "am")

_SHORT = 8  # letters of a name that stand beside all of them in 80 columns


def cell(mean: float, interval: float) -> str:
    """`mean ± interval`, or the mean alone where a single episode gives no interval.

    >>> cell(61.234, 0.5)
    '61.23 ± 0.50'
    """
    return f"{mean:.2f}" if isnan(interval) else f"{mean:.2f} ± {interval:.2f}"


def narrow_cell(mean: float, interval: float) -> str:
    """The same in ten characters at most, so that six stand in 80 columns: a wide interval needs no hundredths.

    >>> narrow_cell(61.234, 0.5), narrow_cell(100.0, 12.34)
    ('61.23±0.50', '100.0±12.3')
    """
    text = cell(mean, interval).replace(" ± ", "±")
    return text if len(text) <= 10 else f"{mean:.1f}±{interval:.1f}"


def difference(run: Run, group: Sequence[Run]) -> str:
    """hm less the reference's in words, as `difference_words` has them; a dash for the reference itself."""
    if run is reference(group):
        return "–"
    paired = to_reference(run, group)
    return "other episodes" if paired is None else difference_words(paired)


def difference_words(paired: Paired) -> str:
    """The difference, its interval, and whether it may be chance.

    >>> difference_words(Paired(-2.0, 0.3, 100)), difference_words(Paired(0.1, 0.3, 100))
    ('−2.00 ± 0.30', '+0.10 ± 0.30, may be chance')
    """
    mean, interval, chance = difference_parts(paired)
    return mean + (f" ± {interval}" if interval else "") + (f", {chance}" if chance else "")


def difference_parts(paired: Paired) -> tuple[str, str, str]:
    """The same one by one; empty: no interval, no chance."""
    interval = "" if isnan(paired.interval) else f"{paired.interval:.2f}"
    return f"{paired.mean:+.2f}".replace("-", "−"), interval, "" if paired.clear else "may be chance"


def results_table(runs: Sequence[Run]) -> Group:
    """A table for each data set, way and shot, one row a run, the highest hm first and bold; 80 columns are enough."""
    tables = [_setting_table(setting, group, runs) for setting, group in by_setting(runs).items()]
    return Group(*(part for table in tables for part in (table, "")))


def _setting_table(setting: Setting, group: Sequence[Run], runs: Sequence[Run]) -> Table:
    """Of several runs, how far hm is from the reference's stands in the place of am, to which it is closest; so does a
    long name."""
    names = COLUMNS if len(group) < 2 and len(label(group[0], runs)) <= _SHORT else COLUMNS[:-1]
    apart = {id(run): to_reference(run, group) for run in group}
    counts = sorted({len(run.rows) for run in group})
    title = f"{setting}, {'–'.join(map(str, counts))} episodes"
    apart_by = 1 if len(group) < 2 else 0  # spaces, beside one that always is
    padding = (0, apart_by, 0, 0)
    table = Table(title=Text(title), title_justify="left", box=SIMPLE_HEAD, show_edge=False, padding=padding)
    table.add_column("method", overflow="fold", min_width=_SHORT)
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)
    if len(group) > 1:
        other = method_name(reference(group))
        table.add_column(Text(f"to {other}"), justify="right", overflow="fold")
        meaning = f"to {other}: hm less {other}'s, episode by episode; ? where that may be chance"
        table.caption, table.caption_justify, table.caption_style = Text(meaning), "left", "dim"
    best = group[0].summary()["hm"][0]
    for run in group:
        summary = run.summary()
        cells = [Text(narrow_cell(*summary[name])) for name in names]
        if summary["hm"][0] == best:
            cells[names.index("hm")].stylize("bold")
        if len(group) > 1:
            cells.append(Text(_narrow_difference(apart[id(run)])))
        table.add_row(Text(counted_label(run, group, runs)), *cells)
    return table


def _narrow_difference(paired: Paired | None) -> str:
    """
    >>> _narrow_difference(Paired(-2.0, 0.3, 100)), _narrow_difference(Paired(0.1, 0.3, 100))
    ('−2.00±0.30', '+0.10±0.30?')
    """
    if paired is None:
        return "–"
    mean, interval, chance = difference_parts(paired)
    return mean + (f"±{interval}" if interval else "") + ("?" if chance else "")


def markdown_table(runs: Sequence[Run]) -> str:
    """The same rows as a Markdown table, ready to paste into a document or an issue."""
    groups = by_setting(runs)
    other = against(groups.values())
    columns = [*COLUMNS, *([f"hm to {other}"] if other else [])]
    lines = [
        "| data | setting | method | episodes | " + " | ".join(columns) + " |",
        "|---|---|---|---:|" + "---:|" * len(columns),
    ]
    for setting, group in groups.items():
        best = group[0].summary()["hm"][0]
        for run in group:
            summary = run.summary()
            cells = {name: cell(*summary[name]) for name in COLUMNS}
            if summary["hm"][0] == best:
                cells["hm"] = f"**{cells['hm']}**"
            if other:
                cells["difference"] = difference(run, group)
            named = [plain_cell(setting.data), setting.short, plain_cell(label(run, runs)), str(len(run.rows))]
            lines.append("| " + " | ".join([*named, *cells.values()]) + " |")
    return "\n".join(lines) + "\n"


def as_json(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """The same rows for programs, every measure included; an interval is None where a single episode gives none."""
    found = []
    for setting, group in by_setting(runs).items():
        for run in group:
            measures = {name: _pair(*value) for name, value in run.summary().items()}
            found.append(
                {
                    "run": str(run.path),
                    "data": setting.data,
                    "way": setting.way,
                    "shot": setting.shot,
                    "method": method_name(run),
                    "episodes": len(run.rows),
                    "measures": {name: measures[name] for name in MEASURES},
                    "AUSUC": None if (curve := swept(run)) is None else _pair(*curve.area),
                    "compared with": method_name(reference(group)) if len(group) > 1 else None,
                    "difference": None if (paired := to_reference(run, group)) is None else paired_json(paired),
                    "settings": {k: v for k, v in run.about["recipe"]["method"].items() if k != "name"},
                    "tuning": tuning(run),
                    "seconds": run.about.get("seconds"),
                }
            )
    return found


def _pair(mean: float, interval: float) -> dict[str, float | None]:
    return {"mean": round(mean, 4), "interval": None if isnan(interval) else round(interval, 4)}


def paired_json(paired: Paired) -> dict[str, Any]:
    """A difference of hm, for programs."""
    interval = None if isnan(paired.interval) else round(paired.interval, 4)
    return {"hm": round(paired.mean, 4), "interval": interval, "clear": paired.clear, "episodes": paired.episodes}


def tuning(run: Run | StreamRun) -> dict[str, Any] | None:
    """What was chosen on validation classes ("settings") and why ("why"); None where nothing was tuned."""
    return run.about["recipe"].get("tuning") or None


def plain_cell(text: str) -> str:
    """Text that cannot break out of its Markdown cell."""
    for mark in "\\|`*_<>[]":
        text = text.replace(mark, "\\" + mark)
    return " ".join(text.split())
