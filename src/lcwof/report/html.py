"""One self-contained HTML page about a set of runs: no network, the figures and what draws them inside."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from html import escape
from pathlib import Path
from typing import Any

from lcwof.engine.run import Run
from lcwof.engine.stream import StreamRun
from lcwof.errors import LcwofError
from lcwof.methods import get_method
from lcwof.models.checkpoint import write_aside
from lcwof.report.answers_page import answers_sections
from lcwof.report.compare import Setting, against, by_setting, label, method_name, reference, to_reference
from lcwof.report.curves import learning_curves
from lcwof.report.figures import BASE, NOVEL
from lcwof.report.markup import (
    NO_SCRIPT,
    difference_cell,
    figure,
    figures,
    heads,
    number,
    pairs,
    row,
    scripts,
    table,
)
from lcwof.report.page import html_page
from lcwof.report.plotly_figures import balance_figure, curves_figure, tradeoff_figure
from lcwof.report.stream_page import STREAM_MEANINGS, stream_sections
from lcwof.report.table import COLUMNS, difference, tuning
from lcwof.report.tradeoff import Swept, Tradeoff, swept, swept_difference, tradeoff
from lcwof.report.words import what_happened

_MEANINGS = {
    "N/N": "novel samples classified among the novel classes alone",
    "B/B": "base samples classified among the base classes alone",
    "N/J": "novel samples classified among all classes, base and novel together (the joint space)",
    "B/J": "base samples classified among all classes",
    "hm": "harmonic mean of N/J and B/J: high only where both are",
    "am": "arithmetic mean of N/J and B/J: can be high while one side is lost",
    "±": "95% interval of the mean over episodes, t s / √n with s the standard deviation between episodes; t is 1.96, "
    "of fewer than 30 episodes Student's",
    "to lcwof": "hm minus lcwof's, episode by episode over the same episodes; where within its own 95% interval it may "
    "be chance",
    "AUSUC": "area under N/J against B/J for every bias of the novel classes, in percent of the whole square: how well "
    "both can be told apart, whichever side is favoured; the mean over episodes",
    "area along a phase": "the same under what learning passed through, from nothing but novel answers (N/N) to "
    "nothing but base ones (B/B), joined to both by straight lines; few points in a wide gap make it smaller",
    "ECE": "expected calibration error: how far confidence and accuracy are apart, on average over the answers",
}


def write_report(runs: Sequence[Run | StreamRun], path: Path, title: str) -> Path:
    """Write the page about `runs`, of either protocol, to `path`."""
    if not runs:
        raise LcwofError("no runs to report: give one or more run folders, made by `lcwof evaluate` or `lcwof stream`.")
    streams = [run for run in runs if isinstance(run, StreamRun)]
    groups = by_setting([run for run in runs if isinstance(run, Run)])
    ordered = [run for group in groups.values() for run in group]
    parts = [f"<h1>{escape(title)}</h1>", NO_SCRIPT]
    if ordered:
        parts += [
            f'<p class="soft">{escape(_scope(groups))}</p>',
            _summary(ordered),
            "<h2>Results</h2>",
            *(_table(setting, group) for setting, group in groups.items()),
            _curves(ordered),
            _balance(groups),
            answers_sections(groups),
        ]
    if streams:
        parts.append(stream_sections(streams))
    meanings = _MEANINGS | (STREAM_MEANINGS if streams else {})
    parts += ["<h2>What the measures mean</h2>", f'<div class="card">{pairs(meanings)}</div>', _methods(runs)]
    if ordered:
        parts += ["<h2>The runs in detail</h2>", *(_details(run, groups[Setting.of(run)]) for run in ordered)]
    page = html_page(title, "".join(parts), scripts())
    write_aside(path, page.encode())
    return path


def _scope(groups: dict[Setting, list[Run]]) -> str:
    runs = sum(len(group) for group in groups.values())
    return f"{_count(runs, 'run')}, {_count(len(groups), 'setting')}: " + "; ".join(str(setting) for setting in groups)


def _count(n: int, what: str) -> str:
    return f"{n} {what}" if n == 1 else f"{n} {what}s"


def _summary(runs: Sequence[Run]) -> str:
    cards = []
    for account in what_happened(runs):
        points = "".join(f"<li>{escape(sentence)}</li>" for sentence in account.further)
        listed = f"<ul>{points}</ul>" if points else ""
        head = f"<h3>{escape(str(account.setting))}</h3><p>{escape(account.lead)}</p>"
        cards.append(f'<div class="card">{head}{listed}</div>')
    return "<h2>What happened</h2>" + "".join(cards)


def _table(setting: Setting, group: Sequence[Run]) -> str:
    counts = {len(run.rows) for run in group}
    many = len(counts) > 1
    other = against([group])
    names = ["method", *(["episodes"] if many else []), *COLUMNS, *([f"to {other}"] if other else [])]
    best = group[0].summary()["hm"][0]
    rows = []
    for run in group:
        summary = run.summary()
        cells = [f"<td>{len(run.rows)}</td>"] if many else []
        for name in COLUMNS:
            bar = f'<span class="bar"><span style="width:{summary["hm"][0]:.1f}%"></span></span>'
            kind = ' class="hm"' if name == "hm" else ""
            cells.append(f"<td{kind}>{number(*summary[name])}{bar if name == 'hm' else ''}</td>")
        if other:
            cells.append(difference_cell(to_reference(run, group), difference(run, group)))
        rows.append(row(label(run, group), cells, "first" if summary["hm"][0] == best and len(group) > 1 else ""))
    over = "" if many else f"{_count(counts.pop(), 'episode')}, "
    return table(f"<b>{escape(str(setting))}</b> {over}mean and 95% interval, %", heads(names), rows)


def _curves(runs: Sequence[Run]) -> str:
    drawn = [
        figure(label(run, runs), str(Setting.of(run)), curves_figure(curves))
        for run in runs
        if (curves := learning_curves(run)) is not None
    ]
    if not drawn:
        how = (
            "None of these runs recorded curves: --curves 20 records 20 points a phase of methods that learn in epochs."
        )
        return f'<h2>Along learning</h2><p class="soft">{how}</p>'
    key = "".join(
        f'<span><svg viewBox="0 0 26 8" aria-hidden="true"><line x1="0" x2="26" y1="4" y2="4" stroke="{colour}" '
        f'stroke-width="{width}"{dashes}/></svg>{escape(text)}</span>'
        for text, colour, width, dashes in (
            ("N/J novel among all", NOVEL, 2.5, ""),
            ("B/J base among all", BASE, 2.5, ""),
            ("N/N novel among novel", NOVEL, 1.5, ' stroke-dasharray="4 3"'),
            ("B/B base among base", BASE, 1.5, ' stroke-dasharray="4 3"'),
            ("hm of N/J and B/J", "currentColor", 1, ""),
        )
    )
    note = "Means over episodes; the bands are 95% intervals. Methods that learn in one step have no curve."
    return f'<h2>Along learning</h2><p class="soft">{note}</p><p class="key">{key}</p>{figures(drawn)}'


def _balance(groups: dict[Setting, list[Run]]) -> str:
    note = (
        "The best place is the upper right. hm is the same along each grey line; on the dotted diagonal, novel and "
        "base samples are classified equally well."
    )
    drawn, tables, lines, dots = [], [], False, False
    for setting, group in groups.items():
        drawn.append(figure(str(setting), "Where each method ends", balance_figure(group)))
        sweeps, paths = [swept(run) for run in group], [tradeoff(run) for run in group]
        lines, dots = lines or any(sweeps), dots or any(paths)
        if any(sweeps) or any(paths):
            said = " ".join(_path(label(run, group), path) for run, path in zip(group, paths, strict=True) if path)
            drawn.append(figure(f"{setting}: the trade-off", said, tradeoff_figure(group, sweeps, paths)))
        if any(sweeps):
            tables.append(_areas(setting, group, sweeps))
    if lines:
        note += (
            " In a figure of the trade-off a line is what a method reaches when its novel classes are given a bias, "
            "from so low that none is ever answered to so high that all are; the large mark is the method as it is."
        )
    if dots:
        note += " Dots follow the last phase of learning to where it ends."
    return f'<h2>Novel against base</h2><p class="soft">{note}</p>{figures(drawn)}{"".join(tables)}'


def _path(name: str, path: Tradeoff) -> str:
    range_ = f"B/J {min(path.base):.1f} to {max(path.base):.1f}"
    return f"{name}, {path.phase}: area {path.area:.1f} along it, {range_}."


def _areas(setting: Setting, group: Sequence[Run], sweeps: Sequence[Swept | None]) -> str:
    """AUSUC of those that have it, the highest first."""
    found = [(run, each) for run, each in zip(group, sweeps, strict=True) if each is not None]
    best = reference(group)
    rows = [
        row(label(run, group), [f"<td>{number(*each.area)}</td>", difference_cell(swept_difference(run, best))])
        for run, each in sorted(found, key=lambda pair: -pair[1].area[0])
    ]
    title = f"<b>{escape(str(setting))}</b> area under the trade-off, mean and 95% interval, %"
    return table(title, heads(["method", "AUSUC", f"to {label(best, group)}"]), rows)


def _methods(runs: Sequence[Run | StreamRun]) -> str:
    """What the methods' own files say of them."""
    said = {}
    for run in sorted(runs, key=method_name):
        with suppress(LcwofError):  # one of a file that is gone
            kind = get_method(run.about["recipe"]["method"]["name"])
            said[method_name(run)] = " ".join((kind.__doc__ or "").split())
    return f'<h2>The methods</h2><div class="card">{pairs(said)}</div>' if said else ""


