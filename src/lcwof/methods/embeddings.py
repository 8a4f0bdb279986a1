"""What several methods do with embeddings: those of base images, class means, herding."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from torch import Tensor

from lcwof.learning import Inputs, Learners
from lcwof.methods.base import Base
from lcwof.randomness import Randomness

_AT_ONCE = 256
# Base training images and their embeddings under the base model: methods of a study ask for the same ones again.
_of_base: WeakKeyDictionary[Inputs, tuple[Tensor, Tensor]] = WeakKeyDictionary()


@torch.no_grad()
def embed(base: Base, index: Tensor, learners: Learners | None = None) -> Tensor:
    """Embeddings of plain images, (E, M) -> (E, M, D): of the learners, or of the base model."""
    tail = learners.weights() if learners else base.inputs.tail.copies(len(index))
    parts = index.split(max(1, _AT_ONCE // len(index)), dim=1)
    return torch.cat([base.inputs.tail.embed(tail, base.inputs.plain(part), once=True) for part in parts], dim=1)


def base_images(base: Base) -> list[Tensor]:
    """The training images of each base class, as indices: (n,) each."""
    return [row[:count] for row, count in zip(base.pool.table, base.pool.counts.tolist(), strict=True)]


def base_embeddings(base: Base, learner: Learners | None = None) -> list[Tensor]:
    """Embeddings, under the base model or one learner, of the training images of each base class: (n, D) each."""
    groups = base_images(base)
    index = torch.cat(groups)
    known = _of_base.get(base.inputs) if learner is None else None
    if known is None or not torch.equal(known[0], index):
        known = index, embed(base, index[None], learner)[0]
        if learner is None:
            _of_base[base.inputs] = known
    return list(known[1].split([len(group) for group in groups]))


def base_means(base: Base, normalise: bool = False, learner: Learners | None = None) -> Tensor:
    """Mean embedding of the training images of each base class, (C_B, D)."""
    groups = base_embeddings(base, learner)
    return torch.stack([(F.normalize(x, dim=-1) if normalise else x).mean(0) for x in groups])


def squared_distances(embedded: Tensor, to: Tensor) -> Tensor:
    """||f - m||^2 with slopes that are finite at 0: (E, B, D), (E, C, D) -> (E, B, C).

    >>> squared_distances(torch.tensor([[[1.0, 2.0]]]), torch.tensor([[[1.0, 0.0], [1.0, 2.0]]]))
    tensor([[[4., 0.]]])
    """
    lengths = embedded.square().sum(-1, keepdim=True) + to.square().sum(-1).unsqueeze(-2)
    return (lengths - 2 * embedded @ to.mT).clamp_min(0)


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


def herded(base: Base, count: int, learner: Learners | None = None) -> tuple[Tensor, Tensor]:
    """Up to `count` exemplars of each base class, herded among unit embeddings, under the base model or one learner:
    image indices (n,), labels (n,)."""
    chosen = [herd(F.normalize(x, dim=-1), count) for x in base_embeddings(base, learner)]
    index = torch.cat([row[at] for row, at in zip(base.pool.table, chosen, strict=True)])
    labels = torch.arange(len(chosen)).repeat_interleave(torch.tensor([len(at) for at in chosen]))
    return index.to(base.inputs.device), labels.to(base.inputs.device)


def balanced(index: Tensor, labels: Tensor, each: int, draws: Randomness) -> tuple[Tensor, Tensor]:
    """At most `each` random images of every class: index and labels (E, n) -> (E, m). Classes have as many images with
    one learner as with another, as those that learn together have.

    >>> index, labels = torch.arange(6).view(1, 6), torch.tensor([[0, 0, 0, 0, 1, 1]])
    >>> balanced(index, labels, 2, Randomness.of_episodes(0, [0]))[1]
    tensor([[0, 0, 1, 1]])
    """
    order = (labels + draws.to(labels.device).uniform(labels.shape[1])).argsort(dim=1)  # by class, at random within
    counts = torch.bincount(labels[0])
    rank = torch.cat([torch.arange(int(count)) for count in counts])
    kept = order[:, (rank < each).to(order.device)]
    return index.gather(1, kept), labels.gather(1, kept)


def cosine_head(base: Base, steps: int, lr: float) -> tuple[Tensor, Tensor]:
    """Unit weights of the base classes and the scale of logits = scale * cos(f, w), fitted by full-batch Adam to the
    embeddings of the base training images: (C_B, D), (). Without steps weights stay at the class means, where those of
    new classes will be, and the scale alone is fitted."""
    groups = base_embeddings(base)
    labels = torch.arange(len(groups)).repeat_interleave(torch.tensor([len(x) for x in groups]))
    embedded = F.normalize(torch.cat(groups), dim=-1)
    labels = labels.to(embedded.device)
    weights = torch.stack([F.normalize(x, dim=-1).mean(0) for x in groups])
    if not steps:
        weights = F.normalize(weights, dim=-1)
        return weights, fitted_scale(embedded @ weights.T, labels)
    weights.requires_grad_()
    scale = torch.tensor(10.0, device=embedded.device, requires_grad=True)
    parts: list[dict[str, Any]] = [{"params": [weights]}, {"params": [scale], "lr": 10 * lr}]  # a scale goes far
    optimiser = torch.optim.Adam(parts, lr=lr)
    for _ in range(steps):
        loss = F.cross_entropy(scale * embedded @ F.normalize(weights, dim=-1).T, labels)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return F.normalize(weights.detach(), dim=-1), scale.detach()


def fitted_scale(cosines: Tensor, labels: Tensor) -> Tensor:
    """The s, from 1 to 1000, that makes the cross-entropy of s * cosines least, by Newton's steps. (N, C), (N,) -> ().

    Of three samples alike, two are of the class with the larger cosine: exp(0.1 s) = 2.

    >>> round(fitted_scale(torch.tensor([[0.5, 0.4]] * 3), torch.tensor([0, 0, 1])).item(), 4)
    6.9315
    """
    own, scale = cosines.gather(1, labels.unsqueeze(-1)).squeeze(-1), cosines.new_tensor(10.0)
    for _ in range(50):
        probability = (scale * cosines).softmax(-1)
        mean = (probability * cosines).sum(-1)
        slope = (mean - own).mean()
        bend = ((probability * cosines.square()).sum(-1) - mean.square()).mean().clamp_min(1e-12)
        scale = (scale - slope / bend).clamp(scale / 2, 2 * scale).clamp(1, 1000)
    return scale
