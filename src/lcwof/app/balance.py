"""How far phase 3 goes: chosen on held-out images of the base classes."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from lcwof.app.memory import Memory
from lcwof.learning import Inputs, Phase3
from lcwof.randomness import Randomness

Balance = Literal["base", "even", "novel"]

# Phase 3 gives the old classes back what phase 2 took, at the new classes' expense. It runs until held-out base images
# reach this part of the accuracy they would have if the new classes did not exist (B/J over B/B). Where hm is best
# depends on how alike the classes are: 0.8 in the paper's mini-ImageNet tables, more on easier data.
RETAIN: dict[str, float] = {"base": 0.97, "even": 0.90, "novel": 0.75}
_MOST_HELD_OUT = 200  # views of held-out images judged at each check


def paced(how: Phase3, base: int, memory: Memory) -> Phase3:
    """Phase 3 for a set of any size, replaying anew from the memory.

    The authors' rates suit the five steps an epoch of theirs has (64 + 5 images in batches of 16) and their 200 epochs;
    the head of a smaller set takes longer steps instead, and the balance, not the epoch, ends the phase.
    """
    few, _ = memory.few(after=base)
    each = max(1, round(len(few) / (len(memory.images.classes) - base)))
    steps = math.ceil((base * each + len(few)) / how.batch)
    return replace(how, lr_head=how.lr_head * max(1.0, 10 / steps), epochs=2 * how.epochs, replay="unlim")


def held_out_views(inputs: Inputs, index: Tensor, labels: Tensor, draws: Randomness) -> tuple[Tensor, Tensor]:
    """Maps (1, n, ...) of held-out images, plain and augmented: a few images alone would make a coarse measure."""
    index = index[:_MOST_HELD_OUT]
    views = max(1, min(8, _MOST_HELD_OUT // len(index)))
    maps = [inputs.plain(index[None])] + [inputs.augmented(index[None], draws[view]) for view in range(1, views)]
    return torch.cat(maps, dim=1), labels[:_MOST_HELD_OUT].repeat(views)[None].to(inputs.device)
