"""Compile ahead what tables and figures need, with a model of random weights, while their base model is being made.

python benchmarks/ahead.py distillation batch-norm --root DATA --at-once 50

What is compiled lies in $TORCHINDUCTOR_CACHE_DIR; `lcwof reproduce` with the same --at-once then takes it from there.
It may be stopped at any time.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import tempfile
import time
from pathlib import Path

import torch

from lcwof.config import flat, replace_field
from lcwof.data import Dataset
from lcwof.engine import Entry, Study, read_recipe
from lcwof.errors import LcwofError
from lcwof.models import BaseModel, build_backbone
from lcwof.report.reproduction import read_reproduction, reproductions

EPOCHS = 2  # of every phase: shapes are those of all its epochs


def untrained(data: Dataset, backbone: str, view: int) -> BaseModel:
    """As phase 1 would make it, but for what it has learned."""
    network = build_backbone(backbone, data.input_shape)
    head = torch.randn(len(data.split.base), network.dim) / network.dim
    about = {"data": data.name}
    return BaseModel(
        backbone, network, head, data.split.base, data.input_shape, data.mean, data.std, view, True, about
    ).frozen()


def shortened(entry: Entry) -> Entry:
    """The same shapes, in a few steps that hardly learn: the choice, on as many episodes, because their number decides
    how many candidates learn side by side, and one batch of the test."""
    config = entry.recipe.method_config()
    for key, value in flat(dataclasses.asdict(config)).items():
        name = key.rsplit(".", 1)[-1]
        if name == "epochs":
            config = replace_field(config, key, min(value, EPOCHS))
        elif name in ("lr_head", "lr_tail"):
            config = replace_field(config, key, 1e-6)
    e = entry.recipe.evaluate
    evaluate = dataclasses.replace(e, episodes=min(e.episodes, entry.recipe.at_once or e.episodes), answers=False)
    method = {"name": entry.recipe.method_name, **dataclasses.asdict(config)}
    compiled = True if torch.cuda.is_available() else None
    recipe = dataclasses.replace(entry.recipe, method=method, evaluate=evaluate, compile=compiled)
    return dataclasses.replace(entry, recipe=recipe)


def shapes(entry: Entry) -> str:
    """What decides what is compiled, and some more: not how large rates and weights of losses are, nor how many epochs
    there are."""
    config = flat(dataclasses.asdict(entry.recipe.method_config()))
    kept = {key: bool(value) if key.endswith("epochs") else value for key, value in config.items()}
    kept = {key: value for key, value in kept.items() if value is not None and not isinstance(value, float)}
    grid = {key: len(values) for key, values in entry.recipe.grid().items()} if entry.tuned else None
    return f"{entry.recipe.method_name} {entry.recipe.evaluate} {kept} {grid}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("keys", nargs="+", help="tables and figures, or TOML files, as of `lcwof reproduce`")
    parser.add_argument("--root", help="folder the data lies in; default: $LCWOF_DATA")
    parser.add_argument("--at-once", type=int, required=True)
    parser.add_argument("--backbone", default="resnet12")
    parser.add_argument("--view", type=int, default=100, help="side at which the base model will be shown test images")
    given = parser.parse_args()
    start = read_recipe([], {"data.root": given.root, "at_once": given.at_once}, [])
    known = reproductions()
    seen = set()
    with tempfile.TemporaryDirectory() as folder:
        for key in given.keys:
            what = read_reproduction(Path(key)) if key.endswith(".toml") else known[key]
            for place, setting, row in what.wanted():
                if place.backbone != given.backbone:
                    continue
                out = Path(folder) / what.data / str(place)
                model = out / "untrained.safetensors"
                study = Study(out)
                if not model.exists():
                    out.mkdir(parents=True)
                    untrained(study.data(what.data_of(place, start)), place.backbone, given.view).save(model)
                entry = shortened(what.entry(place, setting, row, start, str(model), None))
                if shapes(entry) in seen:
                    continue
                seen.add(shapes(entry))
                began = time.monotonic()
                try:
                    study.run_one(entry)
                    said = f"{time.monotonic() - began:.0f} s"
                except LcwofError as error:  # the real run may go well
                    said = str(error)
                print(f"{key} {place}/{entry.name}: {said}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
