"""`lcwof demo`: the whole story on handwritten digits, in under three minutes on two cores."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from lcwof.cli.compare import recipes_of
from lcwof.cli.console import Device, console, phase1_progress, progress_bar, say
from lcwof.engine import choose, evaluate_run, pick_device, read_recipe
from lcwof.learning import base_accuracy, pretrain
from lcwof.report import results_table, write_report

RECIPE = Path(__file__).parent.parent / "recipes" / "demo.toml"
METHODS = "lcwof,iw,pn,ft"
SHOTS = (1, 5)


def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for runs and report.")] = Path("runs/demo"),
    device: Device = None,
) -> None:
    """Learn six digits, then two more from 1 or 5 examples each, by LCwoF and three baselines; report the outcome.

    Every method's settings are chosen on two further digits, never on the test digits. Starts afresh each time.

    Example: lcwof demo
    """
    start = read_recipe([RECIPE], {"device": device or "cpu"}, [])
    data = start.data.load()
    split = data.split
    say(
        f"Handwritten digits: base {', '.join(split.base)}; validation {', '.join(split.val)}; "
        f"novel {', '.join(split.novel)}. So {len(split.novel)}-way episodes."
    )
    with progress_bar("phase 1") as show:
        progress = phase1_progress(show, start.phase1.epochs)
        model = pretrain(data, start.phase1, pick_device(start.device), progress)
    say(f"Base test accuracy after phase 1: {base_accuracy(model, data, split.test):.1f}%")
    model.save(out / "base.safetensors")
    runs = []
    for shot in SHOTS:
        evaluate = dataclasses.replace(start.evaluate, way=len(split.novel), shot=shot)
        for name, recipe in recipes_of(dataclasses.replace(start, evaluate=evaluate), METHODS).items():
            label = f"{name} {evaluate.way}w{shot}s"
            with progress_bar(f"{label} tune".ljust(16)) as show:
                _, tuned = choose(recipe, model, data, show)
            with progress_bar(f"{label} test".ljust(16)) as show:
                folder = out / label.replace(" ", "-")
                runs.append(evaluate_run(tuned, model, data, folder, overwrite=True, progress=show))
    page = write_report(runs, out / "report.html", "LCwoF on handwritten digits")
    console.print(results_table(runs))
    say(f"Report with the learning curves: {page.resolve()}")
