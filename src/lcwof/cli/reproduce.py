"""`lcwof reproduce`: the paper's tables and figures, ours beside theirs."""

from __future__ import annotations

import dataclasses
import json
from html import escape
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from lcwof.cli.console import Device, PrecisionName, console, errors, progress_bar, resumable, say
from lcwof.cli.experiments import AtOnce, Root, make_base
from lcwof.data.datasets import is_present
from lcwof.engine import Recipe, Study, read_recipe, read_run
from lcwof.engine.overview import Points, overview
from lcwof.engine.study import other_settings
from lcwof.errors import LcwofError
from lcwof.learning import Phase1
from lcwof.models import BaseModel, pretrained
from lcwof.models.checkpoint import write_aside
from lcwof.report import paper_figures, paper_tables
from lcwof.report.beside import beside_csv, beside_html, beside_json, beside_latex, beside_markdown
from lcwof.report.figures import as_svg, save_png
from lcwof.report.markup import NO_SCRIPT, figure, figures, scripts
from lcwof.report.page import html_page
from lcwof.report.panels import Panel, panel_json, panel_markdown, panel_spec, panels_figure
from lcwof.report.paper_plots import plot_panels
from lcwof.report.points import points_figure, points_spec, title_of
from lcwof.report.reproduction import (
    OurRow,
    Place,
    Reproduction,
    Runs,
    base_recipe,
    compared,
    read_reproduction,
    reproductions,
)


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
    is there already in the folder is not done again.

    Examples:

    lcwof reproduce --list

    lcwof reproduce mini-gfsl --root ~/data

    lcwof reproduce distillation --root ~/data --base mini-imagenet/resnet12=base.safetensors --episodes 20

    lcwof reproduce mini-gfsl --root ~/data --only resnet12/lcwof-5w1s,pn

    lcwof reproduce all --root ~/data -o runs/paper
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
                entry = what.entry(place, setting, row, start, "", None)
                if row.tuned:
                    entry.recipe.grid()
    failed: list[str] = []
    studies: dict[Path, Study] = {}  # by folder: tables of the same base model share what is loaded and compiled
    runs = out / f"try-{episodes}" if episodes else out  # so that what is chosen on a few does not stand for all
    for what in wanted:
        if episodes:
            rows = tuple(dataclasses.replace(row, episodes=None) for row in what.rows)
            what = dataclasses.replace(what, episodes=episodes, streams=min(what.streams, episodes), rows=rows)
        try:
            if not show:
                with resumable(out):
                    failed += _run(what, start, out, runs, given, chosen, studies)
        except LcwofError as error:
            if len(wanted) == 1:
                raise
            errors.print(f"{what.key}: {error}")
            failed.append(what.key)
        there = _there(what, start, runs)
        if show and not there and len(wanted) == 1:
            raise LcwofError(f"{runs} has none of the runs of {what.key} to show: leave out --show to run them.")
        _write(what, there, runs)
    if failed:
        raise LcwofError(f"not all could be run: {', '.join(failed)}; what is there of them is written.")


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
) -> list[str]:
    """out: the folder of base models; runs: that of the runs. Returns the runs that cannot be done, or diverge: the
    others of the table are worth having."""
    failed = []
    for place, setting, row in _to_do(what, only):
        folder = runs / what.data / str(place)
        study = studies.setdefault(folder, Study(folder, progress_bar, errors.print))
        file = _base(what, place, start, out, given, 0, study)
        pseudo = _base(what, place, start, out, given, what.pseudo, study) if what.pseudo and row.tuned else None
        entry = what.entry(place, setting, row, start, file, pseudo)
        try:
            done = study.attempt(entry)
        except LcwofError as error:
            errors.print(f"{place}/{entry.name}: {error}", markup=False, soft_wrap=True)
            done = None
        if done is None:
            failed.append(f"{place}/{entry.name}")
            continue
        points = _points_file(what, runs)
        if what.figure == "overview" and not points.exists():
            found = overview(entry.recipe, study.model(entry.recipe), study.data(entry.recipe.data))
            write_aside(points, json.dumps([dataclasses.asdict(each) for each in found]).encode())
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
    if not file.exists():
        data = dataclasses.replace(what.data_of(place, start), pseudo=pseudo).load()
        file.parent.mkdir(parents=True, exist_ok=True)
        make_base(data, how, start.device, file, f"phase 1 {name}")
    elif other := _other_phase1(study.model(dataclasses.replace(start, model=str(file))), how):
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


def _there(what: Reproduction, start: Recipe, out: Path) -> Runs:
    """The runs that are in the folder, whatever is lacking; not those of other settings."""
    found: Runs = {}
    for place, setting, row in what.wanted():
        folder = out / what.data / str(place) / f"{row.run}-{setting}"
        if (folder / "run.json").exists():
            run = read_run(folder)
            if other := other_settings(run, what.entry(place, setting, row, start, "", None)):
                why = f"{folder} is left out: a run of other settings ({', '.join(other)})."
                errors.print(why, markup=False, soft_wrap=True)
                continue
            found[place, setting, row.run] = run
    return found


def _write(what: Reproduction, runs: Runs, out: Path) -> None:
    if not runs:
        errors.print(f"{what.key}: none of its runs is there.")
        return
    notes = _notes(what, runs)
    if what.paper is None:
        _draw(what, runs, out, notes)
        return
    parts = compared(what, runs)
    file = out / f"{what.key}.md"
    write_aside(file, beside_markdown(what, parts, notes).encode())
    page = html_page(f"lcwof: {what.key}", beside_html(what, parts, notes))
    write_aside(out / f"{what.key}.html", page.encode())
    write_aside(out / f"{what.key}.tex", beside_latex(what, parts).encode())
    write_aside(out / f"{what.key}.csv", beside_csv(what, parts).encode())
    write_aside(out / f"{what.key}.json", (json.dumps(beside_json(what, parts, notes), indent=1) + "\n").encode())
    say(f"{what.about}\nWritten: {file}, and .html, .tex, .csv and .json beside it.")


