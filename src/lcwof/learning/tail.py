"""The stages that adapt, as one function of E learners' stacked weights."""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import functional_call

from lcwof.compute import Compute
from lcwof.learning.sgd import round_weight
from lcwof.models import BaseModel
from lcwof.models.layers import Noise, channels_last
from lcwof.randomness import substream, uniform

# A normalised map is cheap to make: rather twice where it is used than written out, in float32, in between.
_FUSE_MORE = {"realize_reads_threshold": 6}


def keyed_noise(keys: Tensor, blocks: bool = False) -> Noise:
    """Noise for drop layers from keyed streams; each layer that asks gets numbers of its own. DropBlock drops only if
    `blocks` are asked for."""
    calls = 0

    def numbers(shape: torch.Size) -> Tensor:
        nonlocal calls
        calls += 1
        return uniform(substream(keys, calls), shape[1:])

    return Noise(numbers, float(blocks))


class Tail:
    """The structure of the tail, its BN statistics, and its weights after phase 1 (theta_1).

    The statistics are shared and stay as they are, unless learners come with their own: these then follow what is seen
    in training (with `keys`).
    """

    def __init__(self, model: BaseModel, adapt: int, compute: Compute) -> None:
        self.chain = model.frozen().backbone.tail(adapt)
        self.compute = compute
        self.anchor = {
            name: channels_last(weight.detach()) if weight.dim() == 4 else weight.detach()
            for name, weight in self.chain.named_parameters()
        }
        self.statistics = {name: x for name, x in self.chain.named_buffers() if x.is_floating_point()}
        self._embed = compute.jit(self._run, dynamic=False, options=_FUSE_MORE)

    def copies(self, learners: int) -> dict[str, Tensor]:
        """theta_1 once a learner, (E, ...) each, free to change."""
        return {name: stack(weight, learners) for name, weight in self.anchor.items()}

    def embed(
        self,
        weights: Mapping[str, Tensor],
        maps: Tensor,
        keys: Tensor | None = None,
        blocks: bool = False,
        once: bool = False,
    ) -> Tensor:
        """Embeddings in float32: maps (E, B, ...) -> (E, B, D). With keys, one a learner, the drop layers drop; with
        `blocks`, DropBlock too.

        once: not worth compiling for these shapes.
        """
        if not self.anchor:
            return maps.float()
        rounded = {name: round_weight(weights[name], self.compute.dtype) for name in self.anchor}
        own = {name: weights[name] for name in self.statistics if name in weights}
        if own:
            self.chain.train(keys is not None)
            try:
                return self._run(rounded | own, maps, keys, blocks)
            finally:
                self.chain.eval()
        if once or not self.compute.compiled:
            return self._run(rounded, maps, keys, blocks)
        return self._embed(rounded, _even_rows(maps), keys, blocks)[:, : maps.shape[1]]

    def _run(self, weights: dict[str, Tensor], maps: Tensor, keys: Tensor | None, blocks: bool) -> Tensor:
        noise = None if keys is None else keyed_noise(keys, blocks)
        return functional_call(self.chain, weights, (maps, noise)).float()


def _even_rows(maps: Tensor) -> Tensor:
    """Maps filled up with empty ones to a number of positions that is a multiple of eight, as matrix units want it.

    (Filling up inside what is compiled makes torch 2.11 read out of bounds on a card.)
    """
    if maps.dim() < 5:
        return maps
    more = -maps.shape[1] % (8 // gcd(8, maps.shape[2] * maps.shape[3]))
    return F.pad(maps, (0, 0, 0, 0, 0, 0, 0, more)) if more else maps


def stack(tensor: Tensor, learners: int) -> Tensor:
    """E copies, (...) -> (E, ...), each laid out in memory as the original and free to change."""
    if tensor.dim() == 4:
        return (
            stack(tensor.permute(0, 2, 3, 1).flatten(1), learners).unflatten(2, (*tensor.shape[2:], -1)).movedim(-1, 2)
        )
    return tensor.detach().expand(learners, *tensor.shape).clone(memory_format=torch.contiguous_format)
