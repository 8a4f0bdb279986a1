"""Layers that work for one network and for E networks at once.

With ordinary weights they map (B, C, H, W) to (B, C, H, W). With stacked weights, whose first dimension is E, they map
(E, B, H, W, C) to (E, B, H, W, C), learner e seeing only its own weights. Stacked weights arrive through
`torch.func.functional_call`, so a network is written once. Stacked maps have their channels last because matrix
products of E learners want them there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class Noise:
    """The randomness of dropout, handed in explicitly. No noise: nothing is dropped."""

    uniform: Callable[[torch.Size], Tensor]  # shape -> numbers in [0, 1)
    strength: float | Tensor = 1.0  # part of DropBlock's full rate, which phase 1 ramps up; 0.0: none is dropped


class Conv2d(nn.Conv2d):
    """A bias-free 3x3 or 1x1 convolution that keeps the image size (with stride 1)."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int = 1) -> None:
        super().__init__(inputs, outputs, kernel, stride=stride, padding=kernel // 2, bias=False)
        nn.init.kaiming_normal_(self.weight, mode="fan_out", nonlinearity="leaky_relu")

    def forward(self, x: Tensor) -> Tensor:
        if self.weight.dim() == 4:
            if _fusing() and self.in_channels <= 4 and self.stride == (1, 1):
                return _thin_conv(x, self.weight) + (0 if self.bias is None else self.bias[:, None, None])
            return super().forward(x)
        if x.device.type == "cpu" and x.dtype == torch.float32:  # measured: faster there than unfolded products
            pairs = zip(x.unbind(0), self.weight.unbind(0), strict=True)
            maps = [F.conv2d(a.movedim(-1, 1), w, None, self.stride, self.padding) for a, w in pairs]
            return torch.stack([m.movedim(1, -1) for m in maps])
        return unfolded_conv(x, self.weight, self.stride[0])


class SameConv2d(Conv2d):
    """A convolution whose maps have ceil(side / stride) positions, padded as TensorFlow does it: what does not come out
    even goes to the right and below. groups: 1, or as many as channels, which then have a kernel each."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> None:
        nn.Conv2d.__init__(self, inputs, outputs, kernel, stride=stride, groups=groups, bias=False)
        nn.init.kaiming_normal_(self.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        kernel, stride = self.kernel_size[0], self.stride[0]
        pads = [max((-(-n // stride) - 1) * stride + kernel - n, 0) for n in (x.shape[side] for side in sides(x))]
        around = [number for pad in reversed(pads) for number in (pad // 2, pad - pad // 2)]  # width first
        if self.weight.dim() == 4:
            return nn.Conv2d.forward(self, F.pad(x, around))
        padded, learners = F.pad(x, (0, 0, *around)), len(x)
        if self.groups > 1:  # E times as many channels, a kernel each, are the same map
            together = padded.permute(1, 2, 3, 0, 4).flatten(3).movedim(-1, 1)
            maps = F.conv2d(together, self.weight.flatten(0, 1), stride=stride, groups=together.shape[1])
            return maps.movedim(1, -1).unflatten(-1, (learners, -1)).movedim(-2, 0)
        ends = [padded.shape[side] - kernel + 1 for side in (2, 3)]
        spots = [(i, j) for i in range(kernel) for j in range(kernel)]
        seen = [padded[:, :, i : i + ends[0] : stride, j : j + ends[1] : stride] for i, j in spots]
        columns, weight = torch.cat(seen, dim=-1), self.weight.permute(0, 1, 3, 4, 2).flatten(2)  # (E, O, k * k * C)
        return (columns.flatten(1, 3) @ weight.mT).unflatten(1, columns.shape[1:4])


def _fusing() -> bool:
    """Whether a frozen network is being compiled: passes over its maps are then worth saving by hand."""
    return torch.compiler.is_compiling() and not torch.is_grad_enabled()


def _thin_conv(x: Tensor, weight: Tensor) -> Tensor:
    """The convolution of maps with so few channels that the libraries' own leave a GPU idle."""
    if weight.shape[-1] == 1:  # a few products, which the layer that comes after them does on the way
        parts = [x[:, i : i + 1] * weight[:, i] for i in range(x.shape[1])]
        return sum(parts[1:], parts[0])
    more = (0, 16 - x.shape[1])  # 16 channels of which some are 0: measured, faster than as few as there are
    maps, kernels = (F.pad(y.permute(0, 2, 3, 1), more).permute(0, 3, 1, 2) for y in (x, weight))
    return F.conv2d(maps, kernels, padding=weight.shape[-1] // 2)


def unfolded_conv(maps: Tensor, weight: Tensor, stride: int) -> Tensor:
    """E convolutions as one batched matrix product over unfolded maps, which keeps a GPU's matrix units busy.

    maps: (E, B, H, W, C); weight: (E, O, C, k, k), with channels last in memory, so that it is not copied.
    """
    if weight.shape[-1] > 1 or stride > 1:
        maps = _Unfold.apply(maps, weight.shape[-1], stride)  # (E, B, h, w, k * k * C)
    product = _Product.apply(maps.flatten(1, 3), weight.permute(0, 1, 3, 4, 2).flatten(2))
    return product.unflatten(1, maps.shape[1:4])


class _Product(torch.autograd.Function):
    """columns @ weight.mT, written out so that the weight's slope is laid out as the weight is."""

    @staticmethod
    def forward(ctx: Any, columns: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(columns, weight)
        return columns @ weight.mT

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, Tensor | None]:
        columns, weight = ctx.saved_tensors
        needed = ctx.needs_input_grad
        return (slopes[0] @ weight if needed[0] else None), (slopes[0].mT @ columns if needed[1] else None)


class _Unfold(torch.autograd.Function):
    """The k x k neighbourhood of every (or every stride-th) position of zero-padded maps.

    (E, B, H, W, C) -> (E, B, h, w, k * k * C). Written out because the compiler makes one kernel of each direction.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, kernel: int, stride: int) -> Tensor:
        ctx.kernel, ctx.stride, ctx.sides = kernel, stride, x.shape[2:4]
        pad = kernel // 2
        padded = F.pad(x, (0, 0, pad, pad, pad, pad))
        windows = padded.unfold(2, kernel, stride).unfold(3, kernel, stride)  # (E, B, h, w, C, k, k)
        return windows.permute(0, 1, 2, 3, 5, 6, 4).flatten(4)

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor, None, None]:
        kernel, stride, (height, width) = ctx.kernel, ctx.stride, ctx.sides
        slope = slopes[0].unflatten(4, (kernel, kernel, -1))
        if stride > 1:  # put the gaps between the positions back
            spread = slope.new_zeros(*slope.shape[:2], height, width, *slope.shape[4:])
            spread[:, :, ::stride, ::stride] = slope
            slope = spread
        shifted = []
        for i in range(kernel):
            for j in range(kernel):
                up, left = kernel // 2 - i, kernel // 2 - j
                shifted.append(F.pad(slope[:, :, :, :, i, j], (0, 0, -left, left, -up, up)))
        return sum(shifted[1:], shifted[0]), None, None


def channels_last(x: Tensor) -> Tensor:
    """The same (..., C, H, W) with channels last in memory."""
    return x.movedim(-3, -1).contiguous().movedim(-1, -3)


def stacked_layout(weight: Tensor) -> Tensor:
    """A stacked weight, (E, ...), laid out in memory as everything here expects it."""
    return channels_last(weight) if weight.dim() == 5 else weight.contiguous()


def sides(x: Tensor) -> tuple[int, int]:
    """Which dimensions are the height and the width of maps."""
    return (-2, -1) if x.dim() == 4 else (-3, -2)


def flat(x: Tensor) -> Tensor:
    """Maps as vectors, always in the order (C, H, W)."""
    return (x if x.dim() == 4 else x.movedim(-1, -3)).flatten(-3)


class BatchNorm2d(nn.BatchNorm2d):
    """Batch normalisation; in evaluation mode a plain affine map, which also takes stacked weights. In training mode,
    stacked weights come with stacked statistics, which follow those of each learner's own batches."""

    def as_map(self) -> tuple[Tensor, Tensor]:
        """Scale and shift of each channel in evaluation mode."""
        assert self.running_mean is not None and self.running_var is not None
        scale = self.weight * (self.running_var + self.eps).rsqrt()
        return scale, self.bias - self.running_mean * scale

    def forward(self, x: Tensor) -> Tensor:
        if self.training and x.dim() < 5:
            return super().forward(x)
        scale, shift = self._own_map(x) if self.training else self.as_map()
        if scale.dim() == 1:
            return torch.addcmul(shift[:, None, None].to(x.dtype), x, scale[:, None, None].to(x.dtype))
        return (shift[:, None, None, None] + x * scale[:, None, None, None]).to(x.dtype)

    def _own_map(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Scale and shift of each learner's channels, (E, C), by its batch, towards which its statistics move."""
        assert self.running_mean is not None and self.running_var is not None and self.momentum is not None
        var, mean = torch.var_mean(x.float(), dim=(1, 2, 3), correction=0)
        with torch.no_grad():
            count = x[0, ..., 0].numel()
            self.running_mean.lerp_(mean, self.momentum)
            self.running_var.lerp_(var * count / max(1, count - 1), self.momentum)
        scale = self.weight * (var + self.eps).rsqrt()
        return scale, self.bias - mean * scale


def fold_norms(network: nn.Module) -> None:
    """Put every frozen BN of a network into the convolution before it, in place: the same map in one pass less."""
    for block in list(network.modules()):
        for name, norm in list(block.named_children()):
            if not isinstance(norm, BatchNorm2d):
                continue
            # conv1, norm1; shortcut, shortcut_norm
            conv = getattr(block, name.removesuffix("_norm") if "_" in name else name.replace("norm", "conv"), None)
            if not isinstance(conv, Conv2d):  # a backbone with names of its own keeps its norms
                continue
            scale, shift = norm.as_map()
            conv.weight = nn.Parameter(conv.weight * scale[:, None, None, None], requires_grad=False)
            conv.bias = nn.Parameter(shift, requires_grad=False)
            setattr(block, name, nn.Identity())


class Linear(nn.Linear):
    """A linear layer on (B, I) or, with stacked weights, on (E, B, I)."""

    def forward(self, x: Tensor) -> Tensor:
        x = x.to(self.weight.dtype)
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
        first = x if x.dim() < 5 else x.movedim(-1, 2)  # numbers come in the order (C, H, W), stacked or not
        keep = noise.uniform(first.shape) >= self.rate
        return x * (keep if x.dim() < 5 else keep.movedim(2, -1)) / (1 - self.rate)


class ChannelDropout(Dropout):
    """Drops whole channels of maps."""

    def forward(self, x: Tensor, noise: Noise | None) -> Tensor:
        if noise is None:
            return x
        channels = x.shape[-1] if x.dim() == 5 else x.shape[1]
        keep = noise.uniform(torch.Size((*x.shape[: x.dim() - 3], channels))) >= self.rate
        return x * (keep[..., None, None, :] if x.dim() == 5 else keep[..., None, None]) / (1 - self.rate)


class DropBlock(nn.Module):
    """Drops whole squares of a feature map (Ghiasi et al. 2018)."""

    def __init__(self, rate: float, size: int = 5) -> None:
        super().__init__()
        self.rate, self.size = rate, size

    def forward(self, x: Tensor, noise: Noise | None) -> Tensor:
        if noise is None or (isinstance(noise.strength, float) and not noise.strength):
            return x
        height, width = (x.shape[side] for side in sides(x))
        channels = x.shape[-1] if x.dim() == 5 else x.shape[1]
        size = min(self.size, height, width)
        rows, columns = height - size + 1, width - size + 1
        gamma = self.rate * noise.strength * height * width / (size**2 * rows * columns)
        corners = noise.uniform(torch.Size((*x.shape[: x.dim() - 3], channels, rows, columns))) < gamma
        # How many squares cover a position: a product, so that a compiled network draws each number once. Matrix units
        # want multiples of eight.
        covering = _covering(height, rows, size, x)[:, None, :, None] * _covering(width, columns, size, x)[:, None, :]
        more = (0, -rows * columns % 8)
        squares = F.pad(covering.flatten(2).flatten(0, 1), more) @ F.pad(corners.flatten(-2).to(x.dtype), more).mT
        keep = (squares < 0.5).unflatten(-2, (height, width))  # (..., H, W, C)
        keep = keep if x.dim() == 5 else keep.movedim(-1, 1)
        scale = keep.float().mean(dim=(-3, -2, -1), keepdim=True).clamp_min(1e-6)
        return (x * keep / scale).to(x.dtype)


def _covering(positions: int, starts: int, size: int, like: Tensor) -> Tensor:
    """1 where a stretch of the given size, begun at each start, covers the position: (positions, starts)."""
    offset = torch.arange(positions, device=like.device)[:, None] - torch.arange(starts, device=like.device)
    return ((offset >= 0) & (offset < size)).to(like.dtype)


def halve(x: Tensor) -> Tensor:
    """Max-pool by two, leaving maps that are already a single row or column as they are."""
    if min(x.shape[side] for side in sides(x)) < 2:
        return x
    if not torch.is_grad_enabled():  # faster than pooling, whose indices nobody needs, and the compiler can fuse it
        down, across = sides(x)
        return _larger(_larger(x, down), across)
    if x.dim() == 4:
        return F.max_pool2d(x, 2)
    if torch.compiler.is_compiling():
        return _Halve.apply(x)
    return F.max_pool2d(x.flatten(0, 1).movedim(-1, 1), 2).movedim(1, -1).unflatten(0, x.shape[:2])


def _pairs(x: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Even and odd positions along a dimension, the last one left out where it has no partner."""
    first, second = x.narrow(dim, 0, x.shape[dim] // 2 * 2).unflatten(dim, (-1, 2)).unbind(dim)
    return first, second


def _larger(x: Tensor, dim: int) -> Tensor:
    return torch.maximum(*_pairs(x, dim))


class _Halve(torch.autograd.Function):
    """Max-pooling of stacked maps, written out because the library's slopes come with their channels first."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        (a, b), (c, d) = (_pairs(half, -2) for half in _pairs(x, -3))
        top, bottom = torch.maximum(a, b), torch.maximum(c, d)
        which = torch.where(bottom > top, 2 + (d > c).byte(), (b > a).byte())  # of equals, the first
        ctx.save_for_backward(which)
        ctx.odd = x.shape[2] % 2, x.shape[3] % 2
        return torch.maximum(top, bottom)

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> Tensor:
        (which,) = ctx.saved_tensors
        place = torch.arange(4, device=which.device).view(2, 1, 2, 1)  # in a window, for (E, B, h, 2, w, 2, C)
        chosen = which[:, :, :, None, :, None] == place
        spread = torch.where(chosen, slopes[0][:, :, :, None, :, None], 0.0).flatten(2, 3).flatten(3, 4)
        return F.pad(spread, (0, 0, 0, ctx.odd[1], 0, ctx.odd[0])) if any(ctx.odd) else spread
