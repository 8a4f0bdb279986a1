"""Our numbers beside the paper's: Markdown, HTML, LaTeX, CSV and JSON of a reproduced table."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from html import escape
from io import StringIO
from math import nan
from typing import Any

from lcwof.report import markup
from lcwof.report.cells import Compared, ComparedPart, ComparedRow
from lcwof.report.export import latex_difference, latex_text
from lcwof.report.paper import PaperColumn
from lcwof.report.reproduction import Reproduction
from lcwof.report.table import difference_words, paired_json

_MEANING = (
    "Each cell: our mean ± 95% interval, then the paper's number and the difference. "
    "– stands where there is no number: not printed, or not run."
)
_OURS = "Each cell: mean ± 95% interval. – stands where nothing was run."
_HM = (
    "Our hm is the mean of the hm of episodes. Where the printed one is that of the printed N/J and B/J instead, ours "
    "of the mean N/J and B/J, which is a little higher, follows in brackets, and the difference is from it."
)


def beside_markdown(what: Reproduction, parts: Sequence[ComparedPart], notes: Sequence[str]) -> str:
    """A section with a table for each part of the paper's."""
    lines, printed = [f"## {what.about}", "", _meaning(parts), ""], _printed(parts)
    for part in parts:
        heads = ["", *(_head(column) for column in part.columns), *_apart_heads(part), "over"]
        lines += [f"**{_title(part)}**", "", "| " + " | ".join(heads) + " |", "|---|" + "---:|" * (len(heads) - 1)]
        for row in part.rows:
            cells = [*(_text(cell, printed) for cell in row.cells), *_apart(part, row)]
            lines.append("| " + " | ".join([row.name.replace("|", r"\|"), *cells, _over(row)]) + " |")
        lines.append("")
    lines += [f"- {note}" for note in notes]
    return "\n".join(lines).rstrip() + "\n"


def beside_html(what: Reproduction, parts: Sequence[ComparedPart], notes: str) -> str:
    """The same as the body of a page; notes: HTML."""
    found = [f"<h2>{escape(what.about)}</h2>", f'<p class="soft">{escape(_meaning(parts))}</p>']
    for part in parts:
        names = ["", *map(_head, part.columns), *_apart_heads(part), "over"]
        rows = [
            markup.row(row.name, [*map(_html, row.cells), *_apart_html(part, row), f"<td>{_over(row)}</td>"])
            for row in part.rows
        ]
        found.append(markup.table(f"<b>{escape(_title(part))}</b>", markup.heads(names), rows))
    return "".join([*found, notes])


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
    apart = [
        {"backbone": str(part.place), "row": row.name, "to": part.reference, "setting": setting, **paired_json(paired)}
        for part in parts
        for row in part.rows
        for setting, paired in row.apart.items()
    ]
    return {"key": what.key, "about": what.about, "cells": cells, "differences": apart, "notes": list(notes)}


def beside_csv(what: Reproduction, parts: Sequence[ComparedPart]) -> str:
    """One line a cell."""
    found = beside_json(what, parts, [])["cells"]
    out = StringIO()
    write = csv.DictWriter(out, list(found[0]), lineterminator="\n")
    write.writeheader()
    write.writerows(found)
    return out.getvalue()


def beside_latex(what: Reproduction, parts: Sequence[ComparedPart]) -> str:
    r"""A tabular with booktabs rules for each part, ready to \input: ours, and the paper's number in brackets."""
    tables, printed = [], _printed(parts)
    for part in parts:
        apart_heads = [head.replace('"', "") for head in _apart_heads(part)]
        heads = ["", *map(latex_text, [*map(_head, part.columns), *apart_heads, "over"])]
        theirs = "; in brackets the paper's, and after a comma our hm of means where the paper's is" if printed else ""
        lines = [
            rf"% Needs \usepackage{{booktabs}}. {what.about} {_title(part)}.",
            f"% Mean and 95% interval over episodes or streams, in percent{theirs}.",
            "% Differences are over the same episodes or streams, * beyond their interval; over: how many.",
            rf"\begin{{tabular}}{{l{'r' * (len(heads) - 1)}}}",
            r"\toprule",
            " & ".join(heads) + r" \\",
            r"\midrule",
        ]
        for row in part.rows:
            apart = [latex_difference(row.apart.get(setting)) for setting in _settings_apart(part)]
            cells = [*map(_latex, row.cells), *apart, _over(row).replace("–", "--")]
            lines.append(" & ".join([latex_text(row.name), *cells]) + r" \\")
        tables.append("\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n")
    return "\n".join(tables)


