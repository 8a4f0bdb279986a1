"""What learners answered to each query, in the joint space: what confusion, accuracy by class, calibration and the
trade-off of novel and base need."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Answers:
    """E learners, Q queries. Positions in the joint space: base classes first, then the novel ones of the episode."""

    classes: Tensor  # (E, N) int16, which novel classes an episode has: positions among all novel classes
    true: Tensor  # (Q,) int16, positions in the joint space, the same for every learner; of streams (E, Q) where not
    answered: Tensor  # (E, Q) int16, positions in the joint space
    confidence: Tensor  # (E, Q) float16, the softmax probability of the answer, to 0.0005
    # (E, Q) float16: the bias of novel classes above which a novel sample is right, or up to which a base one is;
    # infinite where it is wrong among its own kind. None: recorded before there was this, or no novel classes yet.
    bound: Tensor | None = None


def answers(logits: Tensor, true: Tensor, classes: Tensor) -> Answers:
    """The answers that joint logits give. logits: (E, Q, C); true: (Q,) or (E, Q); classes: (E, N).

    confidence = max_c softmax(logits)_c = exp(max_c logits_c - log sum_c exp(logits_c))
    bound = max over base classes of logits_c - max over novel ones

    >>> found = answers(torch.tensor([[[0.0, 0.0, 0.0], [0.0, 9.0, 0.0]]]), torch.tensor([0, 2]), torch.tensor([[5]]))
    >>> found.answered.tolist(), [round(c, 3) for c in found.confidence[0].tolist()]
    ([[0, 1]], [0.333, 1.0])
    >>> found.bound.tolist()  # the first sample is of base class 0, the second of the novel one
    [[0.0, 9.0]]
    """
    top, answered = logits.float().max(-1)
    confidence = (top - logits.float().logsumexp(-1)).exp()
    return Answers(
        classes.to(torch.int16).cpu(),
        true.to(torch.int16).cpu(),
        answered.to(torch.int16).cpu(),
        confidence.to(torch.float16).cpu(),
        _bound(logits.float(), true.to(logits.device), classes.shape[1]) if classes.shape[1] else None,
    )


def _bound(logits: Tensor, true: Tensor, way: int) -> Tensor:
    base, most = logits.shape[-1] - way, torch.finfo(torch.float16).max
    (old, new), novel = logits.split([base, way], dim=-1), true >= base
    right = torch.where(novel, base + new.argmax(-1), old.argmax(-1)) == true
    lead = (old.amax(-1) - new.amax(-1)).clamp(-most, most)
    return torch.where(right, lead, torch.where(novel, torch.inf, -torch.inf)).to(torch.float16).cpu()