def _draw(what: Reproduction, runs: Runs, out: Path, notes: list[str]) -> None:
    """A figure: to look at in a page, and as SVG and PNG; what is drawn as Markdown and JSON."""
    panels = plot_panels(what, runs)
    printed = {"": panels_figure(panels, 2)}
    shown = figures([figure(p.title, _under(p), panel_spec(p)) for p in panels])
    file = _points_file(what, out)
    if what.figure == "overview" and file.exists():
        phases = [Points(**each) for each in json.loads(file.read_text())]
        printed["-points"] = points_figure(phases)
        drawn = [figure(*title_of(each), points_spec(each)) for each in phases]
        shown += (
            "<h2>Test samples of one episode</h2><p>Embeddings in the plane by t-SNE. Base classes are pale; larger "
            f"where the answer is sure, crosses where it is wrong.</p>{figures(drawn)}"
        )
    for name, sheet in printed.items():
        write_aside(out / f"{what.key}{name}.svg", as_svg(sheet, what.key + name, what.about).encode())
        save_png(sheet, out / f"{what.key}{name}.png")
    kept = {"key": what.key, "panels": [panel_json(panel) for panel in panels], "notes": notes}
    told = "<ul>" + "".join(f"<li>{escape(note)}</li>" for note in notes) + "</ul>"
    body = f"<h1>{escape(what.about)}</h1>{NO_SCRIPT}{shown}{told}"
    write_aside(out / f"{what.key}.html", html_page(f"lcwof: {what.key}", body, scripts()).encode())
    write_aside(out / f"{what.key}.json", (json.dumps(kept, indent=1) + "\n").encode())
    text = "\n".join([f"## {what.about}\n", *map(panel_markdown, panels), *(f"- {note}" for note in notes)])
    write_aside(out / f"{what.key}.md", (text + "\n").encode())
    say(f"{what.about}\nWritten: {out / what.key}.html, and .md, .svg, .png and .json beside it.")


def _under(panel: Panel) -> str:
    bars = "bars are 95% intervals" if panel.counted else "with their 95% intervals under the pointer"
    return "; ".join(filter(None, (f"means over {panel.episodes} episodes, {bars}", panel.remark)))


def _points_file(what: Reproduction, out: Path) -> Path:
    return out / what.data / "overview.json"


def _origin(about: dict[str, Any]) -> str:
    versions = " ".join(f"{name} {number}" for name, number in about["versions"].items() if name != "numpy")
    begun = "; begun on ".join(["", *map(_origin, about.get("before", []))])
    return ", ".join(filter(None, (about["hardware"], about["compute"], versions, about.get("date")))) + begun


def _notes(what: Reproduction, runs: Runs) -> list[str]:
    """Where the numbers come from, and what the printed ones need to be read with."""
    notes = [f"The paper: {remark}" for remark in what.remarks]
    data = {run.about["data"]: run.about.get("classes") or {} for run in runs.values()}
    for name, classes in data.items():
        counts = "/".join(str(number) for number in classes.values())
        notes.append(f"Data: {name}" + (f", {counts} {'/'.join(classes)} classes." if counts else "."))
    models = {}
    for (place, _, _), run in runs.items():
        model = run.about["model"]
        mirror = ", tests on the mean over image and mirror image" if model.get("mirror") else ""
        known = pretrained(model.get("phase1", {}).get("backbone", ""))
        begun = f", begun from weights that know {known.knows}" if known else ""
        teachers = len(model.get("phase1", {}).get("teachers", ()))
        taught = f", taught by {teachers} other base model{'s' * (teachers > 1)}" if teachers else ""
        told = f"base test accuracy {model.get('test accuracy')}%{begun}{taught}{mirror}"
        models[str(place)] = f"Base model {place}: {told}."
    notes += models.values()
    origins: dict[str, list[str]] = {}
    for (place, setting, row), run in sorted(runs.items()):
        origins.setdefault(_origin(run.about), []).append(f"{place}/{row}-{setting}")
    notes += [f"Computed on {origin}: {', '.join(names)}." for origin, names in origins.items()]
    seconds = {f"{place}/{row}-{setting}": run.about.get("seconds", 0.0) for (place, setting, row), run in runs.items()}
    if seconds:
        taken = ", ".join(f"{name} {value:.0f}" for name, value in sorted(seconds.items(), key=lambda x: -x[1]))
        notes.append(f"Seconds for the test episodes or streams: {taken}.")
        tuned = {
            f"{place}/{row}-{setting}": why["seconds"]
            for (place, setting, row), run in runs.items()
            if "seconds" in (why := run.about["recipe"].get("tuning") or {})
        }
        if tuned:
            taken = ", ".join(f"{name} {value:.0f}" for name, value in sorted(tuned.items(), key=lambda x: -x[1]))
            notes.append(f"Seconds to choose settings, what is fitted to base classes included: {taken}.")
    for (place, setting, row), run in sorted(runs.items()):
        why = run.about["recipe"].get("tuning") or {}
        if why:
            settings = ", ".join(f"{k} {v}" for k, v in why["settings"].items())
            notes.append(f"{row}-{setting} ({place}), chosen without test data: {settings} ({why['why']}).")
    return notes