def _apart_heads(part: ComparedPart) -> list[str]:
    what = "hm" if part.columns[0].session is None else "hm of the last session"
    return [f'{setting} {what} to "{part.reference}"' for setting in _settings_apart(part)]


def _apart(part: ComparedPart, row: ComparedRow) -> list[str]:
    """hm less that of the reference, in words, for each setting in which any row has it."""
    return [difference_words(row.apart[s]) if s in row.apart else "–" for s in _settings_apart(part)]


def _settings_apart(part: ComparedPart) -> list[str]:
    return list(dict.fromkeys(setting for row in part.rows for setting in row.apart))


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


def _printed(parts: Sequence[ComparedPart]) -> bool:
    """Whether any number of the paper stands beside ours."""
    return any(cell.printed is not None for part in parts for row in part.rows for cell in row.cells)


def _meaning(parts: Sequence[ComparedPart]) -> str:
    if not _printed(parts):
        return _OURS
    both = any(_like(cell) for part in parts for row in part.rows for cell in row.cells)
    return f"{_MEANING} {_HM}" if both else _MEANING


def _ours(cell: Compared) -> str:
    if cell.mean is None:
        return "–"
    return f"{cell.mean:.2f}" if cell.interval is None else f"{cell.mean:.2f} ± {cell.interval:.2f}"


def _like(cell: Compared) -> str:
    """Our hm of means, where it shows a difference."""
    if cell.mean is None or cell.of_means is None or abs(cell.of_means - cell.mean) < 0.005:
        return ""
    return f"{cell.of_means:.2f}"


def _theirs(cell: Compared) -> str:
    if cell.printed is None:
        return "–"
    apart = "" if cell.difference is None else f" ({_signed(cell.difference)})"
    return f"{cell.printed:.2f}{apart}"


def _signed(difference: float) -> str:
    return f"{difference:+.2f}".replace("-", "−")


def _text(cell: Compared, printed: bool) -> str:
    """Ours above, the printed one, where any is, below, in a cell of a Markdown table."""
    ours, theirs = _ours(cell), _theirs(cell)
    like = f" ({like})" if (like := _like(cell)) else ""
    return ours if not printed or ours == theirs == "–" else f"{ours}{like}<br>{theirs}"


def _latex(cell: Compared) -> str:
    ours = _ours(cell).replace("–", "--").replace(" ± ", r" $\pm$ ")
    like = f", {like}" if (like := _like(cell)) else ""
    theirs = "" if cell.printed is None else f" ({cell.printed:.2f})"
    return f"{ours}{like}{theirs}"


def _html(cell: Compared) -> str:
    """Ours above, the printed one, if any, below."""
    ours = "–" if cell.mean is None else markup.number(cell.mean, nan if cell.interval is None else cell.interval)
    ours += f"<i>({like})</i>" if (like := _like(cell)) else ""
    apart = "" if cell.difference is None else f"<i>({_signed(cell.difference)})</i>"
    theirs = "" if cell.printed is None else f'<div class="soft">{cell.printed:.2f}{apart}</div>'
    return f"<td>{ours}{theirs}</td>"


def _apart_html(part: ComparedPart, row: ComparedRow) -> list[str]:
    return [markup.difference_cell(row.apart.get(setting)) for setting in _settings_apart(part)]
