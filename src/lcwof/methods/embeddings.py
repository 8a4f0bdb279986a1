"""What several methods do with embeddings: those of base images, class means, herding."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from lcwof.learning import Learners
from lcwof.methods.base import Base

_AT_ONCE = 256


@torch.no_grad()
def embed(base: Base, index: Tensor, learners: Learners | None = None) -> Tensor:
    """Embeddings of plain images, (E, M) -> (E, M, D): of the learners, or of the base model."""
    tail = learners.tail if learners else base.inputs.tail.copies(len(index))
    parts = index.split(max(1, _AT_ONCE // len(index)), dim=1)
    return torch.cat([base.inputs.tail.embed(tail, base.inputs.plain(part), once=True) for part in parts], dim=1)


def base_embeddings(base: Base) -> list[Tensor]:
    """Embeddings, under the base model, of the training images of each base class: (n, D) each."""
    groups = [row[:count] for row, count in zip(base.pool.table, base.pool.counts.tolist(), strict=True)]
    together = embed(base, torch.cat(groups)[None])[0]
    return list(together.split([len(group) for group in groups]))


def base_means(base: Base, normalise: bool = False) -> Tensor:
    """Mean embedding of the training images of each base class, (C_B, D)."""
    return torch.stack([(F.normalize(x, dim=-1) if normalise else x).mean(0) for x in base_embeddings(base)])


def class_means(embedded: Tensor, labels: Tensor, classes: int) -> Tensor:
    """Mean embedding of each class. embedded: (E, M, D); labels: (E, M). Returns (E, classes, D).

    >>> class_means(torch.tensor([[[1.0], [3.0], [5.0]]]), torch.tensor([[0, 0, 1]]), 2)
    tensor([[[2.],
             [5.]]])
    """
    member = F.one_hot(labels, classes).to(embedded.dtype)  # (E, M, classes)
    return member.mT @ embedded / member.sum(1).unsqueeze(-1)


def herd(embedded: Tensor, count: int) -> Tensor:
    """Positions of `count` samples whose running mean stays closest to the mean of all (Welling 2009), in that order.

    >>> herd(torch.tensor([[0.0], [4.0], [1.0], [10.0], [5.0]]), 3)  # the mean is 4: 4, then 5, then 1 rather than 10
    tensor([1, 4, 2])
    """
    mean, total = embedded.mean(0), torch.zeros_like(embedded[0])
    free = torch.ones(len(embedded), dtype=torch.bool, device=embedded.device)
    chosen = []
    for k in range(1, min(count, len(embedded)) + 1):
        apart = (mean - (total + embedded) / k).square().sum(-1)
        best = int(apart.masked_fill(~free, torch.inf).argmin())
        chosen.append(best)
        total, free[best] = total + embedded[best], False
    return torch.tensor(chosen)
