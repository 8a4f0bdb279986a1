"""The researcher's commands: pretrain, tune, evaluate, methods."""

from __future__ import annotations

import dataclasses
import json
import re
import sys
from inspect import getdoc
from math import isnan
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from lcwof.cli.console import (
    Device,
    Json,
    Overwrite,
    PrecisionName,
    RecipeFiles,
    Settings,
    SkipBad,
    console,
    errors,
    list_bad,
    phase1_progress,
    progress_bar,
    recipe_of,
    resumable,
    say,
)
from lcwof.compute import repeatable
from lcwof.config import all_shown, explained, flat, shown
from lcwof.data.episodes import EpisodeSource
from lcwof.data.images import Dataset
from lcwof.engine import (
    choose,
    evaluate_run,
    pick_device,
    write_choice,
)
from lcwof.engine.study import fitting_on
from lcwof.errors import LcwofError
from lcwof.evaluation import Tuning
from lcwof.learning import Phase1, base_accuracy
from lcwof.learning import pretrain as run_phase1
from lcwof.methods import BEST, Method, get_method, method_names
from lcwof.models import BaseModel
from lcwof.models.checkpoint import require_writable, unfinished
from lcwof.report import as_json, results_table

DataName = Annotated[str | None, typer.Option("--data", help="A data set of `lcwof data list`; default: digits.")]
Root = Annotated[str | None, typer.Option("--root", help="Folder the data lies in; default: $LCWOF_DATA.")]
Model = Annotated[str | None, typer.Option("--model", help="Base model made by `lcwof pretrain`.")]
BaseClasses = Annotated[
    int | None, typer.Option(help="Base classes, the first of the data set, where it lets one choose.")
]
MethodName = Annotated[
    str | None, typer.Option("--method", help="One of `lcwof methods`, or path/to/file.py:Name of your own.")
]
Way = Annotated[int | None, typer.Option(help="Novel classes an episode.")]
Shot = Annotated[int | None, typer.Option(help="Examples a novel class.")]
Pseudo = Annotated[
    int | None, typer.Option(help="Base classes to hold out as pseudo-sessions, for `lcwof tune-stream`.")
]
Seed = Annotated[int | None, typer.Option(help="Seed of everything random.")]
Curves = Annotated[
    int | None,
    typer.Option(
        min=0,
        help="Points a phase of learning curves, and of the way along the N/J-B/J trade-off, for reports, by about "
        "300 base queries; 0: none.",
    ),
]
AtOnce = Annotated[
    int | None,
    typer.Option(
        help="Learners side by side: episodes or streams and, in tune, candidates; default: chosen for the machine."
    ),
]


def pretrain(
    recipes: RecipeFiles = None,
    data: DataName = None,
    root: Root = None,
    base_classes: BaseClasses = None,
    backbone: Annotated[
        str | None, typer.Option(help="conv4, resnet10, resnet12, resnet18, mlp, efficientnet-lite0.")
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="Epochs of phase 1.")] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="File to write.")] = Path("base.safetensors"),
    overwrite: Overwrite = False,
    seed: Seed = None,
    device: Device = None,
    skip_bad: SkipBad = False,
    pseudo: Pseudo = None,
    set_: Settings = None,
    json_: Json = False,
) -> None:
    """Phase 1: learn the base classes. The epoch kept is the best on base images held out of training. Interrupted, it
    resumes from OUT.partial, which is saved after an epoch, every minute or so.

    Examples:

    lcwof pretrain --data digits --backbone mlp --epochs 30 -o base.safetensors

    lcwof pretrain --data mini-imagenet --root ~/data --set phase1.batch=128 --set phase1.lr=0.1
    """
    recipe = recipe_of("phase1", locals())
    require_writable(out, replace=overwrite)
    dataset = recipe.data.load()
    list_bad(dataset.images.bad)
    with resumable(unfinished(out)):
        model = make_base(dataset, recipe.phase1, recipe.device, out, "phase 1")
    about = {"file": str(out), **model.about}
    if json_:
        print(json.dumps(about))
    else:
        say(
            f"{dataset.name}: {len(model.classes)} base classes, {model.backbone_name}, best epoch {about['epoch']}: "
            f"{about['select accuracy']:.2f}% on held-out base images, {about['test accuracy']:.2f}% on base test "
            f"images.\nSaved to {out}."
        )


