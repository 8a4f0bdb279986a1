"""Prototypical networks (Snell, Swersky, Zemel, NeurIPS 2017)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lcwof.errors import LcwofError
from lcwof.methods.base import BEST, Base, Method, State, Task, register_method
from lcwof.methods.embeddings import base_images, base_means, class_means, squared_distances
from lcwof.methods.meta import BaseTail, FakeSource, meta_train


@dataclass(frozen=True)
class PrototypesConfig:
    novel_bias: float = 0.0  # added to the logits of few-shot classes: the method's only way to balance
    meta_steps: int = 0  # episodic training steps of the last stages; 0: the shared base model as it is
    meta_adapt: int = 1  # how many stages that trains, counted from the last
    meta_lr: float = 1e-4  # the base model is a good start, which larger steps leave
    meta_episodes: int = 1  # a step, as in the original
    meta_way: int = 20  # more classes than a test episode has, as the authors advise; at most those there are
    meta_shots: tuple[int, ...] = (1, 5)  # in turn
    meta_queries: int = 15  # a class


class Fitted(NamedTuple):
    means: Tensor  # (C_B, D): prototypes of the base classes
    tail: nn.Module  # from maps to embeddings


@dataclass
class PrototypesState(State):
    prototypes: Tensor  # (E, C, D)
    tail: nn.Module


def episodic_loss(shots: Tensor, labels: Tensor, queries: Tensor, answers: Tensor, way: int, scale: Tensor) -> Tensor:
    """Cross-entropy of queries under logits = -scale ||f - p_c||^2, p_c the mean of the shots of class c.

    shots: (E, M, D); labels: (E, M); queries: (E, Q, D); answers: (E, Q). Returns a number.
    """
    logits = -scale * squared_distances(queries, class_means(shots, labels, way))
    return F.cross_entropy(logits.flatten(0, 1), answers.flatten())


class Episodic(nn.Module):
    """What episodic training trains: the tail, and a scale of distances, which has no say in what is nearest."""

    def __init__(self, tail: BaseTail, unit: float) -> None:
        super().__init__()
        self.tail = tail
        self.unit = unit  # of squared distances
        # In those units; the base model's own loss was lowest about there, with a convolutional net and an mlp.
        self.log_scale = nn.Parameter(torch.tensor(5.0, device=next(tail.parameters()).device).log())

    def loss(self, support: Tensor, labels: Tensor, queries: Tensor, answers: Tensor, way: int) -> Tensor:
        """`episodic_loss` of maps."""
        together = self.tail(torch.cat([support, queries], dim=1))
        shots, asked = together.split([support.shape[1], queries.shape[1]], dim=1)
        return episodic_loss(shots, labels, asked, answers, way, self.log_scale.exp() / self.unit)


@register_method("pn")
class Prototypes(Method):
    """logits = -||f(x) - p_c||^2 with p_c the mean embedding of class c: of all its training images for a base class,
    of its shots for a novel one; a bias tuned on validation is added to the novel logits. By default f is the shared
    base model. With meta_steps, which `tune` also tries, its last stages are first trained on made-up episodes of base
    classes, as in the original, on softmax over the distances to the prototypes of an episode; where the original
    begins with random weights, this begins with the base model, and learns a scale of the distances; the numbers of
    steps and shots, and the rate, are ours. Serves both protocols: in a stream every session adds its prototypes, and
    those that are there stay."""

    Config = PrototypesConfig
    keeps_base = True
    grid = MappingProxyType({"meta_steps": (0, 300), "novel_bias": (BEST,)})
    config: PrototypesConfig

    @property
    def adapt(self) -> int:
        return self.config.meta_adapt if self.config.meta_steps else 0

    def fit_base(self, base: Base) -> Fitted:
        tail = BaseTail(base.inputs)
        means = base_means(base, learner=tail.start(base.inputs, 1))
        if self.config.meta_steps:
            if not self.config.meta_adapt:
                raise LcwofError("meta_adapt = 0 leaves nothing to train episodically: at least 1, or meta_steps = 0.")
            self._train(base, Episodic(tail, spread(means)))
            means = base_means(base, learner=tail.start(base.inputs, 1))
        return Fitted(means, tail)

    def _train(self, base: Base, module: Episodic) -> None:
        config = self.config
        source = FakeSource(base, groups=[group.to(base.inputs.device) for group in base_images(base)])
        classes = len(base.model.head)
        way = min(config.meta_way, classes)

        def loss_of(step: int) -> Tensor:
            shot = config.meta_shots[step % len(config.meta_shots)]
            fake = source.draw(step, config.meta_episodes, way, shot, config.meta_queries)
            asked = slice(0, way * fake.each)  # the rest asks for classes outside the episode
            queries, answers = base.inputs.plain(fake.queries[:, asked]), fake.answers[:, asked] - classes
            return module.loss(base.inputs.plain(fake.support), fake.labels, queries, answers, way)

        meta_train(self, base, module, loss_of, config.meta_steps, config.meta_lr)

    def start(self, base: Base, fitted: Fitted, learners: int) -> PrototypesState:
        return PrototypesState("prototypes", 0, fitted.means.expand(learners, -1, -1), fitted.tail)

    @torch.no_grad()
    def grow(self, base: Base, fitted: Fitted, before: PrototypesState, task: Task) -> Iterator[PrototypesState]:
        novel = class_means(before.tail(base.inputs.plain(task.support)), task.labels, task.way)
        yield PrototypesState("prototypes", 1, torch.cat([before.prototypes, novel], dim=1), before.tail)

    def logits(self, state: PrototypesState, maps: Tensor) -> Tensor:
        return -torch.cdist(state.tail(maps), state.prototypes).square()

    def unpack(self, base: Base, fitted: Fitted, tensors: dict[str, Tensor]) -> PrototypesState:
        return PrototypesState("resumed", 0, tensors["prototypes"], fitted.tail)


def spread(means: Tensor) -> float:
    """The mean squared distance of points (C, D) to their mean."""
    return float((means - means.mean(0)).square().sum(-1).mean())
