"""LCwoF: explicit learning and calibration without forgetting (Kukleva, Kuehne, Schiele, ICCV 2021)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from torch import Tensor

from lcwof.learning import Learners, Phase2, Phase3, Scoring, calibrate, centre_of, learn_novel, replayed
from lcwof.methods.base import Base, Method, State, Task, register_method

_CENTRE = 20  # training images a base class that the centre is taken from


@dataclass(frozen=True)
class LCwoFConfig:
    """Settings of phases 2 and 3."""

    adapt: int = 1  # stages of the backbone that adapt, counted from the last
    weight_constraint: float | None = None  # lambda; None: the authors' 5e2 for one shot, 5e3 for more
    head: Literal["linear", "cosine"] = "linear"  # cosine: of embeddings less the base classes' centre
    scale: float = 20.0  # of the cosines
    start: Literal["random", "mean"] = "random"  # of the novel weights; mean: the mean direction of the examples
    novel_bias: float = 0.0  # added to the novel scores (to the cosines, before their scale); not trained
    phase2: Phase2 = field(default_factory=Phase2)
    phase3: Phase3 = field(default_factory=Phase3)


@dataclass
class LCwoFState(State):
    learners: Learners


@register_method("lcwof")
class LCwoF(Method):
    """Phase 2 learns the novel classes with base-normalized cross-entropy under a weight constraint, the base head
    fixed; phase 3 calibrates both heads by balanced replay. Uses the shared base model."""

    Config = LCwoFConfig
    grid = MappingProxyType({"weight_constraint": (1e1, 1e2, 5e2, 5e3, 5e4)})
    stop = ("phase 3", "phase3.epochs")
    settles = True
    config: LCwoFConfig

    @property
    def adapt(self) -> int:
        return self.config.adapt

    def phases(self) -> dict[str, int]:
        return {"phase 2": self.config.phase2.epochs, "phase 3": self.config.phase3.epochs}

    def constraint(self, shots: int) -> float:
        """lambda for this many shots."""
        if self.config.weight_constraint is not None:
            return self.config.weight_constraint
        return 5e2 if shots == 1 else 5e3

    def fit_base(self, base: Base) -> Tensor | None:
        """The centre of the base classes' embeddings, from a few training images of each, where it is used."""
        if self.config.head == "linear" and self.config.start == "random":
            return None
        few = base.pool.table[:, : max(1, min(_CENTRE, int(base.pool.counts.min())))]
        return centre_of(base.inputs, few.flatten())

    def scoring(self, base: Base, centre: Tensor | None) -> Scoring:
        scale = self.config.scale if self.config.head == "cosine" else None
        return Scoring(len(base.model.head), self.config.novel_bias, scale, centre)

    def start(self, base: Base, fitted: Tensor | None, learners: int) -> LCwoFState:
        return LCwoFState("phase 1", 0, Learners.start(base.inputs, learners, self.scoring(base, fitted)))

    def grow(self, base: Base, fitted: Tensor | None, before: LCwoFState, task: Task) -> Iterator[LCwoFState]:
        """Phase 2. The constraint holds to the weights after phase 1, however many tasks there were."""
        config = self.config
        learners = before.learners.grown(task.way, task.draws)
        labels = task.labels + learners.base_head.shape[1]
        if config.start == "mean":
            learners.start_from_means(base.inputs, task.support, labels)
        yield LCwoFState("phase 2", 0, learners)
        lam, draws = self.constraint(task.shots), task.draws["phase 2"]
        for epoch in learn_novel(learners, base.inputs, task.support, labels, config.phase2, lam, draws):
            yield LCwoFState("phase 2", epoch, learners)

    def settle(self, base: Base, fitted: Tensor | None, state: LCwoFState, memory: Task) -> Iterator[LCwoFState]:
        """Phase 3, on a copy."""
        learners = state.learners.copy()
        yield LCwoFState("phase 3", 0, learners)
        how, lam, draws = self.config.phase3, self.constraint(memory.shots), memory.draws["phase 3"]
        labels = memory.labels + len(base.model.head)
        lasting = memory.lasting and memory.lasting["phase 3"]
        for epoch in calibrate(learners, base.inputs, memory.support, labels, base.pool, how, lam, draws, lasting):
            yield LCwoFState("phase 3", epoch, learners)

    def kept(self, base: Base, memory: Task) -> int:
        how = self.config.phase3
        each = replayed(how, base.pool, memory.shots)
        old = int(base.pool.counts.sum()) if how.replay == "unlim" else each * len(base.pool.counts)
        return old + memory.support.shape[1]

    def logits(self, state: LCwoFState, maps: Tensor) -> Tensor:
        return state.learners.logits(maps)

    def pack(self, state: LCwoFState) -> dict[str, Tensor]:
        return state.learners.weights()

    def unpack(self, base: Base, fitted: Tensor | None, tensors: dict[str, Tensor]) -> LCwoFState:
        return LCwoFState("phase 2", 0, Learners.unpack(base.inputs.tail, tensors, self.scoring(base, fitted)))