def _details(run: Run, group: Sequence[Run]) -> str:
    about = run.about
    chosen = tuning(run)
    facts: dict[str, Any] = {}
    if chosen:
        facts["chosen settings"] = ", ".join(f"{k} = {v}" for k, v in chosen.get("settings", {}).items()) or "none"
        facts["why"] = chosen.get("why", "")
    else:
        facts["chosen settings"] = "none: the recipe's own were used"
    classes, queries = about.get("classes", {}), about.get("queries", {})
    facts["classes"] = ", ".join(f"{n} {part}" for part, n in classes.items())
    facts["queries a class"] = ", ".join(f"{n} {part}" for part, n in queries.items())
    facts["seconds"] = _seconds(about.get("seconds"), len(run.rows))
    facts["date"], facts["hardware"] = about.get("date", ""), about.get("hardware", "")
    facts["versions"] = ", ".join(f"{name} {number}" for name, number in about.get("versions", {}).items())
    facts["run folder"] = str(run.path)
    asked = {key: value for key, value in about["recipe"].items() if key != "phase1"}  # of earlier runs
    recipe = escape(json.dumps(asked, indent=2, ensure_ascii=False, default=str))
    model = escape(json.dumps(about.get("model", {}), indent=2, ensure_ascii=False, default=str))
    head = f'{escape(label(run, group))}<span class="soft">{escape(str(Setting.of(run)))}</span>'
    return (
        f"<details><summary>{head}</summary><div>{pairs({k: v for k, v in facts.items() if v})}"
        f"<h3>Recipe, defaults included</h3><pre>{recipe}</pre><h3>Base model</h3><pre>{model}</pre></div></details>"
    )


def _seconds(seconds: float | None, episodes: int) -> str:
    return "" if seconds is None else f"{seconds:.1f}, {seconds / max(1, episodes):.2f} an episode"
