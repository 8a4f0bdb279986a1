"""Our numbers beside the paper's: Markdown, HTML and JSON of a reproduced table."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from lcwof.report.reproduction import Compared, ComparedPart, ComparedRow, PaperColumn, Reproduction

_MEANING = (
    "Each cell: our mean ± 95% interval, then the paper's number and the difference. "
    "– stands where there is no number: not printed, or not run."
)


def beside_markdown(what: Reproduction, parts: Sequence[ComparedPart], notes: Sequence[str]) -> str:
    """A section with a table for each part of the paper's."""
    lines = [f"## {what.about}", "", _MEANING, ""]
    for part in parts:
        heads = ["", *(_head(column) for column in part.columns), "over"]
        lines += [f"**{_title(part)}**", "", "| " + " | ".join(heads) + " |", "|---|" + "---:|" * (len(heads) - 1)]
        for row in part.rows:
            cells = [_text(cell, "<br>") for cell in row.cells]
            lines.append("| " + " | ".join([row.name, *cells, _over(row)]) + " |")
        lines.append("")
    lines += [f"- {note}" for note in notes]
    return "\n".join(lines).rstrip() + "\n"


def beside_html(what: Reproduction, parts: Sequence[ComparedPart], notes: Sequence[str]) -> str:
    """The same as the body of a page."""
    found = [f"<h2>{escape(what.about)}</h2>", f'<p class="soft">{escape(_MEANING)}</p>']
    for part in parts:
        head = "".join(f'<th scope="col">{escape(name)}</th>' for name in ("", *map(_head, part.columns), "over"))
        rows = []
        for row in part.rows:
            cells = "".join(f"<td>{_html(cell)}</td>" for cell in row.cells)
            rows.append(f'<tr><th scope="row">{escape(row.name)}</th>{cells}<td>{_over(row)}</td></tr>')
        caption = f"<caption><b>{escape(_title(part))}</b></caption>"
        table = f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
        found.append(f'<div class="card scroll">{table}</div>')
    if notes:
        found.append("<ul>" + "".join(f"<li>{escape(note)}</li>" for note in notes) + "</ul>")
    return "".join(found)


def beside_json(what: Reproduction, parts: Sequence[ComparedPart], notes: Sequence[str]) -> dict[str, Any]:
    cells = [
        {
            "backbone": str(part.place),
            "row": row.name,
            **column._asdict(),
            **{k: None if v is None else round(v, 4) for k, v in cell._asdict().items()},
            "difference": None if cell.difference is None else round(cell.difference, 4),
        }
        for part in parts
        for row in part.rows
        for column, cell in zip(part.columns, row.cells, strict=True)
    ]
    return {"key": what.key, "about": what.about, "cells": cells, "notes": list(notes)}


def _title(part: ComparedPart) -> str:
    ours, theirs = part.place.backbone, part.printed_backbone
    split = f", split {part.place.split}" if part.place.split else ""
    return ours + split if ours == theirs else f"{ours}{split} (the paper: {theirs})"


def _head(column: PaperColumn) -> str:
    session = "" if column.session is None else f" session {column.session}"
    return f"{column.setting} {column.measure}{session}"


def _over(row: ComparedRow) -> str:
    counts = sorted({cell.over for cell in row.cells if cell.over})
    return "–".join(map(str, counts)) or "–"


def _ours(cell: Compared) -> str:
    if cell.mean is None:
        return "–"
    return f"{cell.mean:.2f}" if cell.interval is None else f"{cell.mean:.2f} ± {cell.interval:.2f}"


def _theirs(cell: Compared) -> str:
    if cell.printed is None:
        return "–"
    return f"{cell.printed:.2f}" if cell.difference is None else f"{cell.printed:.2f} ({cell.difference:+.2f})"


def _text(cell: Compared, between: str) -> str:
    ours, theirs = _ours(cell), _theirs(cell)
    return "–" if ours == theirs == "–" else f"{ours}{between}{theirs}"


def _html(cell: Compared) -> str:
    ours, theirs = _ours(cell), _theirs(cell)
    return "–" if ours == theirs == "–" else f'{ours}<br><span class="soft">{theirs}</span>'
