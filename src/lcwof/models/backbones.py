"""Backbones, each a sequence of stages; the last stage ends in an embedding.

`trunk(adapt)` is everything but the last `adapt` stages, `tail(adapt)` the rest. adapt=0 adapts nothing but the
classifier, adapt=len(stages) everything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod

import torch.nn.functional as F
from torch import Tensor, nn

from lcwof.errors import LcwofError
from lcwof.models.layers import (
    BatchNorm2d,
    ChannelDropout,
    Conv2d,
    DropBlock,
    Dropout,
    Linear,
    Noise,
    flat,
    halve,
    sides,
)

Builder = Callable[[tuple[int, ...]], "Backbone"]


@dataclass(frozen=True)
class Pretrained:
    """What a backbone knows before phase 1."""

    knows: str  # the data set that it was trained on
    weights: Callable[[], dict[str, Tensor]]  # its state
    mean: tuple[float, ...]  # of the inputs that the weights expect
    std: tuple[float, ...]


_BUILDERS: dict[str, Builder] = {}
_PRETRAINED: dict[str, Pretrained] = {}


class Chain(nn.Module):
    """Stages one after the other; an empty chain is the identity."""

    def __init__(self, stages: Sequence[nn.Module]) -> None:
        super().__init__()
        self.stages = nn.ModuleList(stages)

    def forward(self, x: Tensor, noise: Noise | None = None) -> Tensor:
        for stage in self.stages:
            x = stage(x, noise)
        return x


class Backbone(Chain):
    """A network from inputs to embeddings of `dim` numbers."""

    def __init__(self, stages: Sequence[nn.Module], dim: int) -> None:
        super().__init__(stages)
        self.dim = dim

    def trunk(self, adapt: int) -> Chain:
        return Chain(list(self.stages)[: self._cut(adapt)])

    def tail(self, adapt: int) -> Chain:
        return Chain(list(self.stages)[self._cut(adapt) :])

    def _cut(self, adapt: int) -> int:
        if not 0 <= adapt <= len(self.stages):
            raise LcwofError(f"adapt={adapt}: this backbone has {len(self.stages)} stages, so 0 to {len(self.stages)}.")
        return len(self.stages) - adapt


def register_backbone(name: str, pretrained: Pretrained | None = None) -> Callable[[Builder], Builder]:
    """Make a backbone known by name: a function from the input shape, (C, H, W) or (D,), to a Backbone."""

    def register(builder: Builder) -> Builder:
        _BUILDERS[name] = builder
        if pretrained:
            _PRETRAINED[name] = pretrained
        return builder

    return register


def backbone_names() -> list[str]:
    return sorted(_BUILDERS)


def pretrained(name: str) -> Pretrained | None:
    """What the named backbone starts phase 1 from; None: at random."""
    return _PRETRAINED.get(name)


def build_backbone(name: str, shape: tuple[int, ...]) -> Backbone:
    if name not in _BUILDERS:
        raise LcwofError(f"no backbone named {name!r}: choose one of {', '.join(backbone_names())}.")
    if len(shape) == 1 and name != "mlp":
        raise LcwofError(f"backbone {name!r} reads images, but the data are feature vectors: use mlp.")
    return _BUILDERS[name](shape)


class ConvBlock(nn.Module):
    """3x3 convolution, BN, max-pool, ReLU or, with a slope, leaky ReLU (in this order: the same, on a quarter of the
    numbers); then some channels are dropped."""

    def __init__(self, inputs: int, outputs: int, slope: float = 0.0, drop: float = 0.0) -> None:
        super().__init__()
        self.conv, self.norm = Conv2d(inputs, outputs, 3), BatchNorm2d(outputs)
        self.slope, self.drop = slope, ChannelDropout(drop) if drop else None

    def forward(self, x: Tensor, noise: Noise | None = None) -> Tensor:
        x = halve(self.norm(self.conv(x)))
        x = F.leaky_relu(x, self.slope) if self.slope else F.relu(x)
        return self.drop(x, noise) if self.drop else x


class Embedding(nn.Module):
    """Flattens the maps of a last block and embeds them linearly; `normalised`: then BN."""

    def __init__(self, block: nn.Module, inputs: int, dim: int, normalised: bool = False) -> None:
        super().__init__()
        self.block, self.linear = block, Linear(inputs, dim)
        self.norm = BatchNorm2d(dim) if normalised else None

    def forward(self, x: Tensor, noise: Noise | None = None) -> Tensor:
        embedded = self.linear(flat(self.block(x, noise)))
        if self.norm is None:
            return embedded
        # As maps of one position: (B, D, 1, 1), or (E, B, 1, 1, D).
        return self.norm(embedded.unsqueeze(2).unsqueeze(2)).squeeze(2).squeeze(2)


def _four_blocks(blocks: list[ConvBlock], side: int, normalised: bool = False) -> Backbone:
    """The last stage, which adapts, is the last block with an embedding in 128 dimensions."""
    for _ in blocks:
        side = max(side // 2, 1)
    inputs = blocks[-1].conv.out_channels * side**2
    return Backbone([*blocks[:-1], Embedding(blocks[-1], inputs, 128, normalised)], 128)


@register_backbone("conv4")
def conv4(shape: tuple[int, ...]) -> Backbone:
    """Four convolution blocks of widths 64-64-128-128, as in many few-shot works, and a linear embedding."""
    widths = (shape[0], 64, 64, 128, 128)
    return _four_blocks([ConvBlock(a, b) for a, b in pairwise(widths)], min(shape[1:]))


@register_backbone("conv4-wide")
def conv4_wide(shape: tuple[int, ...]) -> Backbone:
    """Four convolution blocks of widths 128-192-256-512 and a linear embedding with BN, as in the authors' released
    code (whose second block alone does not pad its maps, which makes no difference to the size of the embedding)."""
    widths = (shape[0], 128, 192, 256, 512)
    drops = (0.0, 0.0, 0.1, 0.1)
    blocks = [ConvBlock(a, b, 0.2, drop) for (a, b), drop in zip(pairwise(widths), drops, strict=True)]
    return _four_blocks(blocks, min(shape[1:]), normalised=True)


class WideBlock(nn.Module):
    """The ResNet-12 block: three 3x3 convolutions, a projected shortcut, max-pool, then dropout or DropBlock."""

    def __init__(self, inputs: int, outputs: int, drop: nn.Module, last: bool) -> None:
        super().__init__()
        self.conv1, self.norm1 = Conv2d(inputs, outputs, 3), BatchNorm2d(outputs)
        self.conv2, self.norm2 = Conv2d(outputs, outputs, 3), BatchNorm2d(outputs)
        self.conv3, self.norm3 = Conv2d(outputs, outputs, 3), BatchNorm2d(outputs)
        self.shortcut, self.shortcut_norm = Conv2d(inputs, outputs, 1), BatchNorm2d(outputs)
        self.drop, self.last = drop, last

    def forward(self, x: Tensor, noise: Noise | None = None) -> Tensor:
        y = F.leaky_relu(self.norm1(self.conv1(x)), 0.1)
        y = F.leaky_relu(self.norm2(self.conv2(y)), 0.1)
        y = self.norm3(self.conv3(y)) + self.shortcut_norm(self.shortcut(x))
        y = self.drop(F.leaky_relu(halve(y), 0.1), noise)
        return y.mean(dim=sides(y)) if self.last else y


@register_backbone("resnet12")
def resnet12(shape: tuple[int, ...]) -> Backbone:
    """Widths 64-160-320-640, dropout after blocks 1-2 and DropBlock after blocks 3-4 (the paper's GFSL backbone)."""
    widths = (shape[0], 64, 160, 320, 640)
    drops = [Dropout(0.1), Dropout(0.1), DropBlock(0.1), DropBlock(0.1)]
    blocks = [WideBlock(widths[i], widths[i + 1], drops[i], last=i == 3) for i in range(4)]
    return Backbone(blocks, widths[-1])


class BasicBlock(nn.Module):
    """Two 3x3 convolutions with a shortcut (He et al. 2016)."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.norm1 = Conv2d(inputs, outputs, 3, stride), BatchNorm2d(outputs)
        self.conv2, self.norm2 = Conv2d(outputs, outputs, 3), BatchNorm2d(outputs)
        self.project = stride != 1 or inputs != outputs
        if self.project:
            self.shortcut, self.shortcut_norm = Conv2d(inputs, outputs, 1, stride), BatchNorm2d(outputs)

    def forward(self, x: Tensor, noise: Noise | None = None) -> Tensor:
        y = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        return F.relu(y + (self.shortcut_norm(self.shortcut(x)) if self.project else x))


class Stem(nn.Module):
    """A 3x3 convolution at full resolution and a max-pool, then the first stage (for images of about 84 pixels)."""

    def __init__(self, inputs: int, outputs: int, stage: nn.Module) -> None:
        super().__init__()
        self.conv, self.norm, self.stage = Conv2d(inputs, outputs, 3), BatchNorm2d(outputs), stage

    def forward(self, x: Tensor, noise: Noise | None = None) -> Tensor:
        return self.stage(F.relu(halve(self.norm(self.conv(x)))), noise)


class Pooled(nn.Module):
    """A stage followed by the average over the map."""

    def __init__(self, stage: nn.Module) -> None:
        super().__init__()
        self.stage = stage

    def forward(self, x: Tensor, noise: Noise | None = None) -> Tensor:
        y = self.stage(x, noise)
        return y.mean(dim=sides(y))


def _basic_resnet(shape: tuple[int, ...], blocks: int) -> Backbone:
    widths = (64, 64, 128, 256, 512)
    stages: list[nn.Module] = []
    for i in range(4):
        first = BasicBlock(widths[i], widths[i + 1], stride=1 if i == 0 else 2)
        stages.append(Chain([first, *(BasicBlock(widths[i + 1], widths[i + 1], 1) for _ in range(blocks - 1))]))
    stages[0] = Stem(shape[0], widths[0], stages[0])
    stages[3] = Pooled(stages[3])
    return Backbone(stages, widths[-1])


@register_backbone("resnet10")
def resnet10(shape: tuple[int, ...]) -> Backbone:
    """One basic block a stage."""
    return _basic_resnet(shape, 1)


@register_backbone("resnet18")
def resnet18(shape: tuple[int, ...]) -> Backbone:
    """Two basic blocks a stage (the paper's incremental backbone)."""
    return _basic_resnet(shape, 2)


class Dense(nn.Module):
    """Flatten, linear, ReLU."""

    def __init__(self, inputs: int, outputs: int, flatten: bool) -> None:
        super().__init__()
        self.linear, self.flatten = Linear(inputs, outputs), flatten

    def forward(self, x: Tensor, noise: Noise | None = None) -> Tensor:
        return F.relu(self.linear(flat(x) if self.flatten else x))


@register_backbone("mlp")
def mlp(shape: tuple[int, ...]) -> Backbone:
    """Two linear layers of 512 with ReLU, over feature vectors or flattened images (the paper's video backbone)."""
    return Backbone([Dense(prod(shape), 512, len(shape) > 1), Dense(512, 512, False)], 512)
