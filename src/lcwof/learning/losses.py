"""The paper's losses as pure functions, one value a learner."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean cross-entropy of each learner. logits: (E, B, C); labels: (E, B). Returns (E,).

    >>> cross_entropy(torch.zeros(1, 2, 4), torch.tensor([[0, 3]])).exp()
    tensor([4.])
    """
    flat = F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten(), reduction="none")
    return flat.view(labels.shape).mean(dim=1)


def mean_where(values: Tensor, which: Tensor) -> Tensor:
    """Mean of each learner's values over the marked ones, 0 without any. (E, B), (E, B) -> (E,).

    >>> mean_where(torch.tensor([[1.0, 2.0, 6.0]]), torch.tensor([[True, False, True]]))
    tensor([3.5000])
    """
    marked = which.to(values.dtype)
    return (values * marked).sum(-1) / marked.sum(-1).clamp_min(1)


def base_normalized_cross_entropy(base_logits: Tensor, novel_logits: Tensor, labels: Tensor) -> Tensor:
    """CE_BN, equation 2: novel samples scored in the joint space.

    -log( exp(o_y) / (sum over novel exp(o_j) + sum over base exp(o_k)) )

    base_logits: (E, B, C_B); novel_logits: (E, B, C_N); labels: (E, B), positions among the novel classes.
    Returns (E,). Without base classes it is the plain cross-entropy of equation 1:

    >>> novel = torch.tensor([[[2.0, 0.0]]])
    >>> label = torch.tensor([[0]])
    >>> same = base_normalized_cross_entropy(torch.empty(1, 1, 0), novel, label)
    >>> bool(torch.equal(same, cross_entropy(novel, label)))
    True
    """
    joint = torch.cat([base_logits, novel_logits], dim=-1)
    return cross_entropy(joint, labels + base_logits.shape[-1])


def labelled_cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean cross-entropy of each learner over the samples that have a label; the others' is -1. Returns (E,).

    >>> labelled_cross_entropy(torch.zeros(1, 2, 4), torch.tensor([[3, -1]])).exp()
    tensor([4.])
    """
    flat = F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten(), ignore_index=-1, reduction="none")
    return flat.view(labels.shape).sum(dim=1) / (labels >= 0).sum(dim=1).clamp_min(1)


def distillation(logits: Tensor, taught: Tensor, temperature: float) -> Tensor:
    """T^2 KL of softened answers, over the classes that the teacher knows. (E, B, C), (E, B, C_old) -> (E,)."""
    heat = temperature
    mine = F.log_softmax(logits[..., : taught.shape[-1]] / heat, dim=-1)
    theirs = F.log_softmax(taught / heat, dim=-1)
    return heat**2 * (theirs.exp() * (theirs - mine)).sum(-1).mean(-1)


def weight_constraint(theta: Mapping[str, Tensor], anchor: Mapping[str, Tensor]) -> Tensor:
    """L2^WC, equation 3: sum of squared distances of each learner's weights (E, ...) to the anchor's (...).

    >>> weight_constraint({"w": torch.ones(2, 3)}, {"w": torch.zeros(3)})
    tensor([3., 3.])
    """
    parts = [(theta[name] - anchor[name]).square().flatten(1).sum(1) for name in theta]
    return torch.stack(parts).sum(0)
