"""Stochastic gradient descent for E learners at once: every tensor is (E, ...), every norm is a learner's own."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor


def clip_by_learner(gradients: dict[str, Tensor], limit: float) -> dict[str, Tensor]:
    """Scale each learner's gradient, over all its tensors together, to norm `limit` at most."""
    squares = [g.square().flatten(1).sum(1) for g in gradients.values()]
    norm = torch.stack(squares).sum(0).sqrt()
    scale = (limit / (norm + 1e-6)).clamp_max(1.0)
    return {name: g * scale.view(-1, *[1] * (g.dim() - 1)) for name, g in gradients.items()}


class SGD:
    """SGD with momentum and weight decay, decay joining the gradient after clipping (as torch.optim.SGD does)."""

    def __init__(self, rates: Mapping[str, float], momentum: float, decay: float, clip: float) -> None:
        self.rates, self.momentum, self.decay, self.clip = dict(rates), momentum, decay, clip
        self.velocity: dict[str, Tensor] = {}

    def step(self, weights: dict[str, Tensor], gradients: dict[str, Tensor]) -> None:
        """Update the weights in place."""
        with torch.no_grad():
            for name, gradient in clip_by_learner(gradients, self.clip).items():
                total = gradient.add_(weights[name], alpha=self.decay)
                if name in self.velocity:
                    self.velocity[name].mul_(self.momentum).add_(total)
                else:
                    self.velocity[name] = total
                weights[name].sub_(self.velocity[name], alpha=self.rates[name])
