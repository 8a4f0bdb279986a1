"""iCaRL: incremental classifier and representation learning (Rebuffi, Kolesnikov, Sperl, Lampert, CVPR 2017)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType

import torch
import torch.nn.functional as F
from torch import Tensor

from lcwof.learning import Batch, Descent, Learners, Scoring, descend
from lcwof.learning.losses import cross_entropy, distillation
from lcwof.methods.base import BEST, Base, Method, State, Task, register_method
from lcwof.methods.embeddings import class_means, embed, herded


@dataclass(frozen=True)
class ICaRLConfig:
    adapt: int = 1  # stages of the backbone that adapt, counted from the last
    exemplars: int = 20  # a base class, herded; of few-shot classes all shots are kept
    temperature: float = 2.0  # at which old and new answers are compared
    distillation: float = 1.0  # weight of that comparison
    novel_bias: float = 0.0  # added to the logits of few-shot classes
    descent: Descent = field(default_factory=lambda: Descent(epochs=40))


@dataclass
class ICaRLState(State):
    learners: Learners
    index: Tensor  # (E, n): the exemplars
    labels: Tensor  # (E, n): their classes
    base: Base

    @cached_property
    def means(self) -> Tensor:
        """(E, C, D): normalised means of the normalised exemplars, as the learners stand when first asked."""
        embedded = F.normalize(embed(self.base, self.index, self.learners), dim=-1)
        classes = self.learners.base_head.shape[1] + self.learners.novel_head.shape[1]
        return F.normalize(class_means(embedded, self.labels, classes), dim=-1)


@register_method("icarl")
class ICaRL(Method):
    """loss = CE over all classes + lambda T^2 KL(softmax(old / T) || softmax(new / T)) over old classes, on the new
    examples and on exemplars; exemplars of base classes are herded, shots are all kept. The class with the nearest mean
    of exemplars wins. Uses the shared base model, whose last stage adapts. Serves both protocols: in a stream, few-shot
    classes of earlier sessions are old ones, too.

    Choices: a softmax over all classes and a temperature, as incremental few-shot works compare with it, where the
    source has a sigmoid for each class and the old network's answers in place of the labels of old classes; 20
    exemplars a class, the source's 2,000 for 100 classes, from the first session on; a bias of few-shot classes tuned
    without test data. By default rates, batch, momentum, weight decay and gradient clip are those of phase 2 of
    `lcwof`, not taken from the source, and the 40 epochs are ours; `tune` tries another rate of the last stage, and
    fewer epochs."""

    Config = ICaRLConfig
    grid = MappingProxyType({"descent.lr_tail": (1e-4, 1e-3), "distillation": (1.0, 10.0), "novel_bias": (BEST,)})
    per_learner = frozenset({"descent.lr_head", "descent.lr_tail", "distillation"})
    stop = ("learning", "descent.epochs")
    config: ICaRLConfig

    def fit_base(self, base: Base) -> tuple[Tensor, Tensor]:
        """Exemplars of the base classes and their labels."""
        return herded(base, self.config.exemplars)

    def start(self, base: Base, fitted: tuple[Tensor, Tensor], learners: int) -> ICaRLState:
        index, labels = (x.expand(learners, -1) for x in fitted)
        return ICaRLState("learning", 0, Learners.start(base.inputs, learners), index, labels, base)

    def grow(self, base: Base, fitted: tuple[Tensor, Tensor], before: ICaRLState, task: Task) -> Iterator[ICaRLState]:
        old, learners = before.learners, before.learners.grown(task.way, task.draws)
        known = learners.base_head.shape[1]
        index = torch.cat([before.index, task.support], dim=1)
        labels = torch.cat([before.labels, task.labels + known], dim=1)

        def objective(batch: Batch) -> Tensor:
            found, taught = cross_entropy(batch.logits, batch.labels), old.taught(batch)[1]
            return found + self.config.distillation * distillation(batch.logits, taught, self.config.temperature)

        yield ICaRLState("learning", 0, learners, index, labels, base)
        heads, draws = ("base_head", "novel_head"), task.draws["icarl"]
        for epoch in descend(
            learners,
            heads,
            lambda epoch: (index, labels),
            base.inputs,
            self.config.descent,
            0.0,
            draws,
            "learning",
            objective,
            recordable=True,
        ):
            yield ICaRLState("learning", epoch, learners, index, labels, base)

    def kept(self, base: Base, memory: Task) -> int:
        return int(base.pool.counts.clamp_max(self.config.exemplars).sum()) + memory.support.shape[1]

    def logits(self, state: ICaRLState, maps: Tensor) -> Tensor:
        embedded = state.learners.structure.embed(state.learners.tail, maps)
        return -torch.cdist(F.normalize(embedded, dim=-1), state.means).square()

    def pack(self, state: ICaRLState) -> dict[str, Tensor]:
        return {**state.learners.weights(), "index": state.index, "labels": state.labels}

    def unpack(self, base: Base, fitted: tuple[Tensor, Tensor], tensors: dict[str, Tensor]) -> ICaRLState:
        learners = Learners.unpack(base.inputs.tail, tensors, Scoring())
        return ICaRLState("resumed", 0, learners, tensors["index"], tensors["labels"], base)
