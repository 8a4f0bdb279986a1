"""Where the time goes on a CUDA card: the kernels of an epoch of phase 3, or of phase 1, resnet12 on 84 pixels, 64 + 5
classes.

python benchmarks/kernels.py --at-once 100 --shot 1
python benchmarks/kernels.py --phase 1
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

from lcwof.compute import Compute
from lcwof.engine import read_recipe
from lcwof.engine.bench import Setup
from lcwof.learning.pretrain import Training

EPOCHS = 4


def phase1(setup: Setup, device: torch.device) -> tuple[Callable[[], object], str]:
    training = Training(setup.data, read_recipe([Path("fast.toml")], {}, []).phase1, device)
    return training.epoch, f"{training.steps * training.how.batch} images"


def phase3(setup: Setup, device: torch.device, at_once: int) -> tuple[Callable[[], object], str]:
    base, fitted = setup.prepare(Compute.choose(device, "auto", compiled=True))
    states = setup.learn("phase 3", EPOCHS + 2, base, fitted, at_once)
    return lambda: next(states), f"{at_once} learners"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--phase", type=int, choices=(1, 3), default=3)
    parser.add_argument("--at-once", type=int, default=100)
    parser.add_argument("--shot", type=int, default=1)
    parser.add_argument("--rows", type=int, default=60)
    given = parser.parse_args()
    device = torch.device("cuda")
    setup = Setup.make(device, given.shot)
    epoch, of = phase1(setup, device) if given.phase == 1 else phase3(setup, device, given.at_once)
    for _ in range(2):  # compiles
        epoch()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as found:
        for _ in range(EPOCHS):
            epoch()
        torch.cuda.synchronize()
    kernels = sorted(found.key_averages(), key=lambda kernel: -kernel.device_time_total)
    print(f"{sum(k.device_time_total for k in kernels) / EPOCHS / 1e3:.1f} ms an epoch of {of}")
    for kernel in kernels[: given.rows]:
        print(f"{kernel.device_time_total / EPOCHS / 1e3:9.2f} ms {kernel.count // EPOCHS:5d} x  {kernel.key[:120]}")


if __name__ == "__main__":
    main()
