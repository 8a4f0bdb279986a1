"""The stages that adapt, as one function of E learners' stacked weights."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.func import functional_call

from lcwof.compute import Compute
from lcwof.learning.sgd import round_weight
from lcwof.models import BaseModel
from lcwof.models.layers import Noise, channels_last
from lcwof.randomness import substream, uniform


def keyed_noise(keys: Tensor) -> Noise:
    """Noise for drop layers from keyed streams; each layer that asks gets numbers of its own."""
    calls = 0

    def numbers(shape: torch.Size) -> Tensor:
        nonlocal calls
        calls += 1
        return uniform(substream(keys, calls), shape[1:])

    return Noise(numbers)


class Tail:
    """The structure of the tail, its shared BN statistics, and its weights after phase 1 (theta_1)."""

    def __init__(self, model: BaseModel, adapt: int, compute: Compute) -> None:
        self.chain = model.frozen().backbone.tail(adapt)
        self.compute = compute
        self.anchor = {
            name: channels_last(weight.detach()) if weight.dim() == 4 else weight.detach()
            for name, weight in self.chain.named_parameters()
        }
        self._embed = compute.jit(self._run, dynamic=False)

    def copies(self, learners: int) -> dict[str, Tensor]:
        """theta_1 once a learner, (E, ...) each, free to change."""
        return {name: stack(weight, learners) for name, weight in self.anchor.items()}

    def embed(
        self, weights: Mapping[str, Tensor], maps: Tensor, keys: Tensor | None = None, once: bool = False
    ) -> Tensor:
        """Embeddings in float32: maps (E, B, ...) -> (E, B, D). With keys, one a learner, the drop layers drop.

        once: not worth compiling for these shapes.
        """
        if not self.anchor:
            return maps.float()
        rounded = {name: round_weight(weights[name], self.compute.dtype) for name in self.anchor}
        return (self._run if once else self._embed)(rounded, maps, keys)

    def _run(self, weights: dict[str, Tensor], maps: Tensor, keys: Tensor | None) -> Tensor:
        noise = None if keys is None else keyed_noise(keys)
        return functional_call(self.chain, weights, (maps, noise)).float()


def stack(tensor: Tensor, learners: int) -> Tensor:
    """E copies, (...) -> (E, ...), each laid out in memory as the original and free to change."""
    if tensor.dim() == 4:
        return (
            stack(tensor.permute(0, 2, 3, 1).flatten(1), learners).unflatten(2, (*tensor.shape[2:], -1)).movedim(-1, 2)
        )
    return tensor.detach().expand(learners, *tensor.shape).clone(memory_format=torch.contiguous_format)
