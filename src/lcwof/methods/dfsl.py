"""Dynamic few-shot visual learning without forgetting (Gidaris, Komodakis, CVPR 2018)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import MappingProxyType

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lcwof.methods.base import BEST, Base, Method, State, Task, register_method
from lcwof.methods.embeddings import class_means, cosine_head
from lcwof.methods.meta import FakeSource, cosine_logits, meta_train


@dataclass(frozen=True)
class DynamicConfig:
    head_steps: int = 300  # full-batch Adam steps that fit the cosine head to the base classes
    head_lr: float = 1e-2
    meta_steps: int = 1000
    meta_lr: float = 1e-3
    meta_episodes: int = 8  # a step
    meta_way: int = 5
    meta_shots: tuple[int, ...] = (1, 5)  # in turn
    meta_queries: int = 15  # a class
    novel_bias: float = 0.0  # added to the logits of few-shot classes


@dataclass
class DynamicState(State):
    weights: Tensor  # (E, C, D), unit length
    scale: Tensor


class Generator(nn.Module):
    """w' = phi_avg * mean(f^) + phi_att * mean over shots of sum_b softmax_b(gamma cos(phi_q f^, k_b)) w_b^."""

    weights: Tensor  # (C_B, D), unit length

    def __init__(self, weights: Tensor, scale: Tensor) -> None:
        super().__init__()
        dim = weights.shape[1]
        self.average, self.attend = nn.Parameter(torch.ones(dim)), nn.Parameter(torch.full((dim,), 0.1))
        self.query = nn.Parameter(torch.eye(dim))
        self.keys, self.gamma = nn.Parameter(weights.clone()), nn.Parameter(torch.tensor(10.0))
        self.scale = nn.Parameter(scale.clone())
        self.register_buffer("weights", weights)

    def forward(self, embedded: Tensor, labels: Tensor, way: int, out: Tensor | None = None) -> Tensor:
        """Weights of the classes of shots: (E, M, D), (E, M) -> (E, way, D). Base classes in `out` are not seen."""
        unit = F.normalize(embedded, dim=-1)
        keys = self.keys.expand(len(unit), -1, -1)
        attention = cosine_logits(unit @ self.query, keys, self.gamma, out).softmax(-1)  # (E, M, C_B)
        recalled = attention @ self.weights
        return self.average * class_means(unit, labels, way) + self.attend * class_means(recalled, labels, way)


@register_method("dfsl")
class Dynamic(Method):
    """logits = s cos(f(x), w_c); a novel w_c is generated from the mean of its shots and from base weights w_b that its
    shots attend to: w_c = phi_avg * mean(f^) + phi_att * mean over shots of sum_b softmax_b(gamma cos(phi_q f^, k_b))
    w_b^, phi_avg and phi_att a number a dimension. The generator, its keys k and s are trained on made-up episodes of
    base classes over the shared base model; the cosine head of the base classes is fitted before and stays. Serves both
    protocols: in a stream every session adds its weights, and those that are there stay.

    Choices: base weights stay while the generator is trained, where the source trains them on; it starts near imprinted
    weights (phi_att 0.1, keys at the base weights, phi_q the identity) and takes 1,000 steps of Adam, or none if that
    is better on validation, where the source takes 60,000 of SGD, from random keys; one generator for all numbers of
    shots; embeddings of training images as they are, without dropout; classes of later sessions attend to base classes
    alone; a bias of novel classes tuned without test data."""

    Config, StateClass = DynamicConfig, DynamicState
    keeps_base = True
    grid = MappingProxyType({"meta_steps": (0, 1000), "novel_bias": (BEST,)})
    config: DynamicConfig

    def fit_base(self, base: Base) -> Generator:
        config = self.config
        generator = Generator(*cosine_head(base, config.head_steps, config.head_lr)).to(base.inputs.device)
        source = FakeSource(base)
        classes = len(base.model.head)
        way = max(1, min(config.meta_way, classes // 2))

        def loss_of(step: int) -> Tensor:
            shot = config.meta_shots[step % len(config.meta_shots)]
            fake = source.draw(step, config.meta_episodes, way, shot, config.meta_queries)
            novel = generator(fake.support, fake.labels, way, fake.fake)
            joint = torch.cat([generator.weights.expand(len(novel), -1, -1), novel], dim=1)
            logits = cosine_logits(fake.queries, joint, generator.scale, fake.fake)
            return F.cross_entropy(logits.flatten(0, 1), fake.answers.flatten())

        meta_train(self, base, generator, loss_of, config.meta_steps, config.meta_lr)
        return generator

    def start(self, base: Base, fitted: Generator, learners: int) -> DynamicState:
        return DynamicState("generating", 0, fitted.weights.expand(learners, -1, -1), fitted.scale)

    @torch.no_grad()
    def grow(self, base: Base, fitted: Generator, before: DynamicState, task: Task) -> Iterator[DynamicState]:
        novel = F.normalize(fitted(base.inputs.plain(task.support), task.labels, task.way), dim=-1)
        yield DynamicState("generating", 1, torch.cat([before.weights, novel], dim=1), before.scale)

    def logits(self, state: DynamicState, maps: Tensor) -> Tensor:
        return cosine_logits(maps, state.weights, state.scale)
