"""Plain fine-tuning: the reference for what happens without protection."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from types import MappingProxyType

from torch import Tensor

from lcwof.learning import Descent, Learners, Scoring, descend
from lcwof.methods.base import BEST, Base, Method, State, Task, register_method


@dataclass(frozen=True)
class FineTuneConfig:
    adapt: int = 1  # stages of the backbone that adapt, counted from the last
    novel_bias: float = 0.0  # added to the logits of few-shot classes
    descent: Descent = field(default_factory=lambda: Descent(epochs=100))


@dataclass
class FineTuneState(State):
    learners: Learners


@register_method("ft")
class FineTune(Method):
    """loss = -log softmax_y(w_c . f(x)) over all classes, on the novel examples only, tail and both heads free: no
    constraint, no replay. Uses the shared base model. Even the number of epochs is tuned, which lets it stop before it
    forgets, and so is a bias of few-shot classes, without test data. By default rates, batch, momentum, weight decay
    and gradient clip are those of phase 2 of `lcwof`; `tune` tries other rates of class weights. Serves both protocols:
    in a stream it goes on from session to session, each time on the newest examples alone."""

    Config = FineTuneConfig
    grid = MappingProxyType({"descent.lr_head": (1e-3, 1e-2, 1e-1), "novel_bias": (BEST,)})
    per_learner = frozenset({"descent.lr_head", "descent.lr_tail"})
    stop = ("fine-tuning", "descent.epochs")
    config: FineTuneConfig

    def start(self, base: Base, fitted: None, learners: int) -> FineTuneState:
        return FineTuneState("fine-tuning", 0, Learners.start(base.inputs, learners))

    def grow(self, base: Base, fitted: None, before: FineTuneState, task: Task) -> Iterator[FineTuneState]:
        learners = before.learners.grown(task.way, task.draws)
        labels = task.labels + learners.base_head.shape[1]
        heads = ("base_head", "novel_head")
        yield FineTuneState("fine-tuning", 0, learners)
        for epoch in descend(
            learners,
            heads,
            lambda epoch: (task.support, labels),
            base.inputs,
            self.config.descent,
            0.0,
            task.draws["fine-tuning"],
            "fine-tuning",
        ):
            yield FineTuneState("fine-tuning", epoch, learners)

    def logits(self, state: FineTuneState, maps: Tensor) -> Tensor:
        return state.learners.logits(maps)

    def pack(self, state: FineTuneState) -> dict[str, Tensor]:
        return state.learners.weights()

    def unpack(self, base: Base, fitted: None, tensors: dict[str, Tensor]) -> FineTuneState:
        return FineTuneState("fine-tuning", 0, Learners.unpack(base.inputs.tail, tensors, Scoring()))
