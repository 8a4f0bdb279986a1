"""`lcwof compare`: methods tuned and evaluated on the same episodes."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
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
    fitting_on,
    list_bad,
    progress_bar,
    recipe_of,
    say,
)
from lcwof.cli.experiments import AtOnce, DataName, Model, Root, Seed, Shot, Way, tune_recipe, write_tuned
from lcwof.engine import Recipe, Run, evaluate_run, read_recipe
from lcwof.errors import LcwofError
from lcwof.methods import get_method, method_names
from lcwof.models import BaseModel
from lcwof.report import as_json, paired_difference, results_table, write_report


def compare(
    recipes: RecipeFiles = None,
    methods: Annotated[str, typer.Option(help="Names with commas between them, or all.")] = "all",
    data: DataName = None,
    root: Root = None,
    model: Model = None,
    way: Way = None,
    shot: Shot = None,
    episodes: Annotated[int | None, typer.Option(help="Episodes.")] = None,
    tuned: Annotated[bool, typer.Option("--tune/--no-tune", help="Choose settings on validation classes.")] = True,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder to write, or to go on in.")] = Path("runs/compare"),
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

    lcwof compare --data strokes --model base.safetensors --way 5 --shot 1 --episodes 100

    lcwof compare paper.toml --data mini-imagenet --root ~/data --model base.safetensors --methods lcwof,iw,mine.py:Mine
    """
    start = recipe_of("evaluate", locals(), "methods", "tuned")
    names = method_names() if methods == "all" else [name.strip() for name in methods.split(",") if name.strip()]
    kinds = {name: get_method(name) for name in names}  # a wrong name is found before any work starts
    base, dataset = start.load_model(), start.data.load()
    list_bad(dataset.images.bad)
    runs = []
    for name, kind in kinds.items():
        settings = start.method if start.method_name == name else {"name": name}
        recipe = dataclasses.replace(start, method=settings, tuning={})
        file, folder = out / f"{kind.name}.toml", out / kind.name
        if folder.exists():
            runs.append(_same(Run.read(folder), recipe, base))
            continue
        try:
            if tuned and file.exists():
                chosen = read_recipe([file], {}, [])
                asked, found = ((r.model, r.data.name, r.evaluate.way, r.evaluate.shot) for r in (recipe, chosen))
                if asked != found:
                    raise LcwofError(f"{file} was tuned for other settings, {found}: choose another --out.")
                recipe = dataclasses.replace(recipe, method=chosen.method, tuning=chosen.tuning)
            elif tuned:
                with progress_bar(f"{kind.name} tune".ljust(16)) as show:
                    tuning, recipe = tune_recipe(recipe, base, dataset, show)
                write_tuned(tuning, recipe, file)
            with progress_bar(f"{kind.name} test".ljust(16)) as show:
                runs.append(evaluate_run(recipe, base, dataset, folder, False, show, errors.print, fitting_on(show)))
        except KeyboardInterrupt:
            errors.print(f"Interrupted. What is done is kept in {out}; the same command goes on.")
            raise typer.Exit(130) from None
    title = f"{dataset.name}, {start.evaluate.way}-way {start.evaluate.shot}-shot"
    page = write_report(runs, out / "report.html", title)
    if json_:
        print(json.dumps(as_json(runs)))
        return
    console.print(results_table(runs))
    _differences(runs)
    say(f"Report: {page}")


def _same(run: Run, recipe: Recipe, model: BaseModel) -> Run:
    """A run that is there already, where it is one of this comparison."""
    asked, found = dataclasses.asdict(recipe.evaluate), run.about["recipe"]["evaluate"]
    other = [key for key, value in asked.items() if found.get(key) != value]
    other += ["data"] if run.about["recipe"]["data"]["name"] != recipe.data.name else []
    other += ["model"] if run.about["model"] != json.loads(json.dumps(model.about)) else []
    if other:
        raise LcwofError(f"{run.path} holds a run of other settings ({', '.join(other)}): choose another --out.")
    return run


def _differences(runs: list[Run]) -> None:
    """hm against lcwof's on the same episodes, and how long each took."""
    lcwof = next((run for run in runs if run.about["recipe"]["method"]["name"] == "lcwof"), None)
    table = Table(box=SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
    for heading in ("method", "hm less lcwof's", "seconds, all episodes"):
        table.add_column(heading, justify="left" if heading == "method" else "right")
    for run in sorted(runs, key=lambda run: -run.summary()["hm"][0]):
        paired = None if lcwof is None or run is lcwof else paired_difference(run, lcwof)
        shown = "–" if paired is None else f"{paired.mean:+.2f} ± {paired.interval:.2f}"
        table.add_row(run.path.name, shown, f"{run.about['seconds']:.0f}")
    console.print(table)