def make_base(data: Dataset, how: Phase1, device: str, out: Path, label: str) -> BaseModel:
    """Phase 1 into a file, on a bar, going on with what an interruption left."""
    with progress_bar(label) as show:
        model = run_phase1(data, how, pick_device(device), phase1_progress(show, how.epochs), unfinished(out))
    with repeatable(how.repeatable):
        model.about["test accuracy"] = round(base_accuracy(model, data, data.split.test), 2)
    model.save(out)
    unfinished(out).unlink(missing_ok=True)
    return model


def tune(
    recipes: RecipeFiles = None,
    data: DataName = None,
    root: Root = None,
    base_classes: BaseClasses = None,
    model: Model = None,
    method: MethodName = None,
    way: Way = None,
    shot: Shot = None,
    episodes: Annotated[int | None, typer.Option(help="Validation episodes a candidate.")] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Recipe to write.")] = Path("tuned.toml"),
    at_once: AtOnce = None,
    device: Device = None,
    precision: PrecisionName = None,
    skip_bad: SkipBad = False,
    set_: Settings = None,
    json_: Json = False,
) -> None:
    """Choose a method's settings (for lcwof: lambda, phase-3 rate and epochs) on validation classes only.

    Writes a recipe with what was chosen and why, and beside it a .json with every candidate. Interrupted, it goes on
    with what was not tried yet; settings that diverge are left out.

    Examples:

    lcwof tune --data digits --model base.safetensors --method lcwof --way 2 --shot 1 -o tuned.toml

    lcwof evaluate tuned.toml --episodes 600
    """
    recipe = recipe_of("evaluate", locals(), "episodes")
    if episodes is not None:
        recipe = dataclasses.replace(recipe, tune=dataclasses.replace(recipe.tune, episodes=episodes))
    require_writable(out)
    base, dataset = recipe.load_model(), recipe.data.load()
    EpisodeSource.of(dataset, "novel", recipe.evaluate.way, recipe.evaluate.shot)  # refuses what there cannot be
    there = len(dataset.split.val)
    if 0 < there < recipe.evaluate.way:
        errors.print(f"Choosing on {there}-way episodes: {dataset.name} has {there} validation classes.")
    with resumable(unfinished(out)), progress_bar(f"tuning {recipe.kind().name}") as show:
        tuning, tuned = choose(recipe, base, dataset, show, fitting_on(show), unfinished(out))
    write_choice(tuning, tuned, out)
    show_tuning(tuning, out, json_)


def show_tuning(tuning: Tuning, out: Path, json_: bool) -> None:
    """The five best candidates and what was chosen."""
    if json_:
        print(json.dumps(tuning.as_json()))
        return
    table = Table(title=f"{tuning.method}, {tuning.setting}, {tuning.over}: the five best by {tuning.by}")
    for heading in ("settings", "N/J", "B/J", "J/J", "hm"):
        table.add_column(heading)
    for c in tuning.candidates[:5]:
        hm = f"{c.hm:.2f}" if isnan(c.interval) else f"{c.hm:.2f} ± {c.interval:.2f}"
        table.add_row(all_shown(c.settings), f"{c.novel:.2f}", f"{c.base:.2f}", f"{c.joint:.2f}", hm)
    console.print(table)
    say(f"Chosen: {tuning.why()}. Saved to {out}.")
    if tuning.diverged:
        say(f"Left out, because they diverged: {'; '.join(map(all_shown, tuning.diverged))}.")
    if tuning.at_edge():
        say("Values beyond the edge (tune.grid, more epochs) may be better.")


def evaluate(
    recipes: RecipeFiles = None,
    data: DataName = None,
    root: Root = None,
    base_classes: BaseClasses = None,
    model: Model = None,
    method: MethodName = None,
    way: Way = None,
    shot: Shot = None,
    episodes: Annotated[int | None, typer.Option(help="Episodes.")] = None,
    curves: Curves = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Run folder; default: under runs/.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing run folder.")] = False,
    seed: Seed = None,
    at_once: AtOnce = None,
    device: Device = None,
    precision: PrecisionName = None,
    skip_bad: SkipBad = False,
    set_: Settings = None,
    json_: Json = False,
) -> None:
    """Evaluate a method by the generalized protocol into a run folder; an interrupted run resumes.

    Examples:

    lcwof evaluate --data digits --model base.safetensors --method lcwof --way 2 --shot 5 --episodes 100

    lcwof evaluate tuned.toml --data omniglot --root ~/data --model base.safetensors --curves 20 -o runs/omniglot-5w1s
    """
    recipe = recipe_of("evaluate", locals())
    e = recipe.evaluate
    folder = out or Path("runs") / f"{recipe.data.name}-{recipe.kind().name}-{e.way}w{e.shot}s-seed{e.seed}"
    base, dataset = recipe.load_model(), recipe.data.load()
    with resumable(unfinished(folder)), progress_bar(f"{recipe.kind().name} {e.way}w{e.shot}s") as show:
        run = evaluate_run(recipe, base, dataset, folder, overwrite, show, errors.print, fitting_on(show))
    if json_:
        print(json.dumps(as_json([run])[0]))
    else:
        console.print(results_table([run]))
        say(f"Run folder: {folder}. `lcwof report {folder}` makes a page of it.")


