"""From embeddings and class weights to logits."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from lcwof.learning.inputs import Inputs


@dataclass(frozen=True)
class Scoring:
    """How well an embedding f fits a class weight w: w . f, or scale * cos(f - centre, w).

    With `bias` each class has one of its own: the weight of an input that is always 1, the last of D + 1.
    """

    scale: float | None = None  # None: a linear head
    centre: Tensor | None = None  # (D,): of the base classes' embeddings
    bias: bool = False  # of a linear head

    def logits(self, embedded: Tensor, heads: Tensor) -> Tensor:
        """embedded: (E, B, D); heads: (E, C, D). Returns (E, B, C)."""
        if self.scale is not None:
            embedded = self.directions(embedded)
            heads = F.normalize(heads, dim=-1)
        if self.bias:
            embedded = F.pad(embedded, (0, 1), value=1.0)
        logits = (heads @ embedded.mT).mT
        return logits if self.scale is None else self.scale * logits

    def directions(self, embedded: Tensor) -> Tensor:
        """Unit vectors from the centre to embeddings."""
        return F.normalize(embedded if self.centre is None else embedded - self.centre, dim=-1)

    def start_base(self, head: Tensor) -> Tensor:
        """Weights of the base classes to start from, given phase 1's, which has no bias."""
        head = head if self.scale is None else F.normalize(head, dim=-1)
        return F.pad(head, (0, 1)) if self.bias else head

    def start_novel(self, embedded: Tensor, labels: Tensor, way: int, known: Tensor) -> Tensor:
        """Weights of few-shot classes from their examples: the mean direction, as long as the known weights are.

        embedded: (E, M, D); labels: (E, M), positions among the new classes; known: (E, C, D). Returns (E, way, D).
        """
        member = F.one_hot(labels, way).to(embedded.dtype)  # (E, M, way)
        means = F.normalize(member.mT @ self.directions(embedded), dim=-1)
        known = known[..., : means.shape[-1]]
        found = means * known.norm(dim=-1).mean(dim=1).view(-1, 1, 1)
        return F.pad(found, (0, 1)) if self.bias else found


def centre_of(inputs: Inputs, images: Tensor) -> Tensor:
    """The mean embedding, under the base model, of the given images: (n,) -> (D,)."""
    weights = inputs.tail.copies(1)
    parts = [inputs.tail.embed(weights, inputs.plain(part[None]), once=True) for part in images.split(_AT_ONCE)]
    return torch.cat(parts, dim=1).mean(dim=(0, 1))


_AT_ONCE = 64
