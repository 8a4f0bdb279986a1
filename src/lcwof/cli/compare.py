"""`lcwof compare` and `compare-stream`: methods tuned and evaluated on the same episodes or streams."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from lcwof.cli.console import (
    Device,
    Json,
    PrecisionName,
    RecipeFiles,
    Settings,
    SkipBad,
    console,
    errors,
    list_bad,
    progress_bar,
    recipe_of,
    resumable,
    say,
)
from lcwof.cli.experiments import AtOnce, BaseClasses, Curves, DataName, Model, Pseudo, Root, Seed, Shot, Way
from lcwof.cli.streams import Carry, OutcomeName, Sessions, Streams
from lcwof.cli.streams import Shot as StreamShot
from lcwof.cli.streams import Way as StreamWay
from lcwof.config import all_shown
from lcwof.engine import Entry, Recipe, Run, StreamRun, Study
from lcwof.engine.choose import require_pseudo
from lcwof.errors import LcwofError
from lcwof.methods import get_method, method_names, own_code
from lcwof.report import as_json, results_table, sessions_table, streams_json, write_report
from lcwof.report.compare import by_setting, method_name, reference
from lcwof.report.stream_compare import alike, reference_words
from lcwof.report.table import tuning

Methods = Annotated[str, typer.Option(help="Names, or files of your own (mine.py:Mine), commas between; or all.")]
Out = Annotated[Path, typer.Option("--out", "-o", help="Folder to write, or to go on in.")]


def compare(
    recipes: RecipeFiles = None,
    methods: Methods = "all",
    data: DataName = None,
    root: Root = None,
    model: Model = None,
    way: Way = None,
    shot: Shot = None,
    episodes: Annotated[int | None, typer.Option(help="Episodes.")] = None,
    curves: Curves = None,
    tuned: Annotated[bool, typer.Option("--tune/--no-tune", help="Choose settings on validation classes.")] = True,
    out: Out = Path("runs/compare"),
    seed: Seed = None,
    at_once: AtOnce = None,
    device: Device = None,
    precision: PrecisionName = None,
    skip_bad: SkipBad = False,
    set_: Settings = None,
    json_: Json = False,
) -> None:
    """Tune and evaluate methods on the same episodes; one table, with differences to lcwof episode by episode.

    A recipe's method settings are those of the method it names; the others start from their own defaults. What is there
    already in the folder is not done again, so an interrupted comparison goes on.

    Examples:

    lcwof compare --data strokes --model base.safetensors --way 5 --shot 1 --episodes 100 --curves 20

    lcwof compare paper.toml --data mini-imagenet --root ~/data --model base.safetensors --methods lcwof,iw,mine.py:Mine

    lcwof compare --data strokes --model base.safetensors --methods lcwof,pn,iw --episodes 20 --set tune.episodes=10

    The last is for a quick look; those that train a network for every setting they try can take hours on a processor.
    """
    start = recipe_of("evaluate", locals(), "methods", "tuned")
    entries = [Entry(name, recipe, tuned) for name, recipe in recipes_of(start, methods).items()]
    study = Study(out, progress_bar, errors.print)
    dataset = _load(study, start)
    runs = [run for run in _run(study, entries) if isinstance(run, Run)]
    title = f"{dataset}, {start.evaluate.way}-way {start.evaluate.shot}-shot"
    page = write_report(runs, out / "report.html", title)
    if json_:
        print(json.dumps(as_json(runs)))
        return
    console.print(results_table(runs))
    ranked = next(iter(by_setting(runs).values()))
    _chosen(ranked)
    say(f"Report: {page}")


def compare_stream(
    recipes: RecipeFiles = None,
    methods: Methods = "all",
    data: DataName = None,
    root: Root = None,
    base_classes: BaseClasses = None,
    model: Model = None,
    pseudo: Pseudo = None,
    pseudo_model: Annotated[str | None, typer.Option(help="Base model that does not know these classes.")] = None,
    way: StreamWay = None,
    shot: StreamShot = None,
    sessions: Sessions = None,
    streams: Streams = None,
    shuffle: Annotated[bool, typer.Option("--shuffle", help="A class order of its own for every stream.")] = False,
    outcome: OutcomeName = "balanced",
    carry: Carry = False,
    tuned: Annotated[bool, typer.Option("--tune/--no-tune", help="Choose settings on pseudo-sessions.")] = True,
    out: Out = Path("runs/compare-stream"),
    seed: Seed = None,
    at_once: AtOnce = None,
    device: Device = None,
    precision: PrecisionName = None,
    skip_bad: SkipBad = False,
    set_: Settings = None,
    json_: Json = False,
) -> None:
    """Run several methods on the same streams of sessions, each tuned on pseudo-sessions first, and compare them.

    Examples:

    lcwof pretrain --data strokes --backbone conv4 --epochs 20 --pseudo 20 -o pseudo.safetensors

    lcwof compare-stream --data strokes --model base.safetensors --pseudo 20 --pseudo-model pseudo.safetensors

    lcwof compare-stream fscil.toml --root ~/data --model base.safetensors --no-tune --methods lcwof,pn
    """
    start = recipe_of("stream", locals(), "methods", "tuned", "outcome", "pseudo_model")
    if tuned:
        require_pseudo(start, outcome)
    entries = [
        Entry(name, recipe, tuned, "ifsl", outcome, pseudo_model)  # type: ignore[arg-type]
        for name, recipe in recipes_of(start, methods).items()
    ]
    study = Study(out, progress_bar, errors.print)
    dataset = _load(study, start)
    runs = [run for run in _run(study, entries) if isinstance(run, StreamRun)]
    page = write_report(runs, out / "report.html", f"{dataset}, session after session")
    if json_:
        print(json.dumps(streams_json(runs)))
        return
    for measure in ("hm", "J/J"):
        console.print(sessions_table(runs, measure))
    ranked = next(iter(alike(runs).values()))
    _chosen(ranked, {f"hm less {method_name(reference(ranked))}'s": [reference_words(run, ranked) for run in ranked]})
    say(f"Report: {page}")


def recipes_of(start: Recipe, methods: str) -> dict[str, Recipe]:
    """A recipe for each method by name. A wrong name is found here, before any work starts."""
    words = [word.strip() for word in methods.split(",") if word.strip()]
    ours = [name for name in method_names() if own_code(get_method(name)) is None]  # those of files are named by these
    if not words:
        raise LcwofError("--methods names none: give some of `lcwof methods`, commas between, or all.")
    names = dict.fromkeys(name for word in words for name in (ours if word == "all" else [word]))
    found: dict[str, Recipe] = {}
    for name in names:
        if get_method(name).name in found:
            raise LcwofError(f"--methods {methods}: two are named {get_method(name).name!r}; rename one.")
        own = start.method_name == name
        tune = start.tune if own else dataclasses.replace(start.tune, grid=None)  # a recipe's grid is of its own method
        settings = start.method if own else {"name": name}
        found[get_method(name).name] = dataclasses.replace(start, method=settings, tune=tune, tuning={})
    return found


def _load(study: Study, recipe: Recipe) -> str:
    dataset = study.data(recipe.data)
    list_bad(dataset.images.bad)
    return dataset.name


def _run(study: Study, entries: list[Entry]) -> list[Run | StreamRun]:
    with resumable(study.folder):
        return study.run(entries)


def _chosen(runs: Sequence[Run | StreamRun], more: Mapping[str, Sequence[str]] = MappingProxyType({})) -> None:
    """How long each run took, and what was chosen for it; before that columns of one's own, by heading."""
    table = Table(box=SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
    table.add_column("method")
    for heading in (*more, "s to tune", "s to test"):
        table.add_column(heading, justify="right")
    table.add_column("chosen without test data")
    for i, run in enumerate(runs):
        chosen = tuning(run) or {}
        took = f"{chosen['seconds']:.0f}" if "seconds" in chosen else "–"
        settings = all_shown(chosen.get("settings", {}))
        own = [cells[i] for cells in more.values()]
        table.add_row(method_name(run), *own, took, f"{run.about['seconds']:.0f}", settings or "–")
    console.print(table)
