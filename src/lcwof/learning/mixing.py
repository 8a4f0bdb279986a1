"""What phase 1 does to whole batches."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def turned(images: Tensor) -> Tensor:
    """A batch at no, one, two and three right angles, one after the other: (B, C, S, S) -> (4 B, C, S, S)."""
    together = torch.cat([images.rot90(k, (2, 3)) for k in range(4)])
    last = images.is_contiguous(memory_format=torch.channels_last)
    return together.contiguous(memory_format=torch.channels_last if last else torch.contiguous_format)


def cutmix(images: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Paste one random rectangle of other images of the batch into each image, and mix the targets by area."""
    side = images.shape[-1]
    part = math.sqrt(1 - float(torch.rand(())))
    height = width = round(side * part)
    top, left = (int(torch.randint(0, side - height + 1, ())) for _ in range(2))
    order = torch.randperm(len(images), device=images.device)
    mixed = images.clone()
    box = (..., slice(top, top + height), slice(left, left + width))
    mixed[box] = images[order][box]
    other = height * width / side**2
    return mixed, torch.lerp(targets, targets[order], other)
