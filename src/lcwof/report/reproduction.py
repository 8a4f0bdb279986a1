"""What to run for a table or figure of the paper.

A file of `recipes/reproduce` names the table or figure, the base models, and what each row is with us.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any, Literal, NamedTuple

from lcwof.config import build, merge, read_toml
from lcwof.engine import Entry, Recipe, read_recipe
from lcwof.engine.choose import Outcome
from lcwof.engine.recipe import RECIPES, Data
from lcwof.errors import LcwofError
from lcwof.methods import get_method
from lcwof.report.paper import (
    PaperFigure,
    PaperPart,
    PaperRemark,
    PaperTable,
    paper_figures,
    paper_table,
)


class Place(NamedTuple):
    """What runs of one study share."""

    backbone: str
    split: str = ""  # where the paper has several splits of the data

    def __str__(self) -> str:
        return f"{self.backbone}-{self.split}" if self.split else self.backbone


@dataclass(frozen=True)
class BaseRecipe:
    """How the base model of a backbone is made."""

    recipe: str  # a recipe of the package, or a file
    set: dict[str, Any] = field(default_factory=dict)  # what is other than there
    taught_by: str | None = None  # the backbone whose base model is its teacher, which is made first


@dataclass(frozen=True)
class OurRow:
    """What a row of the table, or a curve of the figure, is with us."""

    name: str  # as the paper prints it; one that it does not print is added
    run: str  # name of the runs, which tables that ask for the same share
    method: dict[str, Any]
    grid: dict[str, Any] | None = None  # what is tried on validation; None: the method's own; {}: only when to stop
    tuned: bool = True
    backbone: str | None = None  # where the row is in one part of the table only
    split: str | None = None  # likewise
    episodes: int | None = None  # None: the table's; of more, which another table asks for, the table's count here
    outcome: Outcome = "balanced"


@dataclass(frozen=True)
class Reproduction:
    """One table or figure of the paper, with what we run for it."""

    data: str
    bases: dict[str, Any]  # by backbone
    minutes: float = 0.0  # on one H200, base models apart
    rows: tuple[OurRow, ...] = ()
    table: str | None = None
    figure: str | None = None
    protocol: Literal["gfsl", "ifsl"] = "gfsl"
    baselines: bool = False  # every other method of the table as well, with its own settings
    tuned: bool = True  # which the baselines choose on validation
    episodes: int = 100
    streams: int = 10
    pseudo: int = 0  # base classes that choices for streams are made on
    settings: tuple[str, ...] = ()  # of a figure
    curves: int = 0  # points a phase of a figure
    title: str = ""  # of one's own study, in place of the paper's
    reference: str = "lcwof"  # the run that the others are compared with, episode by episode
    notes: tuple[str, ...] = ()  # what our numbers need to be read with: how our runs differ from the paper's
    key: str = ""

    @property
    def about(self) -> str:
        if self.title:
            return self.title
        if self.paper:
            other = "" if self.same_data else f" With {self.data} in place of {self.paper.data}."
            return f"Table {self.paper.number}: {self.paper.caption}{other}"
        return f"Figure {self._drawn.number}: {self._drawn.shows} With {self.data}."

    @property
    def _drawn(self) -> PaperFigure:
        return next(figure for figure in paper_figures() if figure.key == self.figure)

    @property
    def remarks(self) -> list[str]:
        """What the paper's numbers or curves, and ours, need to be read with."""
        if self.paper:
            theirs = [remark.said for remark in self.paper.remarks] if self.same_data else []
        else:
            theirs = [PaperRemark(self._drawn.remark).said] if self._drawn.remark else []
        return [*theirs, *(f"Here: {note}" for note in self.notes)]

    @property
    def same_data(self) -> bool:
        """Whether printed numbers can stand beside ours."""
        return self.paper is None or self.paper.data == self.data

    @property
    def paper(self) -> PaperTable | None:
        return paper_table(self.table) if self.table else None

    def base(self, backbone: str) -> BaseRecipe:
        if backbone not in self.bases:
            raise LcwofError(f"{self.key}: no base model for {backbone}; there are {', '.join(self.bases)}.")
        base: BaseRecipe = build(BaseRecipe, self.bases[backbone], f"bases.{backbone}")
        if base.taught_by and "taught_by" in self.bases.get(base.taught_by, {"taught_by": ""}):
            others = ", ".join(name for name, other in self.bases.items() if "taught_by" not in other)
            raise LcwofError(
                f"{self.key}: {backbone} cannot be taught by {base.taught_by}; those without a teacher can: {others}."
            )
        if base.taught_by and "teachers" in base.set:
            raise LcwofError(f"{self.key}: {backbone} has both taught_by and teachers: leave one out.")
        return base

    def wanted(self) -> list[tuple[Place, str, OurRow]]:
        """Every run that is needed, once: where it stands, its setting, the row it is for."""
        found: dict[tuple[Place, str, str], OurRow] = {}
        for place, settings, rows in self._parts():
            for setting, row in product(settings, rows):
                found.setdefault((place, setting, row.run), row)
        return [(place, setting, row) for (place, setting, _), row in found.items()]

    def _parts(self) -> Iterator[tuple[Place, tuple[str, ...], list[OurRow]]]:
        if self.paper is None:
            for backbone in self.bases:
                yield Place(backbone), self.settings, [row for row in self.rows if row.backbone in (None, backbone)]
            return
        for part in self.paper.parts:
            yield self.place_of(part), part.settings, self.rows_of(part)

    def place_of(self, part: PaperPart) -> Place:
        """Which of our base models stands in for that of a part: the same backbone, or the only one there is, teachers
        apart."""
        teachers = {base.get("taught_by") for base in self.bases.values()}
        taught = [backbone for backbone in self.bases if backbone not in teachers]
        backbone = part.backbone if part.backbone in self.bases or len(taught) != 1 else taught[0]
        return Place(backbone, part.split)

    def rows_of(self, part: PaperPart) -> list[OurRow]:
        """Our rows for a part: those of the file, and the baselines that it prints."""
        backbones = (None, part.backbone, self.place_of(part).backbone)  # the paper's, or ours that stands in for it
        named = [row for row in self.rows if row.backbone in backbones and row.split in (None, part.split)]
        known = {row.name for row in named}
        found = {row.name: row.method for row in part.rows if row.name not in known and row.method != "lcwof"}
        if not self.baselines:
            return named
        return [OurRow(name, m, {"name": m}, tuned=self.tuned) for name, m in found.items()] + named

    def data_of(self, place: Place, start: Recipe) -> Data:
        return replace(start.data, name=self.data, options={"split": place.split} if place.split else {})

    def entry(self, place: Place, setting: str, row: OurRow, start: Recipe, base: str, pseudo: str | None) -> Entry:
        """The run of a row. start: device, data root and the like; base, pseudo: the files of its base models."""
        way, shot = way_and_shot(setting)
        data = replace(self.data_of(place, start), pseudo=self.pseudo)
        tune = replace(start.tune, grid=row.grid)
        recipe = replace(start, data=data, method=_nested(row.method), model=base, tune=tune)
        recipe.method_config()
        name = f"{row.run}-{setting}"
        if self.protocol == "ifsl":
            stream = replace(recipe.stream, streams=self.streams)
            recipe = replace(recipe, stream=stream)
            return Entry(name, recipe, row.tuned, "ifsl", row.outcome, pseudo)
        how = replace(recipe.evaluate, way=way, shot=shot, episodes=row.episodes or self.episodes, curves=self.curves)
        return Entry(name, replace(recipe, evaluate=how), row.tuned)


