"""What phase 1 does to whole batches."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def turned(images: Tensor, angles: int = 4) -> tuple[Tensor, Tensor]:
    """A batch upright, then each image turned by others of the four right angles, chosen at random where not all are
    shown: (B, C, S, S) -> (angles B, C, S, S), and by how many right angles each is turned, (angles B,)."""
    others = 1 + torch.rand(3, len(images), device=images.device).argsort(dim=0)[: angles - 1]
    all_four = torch.stack([images.rot90(k, (2, 3)) for k in range(4)])
    places = torch.arange(len(images), device=images.device)
    by = torch.cat([torch.zeros_like(places), others.flatten()])
    shown = all_four[by, places.repeat(angles)]
    last = images.is_contiguous(memory_format=torch.channels_last)
    return shown.contiguous(memory_format=torch.channels_last if last else torch.contiguous_format), by


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
