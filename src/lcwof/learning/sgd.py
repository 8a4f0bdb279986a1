"""Stochastic gradient descent for E learners at once: every tensor is (E, ...), every norm is a learner's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from lcwof.compute import Compute

# A setting of all learners, or one of each, (E,). Compiled code takes the former as a tensor too: as a constant, each
# new value would compile it anew.
Number = float | Tensor


def _add(to: Tensor, what: Tensor, times: Number) -> None:
    """to += times * what, in place."""
    if isinstance(times, Tensor):
        to.addcmul_(what, times)
    else:
        to.add_(what, alpha=times)


def clip_factors(gradients: Sequence[Tensor], limit: Number) -> Tensor:
    """What each learner's gradient, over all its tensors together, is multiplied by to have norm `limit` at most."""
    norms = torch.stack([torch.linalg.vector_norm(g, dim=1) for g in gradients])
    return (limit / (torch.linalg.vector_norm(norms, dim=0) + 1e-6)).clamp_max(1.0)


def update(
    weights: Sequence[Tensor],
    rounded: Sequence[Tensor],
    velocities: Sequence[Tensor],
    gradients: Sequence[Tensor],
    anchors: Sequence[Tensor | None],
    rates: Sequence[Number],
    pull: Number,
    momentum: Number,
    decay: Number,
    clip: Number,
) -> None:
    """One step of every tensor, (E, n) each, in place: with E learners, memory traffic is what a step costs.

    The slope of pull/2 ||w - anchor||^2 joins the gradient before clipping, weight decay after it (as torch.optim.SGD
    has it). `rounded` are the copies of the weights that the network computes with, or the weights themselves; the
    velocities of rounded weights are rounded too.
    """
    slopes = [g.float() for g in gradients]
    for slope, weight, anchor in zip(slopes, weights, anchors, strict=True):
        if anchor is not None:
            _add(slope, weight, pull)
            _add(slope, anchor, -pull)
    factors = clip_factors(slopes, clip)
    for slope, weight, velocity, low, rate in zip(slopes, weights, velocities, rounded, rates, strict=True):
        slope.mul_(factors[:, None])
        _add(slope, weight, decay)
        _add(slope, velocity.float(), momentum)
        velocity.copy_(slope)
        _add(weight, slope, -rate)
        if low is not weight:
            low.copy_(weight)


class SGD:
    """SGD with momentum, weight decay, a pull towards anchors and a limit on each learner's gradient norm."""

    def __init__(
        self,
        weights: Mapping[str, Tensor],
        rates: Mapping[str, Number],
        momentum: float,
        decay: float,
        clip: float,
        anchors: Mapping[str, Tensor] | None = None,
        pull: Number = 0.0,
        compute: Compute | None = None,
    ) -> None:
        """`weights` are changed in place; the network computes with `rounded`.

        A rate of 0, of all learners, fixes a weight, bit for bit. It is stepped all the same, so that compiled code
        serves every phase.
        """
        compute = compute or Compute(torch.device("cpu"))
        self.names = tuple(rates)
        self.moving = tuple(name for name in self.names if isinstance(rates[name], Tensor) or rates[name])
        self.rounded = {name: round_weight(weights[name], compute.dtype) for name in self.names}
        self._weights = [flat(weights[name]) for name in self.names]
        self._rounded = [
            weight if low is weights[name] else flat(low)
            for weight, (name, low) in zip(self._weights, self.rounded.items(), strict=True)
        ]
        self._velocities = [torch.zeros_like(low) for low in self._rounded]
        known = anchors or {}
        self._anchors = [flat(known[name][None])[0] if name in known else None for name in self.names]
        # In a stream heads grow, which have no anchors.
        grows = compute.parts and not compute.compiled
        self._growing = [grows and anchor is None for anchor in self._anchors]
        for tensors in (self._weights, self._rounded, self._velocities):
            self._mark(tensors)
        self._update = compute.jit(update, part=True, dynamic=None if grows else False)

        def as_number(x: Number) -> Number:
            if isinstance(x, Tensor):
                return x.to(compute.device).view(-1, 1)
            return torch.tensor(x, device=compute.device) if compute.parts else x

        self.rates = [as_number(rates[name]) for name in self.names]
        self.settings = [as_number(x) for x in (pull, momentum, decay, clip)]

    @torch.no_grad()
    def step(self, gradients: Sequence[Tensor]) -> None:
        """One step; the gradients, in the order of `moving`, are used up."""
        # Small ones are copied: autograd may hand out one tensor for two biases.
        given = {
            name: _rows(g).flatten(1) if g.dim() > 2 else g.clone()
            for name, g in zip(self.moving, gradients, strict=True)
        }
        slopes = [
            given[name] if name in given else torch.zeros_like(weight)
            for name, weight in zip(self.names, self._weights, strict=True)
        ]
        self._mark(slopes)
        self._update(self._weights, self._rounded, self._velocities, slopes, self._anchors, self.rates, *self.settings)

    def _mark(self, tensors: Sequence[Tensor]) -> None:
        """Tell the compiler which sizes change, so that it compiles once for all."""
        for tensor, grows in zip(tensors, self._growing, strict=True):
            if grows:
                torch._dynamo.maybe_mark_dynamic(tensor, 1)


def flat(stacked: Tensor) -> Tensor:
    """(E, ...) as (E, n), the same memory: stacked convolutions have their channels last."""
    return _rows(stacked).view(len(stacked), -1)


def _rows(stacked: Tensor) -> Tensor:
    return stacked.movedim(2, -1) if stacked.dim() == 5 else stacked


def round_weight(weight: Tensor, dtype: torch.dtype) -> Tensor:
    """A stacked weight as the tail multiplies with it. What is small (heads, biases, BN) stays float32."""
    return weight.to(dtype) if weight.dim() > 3 else weight
