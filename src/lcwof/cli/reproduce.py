"""`lcwof reproduce`: the paper's tables and figures, ours beside theirs."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from lcwof.cli.console import Device, PrecisionName, console, errors, progress_bar, resumable, say
from lcwof.cli.experiments import AtOnce, Root, make_base
from lcwof.data.datasets import is_present
from lcwof.engine import Recipe, Study, read_recipe, read_run
from lcwof.engine.hold import Held, holding
from lcwof.engine.overview import overview
from lcwof.engine.study import other_settings
from lcwof.errors import LcwofError, OtherSettings
from lcwof.learning import Phase1
from lcwof.models import BaseModel
from lcwof.models.checkpoint import require_writable, write_aside
from lcwof.report import paper_figures, paper_tables
from lcwof.report.cells import Runs
from lcwof.report.reproduction import (
    OurRow,
    Place,
    Reproduction,
    base_recipe,
    read_reproduction,
    reproductions,
)
from lcwof.report.written import POINTS, write


def reproduce(
    keys: Annotated[list[str] | None, typer.Argument(help="Tables and figures, or all; or a TOML file.")] = None,
    list_: Annotated[bool, typer.Option("--list", help="Name all, with the data and time they need.")] = False,
    root: Root = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder to write, or to go on in.")] = Path("runs/paper"),
    base: Annotated[
        list[str] | None, typer.Option(help="A base model to take instead of making one.", metavar="DATA/BACKBONE=FILE")
    ] = None,
    episodes: Annotated[
        int | None, typer.Option(min=1, help="Fewer episodes or streams, for a try, in a folder try-N of its own.")
    ] = None,
    only: Annotated[
        str | None, typer.Option(help="Runs to do now, in this order, such as pn, pn-5w1s, conv4/pn; commas between.")
    ] = None,
    show: Annotated[bool, typer.Option("--show", help="Run nothing: tables from the runs that are there.")] = False,
    at_once: AtOnce = None,
    device: Device = None,
    precision: PrecisionName = None,
) -> None:
    """Run a table or figure of the paper and write it with our numbers beside the printed ones, as Markdown, HTML and
    JSON; tables as LaTeX and CSV, figures as SVG and PNG, too. Base models are made first where there are none. What
    is there already in the folder is not done again. The same command started several times, on one card or on
    several, shares the work: each process takes runs that no other is at.

    Examples:

    lcwof reproduce --list

    lcwof reproduce mini-gfsl --root ~/data

    lcwof reproduce distillation --root ~/data --base mini-imagenet/resnet12=base.safetensors --episodes 20

    lcwof reproduce mini-gfsl --root ~/data --only resnet12/lcwof-5w1s,pn

    lcwof reproduce all --root ~/data -o runs/paper

    for card in 0 1; do CUDA_VISIBLE_DEVICES=$card lcwof reproduce all --root ~/data & done
    """
    known = reproductions()
    if list_ or not keys:
        _list(known, root)
        return
    if "all" in keys and len(keys) > 1:
        raise LcwofError(f"all is every table and figure: leave out {', '.join(key for key in keys if key != 'all')}.")
    wanted = list(known.values()) if keys == ["all"] else [_find(key, known) for key in keys]
    start = read_recipe([], {"data.root": root, "at_once": at_once, "device": device, "precision": precision}, [])
    if episodes:
        tune = start.tune
        tune = dataclasses.replace(tune, episodes=min(episodes, tune.episodes), streams=min(episodes, tune.streams))
        start = dataclasses.replace(start, tune=tune)
    given = dict(_given(text) for text in base or [])
    if keys == ["all"] and not show:
        absent = [what.key for what in wanted if not _present(what, root)]
        if absent:
            errors.print(f"Left out, because their data are not there: {', '.join(absent)}.")
        wanted = [what for what in wanted if what.key not in absent]
    chosen = _only(only, wanted) if only else None
    _require_known(given, wanted)
    if not show:
        for what in wanted:  # what cannot work is found before any work starts
            if not what.wanted():
                raise LcwofError(f"{what.key} has no rows to run.")
            for place, setting, row in _to_do(what, chosen):
                what.base(place.backbone)
                try:
                    entry = what.entry(place, setting, row, start, "", None)
                    if row.tuned:
                        entry.recipe.grid()
                except LcwofError as error:
                    raise LcwofError(f"{what.key}, row {row.name}: {error}") from error
    failed: list[str] = []
    studies: dict[Path, Study] = {}  # by folder: tables of the same base model share what is loaded and compiled
    runs = out / f"try-{episodes}" if episodes else out  # so that what is chosen on a few does not stand for all
    for what in wanted:
        if episodes:
            rows = tuple(dataclasses.replace(row, episodes=None) for row in what.rows)
            what = dataclasses.replace(what, episodes=episodes, streams=min(what.streams, episodes), rows=rows)
        seen = Seen()
        with _others_go_on(what, len(wanted) == 1, failed):
            if not show:
                with resumable(out):
                    failed += _run(what, start, out, runs, given, chosen, studies, seen)
        with _others_go_on(what, len(wanted) == 1, failed):
            # Alone, so that no other process writes what it saw before.
            with holding(runs / what.key, lambda: None) if runs.exists() else nullcontext():
                there = _there(what, start, runs, seen)
                if there:
                    say(f"{what.about}\nWritten: {write(what, there, runs)}.")
            if show and not there and len(wanted) == 1:
                raise LcwofError(f"{runs} has none of the runs of {what.key} to show: leave out --show to run them.")
            if not there:
                errors.print(f"{what.key}: none of its runs is there.")
    if failed:
        raise LcwofError(f"not all could be run: {', '.join(failed)}.")


@dataclasses.dataclass
class Seen:
    """What was found out while a table was run."""

    refused: set[Path] = dataclasses.field(default_factory=set)  # folders of runs of other settings
    models: dict[Place, dict[str, Any]] = dataclasses.field(default_factory=dict)  # what runs say of the base model


@contextmanager
def _others_go_on(what: Reproduction, alone: bool, failed: list[str]) -> Iterator[None]:
    """An error ends a table or figure, but none that comes after it."""
    try:
        yield
    except LcwofError as error:
        if alone:
            raise
        errors.print(f"{what.key}: {error}", markup=False, soft_wrap=True)
        if what.key not in failed:
            failed.append(what.key)


def _only(text: str, wanted: list[Reproduction]) -> list[str]:
    """The runs named on the command line, each of at least one of the tables and figures."""
    every = [one for what in wanted for one in what.wanted()]
    only = text.split(",")
    if unknown := set(only) - {name for one in every for name in _names(*one)}:
        known = ", ".join(sorted({row.run for _, _, row in every}))
        keys = ", ".join(what.key for what in wanted)
        raise LcwofError(f"--only {', '.join(sorted(unknown))}: the runs of {keys} are {known}.")
    return only


def _find(key: str, known: dict[str, Reproduction]) -> Reproduction:
    if key.endswith(".toml"):
        return read_reproduction(Path(key))
    if key not in known:
        raise LcwofError(f"nothing to reproduce is named {key!r}: `lcwof reproduce --list` names all there is.")
    return known[key]


def _given(text: str) -> tuple[str, str]:
    where, equals, file = text.partition("=")
    if not equals or "/" not in where:
        raise LcwofError(
            f"--base {text}: write DATA/BACKBONE=FILE, for example mini-imagenet/resnet12=base.safetensors."
        )
    return where, file


def _require_known(given: dict[str, str], wanted: list[Reproduction]) -> None:
    """Refuse a base model given for what is not asked for: it would be made instead, in minutes or hours."""
    known = set()
    for what in wanted:
        for place in {place for place, _, _ in what.wanted()}:
            backbones = {place.backbone, what.bases.get(place.backbone, {}).get("taught_by", place.backbone)}
            named = (_base_name(place._replace(backbone=b), n) for b in backbones for n in (0, what.pseudo))
            known |= {f"{what.data}/{name}" for name in named}
    if unknown := sorted(given.keys() - known):
        raise LcwofError(f"--base {', '.join(unknown)}: the base models asked for are {', '.join(sorted(known))}.")
    for name, file in given.items():
        if not Path(file).is_file():
            raise LcwofError(f"--base {name}={file}: there is no such file.")


def _to_do(what: Reproduction, only: list[str] | None) -> list[tuple[Place, str, OurRow]]:
    """The runs of a table or figure, those that are named in the order of their names."""
    if only is None:
        return what.wanted()
    places = [([name in _names(*one) for name in only], one) for one in what.wanted()]
    return [one for named, one in sorted(places, key=lambda each: each[0], reverse=True) if any(named)]


def _present(what: Reproduction, root: str | None) -> bool:
    """Whether all the data that it needs are there."""
    options = (what.data_of(place, Recipe()).options for place in {place for place, _, _ in what.wanted()})
    return all(is_present(what.data, Path(root) if root else None, **each) for each in options)


def _list(known: dict[str, Reproduction], root: str | None) -> None:
    table = Table(box=SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
    for heading in ("key", "paper", "data", "there", "minutes"):
        table.add_column(heading, no_wrap=True)
    numbered = [*((f"table {t.number}", t.key) for t in paper_tables())]
    numbered += [(f"figure {f.number}", f.key) for f in paper_figures()]
    for number, key in numbered:
        what = known.get(key)
        if what is None:
            table.add_row(f"({key})", number, "", "a drawing", "")
            continue
        there = "yes" if _present(what, root) else "no"
        table.add_row(key, number, what.data, there, f"{what.minutes:g}")
    console.print(table)
    say(
        "Minutes on one H200, estimated, base models (10 minutes each) apart; tables that share runs take them once. "
        "Data: give --root or LCWOF_DATA."
    )


def _run(
    what: Reproduction,
    start: Recipe,
    out: Path,
    runs: Path,
    given: dict[str, str],
    only: list[str] | None,
    studies: dict[Path, Study],
    seen: Seen,
) -> list[str]:
    """out: the folder of base models; runs: that of the runs. Returns the runs that cannot be done, or diverge: the
    others of the table are worth having."""
    failed = []

    def give_up(place: Place, setting: str, row: OurRow, why: LcwofError | None = None) -> None:
        name = f"{place}/{row.run}-{setting}"
        failed.append(name)
        if why:
            errors.print(f"{name}: {why}", markup=False, soft_wrap=True)

    def study_of(place: Place) -> Study:
        folder = runs / what.data / str(place)
        return studies.setdefault(folder, Study(folder, progress_bar, errors.print))

    def attempt(place: Place, setting: str, row: OurRow) -> None:
        folder, study = runs / what.data / str(place), study_of(place)
        try:
            study.require_possible(what.entry(place, setting, row, start, "", None))  # before a base model is made
        except LcwofError as error:
            give_up(place, setting, row, error)
            return
        file = _base(what, place, start, out, given, 0, study)
        pseudo = _base(what, place, start, out, given, what.pseudo, study) if what.pseudo and row.tuned else None
        entry = what.entry(place, setting, row, start, file, pseudo)
        seen.models[place] = json.loads(json.dumps(study.model(entry.recipe).told()))
        try:
            done = study.attempt(entry)
        except Held:
            raise
        except LcwofError as error:
            if isinstance(error, OtherSettings):
                seen.refused.add(folder / entry.name)
            give_up(place, setting, row, error)
            return
        if done is None:  # it diverges, as has been said
            give_up(place, setting, row)
            return
        points = done.path / POINTS
        if what.figure != "overview":
            return
        with holding(points, lambda: errors.print(f"Another process is making {points}: waiting for it.")):
            if points.exists():
                return
            with progress_bar("overview".ljust(16)) as show:
                found = overview(entry.recipe, study.model(entry.recipe), study.data(entry.recipe.data), progress=show)
            write_aside(points, json.dumps([dataclasses.asdict(each) for each in found]).encode())

    left = _to_do(what, only)
    there = sum((runs / what.data / str(place) / f"{row.run}-{setting}").exists() for place, setting, row in left)
    say(f"{what.key}: {len(left)} run{'s' * (len(left) > 1)}" + (f", {there} of them there." if there else "."))
    absent: dict[Place, LcwofError] = {}
    places = list(dict.fromkeys(place for place, _, _ in left))
    for place in places:
        try:
            study_of(place).data(what.data_of(place, start))
        except LcwofError as error:
            absent[place] = error
    for why in {str(error): error for error in absent.values()}.values():  # once, not for every run
        errors.print(f"{what.key}: {why}", markup=False, soft_wrap=True)
    left = [one for one in left if one[0] not in absent]
    failed += [what.key] if places and len(absent) == len(places) else [f"{what.key} {place}" for place in absent]
    for _ in range(2):  # at the end once more what others were at: one of them may have been stopped
        todo, left = left, []
        for one in todo:
            try:
                attempt(*one)
            except Held:
                left.append(one)
    if left:
        names = ", ".join(f"{place}/{row.run}-{setting}" for place, setting, row in left)
        errors.print(f"Left to other processes, which are at work on it: {names}.", markup=False, soft_wrap=True)
    return failed


def _names(place: Place, setting: str, row: OurRow) -> set[str]:
    """What a run may be called on the command line."""
    return {f"{where}{row.run}{how}" for where in ("", f"{place}/") for how in ("", f"-{setting}")}


def _base_name(place: Place, pseudo: int) -> str:
    return f"{place}-pseudo{pseudo}" if pseudo else str(place)


def _base(
    what: Reproduction, place: Place, start: Recipe, out: Path, given: dict[str, str], pseudo: int, study: Study
) -> str:
    """The file of a base model, which is made where there is none."""
    name = _base_name(place, pseudo)
    if f"{what.data}/{name}" in given:
        return given[f"{what.data}/{name}"]
    base = what.base(place.backbone)
    how = base_recipe(base, place.backbone).phase1
    file = out / what.data / f"base-{name}.safetensors"
    if base.taught_by:
        teacher = place._replace(backbone=base.taught_by)
        # of a model that is there only the number of teachers is asked, so its teacher need not be
        taught = "" if file.exists() else _base(what, teacher, start, out, given, pseudo, study)
        how = dataclasses.replace(how, teachers=(taught,))
    made = False
    if not file.exists():
        require_writable(file)
        with holding(file, lambda: errors.print(f"Another process is making {file}: waiting for it.")):
            made = not file.exists()
            if made:
                data = dataclasses.replace(what.data_of(place, start), pseudo=pseudo).load()
                make_base(data, how, start.device, file, f"phase 1 {name}")
    if not made and (other := _other_phase1(study.model(dataclasses.replace(start, model=str(file))), how)):
        raise LcwofError(
            f"{file} was made otherwise ({', '.join(other)}): choose another --out, remove it, or, if it is to serve "
            f"all the same, give --base {what.data}/{name}={file}."
        )
    return str(file)


def _other_phase1(model: BaseModel, how: Phase1) -> list[str]:
    """What a base model was made with that is other than asked for; of teachers, how many."""
    asked, found = dataclasses.asdict(how), {**dataclasses.asdict(Phase1()), **model.about.get("phase1", {})}
    asked["teachers"], found["teachers"] = len(asked["teachers"]), len(found["teachers"])
    return [key for key, value in json.loads(json.dumps(asked)).items() if found.get(key) != value]


def _there(what: Reproduction, start: Recipe, out: Path, seen: Seen) -> Runs:
    """The runs that are in the folder, whatever is lacking; not those of other settings, nor those on another base
    model than this command has taken or, where it has taken none, than most."""

    def left_out(folder: Path, why: str) -> None:
        errors.print(f"{folder} is left out: {why}", markup=False, soft_wrap=True)

    found: Runs = {}
    for place, setting, row in what.wanted():
        folder = out / what.data / str(place) / f"{row.run}-{setting}"
        if folder in seen.refused or not (folder / "run.json").exists():
            continue
        try:
            run = read_run(folder)
        except LcwofError as error:
            left_out(folder, str(error))
            continue
        if other := other_settings(run, what.entry(place, setting, row, start, "", None)):
            left_out(folder, f"a run of other settings ({', '.join(other)}).")
            continue
        found[place, setting, row.run] = run
    models: dict[Place, list[dict[str, Any]]] = {}
    for (place, _, _), run in found.items():
        models.setdefault(place, []).append(run.about["model"])
    taken = {place: max(told, key=told.count) for place, told in models.items()} | seen.models
    for key, run in list(found.items()):
        if run.about["model"] != taken[key[0]]:
            left_out(run.path, "a run on another base model.")
            del found[key]
    return found
