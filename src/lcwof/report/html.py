"""One self-contained HTML page about a set of runs: no network, no scripts, figures inline."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from math import isnan
from pathlib import Path
from typing import Any

from lcwof import __version__
from lcwof.engine.run import Run
from lcwof.engine.stream import StreamRun
from lcwof.errors import LcwofError
from lcwof.methods import get_method, method_names
from lcwof.models.checkpoint import write_aside
from lcwof.report.compare import Setting, by_setting, label, paired_difference, reference
from lcwof.report.curves import learning_curves_svg
from lcwof.report.figures import BASE, NOVEL
from lcwof.report.scatter import balance_svg
from lcwof.report.streams import stream_cards
from lcwof.report.style import CSS
from lcwof.report.table import COLUMNS, tuning
from lcwof.report.words import what_happened

_MEANINGS = {
    "N/N": "novel samples classified among the novel classes alone",
    "B/B": "base samples classified among the base classes alone",
    "N/J": "novel samples classified among all classes, base and novel together (the joint space)",
    "B/J": "base samples classified among all classes",
    "hm": "harmonic mean of N/J and B/J: high only where both are",
    "am": "arithmetic mean of N/J and B/J: can be high while one side is lost",
    "±": "95% interval of the mean over episodes, 1.96 s / √n with s the standard deviation between episodes",
    "to lcwof": "hm minus lcwof's, episode by episode over the same episodes; grey where within its own 95% interval",
}


def write_report(runs: Sequence[Run | StreamRun], path: Path, title: str) -> Path:
    """Write the page about `runs`, of either protocol, to `path`."""
    if not runs:
        raise LcwofError("no runs to report: give one or more run folders, made by `lcwof evaluate` or `lcwof stream`.")
    streams = [run for run in runs if isinstance(run, StreamRun)]
    groups = by_setting([run for run in runs if isinstance(run, Run)])
    ordered = [run for group in groups.values() for run in group]
    parts = [f"<h1>{escape(title)}</h1>"]
    if ordered:
        parts += [
            f'<p class="soft">{escape(_scope(groups))}</p>',
            _summary(ordered),
            "<h2>Results</h2>",
            *(_table(setting, group) for setting, group in groups.items()),
            _curves(ordered),
            _balance(groups),
        ]
    if streams:
        parts += ["<h2>Session after session</h2>", *(stream_cards(run) for run in streams)]
    parts += ["<h2>What the measures mean</h2>", f'<div class="card">{_pairs(_MEANINGS)}</div>', _methods(runs)]
    if ordered:
        parts += ["<h2>The runs in detail</h2>", *(_details(run, groups[Setting.of(run)]) for run in ordered)]
    body = "".join(parts)
    page = (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{CSS}</style></head>\n"
        f"<body><main>{body}<footer>Made by lcwof {escape(__version__)} from run folders alone.</footer></main>"
        "</body></html>\n"
    )
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
    lcwof = reference(group)
    counts = {len(run.rows) for run in group}
    many = len(counts) > 1
    heads = ["method", *(["episodes"] if many else []), *COLUMNS, *(["to lcwof"] if _compares(group) else [])]
    best = group[0].summary()["hm"][0]
    rows = []
    for run in group:
        summary = run.summary()
        cells = [f"<td>{len(run.rows)}</td>"] if many else []
        for name in COLUMNS:
            bar = f'<span class="bar"><span style="width:{summary["hm"][0]:.1f}%"></span></span>'
            kind = ' class="hm"' if name == "hm" else ""
            cells.append(f"<td{kind}>{_number(*summary[name])}{bar if name == 'hm' else ''}</td>")
        if lcwof is not None and _compares(group):
            cells.append(_to_lcwof(run, lcwof))
        first = ' class="first"' if summary["hm"][0] == best and len(group) > 1 else ""
        rows.append(f'<tr{first}><th scope="row">{escape(label(run, group))}</th>{"".join(cells)}</tr>')
    over = "" if many else f"{_count(counts.pop(), 'episode')}, "
    caption = f"<caption><b>{escape(str(setting))}</b> {over}mean and 95% interval, %</caption>"
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in heads)
    table = f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
    return f'<div class="card scroll">{table}</div>'


def _compares(group: Sequence[Run]) -> bool:
    return len(group) > 1 and reference(group) is not None


def _number(mean: float, interval: float) -> str:
    shown = "" if isnan(interval) else f"<i>± {interval:.2f}</i>"
    return f"<b>{mean:.2f}</b>{shown}"


def _to_lcwof(run: Run, lcwof: Run) -> str:
    paired = None if run is lcwof else paired_difference(run, lcwof)
    if paired is None:
        return f'<td class="close">{"–" if run is lcwof else "other episodes"}</td>'
    sign = "−" if paired.mean < 0 else "+"
    shown = "" if isnan(paired.interval) else f"<i>± {paired.interval:.2f}</i>"
    kind = "clear" if paired.clear else "close"
    return f'<td class="{kind}">{sign}{abs(paired.mean):.2f}{shown}</td>'


def _curves(runs: Sequence[Run]) -> str:
    figures = []
    for run in runs:
        if svg := learning_curves_svg(run):
            head = f"<h3>{escape(label(run, runs))}</h3><figcaption>{escape(str(Setting.of(run)))}</figcaption>"
            figures.append(f"<figure>{head}{svg}</figure>")
    if not figures:
        return ""
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
    return (
        f'<h2>Along learning</h2><p class="soft">{note}</p><p class="key">{key}</p>'
        f'<div class="figures">{"".join(figures)}</div>'
    )


def _balance(groups: dict[Setting, list[Run]]) -> str:
    note = (
        "The best place is the upper right. hm is the same along each grey line; on the dotted diagonal, novel and "
        "base samples are classified equally well."
    )
    figures = "".join(
        f"<figure><h3>{escape(str(setting))}</h3>{balance_svg(group)}</figure>" for setting, group in groups.items()
    )
    return f'<h2>Novel against base</h2><p class="soft">{note}</p><div class="figures">{figures}</div>'


def _methods(runs: Sequence[Run | StreamRun]) -> str:
    """What the methods' own files say of them."""
    said = {}
    for name in sorted({run.about["recipe"]["method"]["name"] for run in runs} & set(method_names())):
        said[name] = " ".join((get_method(name).__doc__ or "").split())
    return f'<h2>The methods</h2><div class="card">{_pairs(said)}</div>' if said else ""


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
    facts["hardware"] = about.get("hardware", "")
    facts["versions"] = ", ".join(f"{name} {number}" for name, number in about.get("versions", {}).items())
    facts["run folder"] = str(run.path)
    recipe = escape(json.dumps(about["recipe"], indent=2, ensure_ascii=False, default=str))
    model = escape(json.dumps(about.get("model", {}), indent=2, ensure_ascii=False, default=str))
    head = f'{escape(label(run, group))}<span class="soft">{escape(str(Setting.of(run)))}</span>'
    return (
        f"<details><summary>{head}</summary><div>{_pairs({k: v for k, v in facts.items() if v})}"
        f"<h3>Recipe, defaults included</h3><pre>{recipe}</pre><h3>Base model</h3><pre>{model}</pre></div></details>"
    )


def _seconds(seconds: float | None, episodes: int) -> str:
    return "" if seconds is None else f"{seconds:.1f}, {seconds / max(1, episodes):.2f} an episode"


def _pairs(pairs: dict[str, Any]) -> str:
    return "<dl>" + "".join(f"<dt>{escape(str(k))}</dt><dd>{escape(str(v))}</dd>" for k, v in pairs.items()) + "</dl>"
