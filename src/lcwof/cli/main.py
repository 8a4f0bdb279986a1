"""`lcwof`: the command, and the one place where errors become sentences."""

from __future__ import annotations

import sys
from collections.abc import Callable
from io import TextIOWrapper
from typing import Annotated

import torch
import typer

from lcwof import __version__
from lcwof.cli import classify, data, experiments, streams
from lcwof.cli.bench import bench
from lcwof.cli.compare import compare, compare_stream
from lcwof.cli.console import errors
from lcwof.cli.demo import demo
from lcwof.cli.report import report
from lcwof.cli.reproduce import reproduce
from lcwof.engine.origin import commit
from lcwof.errors import LcwofError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    help="Learn new classes from a few examples without forgetting the old ones, calibrated over both.",
)


def _version(show: bool) -> None:
    if show:
        print(f"lcwof {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    commit()  # of the code that is loaded now, whatever the checkout holds when a run is written, hours later


_PANELS: dict[str, list[Callable[..., None]]] = {
    "Start here": [demo],
    "Your own images": [classify.fit, classify.learn, classify.predict, classify.info],
    "Experiments": [
        experiments.pretrain,
        experiments.tune,
        experiments.evaluate,
        compare,
        streams.tune_stream,
        streams.stream,
        compare_stream,
        reproduce,
        experiments.methods,
        report,
        bench,
    ],
}
for _panel, _commands in _PANELS.items():
    for _command in _commands:
        app.command(rich_help_panel=_panel)(_command)
app.add_typer(data.app, name="data", rich_help_panel="Experiments")


def main() -> None:
    """Run the command line; what the user can put right ends as one sentence and status 2."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # where the encoding lacks a sign, as in a file on Windows
    try:
        app()
    except LcwofError as error:
        errors.print(f"error: {error}", markup=False, highlight=False, soft_wrap=True)
        sys.exit(2)
    except (OSError, torch.OutOfMemoryError) as error:
        errors.print(f"error: {str(error).splitlines()[0]}", markup=False, highlight=False, soft_wrap=True)
        sys.exit(2)


if __name__ == "__main__":
    main()
