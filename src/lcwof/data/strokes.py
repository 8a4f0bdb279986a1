"""The project's own characters: a class is a few random strokes, an image is one shaky drawing of them.

Made by formula, so that everything can be tried and tested on a machine that has no data at all.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from lcwof.data.images import Images
from lcwof.randomness import Randomness

SIZE = 28
_STROKES = 4  # at most; a character has two, three or four
_POINTS = 40  # points on a stroke: closer together than a pen is wide
_TOGETHER = 64  # pictures in one step of the rendering


def draw_strokes(classes: int, per_class: int, seed: int = 0) -> Images:
    """Characters 0..classes-1, per_class drawings of each: 28x28, bright on black.

    A drawing depends on (seed, class number, drawing number) alone, so character 7 is the same in every set.
    """
    draws = Randomness.of_episodes(seed, range(classes))
    strokes, used = (part.repeat_interleave(per_class, dim=0) for part in _characters(draws["character"]))
    pixels = _draw(strokes, used, draws["drawings"], per_class)
    names = tuple(f"character-{c:04d}" for c in range(classes))
    return Images(
        pixels=pixels[:, None],
        labels=torch.arange(classes).repeat_interleave(per_class),
        classes=names,
        names=tuple(f"{name}/{number:03d}" for name in names for number in range(per_class)),
    )


def _characters(draws: Randomness) -> tuple[Tensor, Tensor]:
    """Control points of cubic curves (classes, strokes, 4, 2) in the unit square, and which strokes exist."""
    points = 0.02 + 0.96 * draws["points"].uniform(_STROKES, 4, 2)
    # Half of the strokes start where the last one ended, the pen not lifted: letters, not scattered arcs.
    joined = draws["joined"].uniform(_STROKES)[:, 1:] < 0.5
    points[:, 1:, 0] = torch.where(joined[..., None], points[:, :-1, 3], points[:, 1:, 0])
    count = 2 + (draws["count"].uniform(1) * 3).long()
    return points, torch.arange(_STROKES) < count


def _draw(strokes: Tensor, used: Tensor, draws: Randomness, per_class: int) -> Tensor:
    """per_class drawings of each character; strokes and used have a row a drawing. (N, 28, 28) uint8."""

    def uniform(purpose: str, *shape: int) -> Tensor:  # drawing k takes the k-th, whatever the number
        return draws[purpose].uniform(per_class, *shape).flatten(0, 1)

    def normal(purpose: str, *shape: int) -> Tensor:  # nearly: no far-out values to tear a letter apart
        return (uniform(purpose, 3, *shape).sum(dim=1) - 1.5) * 2

    shaky = strokes + 0.055 * normal("hand", _STROKES, 4, 2)
    slips = 0.03 * normal("slip", _STROKES, 1, 2)  # whole strokes set down a little off
    points = _place(_curve(shaky + slips).flatten(1, 2), uniform("place", 6) * 2 - 1)
    absent = ~used.repeat_interleave(_POINTS, dim=1)
    distance = _distance(points + 10.0 * absent[..., None])  # absent strokes go far outside the picture
    thick, soft = uniform("pen", 2, 1, 1).unbind(1)
    width = (0.6 + 0.8 * thick) / SIZE  # half the width of the line
    edge = (0.5 + 0.6 * soft) / SIZE  # ink fades out over this distance: a blur that costs nothing
    ink = ((width + edge - distance) / (2 * edge)).clamp(0, 1)
    return (ink * 255).round().to(torch.uint8)


def _curve(control: Tensor) -> Tensor:
    """Points along cubic Bezier curves: (..., 4, 2) -> (..., _POINTS, 2)."""
    s = torch.linspace(0, 1, _POINTS)[:, None]
    t = (s + s**2 * (3 - 2 * s)) / 2  # closer at both ends, where such a curve runs fastest
    a, b, c, d = (point.unsqueeze(-2) for point in control.unbind(-2))
    return (1 - t) ** 3 * a + 3 * t * (1 - t) ** 2 * b + 3 * t**2 * (1 - t) * c + t**3 * d


def _place(points: Tensor, how: Tensor) -> Tensor:
    """The whole character turned, slanted, stretched and moved by numbers (N, 6) in -1..1: (N, P, 2)."""
    angle, slant, wide, high, right, down = (number[:, None] for number in how.unbind(1))
    x, y = (points - 0.5).unbind(2)
    x = x + 0.2 * slant * y
    cos, sin = (angle * math.radians(15)).cos(), (angle * math.radians(15)).sin()
    x, y = cos * x - sin * y, sin * x + cos * y
    return torch.stack(
        [x * (0.9 + 0.15 * wide) + 0.5 + 0.06 * right, y * (0.9 + 0.15 * high) + 0.5 + 0.06 * down], dim=2
    )


def _distance(points: Tensor) -> Tensor:
    """Distance of every pixel to the nearest of a picture's points: (N, P, 2) -> (N, 28, 28).

    Without matrix products, whose rounding depends on the batch: a drawing must not depend on the others. In
    numpy: steps small enough for the processor's cache are too small to be worth several threads.
    """
    side = ((np.arange(SIZE) + 0.5) / SIZE).astype(np.float32)
    nearest = np.full((len(points), SIZE, SIZE), np.inf, np.float32)
    for start in range(0, len(points), _TOGETHER):
        picture = slice(start, start + _TOGETHER)
        offset = (side - points[picture].numpy()[..., None]) ** 2  # (_TOGETHER, P, 2, 28)
        for across, along in offset.transpose(1, 2, 0, 3):
            np.minimum(nearest[picture], along[:, :, None] + across[:, None, :], out=nearest[picture])
    return torch.from_numpy(nearest).sqrt()
