"""Prototypical networks (Snell, Swersky, Zemel, NeurIPS 2017)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import MappingProxyType

import torch
from torch import Tensor

from lcwof.methods.base import Base, Method, State, Task, register_method
from lcwof.methods.embeddings import base_means, class_means


@dataclass(frozen=True)
class PrototypesConfig:
    novel_bias: float = 0.0  # added to the novel logits, in units of their spread: the method's only way to balance


@dataclass
class PrototypesState(State):
    prototypes: Tensor  # (E, C, D)
    bias: Tensor  # (C,)


@register_method("pn")
class Prototypes(Method):
    """logits = -||f(x) - p_c||^2 with p_c the mean embedding of class c: of all its training images for a base class,
    of its shots for a novel one; a bias tuned on validation is added to the novel logits. Uses the shared base model as
    f (not an episodically trained one)."""

    Config, StateClass = PrototypesConfig, PrototypesState
    grid = MappingProxyType({"novel_bias": (-1.0, -0.5, -0.25, 0.0, 0.25, 0.5, 1.0)})
    config: PrototypesConfig

    def fit_base(self, base: Base) -> tuple[Tensor, float]:
        means = base_means(base)
        spread = float((means - means.mean(0)).square().sum(-1).mean())
        return means, spread

    def start(self, base: Base, fitted: tuple[Tensor, float], learners: int) -> PrototypesState:
        means = fitted[0]
        return PrototypesState("prototypes", 0, means.expand(learners, -1, -1), means.new_zeros(len(means)))

    def grow(
        self, base: Base, fitted: tuple[Tensor, float], before: PrototypesState, task: Task
    ) -> Iterator[PrototypesState]:
        novel = class_means(base.inputs.plain(task.support), task.labels, task.way)
        bias = before.bias.new_full((task.way,), self.config.novel_bias * fitted[1])
        prototypes = torch.cat([before.prototypes, novel], dim=1)
        yield PrototypesState("prototypes", 1, prototypes, torch.cat([before.bias, bias]))

    def logits(self, state: PrototypesState, maps: Tensor) -> Tensor:
        return state.bias - torch.cdist(maps, state.prototypes).square()