def way_and_shot(setting: str) -> tuple[int, int]:
    """
    >>> way_and_shot("20w1s")
    (20, 1)
    """
    found = re.fullmatch(r"(\d+)w(\d+)s", setting)
    if not found:
        raise LcwofError(f"{setting!r} is not a setting such as 5w1s.")
    return int(found[1]), int(found[2])


def _nested(settings: dict[str, Any]) -> dict[str, Any]:
    """Dotted keys as sections."""
    tree: dict[str, Any] = {}
    for key, value in settings.items():
        merge(tree, key.split("."), value)
    return tree


def reproductions() -> dict[str, Reproduction]:
    """All that the package knows how to run, by key."""
    return {file.stem: read_reproduction(file) for file in sorted((RECIPES / "reproduce").glob("*.toml"))}


def read_reproduction(file: Path) -> Reproduction:
    """One file, the package's or a user's own. `like` names another, beside it or of the package: what is not said is
    as there."""
    found: Reproduction = build(Reproduction, {**_like(file), "key": file.stem}, file.stem)
    if (found.table is None) == (found.figure is None):
        raise LcwofError(f"{file}: name a table or a figure of the paper, one of the two.")
    if found.table and found.settings:
        raise LcwofError(f"{file}: settings are for figures; a table has its own, {', '.join(_settings(found))}.")
    if found.figure and found.figure not in {figure.key for figure in paper_figures()}:
        raise LcwofError(f"{file}: the paper has no figure {found.figure!r}.")
    for row in found.rows:
        if "name" not in row.method:
            raise LcwofError(f'{file}: the method of row {row.name!r} has no name: write method = {{ name = "..." }}.')
        get_method(str(row.method["name"]))
    _require_sound(found, file)
    return found


