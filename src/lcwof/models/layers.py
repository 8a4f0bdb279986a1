"""Layers that work for one network and for E networks at once.

With ordinary weights they map (B, ...) to (B, ...). With stacked weights, whose first dimension is E, they map
(E, B, ...) to (E, B, ...), learner e seeing only its own weights. Stacked weights arrive through
`torch.func.functional_call`, so a network is written once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class Noise:
    """The randomness of dropout, handed in explicitly. No noise: nothing is dropped."""

    uniform: Callable[[torch.Size], Tensor]  # shape -> numbers in [0, 1)
    strength: float | Tensor = 1.0  # part of DropBlock's full rate, which phase 1 ramps up


class Conv2d(nn.Conv2d):
    """A bias-free 3x3 or 1x1 convolution that keeps the image size (with stride 1)."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int = 1) -> None:
        super().__init__(inputs, outputs, kernel, stride=stride, padding=kernel // 2, bias=False)
        nn.init.kaiming_normal_(self.weight, mode="fan_out", nonlinearity="leaky_relu")

    def forward(self, x: Tensor) -> Tensor:
        if self.weight.dim() == 4:
            return super().forward(x)
        if x.device.type == "cpu":  # measured: as fast as or faster than grouped convolution and unfolded products
            pairs = zip(x.unbind(0), self.weight.unbind(0), strict=True)
            return torch.stack([F.conv2d(a, w, None, self.stride, self.padding) for a, w in pairs])
        learners = len(x)
        grouped = x.transpose(0, 1).flatten(1, 2)
        y = F.conv2d(grouped, self.weight.flatten(0, 1), None, self.stride, self.padding, groups=learners)
        return y.unflatten(1, (learners, -1)).transpose(0, 1)


class BatchNorm2d(nn.BatchNorm2d):
    """Batch normalisation; in evaluation mode a plain affine map, which also takes stacked weights."""

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            return super().forward(x)
        assert self.running_mean is not None and self.running_var is not None
        scale = self.weight * (self.running_var + self.eps).rsqrt()
        shift = self.bias - self.running_mean * scale
        if scale.dim() == 2:
            scale, shift = scale.unsqueeze(1), shift.unsqueeze(1)
        return torch.addcmul(shift[..., None, None], x, scale[..., None, None])


class Linear(nn.Linear):
    """A linear layer on (B, I) or, with stacked weights, on (E, B, I)."""

    def forward(self, x: Tensor) -> Tensor:
        if self.weight.dim() == 2:
            return super().forward(x)
        y = (self.weight @ x.mT).mT  # this way round the weight's gradient is contiguous, which the optimiser needs
        return y if self.bias is None else y + self.bias.unsqueeze(1)


class Dropout(nn.Module):
    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor, noise: Noise | None) -> Tensor:
        if noise is None:
            return x
        return x * (noise.uniform(x.shape) >= self.rate) / (1 - self.rate)


class DropBlock(nn.Module):
    """Drops whole squares of a feature map (Ghiasi et al. 2018)."""

    def __init__(self, rate: float, size: int = 5) -> None:
        super().__init__()
        self.rate, self.size = rate, size

    def forward(self, x: Tensor, noise: Noise | None) -> Tensor:
        if noise is None:
            return x
        height, width = x.shape[-2:]
        size = min(self.size, height, width)
        rows, columns = height - size + 1, width - size + 1
        gamma = self.rate * noise.strength * height * width / (size**2 * rows * columns)
        corners = (noise.uniform(torch.Size((*x.shape[:-2], rows, columns))) < gamma).to(x.dtype)
        padded = F.pad(corners, (size - 1,) * 4)
        keep = 1 - per_image(lambda m: F.max_pool2d(m, size, stride=1), padded)
        return x * keep / keep.mean(dim=(-3, -2, -1), keepdim=True).clamp_min(1e-6)


def per_image(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Apply a function of (B, C, H, W) to (B, C, H, W) or (E, B, C, H, W)."""
    if x.dim() == 4:
        return function(x)
    return function(x.flatten(0, 1)).unflatten(0, x.shape[:2])


def halve(x: Tensor) -> Tensor:
    """Max-pool by two, leaving maps that are already a single row or column as they are."""
    if min(x.shape[-2:]) < 2:
        return x
    return per_image(lambda m: F.max_pool2d(m, 2), x)