def methods(
    name: Annotated[str | None, typer.Argument(help="One method, to read all about it.")] = None, json_: Json = False
) -> None:
    """List the methods, or tell all about one: what it computes, what it needs, its settings.

    Examples:

    lcwof methods

    lcwof methods aan
    """
    found = {n: get_method(n) for n in ([name] if name else method_names())}
    if json_:
        print(json.dumps({each: _told(kind) for each, kind in found.items()}))
        return
    if name:
        kind = found[name]
        say(f"{source_of(kind)}\n\n{getdoc(kind)}\n\n{_learns(kind)}")
        say("Settings, and what each is tried with on validation:")
        tried = {**kind.grid, **({kind.stop[1]: "every epoch"} if kind.stop else {})}
        what, table = explained(kind.Config), Table(box=SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
        for heading in ("setting", "default", "what it is"):
            table.add_column(heading, no_wrap=heading == "setting")
        for key, value in flat(dataclasses.asdict(kind.Config())).items():
            options = tried.get(key, ())
            values = options if isinstance(options, str) else ", ".join(map(shown, options))
            how = "the best is found" if values == BEST else f"tried: {values}" if values else ""
            said = [text for text in (what.get(key, ""), how) if text]
            table.add_row(key, escape(str(value)), escape("; ".join(said)))
        console.print(table)
        return
    rows = [(each, *_briefly(source_of(kind))) for each, kind in found.items()]
    wide = max(len(each) for each, _, _ in rows)
    for each, by, about in rows:  # where there is no room, whose it is goes first
        whole = f"{each:{wide}}  {about}" + (f" ({by})" if by else "")
        fits = len(whole) <= console.width
        console.print(Text(whole if fits else f"{each:{wide}}  {about}"), no_wrap=True, overflow="ellipsis")
    say(
        "All serve both protocols, one set of novel classes (`evaluate`) and a sequence of sets (`stream`). "
        "`lcwof methods NAME` tells all about one."
    )


def _learns(kind: type[Method]) -> str:
    """What a method can be asked to learn, with its own settings."""
    streams = "a sequence" if "stream" in _protocols(kind) else "but no sequence"
    return f"It learns one set of novel classes by `evaluate`, {streams} of sets by `stream`."


def _protocols(kind: type[Method]) -> list[str]:
    """The commands that a method, with its own settings, goes with. One set of classes is what every method learns."""
    try:
        kind().require_stream(2)
    except LcwofError:
        return ["evaluate"]
    return ["evaluate", "stream"]


def _told(kind: type[Method]) -> dict[str, Any]:
    """A method for programs."""
    return {
        "source": source_of(kind),
        "about": getdoc(kind),
        "protocols": _protocols(kind),
        "keeps base logits": kind.keeps_base,
        "settings": dataclasses.asdict(kind.Config()),
        "tried": {key: list(values) for key, values in kind.grid.items()},
        "stops at": kind.stop[1] if kind.stop else None,
    }


def _briefly(source: str) -> tuple[str, str]:
    """Whose a system is and what, for a line of a terminal: of several authors the first.

    >>> _briefly("Weight imprinting (Qi, Brown, Lowe, CVPR 2018).")
    ('Qi et al., CVPR 2018', 'Weight imprinting')
    """
    found = re.fullmatch(r"(.*) \((\w+).*, ([^,]* \d{4})\)\.?", source)
    return (f"{found[2]} et al., {found[3]}", found[1]) if found else ("", source.removesuffix("."))


def source_of(kind: type[Method]) -> str:
    """The first line of a method's file: the system and its authors."""
    return " ".join((getdoc(sys.modules[kind.__module__]) or kind.__name__).split("\n\n")[0].split())
