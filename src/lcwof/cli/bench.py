"""`lcwof bench`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from lcwof.cli.console import Device, Json, PrecisionName, console, errors, say
from lcwof.compute import Compute, pick_precision
from lcwof.engine import pick_device
from lcwof.engine.bench import Bench
from lcwof.engine.bench import bench as run_bench
from lcwof.models.checkpoint import require_writable, write_aside


def bench(
    at_once: Annotated[
        list[int] | None,
        typer.Option(min=1, help="Episodes at once, repeatable; default 1, 10, 50 (a card: 1, 25, 100)."),
    ] = None,
    shot: Annotated[int, typer.Option(help="Examples a novel class.", min=1)] = 1,
    seconds: Annotated[float, typer.Option(help="Time for each line of the table.", min=0.1)] = 15.0,
    phase1: Annotated[bool, typer.Option("--phase1/--no-phase1", help="Time phase 1 too.")] = True,
    whole: Annotated[
        bool,
        typer.Option("--compile/--no-compile", help="On a card: compile steps, which takes minutes, or record them."),
    ] = True,
    device: Device = None,
    precision: PrecisionName = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="JSON file to write.")] = Path("bench.json"),
    json_: Json = False,
) -> None:
    """Measure this machine: a plain loop over episodes, this engine with few and many at once, and phase 1.

    A processor learns drawn characters with conv4, a CUDA card images of 84 pixels with resnet12 (64 + 5 classes).
    Epochs are timed and scaled to whole episodes of 150 + 200. The loop augments every image anew in every epoch, as
    the authors do; the engine makes 32 views of a replayed one and draws from them, which is the column of that name.

    Examples:

    lcwof bench

    lcwof bench --at-once 1 --at-once 50 --precision float32 -o float32.json
    """
    require_writable(out)
    where = pick_device(device or "auto")
    card = where.type == "cuda"
    compute = Compute.choose(where, pick_precision(precision or "auto"), compiled=whole and card, parts=card)
    many = at_once or ([1, 25, 100] if card else [1, 10, 50])
    found = run_bench(where, compute, many, shot, seconds, phase1, lambda text: errors.print(f"Measuring: {text} ..."))
    write_aside(out, json.dumps(found.as_json(), indent=1).encode())
    if json_:
        print(json.dumps(found.as_json()))
        return
    console.print(_table(found))
    trains = "" if found.phase1 is None else f" Phase 1 trains on {found.phase1:.0f} images a second."
    say(f"A large matrix product runs at {found.ceiling:.2f} TFLOP/s here.{trains} Saved to {out}.")


def _table(found: Bench) -> Table:
    about = found.about
    title = f"{about['backbone']}, {about['setting']}, 150 + 200 epochs; {about['hardware']}, {about['precision']}"
    caption = (
        "Seconds an episode; loop: a plain one; vs loop, vs 1: how many times as fast as it, as one at once; "
        "rate: TFLOP/s."
    )
    table = Table(title=title, caption=caption, box=SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
    headings = ("", "at once", "views", "phase 2", "phase 3", "test", "all", "vs loop", "vs 1", "GiB", "rate")
    for heading in headings:
        table.add_column(heading, justify="right" if heading else "left", no_wrap=True)
    loop = found.timings[0]
    alone = next((t for t in found.timings[1:] if t.at_once == 1), None)
    for t in found.timings:
        than_one = f"{alone.episode / t.episode:.1f}x" if alone and t is not loop else ""
        seconds = (
            f"{s:.{3 if s < 1 else 2 if s < 10 else 1}f}"
            for s in (t.views, t.phase2, t.phase3, t.evaluation, t.episode)
        )
        faster = f"{loop.episode / t.episode:.1f}x"
        table.add_row(
            t.name.removeprefix("plain "),
            str(t.at_once),
            *seconds,
            faster,
            than_one,
            f"{t.memory:.1f}",
            f"{t.rate:.2g}" if t.rate < 10 else f"{t.rate:.0f}",
        )
    return table
