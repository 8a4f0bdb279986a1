"""Whether faster is still the same: the same episodes by the fast path and by plain float32.

python benchmarks/fast_vs_plain.py --data mini-imagenet --root DATA --model base.safetensors --episodes 50

Prints the mean and the largest difference of every measure; ends with status 1 if the mean hm differs by more than 0.3.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import torch

from lcwof.compute import Compute
from lcwof.data.episodes import EpisodeSource
from lcwof.engine import learners_at_once, read_recipe
from lcwof.evaluation import MEASURES, mean_and_interval, prepare, run_episodes

LIMIT = 0.3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipes", nargs="*", type=Path)
    parser.add_argument("--data", default="strokes")
    parser.add_argument("--root")
    parser.add_argument("--model", required=True)
    parser.add_argument("--shot", type=int, default=1)
    parser.add_argument("--episodes", type=int, default=50)
    parser.add_argument("--set", action="append", default=[])
    given = parser.parse_args()
    options = {"data.name": given.data, "data.root": given.root, "model": given.model, "evaluate.shot": given.shot}
    recipe = read_recipe(given.recipes, options, given.set)
    torch.backends.cudnn.allow_tf32 = False  # plain means plain
    model, data = recipe.load_model(), recipe.data.load()
    method = recipe.kind()(recipe.method_config())
    source = EpisodeSource.of(data, "val", recipe.evaluate.way, given.shot, seed=recipe.evaluate.seed)
    device = model.head.device
    fast = Compute.choose(device, "auto", compiled=device.type == "cuda")
    found = []
    for compute in (fast, Compute(device)):
        base, fitted = prepare(method, model, data, compute)
        parts, start = [], time.time()
        at_once = min(given.episodes, learners_at_once(method, model))
        for first in range(0, given.episodes, at_once):
            numbers = range(first, min(first + at_once, given.episodes))
            *_, last = run_episodes(method, base, fitted, source, numbers, filled_to=at_once)
            parts.append(last.values)
        found.append(torch.cat(parts).double())
        print(f"{compute.words}: {(time.time() - start) / given.episodes:.3f} s an episode (compiling included)")
    difference = found[0] - found[1]
    for at, name in enumerate(MEASURES):
        mean, interval = mean_and_interval(difference[:, at].tolist())
        print(
            f"{name}: {found[0][:, at].mean():.2f} and {found[1][:, at].mean():.2f}, "
            f"difference {mean:+.3f} ± {interval:.3f}, of one episode at most {difference[:, at].abs().max():.2f}"
        )
    if abs(difference[:, MEASURES.index("hm")].mean()) > LIMIT:
        sys.exit(f"the mean hm differs by more than {LIMIT}")


if __name__ == "__main__":
    main()
