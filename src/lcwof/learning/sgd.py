"""Stochastic gradient descent for E learners at once: every tensor is (E, ...), every norm is a learner's own."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor


def clip_by_learner(gradients: Mapping[str, Tensor], limit: float) -> None:
    """Scale each learner's gradient, over all its tensors together, to norm `limit` at most, in place."""
    norms = [torch.linalg.vector_norm(g.flatten(1), dim=1) for g in gradients.values()]
    scale = (limit / (torch.linalg.vector_norm(torch.stack(norms), dim=0) + 1e-6)).clamp_max(1.0)
    for gradient in gradients.values():
        gradient.mul_(scale.view(-1, *[1] * (gradient.dim() - 1)))


class SGD:
    """SGD with momentum and weight decay, decay joining the gradient after clipping (as torch.optim.SGD does).

    Everything happens in place: with E learners, memory traffic is what a step costs.
    """

    def __init__(self, rates: Mapping[str, float], momentum: float, decay: float, clip: float) -> None:
        self.rates, self.momentum, self.decay, self.clip = dict(rates), momentum, decay, clip
        self.velocity: dict[str, Tensor] = {}

    @torch.no_grad()
    def step(self, weights: Mapping[str, Tensor], gradients: Mapping[str, Tensor]) -> None:
        """Update the weights; the gradients are used up."""
        clip_by_learner(gradients, self.clip)
        for name, gradient in gradients.items():
            gradient.add_(weights[name], alpha=self.decay)
            if name in self.velocity:
                self.velocity[name].mul_(self.momentum).add_(gradient)
            else:
                self.velocity[name] = gradient
            weights[name].sub_(self.velocity[name], alpha=self.rates[name])
