"""From embeddings and class weights to logits."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from lcwof.errors import LcwofError
from lcwof.learning.inputs import Inputs


@dataclass(frozen=True)
class Scoring:
    """How well an embedding f fits a class weight w: w . f, or scale * cos((f - centre) whitening, w).

    With `bias` each class has one of its own: the weight of an input that is always 1, the last of D + 1.
    """

    scale: float | None = None  # None: a linear head
    centre: Tensor | None = None  # (D,): of the base classes' embeddings
    whitening: Tensor | None = None  # (D, D): makes the directions in which base classes vary count less
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
        apart = embedded if self.centre is None else embedded - self.centre
        return F.normalize(apart if self.whitening is None else apart @ self.whitening, dim=-1)

    def start_base(self, head: Tensor) -> Tensor:
        """Weights of the base classes to start from, given phase 1's, which has no bias. Where embeddings are
        whitened, the opposite is done to these: products with embeddings from the centre stay as they were."""
        if self.whitening is not None:
            head = torch.linalg.solve(self.whitening, head.mT).mT
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


def embed_plain(inputs: Inputs, images: Tensor) -> Tensor:
    """Embeddings of images under the base model: (C, n) -> (C, n, D)."""
    weights, flat = inputs.tail.copies(1), images.flatten()
    parts = [inputs.tail.embed(weights, inputs.plain(part[None]), once=True)[0] for part in flat.split(_AT_ONCE)]
    return torch.cat(parts).unflatten(0, images.shape)


def whitening_of(embedded: Tensor, shrink: float) -> Tensor:
    """(S / s + shrink)^-1/2, S being the covariance within classes and s its mean variance: (C, n, D) -> (D, D).

    >>> apart = torch.tensor([[[2.0, 0.0], [-2.0, 0.0], [0.0, 1.0], [0.0, -1.0]]])
    >>> whitening_of(apart, 0.0).diag()  # variances 2 and 0.5, 1.6 and 0.4 of their mean
    tensor([0.7906, 1.5811])
    """
    if embedded.shape[1] < 2:
        raise LcwofError("method.whiten needs two training images of every base class at least; there is one.")
    apart = (embedded - embedded.mean(dim=1, keepdim=True)).flatten(0, 1).cpu().double()  # which not every device has
    variances, axes = torch.linalg.eigh(apart.mT @ apart)
    return ((axes * (variances / variances.mean() + shrink).rsqrt()) @ axes.mT).float().to(embedded.device)


_AT_ONCE = 64
