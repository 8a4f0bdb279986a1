"""Batched augmentation in two steps: draw parameters per learner, then apply them to all images in one call."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

_TRIES = 10  # random crops tried before falling back to the whole image, as in common image libraries
NUMBERS = 2 * _TRIES + 7  # uniform numbers one augmented image consumes


@dataclass(frozen=True)
class Augment:
    """Random resized crop, rotation, horizontal flip and colour jitter. Defaults: the paper's training transform."""

    scale: tuple[float, float] = (0.08, 1.0)  # area of the crop, as a part of the image
    ratio: tuple[float, float] = (3 / 4, 4 / 3)  # width over height of the crop
    rotate: float = 0.0  # largest angle in degrees, either way
    flip: bool = True
    jitter: float = 0.4  # brightness, contrast and saturation are each multiplied by 1 ± jitter

    @classmethod
    def none(cls) -> Augment:
        return cls(scale=(1.0, 1.0), ratio=(1.0, 1.0), flip=False, jitter=0.0)

    @property
    def is_none(self) -> bool:
        return self == Augment.none()


def augment_batch(pixels: Tensor, numbers: Tensor, how: Augment, size: int) -> Tensor:
    """Augmented float images in [0, 1].

    pixels: (B, C, H, W) uint8; numbers: (B, NUMBERS) uniform in [0, 1), which decide everything random.
    Returns (B, C, size, size).
    """
    images = pixels.float() / 255
    theta = _crops(numbers[:, : 2 * _TRIES + 2], how)
    rest = numbers[:, 2 * _TRIES + 2 :]
    if how.flip:
        theta[:, :, 0] *= torch.where(rest[:, 0] < 0.5, -1.0, 1.0)[:, None]
    if how.rotate:
        angle = (rest[:, 1] * 2 - 1) * math.radians(how.rotate)
        cos, sin = angle.cos(), angle.sin()
        turn = torch.stack([torch.stack([cos, -sin], 1), torch.stack([sin, cos], 1)], 1)
        theta = torch.cat([theta[:, :, :2] @ turn, theta[:, :, 2:]], dim=2)
    side = (torch.arange(size, device=theta.device) * 2 + 1) / size - 1  # middles of the pixels, from -1 to 1
    rows = theta[:, None, None, :, 1] * side[:, None, None] + theta[:, None, None, :, 2]
    grid = theta[:, None, None, :, 0] * side[:, None] + rows  # as F.affine_grid, which multiplies matrices for it
    edge = 1 - 1 / images.shape[-1]  # clamping here is padding by the border, which not every device offers
    images = F.grid_sample(images, grid.clamp(-edge, edge), align_corners=False)
    if how.jitter:
        factors = 1 + how.jitter * (rest[:, 2:5] * 2 - 1)
        images = _jitter(images, factors)
    return images


def plain_batch(pixels: Tensor, size: int, view: int | None = None) -> Tensor:
    """The test transform: resize to 92/84 of the input side, keep the centre. Float images in [0, 1].

    With a view, the whole image at that side instead: a network trained on random crops sees things larger than they
    are, and may read test images better when these are enlarged too (Touvron et al. 2019).
    """
    images = pixels.float() / 255
    if view:
        return _resize(images, view)
    if size < 64:  # drawings fill their frame: cropping would cut strokes off
        return images if images.shape[-1] == size else _resize(images, size)
    return _centre(_resize(images, round(size * 92 / 84)), size)


def _resize(images: Tensor, size: int) -> Tensor:
    if images.shape[-1] == size and images.shape[-2] == size:
        return images
    return F.interpolate(images, (size, size), mode="bilinear", antialias=True, align_corners=False)


def _centre(images: Tensor, size: int) -> Tensor:
    top, left = (images.shape[-2] - size) // 2, (images.shape[-1] - size) // 2
    return images[..., top : top + size, left : left + size]


def _crops(numbers: Tensor, how: Augment) -> Tensor:
    """Affine maps (B, 2, 3) that cut a random rectangle out of a square image: the first of several that fits."""
    area = how.scale[0] + (how.scale[1] - how.scale[0]) * numbers[:, :_TRIES]
    low, high = math.log(how.ratio[0]), math.log(how.ratio[1])
    ratio = torch.exp(low + (high - low) * numbers[:, _TRIES : 2 * _TRIES])
    width, height = (area * ratio).sqrt(), (area / ratio).sqrt()
    fits = (width <= 1) & (height <= 1)
    first = fits.float().argmax(dim=1, keepdim=True)
    ok = fits.any(dim=1)
    width = torch.where(ok, width.gather(1, first)[:, 0], 1.0)
    height = torch.where(ok, height.gather(1, first)[:, 0], 1.0)
    theta = torch.zeros(len(numbers), 2, 3, device=numbers.device)
    theta[:, 0, 0], theta[:, 1, 1] = width, height
    theta[:, 0, 2] = (1 - width) * (numbers[:, 2 * _TRIES] * 2 - 1)
    theta[:, 1, 2] = (1 - height) * (numbers[:, 2 * _TRIES + 1] * 2 - 1)
    return theta


def _jitter(images: Tensor, factors: Tensor) -> Tensor:
    """Brightness, contrast and saturation by the given factors (B, 3)."""
    brightness, contrast, saturation = (f.view(-1, 1, 1, 1) for f in factors.unbind(1))
    images = (images * brightness).clamp(0, 1)
    grey = _grey(images)
    images = torch.lerp(grey.mean(dim=(1, 2, 3), keepdim=True).expand_as(images), images, contrast).clamp(0, 1)
    if images.shape[1] == 3:
        images = torch.lerp(_grey(images).expand_as(images), images, saturation).clamp(0, 1)
    return images


def _grey(images: Tensor) -> Tensor:
    if images.shape[1] != 3:
        return images.mean(dim=1, keepdim=True)
    weights = torch.tensor([0.299, 0.587, 0.114], device=images.device).view(1, 3, 1, 1)
    return (images * weights).sum(dim=1, keepdim=True)
