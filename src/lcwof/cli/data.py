"""`lcwof data`: which data sets there are, and whether a copy of one is sound."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from lcwof.cli.console import Json
from lcwof.config import parse_override
from lcwof.data.check import CheckReport, check_dataset
from lcwof.data.datasets import DatasetEntry, dataset_entry, dataset_names, default_root
from lcwof.errors import LcwofError

app = typer.Typer(no_args_is_help=True, help="List the data sets and check a copy of one.")

Root = Annotated[
    Path | None,
    typer.Option("--root", help="Folder the data lies in.", envvar="LCWOF_DATA", show_default=False),
]


@app.command("list")
def list_datasets(root: Root = None, json_: Json = False) -> None:
    """Name every data set, what it needs, and whether that is there.

    Example: lcwof data list --root ~/data
    """
    entries = [dataset_entry(name) for name in dataset_names()]
    found = [_found(entry, default_root(root)) for entry in entries]
    if json_:
        rows = zip(entries, found, strict=True)
        print(json.dumps({e.name: {"about": e.about, "needs": e.needs, "get": e.get, "found": f} for e, f in rows}))
        return
    table = Table()
    for heading in ("name", "what it is", "needs under --root", "found"):
        table.add_column(heading, overflow="fold", no_wrap=heading in ("name", "found"))
    for entry, there in zip(entries, found, strict=True):
        options = "".join(f" {key}={option.default}" for key, option in entry.options.items())
        table.add_row(entry.name, f"{entry.about}; options{options}" if options else entry.about, entry.needs, there)
    Console().print(table)


@app.command("check")
def check(
    name: Annotated[str, typer.Argument(help="A data set of `lcwof data list`.")],
    root: Root = None,
    json_: Json = False,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="An option of the data set, key=value.", metavar="KEY=VALUE"),
    ] = None,
) -> None:
    """Count the images of every part and look for broken files and for duplicates between training and test.

    Examples:

    lcwof data check folder --root products/

    lcwof data check omniglot --root ~/data --set base=100 --json
    """
    report = check_dataset(name, root, **{".".join(path): value for path, value in map(parse_override, set_ or [])})
    if json_:
        print(json.dumps(report.as_dict(), indent=2))
    else:
        _show(report)


def _found(entry: DatasetEntry, root: Path | None) -> str:
    if entry.find is None:
        return "your own" if entry.reads_files else "built in"
    if root is None:
        return "no --root"
    try:
        entry.find(root)
    except LcwofError:
        return "no"
    return "yes"


def _show(report: CheckReport) -> None:
    console = Console(highlight=False)
    table = Table("part", "classes", "images", "smallest class", title=report.name)
    for part in report.parts:
        table.add_row(part.name, str(part.classes), str(part.images), f"{part.smallest_class} ({part.smallest})")
    console.print(table)
    console.print(f"pixel-identical pairs: {report.duplicates}, between training and evaluation: {report.leaks}")
    for first, second in report.duplicate_names:
        console.print(f"  {first} = {second}", markup=False)
    for file in report.bad:
        console.print(f"not a readable image: {file}", markup=False)
    for problem in report.problems:
        console.print(f"problem: {problem}", markup=False, soft_wrap=True)
    for note in report.notes:
        console.print(f"note: {note}", markup=False, soft_wrap=True)
    if not report.problems:
        console.print("no problems found")
