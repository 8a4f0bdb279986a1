"""E adaptive models side by side: a tail and two heads each, over the shared trunk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TypeVar

import torch
from torch import Tensor

from lcwof.errors import Diverged, LcwofError
from lcwof.learning.inputs import Inputs
from lcwof.learning.losses import cross_entropy
from lcwof.learning.recording import Recorded, side_streams
from lcwof.learning.scoring import Scoring
from lcwof.learning.sgd import SGD
from lcwof.learning.tail import Tail, stack
from lcwof.models.layers import stacked_layout
from lcwof.randomness import Randomness

_LOOK_EVERY = 10  # epochs between two looks at the losses: looking makes a GPU wait
_WORTH_RECORDING = 8  # epochs


@dataclass
class Learners:
    """The state of E learners. Joint logits are the base head's, then the novel head's."""

    structure: Tail
    scoring: Scoring
    tail: dict[str, Tensor]  # (E, ...) each
    base_head: Tensor  # (E, C_B, D): the classes known before
    novel_head: Tensor  # (E, C_N, D): the classes being learned
    statistics: dict[str, Tensor] = field(default_factory=dict)  # (E, C) each, of BN; none: the base model's, fixed

    @classmethod
    def start(
        cls, inputs: Inputs, learners: int, scoring: Scoring | None = None, own_statistics: bool = False
    ) -> Learners:
        """E copies of the base model, without novel classes."""
        scoring = scoring or Scoring()
        head = stack(scoring.start_base(inputs.model.head), learners)
        own = inputs.tail.statistics if own_statistics else {}
        statistics = {name: stack(x, learners) for name, x in own.items()}
        return cls(inputs.tail, scoring, inputs.tail.copies(learners), head, head[:, :0], statistics)

    @torch.no_grad()
    def start_from_means(self, inputs: Inputs, support: Tensor, labels: Tensor) -> None:
        """Start the novel head from the examples, (E, M) each, instead of at random; labels are joint ones."""
        embedded = self.structure.embed(self.weights(), inputs.plain(support), once=True)
        own = labels - self.base_head.shape[1]
        self.novel_head = self.scoring.start_novel(embedded, own, self.novel_head.shape[1], self.base_head)

    def grown(self, way: int, draws: Randomness) -> Learners:
        """The same learners before their next classes: what was novel is known now, and a fresh head awaits."""
        known = torch.cat([self.base_head, self.novel_head], dim=1)
        return replace(self.copy(), base_head=known, novel_head=fresh_head(way, known, draws))

    def copy(self) -> Learners:
        tail, statistics = ({name: x.clone() for name, x in part.items()} for part in (self.tail, self.statistics))
        heads = self.base_head.clone(), self.novel_head.clone()
        return Learners(self.structure, self.scoring, tail, *heads, statistics)

    @classmethod
    def unpack(cls, tail: Tail, weights: dict[str, Tensor], scoring: Scoring) -> Learners:
        """Learners with the given `weights()`."""
        own = {name: stacked_layout(weights[name]) for name in tail.anchor}
        statistics = {name: weights[name].clone() for name in tail.statistics if name in weights}
        return cls(tail, scoring, own, weights["base_head"].clone(), weights["novel_head"].clone(), statistics)

    def weights(self) -> dict[str, Tensor]:
        """All adaptive tensors under one roof, as the optimiser sees them (the same tensors, not copies)."""
        return {**self.tail, "base_head": self.base_head, "novel_head": self.novel_head, **self.statistics}

    def logits(self, maps: Tensor) -> Tensor:
        """Joint logits: maps (E, B, ...) -> (E, B, C_B + C_N)."""
        return self.joint(self.weights(), maps)

    def joint(self, weights: dict[str, Tensor], maps: Tensor) -> Tensor:
        return self.scored(weights, maps)[1]

    def scored(
        self, weights: dict[str, Tensor], maps: Tensor, keys: Tensor | None = None, blocks: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Embeddings and joint logits."""
        embedded = self.structure.embed(weights, maps, keys, blocks)
        heads = torch.cat([weights["base_head"], weights["novel_head"]], dim=1)
        return embedded, self.scoring.logits(embedded, heads)

    @torch.no_grad()
    def taught(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Embeddings and joint logits of a batch to hold other learners to. The same is dropped as with these, so that
        learners with these weights would not be at fault; BN statistics of their own stay as they are."""
        return self.scored(self.weights(), batch.maps, None if self.statistics else batch.keys, batch.blocks)


def fresh_head(way: int, known: Tensor, draws: Randomness) -> Tensor:
    """Weights for new classes beside a head (E, C, D), drawn as those of a default linear layer: U(±1/sqrt(D))."""
    dim = known.shape[-1]
    return (draws["novel head"].to(known.device).uniform(way, dim) * 2 - 1) / dim**0.5


@dataclass(frozen=True)
class Descent:
    """How E learners descend: SGD with momentum, the same for every phase that trains them. Rates and the weight
    of the loss may be tensors (E,), one a learner."""

    epochs: int
    batch: int = 16
    lr_head: float = 1e-2  # of the weights of classes
    lr_tail: float = 1e-3  # of the adaptive stages of the backbone
    momentum: float = 0.9
    weight_decay: float = 1e-4
    clip: float = 100.0  # largest gradient norm of a learner; keeps large lambdas stable, so part of the method
    loss_weight: float = 1.0  # of the cross-entropy
    views: int = 32  # augmented ones of a replayed image, to draw from; 0: new ones, as few-shot examples always have
    drop_blocks: bool = False  # whether DropBlock drops: the authors' ramps up anew in every episode, and hardly does
    least_crop: float | None = None  # area of the smallest random crops, as a part of the image; None: the data's own

    def __post_init__(self) -> None:
        if self.least_crop is not None and not 0 < self.least_crop <= 1:
            raise LcwofError(f"least_crop = {self.least_crop}: a part of the image's area, above 0 and at most 1.")


Samples = Callable[[int], tuple[Tensor, Tensor]]  # epoch -> image indices (E, M), joint labels (E, M)


@dataclass(frozen=True)
class Batch:
    """What a loss may look at: maps (E, B, ...), embeddings (E, B, D), joint logits (E, B, C), labels (E, B), what the
    drop layers drop by, (E,), and whether DropBlock does."""

    maps: Tensor
    embedded: Tensor
    logits: Tensor
    labels: Tensor
    keys: Tensor | None = None
    blocks: bool = False


Objective = Callable[[Batch], Tensor]  # the loss of each learner, (E,)


def joint_cross_entropy(batch: Batch) -> Tensor:
    return cross_entropy(batch.logits, batch.labels)


def descend(
    learners: Learners,
    trainable: tuple[str, ...],
    samples: Samples,
    inputs: Inputs,
    how: Descent,
    lam: float,
    draws: Randomness,
    phase: str,
    objective: Objective = joint_cross_entropy,
    shuffled: bool = True,
    recordable: bool = False,
) -> Iterator[int]:
    """Train the tail and the named heads on an objective + lambda L2^WC; yields after each epoch.

    Heads that are not named stay as they are, bit for bit. BN stays in evaluation mode throughout, unless the learners
    have statistics of their own.

    recordable: the objective does the same to every batch, waits for no value of a tensor, and changes what it keeps in
    place. A card may then repeat what it did once (`Recorded`), without asking again.
    """
    weights = learners.weights()
    rates = {name: how.lr_tail for name in learners.tail}
    rates |= {name: how.lr_head if name in trainable else 0.0 for name in ("base_head", "novel_head")}
    anchors = learners.structure.anchor
    optimiser = SGD(weights, rates, how.momentum, how.weight_decay, how.clip, anchors, 2 * lam, inputs.compute)
    draws, shown = draws.to(inputs.device), inputs.cropped(how.least_crop)

    def epochs() -> Iterator[tuple[Tensor, Tensor]]:
        for epoch in range(how.epochs):
            index, labels = samples(epoch)
            if shuffled:
                order = draws["order", epoch].permutation(index.shape[1])
                index, labels = index.gather(1, order), labels.gather(1, order)
            few = labels >= len(inputs.model.head)
            yield shown.augmented(index, draws["augment", epoch], how.drop_blocks, how.views, few), labels

    def step(maps: Tensor, labels: Tensor, keys: Tensor) -> Tensor:
        leaves = {name: optimiser.rounded[name].detach().requires_grad_() for name in optimiser.moving}
        found = learners.scored({**weights, **leaves}, maps, keys, how.drop_blocks)
        loss = how.loss_weight * objective(Batch(maps, *found, labels, keys, how.drop_blocks))
        optimiser.step(torch.autograd.grad(loss.sum(), list(leaves.values())))
        return loss.detach()

    recordable = (recordable or objective is joint_cross_entropy) and how.epochs >= _WORTH_RECORDING
    recorded = Recorded(step, inputs.device) if recordable and inputs.compute.records else None
    failed = torch.zeros(len(draws), dtype=torch.long, device=inputs.device)  # the epoch, if any, of a loss not finite
    # Maps that are kept are only looked up: nothing to do beside other work.
    ready = one_ahead(epochs(), inputs.device) if inputs.augments else epochs()
    try:
        for epoch, (maps, labels) in enumerate(ready):
            for number, at in enumerate(range(0, labels.shape[1], how.batch)):
                batch = slice(at, at + how.batch)
                keys = draws["drop", epoch, number].keys
                loss = (recorded or step)(maps[:, batch].contiguous(), labels[:, batch], keys)
                failed = torch.where(loss.isfinite() | (failed > 0), failed, epoch + 1)
            if epoch % _LOOK_EVERY == 0 or epoch + 1 == how.epochs:
                _require_finite(failed, draws, phase)
            yield epoch + 1
    finally:
        if recorded:
            recorded.forget()


def _require_finite(failed: Tensor, draws: Randomness, phase: str) -> None:
    found = failed.tolist()
    if any(found):
        epoch, who = min((epoch, who) for epoch, who in zip(found, draws.episodes, strict=True) if epoch)
        raise Diverged(
            f"{phase}, epoch {epoch}, learner of episode {who}: the loss is not a number. "
            "Lower the learning rates or the weight constraint (lambda)."
        )


Item = TypeVar("Item", bound=tuple[Tensor, ...])


def one_ahead(items: Iterator[Item], device: torch.device) -> Iterator[Item]:
    """The items; on a CUDA card each is made beside the work on the one before, so that neither waits for memory."""
    if device.type != "cuda":
        yield from items
        return
    beside, here = side_streams(device)[0], torch.cuda.current_stream(device)
    beside.wait_stream(here)

    def make() -> Item | None:
        with torch.cuda.stream(beside):
            return next(items, None)

    item = make()
    while item is not None:
        here.wait_stream(beside)
        for tensor in item:
            tensor.record_stream(here)
        ready, item = item, make()
        yield ready
