"""Weight imprinting (Qi, Brown, Lowe, CVPR 2018)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import MappingProxyType

import torch
import torch.nn.functional as F
from torch import Tensor

from lcwof.methods.base import Base, Method, State, Task, register_method
from lcwof.methods.embeddings import class_means, cosine_head


@dataclass(frozen=True)
class ImprintingConfig:
    head_steps: int = 300  # full-batch Adam steps that fit the cosine head to the base classes
    head_lr: float = 1e-2
    novel_bias: float = 0.0  # added to the novel cosines before scaling: the method's only way to balance


@dataclass
class ImprintingState(State):
    weights: Tensor  # (E, C, D), unit length
    scale: Tensor
    bias: Tensor  # (C,)


@register_method("iw")
class Imprinting(Method):
    """logits = s cos(f(x), w_c). The cosine head and its scale s are trained on the base classes over the shared base
    model's embeddings; a novel w_c is the normalised mean of the normalised embeddings of its shots. A bias tuned
    on validation is added to the novel cosines."""

    Config, StateClass = ImprintingConfig, ImprintingState
    grid = MappingProxyType({"novel_bias": (-0.6, -0.5, -0.4, -0.3, -0.2, -0.1, -0.05, 0.0, 0.05, 0.1, 0.2, 0.3, 0.4)})
    config: ImprintingConfig

    def fit_base(self, base: Base) -> tuple[Tensor, Tensor]:
        return cosine_head(base, self.config.head_steps, self.config.head_lr)

    def start(self, base: Base, fitted: tuple[Tensor, Tensor], learners: int) -> ImprintingState:
        weights, scale = fitted
        return ImprintingState(
            "imprinting", 0, weights.expand(learners, -1, -1), scale, weights.new_zeros(len(weights))
        )

    def grow(
        self, base: Base, fitted: tuple[Tensor, Tensor], before: ImprintingState, task: Task
    ) -> Iterator[ImprintingState]:
        embedded = F.normalize(base.inputs.plain(task.support), dim=-1)
        novel = F.normalize(class_means(embedded, task.labels, task.way), dim=-1)
        bias = torch.cat([before.bias, before.bias.new_full((task.way,), self.config.novel_bias)])
        yield ImprintingState("imprinting", 1, torch.cat([before.weights, novel], dim=1), before.scale, bias)

    def logits(self, state: ImprintingState, maps: Tensor) -> Tensor:
        return state.scale * (F.normalize(maps, dim=-1) @ state.weights.mT + state.bias)
