"""`lcwof report`: run folders turned into a page, or into a table for a document."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from lcwof.cli.console import Json, console, errors, say
from lcwof.engine import Run, StreamRun, find_runs, read_run
from lcwof.errors import LcwofError
from lcwof.models.checkpoint import write_aside
from lcwof.report import (
    as_json,
    compared_markdown,
    csv_streams,
    csv_table,
    latex_streams,
    latex_table,
    markdown_table,
    results_table,
    stream_table,
    streams_json,
    streams_markdown,
    write_report,
)


class Format(StrEnum):
    html = "html"
    markdown = "markdown"
    latex = "latex"
    csv = "csv"


def report(
    runs: Annotated[list[Path], typer.Argument(help="Run folders.")],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="File to write; default: report.html; tables are printed."),
    ] = None,
    title: Annotated[str, typer.Option(help="Heading of the page.")] = "lcwof",
    format_: Annotated[
        Format, typer.Option("--format", help="A page, or the comparison table alone.", case_sensitive=False)
    ] = Format.html,
    json_: Json = False,
) -> None:
    """Make one self-contained HTML page from run folders, or folders of them: tables, learning curves, the trade-off of
    novel and base, mistakes, calibration, settings. Or print the comparison table alone, for a document.

    Examples:

    lcwof report runs/digits-lcwof-2w1s-seed0 runs/digits-pn-2w1s-seed0 -o report.html

    lcwof report runs/ --format latex -o table.tex

    lcwof report runs/demo --format csv > results.csv
    """
    if json_ and format_ is not Format.html:
        raise LcwofError(f"--json and --format {format_}: choose one, both print the table.")
    finished = [path for path in runs if not path.name.endswith(".partial")]
    inside = {file.parent for path in finished for file in path.rglob("*.partial/run.json")}
    if unfinished := sorted(path.name for path in {*runs, *inside}.difference(finished)):
        why = f"Left out, as unfinished: {', '.join(unfinished)}. Their commands complete them."
        errors.print(why, markup=False, soft_wrap=True)
    folders = {folder.resolve(): folder for path in finished for folder in find_runs(path)}  # each once
    found = [read_run(folder) for folder in folders.values()]
    models: dict[object, list[object]] = {}  # of runs that stand beside each other
    for run in found:
        models.setdefault((type(run), run.about["data"]), []).append(run.about["model"])
    if any(model != same[0] for same in models.values() for model in same):
        errors.print("The runs do not all start from the same base model: not every difference is the method's.")
    episodes = [run for run in found if isinstance(run, Run)]
    streams = [run for run in found if isinstance(run, StreamRun)]
    if format_ is not Format.html:
        _table_alone(format_, episodes, streams, out)
        return
    page = write_report(found, out or Path("report.html"), title)
    if json_:
        print(json.dumps(as_json(episodes) + streams_json(streams)))
        return
    if episodes:
        console.print(results_table(episodes))
    for run in streams:
        console.print(stream_table(run))
    say(f"Report: {page}")


def _table_alone(format_: Format, episodes: list[Run], streams: list[StreamRun], out: Path | None) -> None:
    if format_ is Format.markdown:
        parts = [markdown_table(episodes)] if episodes else []
        parts += [compared] if (compared := compared_markdown(streams)) else []
        parts += [streams_markdown(run, streams) for run in streams]
    elif format_ is Format.latex:
        parts = [latex_table(episodes)] if episodes else []
        parts += [latex_streams(streams)] if streams else []
    elif episodes and streams:
        raise LcwofError(
            "runs of episodes and of streams have different columns: write two files, "
            f"from run folders of one kind each, such as {episodes[0].path} and {streams[0].path}."
        )
    else:
        parts = [csv_table(episodes) if episodes else csv_streams(streams)]
    text = "\n".join(parts)
    if out is None:
        print(text, end="")
        return
    write_aside(out, text.encode())
    say(f"Table: {out}")
