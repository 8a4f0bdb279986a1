"""The researcher's commands for incremental learning: tune-stream, stream."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Annotated

import typer

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
from lcwof.cli.experiments import AtOnce, BaseClasses, DataName, MethodName, Model, Pseudo, Root, Seed, show_tuning
from lcwof.engine import choose_stream, stream_run, write_choice
from lcwof.engine.choose import require_pseudo
from lcwof.engine.study import fitting_on
from lcwof.errors import LcwofError
from lcwof.models.checkpoint import require_writable, unfinished
from lcwof.report import stream_table, streams_json

Way = Annotated[int | None, typer.Option(help="New classes a session; default: the data set's lists, or 5.")]
Shot = Annotated[int | None, typer.Option(help="Examples a class; default: the data set's lists, or 5.")]
Sessions = Annotated[int | None, typer.Option(help="Sessions after the base session; default: all there are.")]
Streams = Annotated[int | None, typer.Option(help="Streams: runs with other random numbers.")]
Carry = Annotated[
    bool,
    typer.Option("--carry", help="Build on the calibrated model, instead of calibrating a copy for each evaluation."),
]
OutcomeName = Annotated[str, typer.Option("--outcome", help="balanced: the best hm; base-biased: the best J/J.")]


def tune_stream(
    recipes: RecipeFiles = None,
    data: DataName = None,
    root: Root = None,
    base_classes: BaseClasses = None,
    model: Model = None,
    pseudo: Pseudo = None,
    method: MethodName = None,
    way: Way = None,
    shot: Shot = None,
    sessions: Sessions = None,
    streams: Streams = None,
    outcome: OutcomeName = "balanced",
    carry: Carry = False,
    out: Annotated[Path, typer.Option("--out", "-o", help="Recipe to write.")] = Path("tuned-stream.toml"),
    at_once: AtOnce = None,
    device: Device = None,
    precision: PrecisionName = None,
    skip_bad: SkipBad = False,
    set_: Settings = None,
    json_: Json = False,
) -> None:
    """Choose a method's settings for a stream of sessions on base classes held out as pseudo-sessions.

    The base model must not know those classes: make one with `lcwof pretrain --pseudo N`, the same N. Interrupted, it
    goes on with what was not tried yet.

    Examples:

    lcwof pretrain --data strokes --backbone conv4 --epochs 20 --pseudo 20 -o pseudo.safetensors

    lcwof tune-stream --data strokes --pseudo 20 --model pseudo.safetensors --way 5 --shot 5 -o tuned-stream.toml

    lcwof stream tuned-stream.toml --model base.safetensors

    lcwof tune-stream fscil.toml --root ~/data --pseudo 20 --model pseudo.safetensors -o mini.toml
    """
    recipe = recipe_of("stream", locals(), "outcome", "streams")
    if streams is not None:
        recipe = dataclasses.replace(recipe, tune=dataclasses.replace(recipe.tune, streams=streams))
    require_pseudo(recipe, outcome)
    require_writable(out)
    data_as_is = dataclasses.replace(recipe.data, pseudo=0)
    base, real = recipe.load_model(), data_as_is.load()
    list_bad(real.images.bad)
    kept_in = unfinished(out)
    with resumable(kept_in), progress_bar(f"tuning {recipe.kind().name}") as show:
        tuning, tuned = choose_stream(recipe, base, real, outcome, show, fitting_on(show), kept_in=kept_in)
    # What was given said how to make pseudo-sessions; the lists say themselves how theirs are.
    how = dataclasses.replace(tuned.stream, sessions=None)
    if real.sessions:
        how = dataclasses.replace(how, way=None, shot=None)
    write_choice(tuning, dataclasses.replace(tuned, stream=how), out)
    show_tuning(tuning, out, json_)


def stream(
    recipes: RecipeFiles = None,
    data: DataName = None,
    root: Root = None,
    base_classes: BaseClasses = None,
    model: Model = None,
    method: MethodName = None,
    way: Way = None,
    shot: Shot = None,
    sessions: Sessions = None,
    streams: Streams = None,
    shuffle: Annotated[bool, typer.Option("--shuffle", help="A class order of its own for every stream.")] = False,
    carry: Carry = False,
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
    """Evaluate a method by the incremental protocol: session after session of new classes, all classes so far tested
    after each. An interrupted run goes on after its last session.

    Examples:

    lcwof pretrain --data strokes --base-classes 40 -o base.safetensors

    lcwof stream --data strokes --base-classes 40 --model base.safetensors --method lcwof --way 5 --shot 5 --sessions 4

    lcwof stream mini.toml --data mini-imagenet-fscil --root ~/data --model base.safetensors --streams 10
    """
    recipe = recipe_of("stream", locals())
    if recipe.tuning and recipe.tuning.get("protocol") != "ifsl":
        raise LcwofError(
            "these settings were chosen by `lcwof tune` on validation classes, which come in a stream too: choose them "
            "with `lcwof tune-stream`, or remove [tuning] from the recipe if that is meant."
        )
    base, dataset = recipe.load_model(), recipe.data.load()
    list_bad(dataset.images.bad)
    how, source = recipe.stream, recipe.stream.source(dataset)
    if dataset.sessions and not source.listed:
        errors.print(f"Not the lists of {dataset.name}: its sessions are drawn, because way or shot is given.")
    kind = "lists" if source.listed else f"{source.ways[0]}w{source.shot}s"
    marks = [mark for mark, on in (("shuffled", how.shuffle), ("carried", how.carry)) if on]
    name = [recipe.data.name, recipe.kind().name, kind, str(len(source.ways)), *marks, f"seed{how.seed}"]
    folder = out or Path("runs") / "-".join(name)
    with resumable(unfinished(folder)), progress_bar(f"{recipe.kind().name}, sessions") as show:
        run = stream_run(recipe, base, dataset, folder, overwrite, show, errors.print, fitting_on(show))
    if json_:
        print(json.dumps(streams_json([run])[0]))
    else:
        console.print(stream_table(run))
        say(f"Run folder: {folder}. `lcwof report {folder}` makes a page of it.")
