"""What every command shares: where it prints, its progress bars, its common options."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from lcwof.data.datasets import dataset_entry
from lcwof.engine import Recipe, read_recipe
from lcwof.errors import LcwofError

console = Console()
errors = Console(stderr=True)
_LINE_EVERY = 60.0  # seconds, where a bar cannot move

Device = Annotated[str | None, typer.Option("--device", help="auto (default), cpu, cuda or mps.")]
PrecisionName = Annotated[
    str | None, typer.Option("--precision", help="auto (bfloat16 where the device has it), float32 or bfloat16.")
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace the file if it is there already.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON, for machines.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", help="Any recipe key, for example method.phase3.epochs=80.", metavar="KEY=VALUE"),
]
SkipBad = Annotated[bool, typer.Option("--skip-bad", help="Leave out files that cannot be read, and list them.")]
RecipeFiles = Annotated[
    list[Path] | None,
    typer.Argument(
        help="Recipe files (TOML), one's own or by name those that come with lcwof; later ones win.",
        metavar="[RECIPE]...",
    ),
]


def say(text: str) -> None:
    """Print a sentence as it is: names may hold brackets, paths must not be broken."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def list_bad(bad: tuple[str, ...]) -> None:
    """Name the files that --skip-bad left out (on stderr, so that --json stays JSON)."""
    if bad:
        errors.print(f"Left out as unreadable ({len(bad)}): {', '.join(bad)}", markup=False, soft_wrap=True)


def phase1_progress(show: Callable[..., None], epochs: int) -> Callable[[int, dict[str, float]], None]:
    """What phase 1 reports after an epoch, on a bar."""
    return lambda epoch, f: show(epoch, epochs, f"loss {f['loss']:.3f}, held out {f['accuracy']:.1f}%")


@contextmanager
def progress_bar(label: str) -> Iterator[Callable[..., None]]:
    """A bar on stderr; call it with (done, total) and, if you like, a short text. In a file, where it would only show
    when all is done, a line now and then tells how far the work is."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[text]}"),
    )
    bar = Progress(*columns, console=errors)
    task = bar.add_task(label, total=None, text="")
    begun = told = time.monotonic()

    def update(done: int, total: int, text: str = "") -> None:
        nonlocal told
        bar.start()  # here, so that a mistake found before any work is told without an idle bar
        bar.update(task, completed=done, total=total, text=text)
        now = time.monotonic()
        if not errors.is_terminal and now - told >= _LINE_EVERY:
            told, after = now, timedelta(seconds=round(now - begun))
            line = f"{label.strip()} {done}/{total} after {after}" + (f", {text}" if text else "")
            errors.print(line, markup=False, highlight=False, soft_wrap=True)

    try:
        yield update
    finally:
        if bar.live.is_started:
            bar.stop()


@contextmanager
def resumable(kept_in: Path | None) -> Iterator[None]:
    """Interrupted work, of which what is done is kept somewhere, or nothing."""
    try:
        yield
    except KeyboardInterrupt:
        there = kept_in is not None and kept_in.exists()
        kept = (
            f"What is finished is kept in {kept_in}; the same command goes on from there."
            if there
            else "Nothing of it is kept."
        )
        errors.print(f"Interrupted. {kept}", markup=False, highlight=False, soft_wrap=True)
        raise typer.Exit(130) from None


_ANYWHERE = {  # options that mean the same in every command, and their keys in a recipe
    "data": "data.name",
    "root": "data.root",
    "skip_bad": "data.skip_bad",
    "pseudo": "data.pseudo",
    "base_classes": "data.options.base",
    "model": "model",
    "method": "method.name",
    "at_once": "at_once",
    "device": "device",
    "precision": "precision",
}
_NOT_OF_RECIPES = {"recipes", "set_", "out", "overwrite", "json_"}


def recipe_of(section: str, given: dict[str, Any], *own: str) -> Recipe:
    """The recipe of a command, from its parameters (`locals()` in its first line): files, then options (None or False:
    not given), then --set. `own` are the command's own business; what is left belongs to the section."""
    options = {
        _ANYWHERE.get(name, f"{section}.{name}"): value
        for name, value in given.items()
        if value is not False and name not in _NOT_OF_RECIPES.union(own)
    }
    recipe = read_recipe(given["recipes"] or [], options, given["set_"] or [])
    if given.get("root") and not dataset_entry(recipe.data.name).reads_files:
        raise LcwofError(
            f"--root {given['root']}: the data set {recipe.data.name} is built in and reads no files. Leave --root "
            "out, or say with --data which data set lies there, for example --data folder."
        )
    return recipe
