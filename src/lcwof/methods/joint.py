"""Joint training on everything seen so far: nothing is lost, all is kept."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from types import MappingProxyType

import torch
from torch import Tensor

from lcwof.learning import Descent, Learners, Scoring, descend
from lcwof.methods.base import BEST, Base, Method, State, Task, register_method


@dataclass(frozen=True)
class JointConfig:
    adapt: int = 1  # stages of the backbone that are trained again, counted from the last
    per_class: int = 20  # base images a class and epoch, drawn anew
    novel_bias: float = 0.0  # added to the logits of few-shot classes
    descent: Descent = field(default_factory=lambda: Descent(epochs=40))


@dataclass
class JointState(State):
    learners: Learners


@register_method("joint")
class Joint(Method):
    """loss = -log softmax_y(w_c . f(x)) over all classes, on the union of all data so far, base and few-shot, before
    every evaluation; no balance, no constraint. Few-shot classes are seen less than base classes: a bias of theirs is
    tuned without test data.

    Choices: it begins with the shared base model, whose last stage is trained again; all base training images are kept,
    and every epoch shows `per_class` of each class, drawn anew, and all few-shot examples; by default rates, batch,
    momentum, weight decay and gradient clip are those of phase 2 of `lcwof`, for 40 epochs. `tune` tries other rates,
    and fewer epochs.

    Serves both protocols: in a stream every evaluation has a training of its own, from the base model on."""

    Config = JointConfig
    grid = MappingProxyType({"descent.lr_head": (1e-3, 1e-2), "descent.lr_tail": (1e-4, 1e-3), "novel_bias": (BEST,)})
    per_learner = frozenset({"descent.lr_head", "descent.lr_tail"})
    stop = ("joint", "descent.epochs")
    settles = True
    config: JointConfig

    def start(self, base: Base, fitted: None, learners: int) -> JointState:
        return JointState("joint", 0, Learners.start(base.inputs, learners))

    def grow(self, base: Base, fitted: None, before: JointState, task: Task) -> Iterator[JointState]:
        """Room is made, nothing learned: training waits for the evaluation, and starts from the base model."""
        yield JointState("joint", 0, before.learners.grown(task.way, task.draws))

    def settle(self, base: Base, fitted: None, state: JointState, memory: Task) -> Iterator[JointState]:
        start = Learners.start(base.inputs, len(memory.support))
        learners = start.grown(memory.way, memory.draws)
        classes, each = len(base.model.head), min(self.config.per_class, int(base.pool.counts.min()))
        pool, draws = base.pool.to(base.inputs.device), memory.draws["joint"].to(base.inputs.device)
        old = torch.arange(classes, device=base.inputs.device).repeat_interleave(each).expand(len(draws), -1)
        labels = torch.cat([old, memory.labels + classes], dim=1)

        def samples(epoch: int) -> tuple[Tensor, Tensor]:
            drawn = pool.draw(draws["images", epoch], each).flatten(1)
            return torch.cat([drawn, memory.support], dim=1), labels

        yield JointState("joint", 0, learners)
        heads = ("base_head", "novel_head")
        for epoch in descend(learners, heads, samples, base.inputs, self.config.descent, 0.0, draws, "joint"):
            yield JointState("joint", epoch, learners)

    def kept(self, base: Base, memory: Task) -> int:
        return int(base.pool.counts.sum()) + memory.support.shape[1]

    def logits(self, state: JointState, maps: Tensor) -> Tensor:
        return state.learners.logits(maps)

    def pack(self, state: JointState) -> dict[str, Tensor]:
        return state.learners.weights()

    def unpack(self, base: Base, fitted: None, tensors: dict[str, Tensor]) -> JointState:
        return JointState("joint", 0, Learners.unpack(base.inputs.tail, tensors, Scoring()))
