"""Semantic drift compensation (Yu, Twardowski, Liu, Herranz, Wang, Cheng, Jui, van de Weijer, CVPR 2020)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from types import MappingProxyType

import torch
import torch.nn.functional as F
from torch import Tensor

from lcwof.learning import Descent, Learners, Scoring, descend
from lcwof.methods.base import BEST, Base, Method, State, Task, register_method
from lcwof.methods.embeddings import base_means, class_means, embed


@dataclass(frozen=True)
class DriftConfig:
    adapt: int = 1  # stages of the backbone that adapt, counted from the last
    sigma: float = 0.3  # how near a sample must be to a prototype for its drift to count, for unit embeddings
    novel_bias: float = 0.0  # added to the logits of few-shot classes
    descent: Descent = field(default_factory=lambda: Descent(epochs=40))


@dataclass
class DriftState(State):
    learners: Learners
    prototypes: Tensor  # (E, C, D)


def compensated(prototypes: Tensor, before: Tensor, after: Tensor, sigma: float) -> Tensor:
    """Prototypes moved by the drift of samples near them.

    p_c + sum_i w_i (after_i - before_i) / sum_i w_i, w_i = exp(-||before_i - p_c||^2 / 2 sigma^2).
    prototypes: (E, C, D); before, after: (E, M, D).
    """
    apart = torch.cdist(prototypes, before).square()  # (E, C, M)
    return prototypes + F.softmax(-apart / (2 * sigma**2), dim=-1) @ (after - before)


@register_method("sdc")
class Drift(Method):
    """Fine-tuning on the new examples by cross-entropy over all classes; then the prototypes of old classes move by the
    drift that the new examples show near them, p_c += sum_i w_i (f_new(x_i) - f_old(x_i)) / sum_i w_i with w_i =
    exp(-||f_old(x_i) - p_c||^2 / 2 sigma^2), and the nearest prototype (mean of unit embeddings) decides. Keeps no
    images. Uses the shared base model, whose last stage adapts. Serves both protocols: in a stream, few-shot classes of
    earlier sessions are old ones, too.

    sigma is the source's. Choices: a linear head and cross-entropy, where the source learns its embedding by a metric
    loss alone, with or without a loss against forgetting; a bias of few-shot classes tuned without test data. By
    default rates, batch, momentum, weight decay and gradient clip are those of phase 2 of `lcwof`, not taken from the
    source, and the 40 epochs are ours; `tune` tries other rates, and fewer epochs."""

    Config = DriftConfig
    grid = MappingProxyType({"descent.lr_head": (1e-3, 1e-2), "descent.lr_tail": (1e-4, 1e-3), "novel_bias": (BEST,)})
    per_learner = frozenset({"descent.lr_head", "descent.lr_tail"})
    stop = ("learning", "descent.epochs")
    config: DriftConfig

    def fit_base(self, base: Base) -> Tensor:
        return base_means(base, normalise=True)

    def start(self, base: Base, fitted: Tensor, learners: int) -> DriftState:
        prototypes = fitted.expand(learners, -1, -1)
        return DriftState("learning", 0, Learners.start(base.inputs, learners), prototypes)

    def grow(self, base: Base, fitted: Tensor, before: DriftState, task: Task) -> Iterator[DriftState]:
        learners = before.learners.grown(task.way, task.draws)
        labels = task.labels + learners.base_head.shape[1]
        was = F.normalize(embed(base, task.support, before.learners), dim=-1)

        def state(epoch: int) -> DriftState:
            now = F.normalize(embed(base, task.support, learners), dim=-1)
            old = compensated(before.prototypes, was, now, self.config.sigma)
            joint = torch.cat([old, class_means(now, task.labels, task.way)], dim=1)
            return DriftState("learning", epoch, learners, joint)

        yield state(0)
        heads = ("base_head", "novel_head")
        draws, how = task.draws["sdc"], self.config.descent
        samples = lambda epoch: (task.support, labels)  # noqa: E731
        for epoch in descend(learners, heads, samples, base.inputs, how, 0.0, draws, "learning"):
            yield state(epoch)

    def logits(self, state: DriftState, maps: Tensor) -> Tensor:
        embedded = F.normalize(state.learners.structure.embed(state.learners.tail, maps), dim=-1)
        return -torch.cdist(embedded, state.prototypes).square()

    def pack(self, state: DriftState) -> dict[str, Tensor]:
        return {**state.learners.weights(), "prototypes": state.prototypes}

    def unpack(self, base: Base, fitted: Tensor, tensors: dict[str, Tensor]) -> DriftState:
        learners = Learners.unpack(base.inputs.tail, tensors, Scoring())
        return DriftState("resumed", 0, learners, tensors["prototypes"])
