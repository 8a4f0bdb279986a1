"""E adaptive models side by side: a tail and two heads each, over the shared trunk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.func import functional_call

from lcwof.errors import LcwofError
from lcwof.learning.inputs import Inputs, keyed_noise
from lcwof.learning.losses import cross_entropy
from lcwof.learning.sgd import SGD
from lcwof.models import BaseModel, Chain
from lcwof.models.layers import Noise
from lcwof.randomness import Randomness


@dataclass
class Learners:
    """The state of E learners. Joint logits are the base head's, then the novel head's."""

    chain: Chain  # the tail's structure and its shared BN statistics
    anchor: dict[str, Tensor]  # theta_1: the tail after phase 1
    tail: dict[str, Tensor]  # (E, ...) each
    base_head: Tensor  # (E, C_B, D): the classes known before
    novel_head: Tensor  # (E, C_N, D): the classes being learned

    @classmethod
    def start(cls, model: BaseModel, adapt: int, way: int, draws: Randomness) -> Learners:
        """E copies of the base model, each with a fresh head for `way` novel classes."""
        chain = model.frozen().backbone.tail(adapt)
        anchor = {name: weight.detach() for name, weight in chain.named_parameters()}
        tail = {name: stack(weight, len(draws)) for name, weight in anchor.items()}
        head = stack(model.head, len(draws))
        return cls(chain, anchor, tail, head, fresh_head(way, head, draws))

    def grown(self, way: int, draws: Randomness) -> Learners:
        """The same learners before their next classes: what was novel is known now, and a fresh head awaits."""
        tail = {name: weight.clone() for name, weight in self.tail.items()}
        known = torch.cat([self.base_head, self.novel_head], dim=1)
        return Learners(self.chain, self.anchor, tail, known, fresh_head(way, known, draws))

    def copy(self) -> Learners:
        tail = {name: weight.clone() for name, weight in self.tail.items()}
        return Learners(self.chain, self.anchor, tail, self.base_head.clone(), self.novel_head.clone())

    def weights(self) -> dict[str, Tensor]:
        """All adaptive tensors under one roof, as the optimiser sees them (the same tensors, not copies)."""
        return {**self.tail, "base_head": self.base_head, "novel_head": self.novel_head}

    def logits(self, maps: Tensor) -> Tensor:
        """Joint logits: maps (E, B, ...) -> (E, B, C_B + C_N)."""
        return self.joint(self.weights(), maps)

    def joint(self, weights: dict[str, Tensor], maps: Tensor, noise: Noise | None = None) -> Tensor:
        tail = {name: weights[name] for name in self.tail}
        embedded = functional_call(self.chain, tail, (maps, noise)) if tail else maps
        heads = torch.cat([weights["base_head"], weights["novel_head"]], dim=1)
        return (heads @ embedded.mT).mT


def fresh_head(way: int, known: Tensor, draws: Randomness) -> Tensor:
    """Weights for new classes beside a head (E, C, D), drawn as those of a default linear layer: U(±1/sqrt(D))."""
    dim = known.shape[-1]
    return (draws["novel head"].to(known.device).uniform(way, dim) * 2 - 1) / dim**0.5


def stack(tensor: Tensor, learners: int) -> Tensor:
    """E copies, (...) -> (E, ...), each free to change."""
    return tensor.detach().expand(learners, *tensor.shape).clone()


@dataclass(frozen=True)
class Descent:
    """How E learners descend: SGD with momentum, the same for every phase that trains them."""

    epochs: int
    batch: int = 16
    lr_head: float = 1e-2
    lr_tail: float = 1e-3
    momentum: float = 0.9
    weight_decay: float = 1e-4
    clip: float = 100.0  # largest gradient norm of a learner; keeps large lambdas stable, so part of the method
    loss_weight: float = 1.0  # of the cross-entropy


Samples = Callable[[int], tuple[Tensor, Tensor]]  # epoch -> image indices (E, M), joint labels (E, M)


def descend(
    learners: Learners,
    trainable: tuple[str, ...],
    samples: Samples,
    inputs: Inputs,
    how: Descent,
    lam: float,
    draws: Randomness,
    phase: str,
) -> Iterator[int]:
    """Train the tail and the named heads on joint cross-entropy + lambda L2^WC; yields after each epoch.

    Heads that are not named stay as they are, bit for bit. BN stays in evaluation mode throughout.
    """
    heads = {name: how.lr_head for name in trainable}
    optimiser = SGD(
        {**{name: how.lr_tail for name in learners.tail}, **heads}, how.momentum, how.weight_decay, how.clip
    )
    weights = learners.weights()
    draws = draws.to(inputs.device)
    for epoch in range(how.epochs):
        index, labels = samples(epoch)
        order = draws["order", epoch].permutation(index.shape[1])
        index, labels = index.gather(1, order), labels.gather(1, order)
        maps = inputs.augmented(index, draws["augment", epoch])
        finite = torch.ones(len(labels), dtype=torch.bool, device=labels.device)
        for step, at in enumerate(range(0, labels.shape[1], how.batch)):
            leaves = {name: weights[name].detach().requires_grad_() for name in optimiser.rates}
            noise = keyed_noise(draws["drop", epoch, step])
            logits = learners.joint({**weights, **leaves}, maps[:, at : at + how.batch], noise)
            loss = how.loss_weight * cross_entropy(logits, labels[:, at : at + how.batch])
            slopes = torch.autograd.grad(loss.sum(), list(leaves.values()))
            # Small ones are copied: autograd may hand out one tensor for two biases, and the step works in place.
            gradients = {n: g.clone() if g.dim() < 3 else g for n, g in zip(leaves, slopes, strict=True)}
            for name in learners.tail:  # the slope of lambda L2^WC, written out: autograd would copy every weight
                gradients[name].add_(weights[name], alpha=2 * lam).sub_(learners.anchor[name], alpha=2 * lam)
            optimiser.step(weights, gradients)
            finite &= loss.detach().isfinite()
        if not bool(finite.all()):
            who = draws.episodes[int((~finite).nonzero()[0])]
            raise LcwofError(
                f"{phase}, epoch {epoch + 1}, learner of episode {who}: the loss is not a number. "
                "Lower the learning rates or the weight constraint (lambda)."
            )
        yield epoch + 1
