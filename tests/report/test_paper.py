"""The files hold what the paper prints: its source, where it is at hand, is read anew and compared cell by cell."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from lcwof.errors import LcwofError
from lcwof.evaluation import MEASURES
from lcwof.report import PaperTable, paper_figures, paper_table, paper_tables
from lcwof.report.paper import FOLDER

TABLES = paper_tables()
SOURCES = {
    r"$^{\circ}$": "RGFSL",
    r"$^{\star}$": "AAN",
    r"$^\diamond$": "IDLVQ",
    "(c)": "code",
    "(i)": "reimplemented",
    "(orig)": "original",
}


class Column(NamedTuple):
    setting: str  # empty where the table does not say
    measure: str
    session: int | None


class Row(NamedTuple):
    name: str
    source: str
    heading: str  # a line above that names the backbone
    columns: tuple[Column, ...]
    cells: tuple[float | None, ...]


def read_tables(tex: str) -> dict[str, list[Row]]:
    """The tables of a LaTeX source by their labels, in the order of the source."""
    found = {}
    for body in re.findall(r"\\begin\{table\*?\}(.*?)\\end\{table\*?\}", without_comments(tex), re.DOTALL):
        caption = body.partition(r"\caption")[2]
        found[label_of(body)] = [row for part in innermost_tabulars(body) for row in read_rows(part, caption)]
    return found


def innermost_tabulars(body: str) -> list[str]:
    return re.findall(r"\\begin\{tabular\}\{[^}]*\}((?:(?!\\begin\{tabular\}).)*?)\\end\{tabular\}", body, re.DOTALL)


def read_rows(tabular: str, caption: str) -> Iterator[Row]:
    """The rows that hold numbers, with what the rows above them say about their columns."""
    settings: dict[int, str] = {}
    measures: dict[int, str] = {}
    sessions: dict[int, int] = {}
    heading = ""
    stated = set(re.findall(r"\d+w\d+s", caption))
    elsewhere = stated.pop() if len(stated) == 1 else ""
    for line in tabular.split(r"\\"):
        cells = cells_of(line)
        if any(re.fullmatch(r"\d+\.\d+", cell) for cell in cells):
            places = sorted(sessions or measures.keys() - {0})
            assert places == list(range(places[0], len(cells))), f"columns {places} of {cells}"
            columns = [
                Column(settings.get(at, elsewhere), measures.get(at) or measures[0], sessions.get(at)) for at in places
            ]
            name, source = name_and_source(line, places[0])
            yield Row(name, source, heading, tuple(columns), tuple(number(cells[at]) for at in places))
            continue
        if cells[0] and not any(cells[1:]):
            heading = cells[0]
        for at, cell in enumerate(cells):
            if setting := re.search(r"\d+w\d+s", cell):
                settings[at] = setting[0]
            if measure := re.match(r"(hm|am|[NBJ])_\{/([NBJ])\}", cell):
                measures[at] = measure[1] if measure[1] in ("hm", "am") else f"{measure[1]}/{measure[2]}"
        # below the sessions stand numbers of classes: +5, or a row that begins with #
        if len(cells) > 1 and not cells[0].startswith(r"\#") and all(cell.isdigit() for cell in cells[1:]):
            sessions = {at: int(cell) for at, cell in enumerate(cells[1:], 1)}


def cells_of(line: str) -> list[str]:
    """The cells of a row without rules, emphasis, colour and dollars; one that spans n columns comes n times."""
    cells = []
    for cell in re.sub(r"\\(top|mid|bottom)rule|\\hline|\\c(mid)?(rule|line)(\(\w*\))?\{[^}]*\}", "", line).split("&"):
        span = re.match(r"\s*\\multicolumn\{(\d+)\}\{[^}]*\}\{(.*)\}", cell, re.DOTALL)
        cells += [plain(span[2])] * int(span[1]) if span else [plain(cell)]
    return cells


def plain(cell: str) -> str:
    cell = re.sub(r"~?\\cite\{[^}]*\}|\\(cell|row)?color\{[^}]*\}", "", cell)
    unwrap = r"\\(?:textbf|textit|underline|text|textcolor\{[^}]*\}|multirow\{[^}]*\}\{\*\})\{((?:[^{}]|\{[^{}]*\})*)\}"
    while (inner := re.sub(unwrap, r"\1", cell)) != cell:
        cell = inner
    return cell.replace("$", "").strip()


def number(cell: str) -> float | None:
    assert re.fullmatch(r"\d+\.\d+|-", cell), f"{cell!r} is neither a number nor a dash"
    return None if cell == "-" else float(cell)


def name_and_source(line: str, places: int) -> tuple[str, str]:
    """The words in the first places cells, and what a mark among them says."""
    words = "&".join(line.split("&")[:places])
    marks = [mark for mark in SOURCES if mark in words]
    for mark in marks:
        words = words.replace(mark, "")
    name = " ".join(cell for cell in cells_of(words) if cell != "-")
    return " ".join(re.sub(r"[_^{}]", "", name).split()), "".join(SOURCES[mark] for mark in marks)


def without_comments(tex: str) -> str:
    return re.sub(r"(?<!\\)%.*", "", tex)


def label_of(body: str) -> str:
    return re.findall(r"\\label\{(.*?)\}", body)[0]


@pytest.fixture(scope="module")
def tex() -> str:
    """The source of the paper."""
    beside = Path(__file__).resolve().parents[2].parent / "shared" / "paper" / "lcwof.tex"
    file = Path(os.environ.get("LCWOF_PAPER") or beside)
    if not file.is_file():
        pytest.skip("the paper's source is not here: set LCWOF_PAPER to its tex file")
    return file.read_text(encoding="utf-8")


EXAMPLE = r"""
\begin{table}
\begin{tabular}{c|cc||cc}
\toprule
& \multicolumn{2}{c}{Set 5w1s} & \multicolumn{2}{c}{Set 5w5s} \\ % 1.00
method & $N_{/J}$ & \multirow{2}{*}{$hm_{/J}$} & $N_{/J}$ & $\text{hm}_{/J}$ \\
& ($5_{/9}$) & & ($5_{/9}$) & \\
\midrule
ResNet & & & & \\
\cmidrule(lr){2-5}
PN~\cite{x}$^\diamond$ & - & 1.50 & \textcolor{red}{\textbf{2.25}} & \underline{3.00} \\
% PN & 9.99 & 9.99 & 9.99 & 9.99 \\
\bottomrule
\end{tabular}
\caption{Words.}
\label{table:example}
\end{table}
"""


def test_a_table_is_read_out_of_its_source() -> None:
    columns = [Column(s, m, None) for s in ("5w1s", "5w5s") for m in ("N/J", "hm")]
    row = Row("PN", "IDLVQ", "ResNet", tuple(columns), (None, 1.5, 2.25, 3.0))
    assert read_tables(EXAMPLE) == {"table:example": [row]}


@pytest.mark.parametrize("cell", ["1.5.0", "1.50 2.00", "n/a", "", r"1.50 \pm 0.2"])
def test_a_cell_that_cannot_be_read_is_not_passed_over(cell: str) -> None:
    with pytest.raises(AssertionError, match="neither a number nor a dash"):
        read_tables(EXAMPLE.replace("1.50", cell))


def test_the_tables_are_those_of_the_source_in_its_order(tex: str) -> None:
    assert [table.label for table in TABLES] == list(read_tables(tex))
    assert {table.label for table in TABLES} == set(re.findall(r"\\label\{(table:.*?)\}", tex))
    last = tex.index(r"\section{Conclusion}")
    for table in TABLES:
        where = tex.index(rf"\label{{{table.label}}}")
        assert table.section == ("main" if where < last else "supplement"), table.key


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.key)
def test_every_cell_is_as_printed(table: PaperTable, tex: str) -> None:
    printed = read_tables(tex)[table.label]
    ours = [(part, row) for part in table.parts for row in part.rows]
    assert [(p.name, p.source, p.cells) for p in printed] == [(row.name, row.source, row.cells) for _, row in ours]
    for line, (part, row) in zip(printed, ours, strict=True):
        for seen, column in zip(line.columns, part.columns, strict=True):
            assert seen.measure == column.measure, row.name
            assert seen.setting in (column.setting, ""), row.name
            # only the tables with a column a session print its number
            assert seen.session == column.session or len(part.sessions) == 1, row.name
        if line.heading in ("CONV4", "ResNet"):
            assert part.backbone.startswith(line.heading.lower()), row.name


def test_the_figures_are_those_of_the_source_and_say_what_it_says(tex: str) -> None:
    plots = re.findall(r"\\begin\{figure\*?\}.*?\\end\{figure\*?\}", without_comments(tex), re.DOTALL)
    bodies = {label_of(plot): plot for plot in plots}
    assert [figure.label for figure in paper_figures()] == list(bodies)
    last = tex.index(r"\section{Conclusion}")
    for figure in paper_figures():
        assert figure.section == ("main" if tex.index(bodies[figure.label]) < last else "supplement")
        paragraphs = [p for p in tex.split("\n\n") if rf"\ref{{{figure.label}}}" in p]
        around = " ".join([bodies[figure.label], *paragraphs])
        for value in figure.stated.values():
            assert re.search(rf"\b{value:g}\b", around), f"{figure.key}: {value}"


def test_keys_and_numbers_are_in_order() -> None:
    assert [table.number for table in TABLES] == list(range(1, 21))
    assert {table.key for table in TABLES} == {file.stem for file in (FOLDER / "tables").iterdir()}
    assert [figure.number for figure in paper_figures()] == list(range(1, 9))
    assert len({figure.key for figure in paper_figures()}) == 8


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.key)
def test_cells_are_percentages_of_known_measures(table: PaperTable) -> None:
    for _, row, column, cell in table.cells():
        assert column.measure in MEASURES and re.fullmatch(r"\d+w\d+s", column.setting)
        assert cell is None or 0 < cell < 100
        assert row.method and (row.method == "lcwof" or not row.variant)


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.key)
def test_hm_and_am_follow_from_novel_and_base_or_a_remark_says_not(table: PaperTable) -> None:
    lines: dict[tuple[int, str, str], dict[str, float]] = {}
    for _, row, column, cell in table.cells():
        if cell is not None:
            lines.setdefault((id(row), row.name, column.setting), {})[column.measure] = cell
    wrong = set()
    for (_, row_name, setting), line in lines.items():
        if {"N/J", "B/J"} <= line.keys():
            novel, base = line["N/J"], line["B/J"]
            means = {"hm": 2 * novel * base / (novel + base), "am": (novel + base) / 2}
            if any(abs(line[name] - mean) > 0.02 for name, mean in means.items() if name in line):
                wrong.add((row_name, setting))
    remarked = {(remark.row, remark.setting) for remark in table.remarks if remark.row}
    assert wrong <= remarked
    assert remarked <= {(name, setting) for _, name, setting in lines}


def test_an_unknown_key_names_those_there_are() -> None:
    assert paper_table("mini-gfsl").label == "table:mini_sota_5w1s"
    with pytest.raises(LcwofError, match=r"no table 'mini'; there are mini-gfsl, .*mini-ifsl-joint\."):
        paper_table("mini")
