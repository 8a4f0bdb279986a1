"""What phase 1 does to whole batches, and asks of them."""

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


def turned_loss(both: Tensor, targets: Tensor, by: Tensor) -> tuple[Tensor, Tensor]:
    """Cross-entropy of class and angle together, and what is said of each image's class over all its angles.

    both: (A B, 4 C), logits of images shown at A angles each, classes within angles; targets: (B, C), soft; by: (A B,),
    right angles. Returns a number and (B, C): the mean logits, each image's taken from the angle it is shown at.
    """
    images, classes = targets.shape
    both = both.view(-1, 4, classes)
    shown = both[torch.arange(len(by), device=by.device), by]
    asked = (both.logsumexp(dim=(1, 2)) - (shown * targets.repeat(len(by) // images, 1)).sum(1)).mean()
    return asked, shown.view(-1, images, classes).mean(0)


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
