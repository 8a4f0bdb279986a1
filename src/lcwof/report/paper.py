"""The numbers the paper prints, as data, to stand beside ours: a file for each table, laid out as printed.

The paper prints no intervals. Its tables disagree here and there with themselves or with each other: the files keep
what is printed, and a remark says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Literal, NamedTuple

from lcwof.config import build, read_toml
from lcwof.errors import LcwofError

FOLDER = Path(__file__).parent / "published"

# Where a row comes from, where the paper marks it: copied from the paper of RGFSL, AAN or IDLVQ; the method's own code,
# run again; the method written anew; the number in the method's own paper.
Source = Literal["", "RGFSL", "AAN", "IDLVQ", "code", "reimplemented", "original"]
Section = Literal["main", "supplement"]


class PaperColumn(NamedTuple):
    """What one column of a table measures."""

    setting: str  # 5w1s
    measure: str  # one of MEASURES
    session: int | None  # of the incremental protocol; the base session is 1


@dataclass(frozen=True)
class PaperRow:
    """One line of a table."""

    name: str  # as printed, without marks and citations
    cells: tuple[float | None, ...]  # one a column, in percent; None where the paper has a dash
    method: str = ""  # what we call the method
    variant: str = ""  # lim, unlim, or what an ablation changes
    source: Source = ""


@dataclass(frozen=True)
class PaperPart:
    """The lines of a table that share columns, backbone and split."""

    backbone: str
    settings: tuple[str, ...]
    measures: tuple[str, ...]
    rows: tuple[PaperRow, ...]
    since: tuple[PaperRow, ...] = ()  # what others have printed for the same benchmark since the paper
    sessions: tuple[int, ...] = ()
    split: str = ""  # where a table has several splits of the data

    @property
    def columns(self) -> tuple[PaperColumn, ...]:
        return tuple(PaperColumn(*c) for c in product(self.settings, self.measures, self.sessions or (None,)))


@dataclass(frozen=True)
class PaperRemark:
    """Something that a reader of the printed numbers should know."""

    text: str
    who: str = "The paper"
    row: str = ""  # the name of the row it is about, if it is about one
    setting: str = ""

    @property
    def said(self) -> str:
        """The text, after what it is about.

        >>> PaperRemark("hm is 14.", row="iCaRL", setting="5w5s").said
        'The paper, iCaRL, 5w5s: hm is 14.'
        """
        return f"{', '.join(filter(None, (self.who, self.row, self.setting)))}: {self.text}"


@dataclass(frozen=True)
class PaperTable:
    """One table of the paper."""

    key: str
    label: str  # in the paper's source
    number: int
    section: Section
    caption: str  # in our words
    data: str
    parts: tuple[PaperPart, ...]
    episodes: int | None = None  # that each number is a mean over, where the paper says so
    remarks: tuple[PaperRemark, ...] = ()

    def cells(self) -> Iterator[tuple[PaperPart, PaperRow, PaperColumn, float | None]]:
        """Every cell in reading order, with the part, row and column it stands in."""
        for part in self.parts:
            for row in part.rows:
                for column, cell in zip(part.columns, row.cells, strict=True):
                    yield part, row, column, cell


@dataclass(frozen=True)
class PaperFigure:
    """One plot or drawing of the paper."""

    key: str
    label: str
    number: int
    section: Section
    shows: str  # in our words
    data: str = ""
    settings: tuple[str, ...] = ()
    stated: Mapping[str, float] = field(default_factory=dict)  # numbers that caption or text give
    remark: str = ""


def paper_tables() -> list[PaperTable]:
    """All tables of the paper and its supplement, in their order.

    >>> [table.key for table in paper_tables()][:3]
    ['mini-gfsl', 'tiered-gfsl', 'kinetics-gfsl']
    """
    return sorted(map(_read_table, (FOLDER / "tables").glob("*.toml")), key=lambda table: table.number)


def paper_table(key: str) -> PaperTable:
    """The table of this key.

    >>> paper_table("batch-norm").parts[0].rows[1].cells
    (53.28, 63.24, 57.83)
    """
    tables = {table.key: table for table in paper_tables()}
    if key not in tables:
        raise LcwofError(f"the paper has no table {key!r}; there are {', '.join(tables)}.")
    return tables[key]


def paper_figures() -> list[PaperFigure]:
    """All plots and drawings, in their order."""
    return [build(PaperFigure, figure, "figures") for figure in read_toml(FOLDER / "figures.toml")["figures"]]


def _read_table(path: Path) -> PaperTable:
    table = read_toml(path)
    for part in table["parts"]:
        for row in (*part["rows"], *part.get("since", ())):
            row["cells"] = [None if cell == "-" else cell for cell in row["cells"]]
    return build(PaperTable, table, path.stem)
