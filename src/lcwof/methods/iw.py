"""Weight imprinting (Qi, Brown, Lowe, CVPR 2018)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import MappingProxyType

import torch
import torch.nn.functional as F
from torch import Tensor

from lcwof.methods.base import BEST, Base, Method, State, Task, register_method
from lcwof.methods.embeddings import class_means, cosine_head


@dataclass(frozen=True)
class ImprintingConfig:
    head_steps: int = 0  # full-batch Adam steps that fit base weights; 0: they are imprinted, too
    head_lr: float = 1e-2
    novel_bias: float = 0.0  # added to the logits of few-shot classes: the method's only way to balance


@dataclass
class ImprintingState(State):
    weights: Tensor  # (E, C, D), unit length
    scale: Tensor


@register_method("iw")
class Imprinting(Method):
    """logits = s cos(f(x), w_c). A novel w_c is the normalised mean of the normalised embeddings of its shots.

    The source trains backbone and cosine head together, so that base weights lie near the means of their classes. Over
    the shared base model, which stays as it is, a head that is trained leaves them, and all samples lie nearer to
    imprinted weights. Choices: base weights are imprinted, too, and s is fitted to base images, or both are fitted,
    whichever is better on validation; a bias tuned without test data is added to novel logits.

    Serves both protocols: in a stream every session adds its weights, and those that are there stay."""

    Config, StateClass = ImprintingConfig, ImprintingState
    keeps_base = True
    grid = MappingProxyType({"head_steps": (0, 300), "novel_bias": (BEST,)})
    config: ImprintingConfig

    def fit_base(self, base: Base) -> tuple[Tensor, Tensor]:
        return cosine_head(base, self.config.head_steps, self.config.head_lr)

    def start(self, base: Base, fitted: tuple[Tensor, Tensor], learners: int) -> ImprintingState:
        weights, scale = fitted
        return ImprintingState("imprinting", 0, weights.expand(learners, -1, -1), scale)

    def grow(
        self, base: Base, fitted: tuple[Tensor, Tensor], before: ImprintingState, task: Task
    ) -> Iterator[ImprintingState]:
        embedded = F.normalize(base.inputs.plain(task.support), dim=-1)
        novel = F.normalize(class_means(embedded, task.labels, task.way), dim=-1)
        yield ImprintingState("imprinting", 1, torch.cat([before.weights, novel], dim=1), before.scale)

    def logits(self, state: ImprintingState, maps: Tensor) -> Tensor:
        return state.scale * (F.normalize(maps, dim=-1) @ state.weights.mT)