def _like(file: Path, before: tuple[Path, ...] = ()) -> dict[str, Any]:
    """What a file says, on top of what the one says that it is like, but for notes, where the data are other ones."""
    values = read_toml(file)
    if "like" not in values:
        return values
    name = f"{values.pop('like')}.toml"
    beside, ours = file.with_name(name), RECIPES / "reproduce" / name
    other = ours if ours.exists() and (not beside.exists() or beside == file) else beside
    if not other.exists():
        known = ", ".join(sorted(each.stem for each in ours.parent.glob("*.toml")))
        raise LcwofError(f"{file}: like = {other.stem!r}, but there is none beside it, and the package has {known}.")
    if other in before:
        raise LcwofError(f"{file}: like goes round in a circle, by way of {other.name}.")
    found = {**_like(other, (*before, file)), **values}
    if "notes" not in values and "data" in values:
        found.pop("notes", None)
    return found


def _require_sound(what: Reproduction, file: Path) -> None:
    """Refuse what would leave rows out, or show one run for two."""
    backbones = set(what.bases) | {part.backbone for part in what.paper.parts} if what.paper else set(what.bases)
    for row in what.rows:
        if row.backbone not in {None, *backbones}:
            raise LcwofError(
                f"{file}: row {row.name!r} is for {row.backbone}; there are {', '.join(sorted(backbones))}."
            )
        if what.figure == "lambda-after-phase2" and not row.method.get("weight_constraint"):
            raise LcwofError(f"{file}: row {row.name!r} has no weight_constraint, which this figure is drawn along.")
    if what.protocol == "ifsl" and not what.pseudo and any(row.tuned for _, _, row in what.wanted()):
        raise LcwofError(f"{file}: set pseudo, the base classes to choose settings on, or tuned = false in every row.")
    runs: set[str] = set()
    for place, _, rows in what._parts():
        named: dict[str, OurRow] = {}
        asked: dict[str, OurRow] = {}
        for row in rows:
            if row.name in named:
                raise LcwofError(f"{file}: two rows are named {row.name!r} ({place}): give one another name.")
            first = asked.setdefault(row.run, row)
            if replace(first, name="", episodes=None) != replace(row, name="", episodes=None):
                raise LcwofError(
                    f"{file}: rows {first.name!r} and {row.name!r} have one run, {row.run}, and other settings: give "
                    "one another `run`."
                )
            named[row.name] = row
        runs |= asked.keys()
    if what.reference not in {"lcwof", *runs}:
        raise LcwofError(f"{file}: reference = {what.reference!r} is none of its runs, {', '.join(sorted(runs))}.")


def _settings(what: Reproduction) -> list[str]:
    return sorted({setting for part in (what.paper.parts if what.paper else ()) for setting in part.settings})


def base_recipe(base: BaseRecipe, backbone: str) -> Recipe:
    """The recipe of phase 1."""
    file = RECIPES / base.recipe if (RECIPES / base.recipe).exists() else Path(base.recipe)
    settings = {f"phase1.{key}": value for key, value in base.set.items()}
    return read_recipe([file], {**settings, "phase1.backbone": backbone}, [])
