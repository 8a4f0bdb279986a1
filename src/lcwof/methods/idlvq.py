"""Incremental deep learning vector quantization, IDLVQ-C (Chen, Lee, ICLR 2021)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lcwof.learning import Batch, Descent, Learners, Scoring, descend
from lcwof.learning.losses import mean_where
from lcwof.methods.base import BEST, Base, Method, State, Task, register_method
from lcwof.methods.embeddings import (
    balanced,
    base_images,
    base_means,
    class_means,
    embed,
    herded,
    squared_distances,
)
from lcwof.methods.meta import BaseTail, meta_train
from lcwof.methods.sdc import compensated
from lcwof.randomness import Randomness


@dataclass(frozen=True)
class ReferencesConfig:
    adapt: int = 1  # stages of the backbone that adapt, counted from the last
    intra: float = 0.1  # weight of the variation within classes, when base classes are learned and later
    base_steps: int = 300  # Adam steps that fit reference vectors and the last stages to the base classes
    base_lr: float = 1e-4  # the base model is a good start: larger steps make embeddings that serve base classes alone
    scale_lr: float = 0.1  # of s, which has far to go
    base_batch: int = 64
    exemplars: int = 20  # a base class, herded; of few-shot classes all shots are kept
    margin: float = 0.2  # by which an example should be nearer to its own reference vector, in squared distances
    less_forget: float = 5.0  # weight of keeping the embeddings of exemplars
    sigma: float = 0.3  # how near an exemplar must be to a reference vector for its drift to count
    novel_bias: float = 0.0  # added to the logits of few-shot classes
    descent: Descent = field(default_factory=lambda: Descent(epochs=40))


@dataclass
class ReferencesState(State):
    learners: Learners  # their heads are the reference vectors, those of known classes as they were before the task
    index: Tensor  # (E, n): the exemplars
    labels: Tensor  # (E, n): their classes
    calibrate: Callable[[Tensor], Tensor] = lambda references: references  # those of known classes, (E, C, D)

    @cached_property
    def settled(self) -> Learners:
        """The learners with calibrated reference vectors, as they stand when first asked."""
        return replace(self.learners, base_head=self.calibrate(self.learners.base_head))


@dataclass(frozen=True)
class Nearness(Scoring):
    """-scale ||f^ - m_c||^2: class weights are reference vectors among unit embeddings."""

    def logits(self, embedded: Tensor, heads: Tensor) -> Tensor:
        return -(self.scale or 1.0) * squared_distances(F.normalize(embedded, dim=-1), heads)


def quantization_loss(apart: Tensor, labels: Tensor, scale: Tensor, intra: float) -> Tensor:
    """-log softmax(-scale d)_y + intra * d_y, averaged over samples; d are squared distances to reference vectors.

    apart: (B, C); labels: (B,). Returns a number.

    >>> quantization_loss(torch.tensor([[1.0, 1.0]]), torch.tensor([0]), torch.tensor(3.0), 0.5)  # log 2 + 0.5
    tensor(1.1931)
    """
    own = apart.gather(-1, labels.unsqueeze(-1)).mean()
    return F.cross_entropy(-scale * apart, labels) + intra * own


def margin_loss(apart: Tensor, labels: Tensor, margin: float) -> Tensor:
    """max(margin + d_y - min over other classes of d_c, 0) of each sample: (E, B, C), (E, B) -> (E, B).

    >>> margin_loss(torch.tensor([[[0.5, 0.6, 2.0], [0.5, 0.6, 2.0]]]), torch.tensor([[0, 2]]), 0.3)
    tensor([[0.2000, 1.8000]])
    """
    own = apart.gather(-1, labels.unsqueeze(-1)).squeeze(-1)
    other = apart.scatter(-1, labels.unsqueeze(-1), torch.inf).min(-1).values
    return (margin + own - other).clamp_min(0)


class Quantizer(nn.Module):
    """What is trained on the base classes: the tail, a reference vector a class, the scale of distances."""

    def __init__(self, tail: BaseTail, references: Tensor) -> None:
        super().__init__()
        self.tail = tail
        self.references = nn.Parameter(references.clone())
        self.scale = nn.Parameter(torch.tensor(10.0, device=references.device))

    def apart(self, maps: Tensor) -> Tensor:
        """Squared distances to the reference vectors: (B, ...) -> (B, C)."""
        embedded = F.normalize(self.tail(maps[None]), dim=-1)
        return squared_distances(embedded, self.references[None])[0]


Fitted = tuple[Quantizer, Tensor, Tensor]  # and the exemplars of base classes, their labels


@register_method("idlvq")
class References(Method):
    """logits = -s ||f^(x) - m_c||^2 with a learned reference vector m_c a class. The base classes are learned by
    cross-entropy and the variation within classes, which draws embeddings to their reference vector: reference vectors,
    s and the last stages of the shared base model are trained so. A new class begins with the mean of its shots; then
    loss = a margin by which the own reference vector must be nearer than any other + variation within classes + how
    far the embeddings of exemplars of known classes have moved. Reference vectors of known classes stay while that is
    learned, and are then moved by the drift of the exemplars near them. Serves both protocols: in a stream, few-shot
    classes of earlier sessions are known ones, too, and all their shots exemplars.

    Only the abstract and descriptions by others were at hand. Choices: unit embeddings, so that margins mean the same
    under every backbone; one reference vector a class; the length of base training, on images as they are, since the
    base model is a good start; the exemplars, their number and their balanced replay as in `ucir`; the kernel of the
    drift as in `sdc`; a bias of few-shot classes tuned without test data. The weights of the losses, the margin and the
    rates of base training are ours; `tune` tries other weights of what must not move. By default rates, batch,
    momentum, weight decay and gradient clip of later sessions are those of phase 2 of `lcwof`, not taken from the
    source, and the 40 epochs are ours; `tune` tries fewer."""

    Config = ReferencesConfig
    grid = MappingProxyType({"less_forget": (0.2, 1.0, 5.0), "novel_bias": (BEST,)})
    per_learner = frozenset({"descent.lr_head", "descent.lr_tail", "less_forget"})
    stop = ("learning", "descent.epochs")
    config: ReferencesConfig

    def fit_base(self, base: Base) -> Fitted:
        config, device = self.config, base.inputs.device
        quantizer = Quantizer(BaseTail(base.inputs), base_means(base, normalise=True)).to(device)
        groups = base_images(base)
        images = torch.cat(groups).to(device)
        labels = torch.arange(len(groups)).repeat_interleave(base.pool.counts).to(device)

        def loss_of(step: int) -> Tensor:
            draws = Randomness.of_episodes(0, [step], device)["idlvq"]
            at = (draws.uniform(config.base_batch)[0] * len(images)).long()
            return quantization_loss(
                quantizer.apart(base.inputs.plain(images[at])), labels[at], quantizer.scale, config.intra
            )

        # Settings of later sessions must not make another training of the same network.
        same = ReferencesConfig(
            config.adapt, config.intra, config.base_steps, config.base_lr, config.scale_lr, config.base_batch
        )
        rates = {"scale": config.scale_lr}
        meta_train(References(same), base, quantizer, loss_of, config.base_steps, config.base_lr, rates=rates)
        return quantizer, *herded(base, config.exemplars, quantizer.tail.start(base.inputs, 1))

    def start(self, base: Base, fitted: Fitted, learners: int) -> ReferencesState:
        quantizer, index, labels = fitted
        scoring = Nearness(scale=float(quantizer.scale))
        begun = quantizer.tail.start(base.inputs, learners, scoring)
        begun.base_head = quantizer.references.expand(learners, -1, -1).clone()
        return ReferencesState("learning", 0, begun, index.expand(learners, -1), labels.expand(learners, -1))

    def grow(self, base: Base, fitted: Fitted, before: ReferencesState, task: Task) -> Iterator[ReferencesState]:
        config, old = self.config, before.settled
        learners = old.grown(task.way, task.draws)
        known, scale = learners.base_head.shape[1], learners.scoring.scale or 1.0
        shots = F.normalize(embed(base, task.support, old), dim=-1)
        learners.novel_head = class_means(shots, task.labels, task.way)
        index = torch.cat([before.index, task.support], dim=1)
        labels = torch.cat([before.labels, task.labels + known], dim=1)
        was = F.normalize(embed(base, before.index, old), dim=-1)

        def objective(batch: Batch) -> Tensor:
            apart = -batch.logits / scale
            stood = F.normalize(old.taught(batch)[0], dim=-1)
            moved = (F.normalize(batch.embedded, dim=-1) - stood).square().sum(-1)
            own = apart.gather(-1, batch.labels.unsqueeze(-1)).squeeze(-1)
            ranked = margin_loss(apart, batch.labels, config.margin) + config.intra * own
            return ranked.mean(-1) + config.less_forget * mean_where(moved, batch.labels < known)

        def calibrate(references: Tensor) -> Tensor:
            now = F.normalize(embed(base, before.index, learners), dim=-1)
            return compensated(references, was, now, config.sigma)

        yield ReferencesState("learning", 0, learners, index, labels, calibrate)
        draws = task.draws["idlvq"]
        for epoch in descend(
            learners,
            ("novel_head",),
            lambda epoch: balanced(index, labels, task.shots, draws["exemplars", epoch]),
            base.inputs,
            config.descent,
            0.0,
            draws,
            "learning",
            objective,
            recordable=True,
        ):
            yield ReferencesState("learning", epoch, learners, index, labels, calibrate)

    def kept(self, base: Base, memory: Task) -> int:
        return int(base.pool.counts.clamp_max(self.config.exemplars).sum()) + memory.support.shape[1]

    def logits(self, state: ReferencesState, maps: Tensor) -> Tensor:
        return state.settled.logits(maps)

    def pack(self, state: ReferencesState) -> dict[str, Tensor]:
        return {**state.settled.weights(), "index": state.index, "labels": state.labels}

    def unpack(self, base: Base, fitted: Fitted, tensors: dict[str, Tensor]) -> ReferencesState:
        scoring = Nearness(scale=float(fitted[0].scale))
        learners = Learners.unpack(base.inputs.tail, tensors, scoring)
        return ReferencesState("resumed", 0, learners, tensors["index"], tensors["labels"])
