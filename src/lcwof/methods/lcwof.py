"""LCwoF: explicit learning and calibration without forgetting (Kukleva, Kuehne, Schiele, ICCV 2021)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Literal

import torch
from torch import Tensor

from lcwof.errors import LcwofError
from lcwof.learning import (
    Distillation,
    Learners,
    Phase2,
    Phase3,
    Scoring,
    calibrate,
    embed_plain,
    learn_novel,
    replayed,
    whitening_of,
)
from lcwof.methods.base import Base, Method, State, Task, register_method

_CENTRE, _WHITEN = 20, 60  # training images a base class that the centre, and the variation, are taken from


@dataclass(frozen=True)
class LCwoFConfig:
    """Settings of phases 2 and 3."""

    adapt: int = 1  # stages of the backbone that adapt, counted from the last
    weight_constraint: float | None = None  # lambda; None: the authors' 5e2 for one shot, 5e3 for more
    batch_norm: Literal["frozen", "adapting"] = "frozen"  # adapting: statistics follow each learner's own batches
    head: Literal["linear", "cosine"] = "linear"  # of the logits: w_c . f(x), or scale * cos(w_c, f(x))
    bias: bool = False  # of each class, in a linear head
    scale: float = 20.0  # of the cosines
    centred: bool = True  # cosines of embeddings less the base classes' centre
    whiten: float = 0.0  # of centred cosines: how much of the mean variance is added before whitening; 0: no whitening
    start: Literal["random", "mean"] = "random"  # of the novel weights; mean: the mean direction of the examples
    novel_bias: float = 0.0  # added to the logits of few-shot classes when all is learned
    phase2: Phase2 = field(default_factory=Phase2)
    distillation: Distillation = field(default_factory=Distillation)
    phase3: Phase3 = field(default_factory=Phase3)
    alternate: int = 0  # epochs of phase 2 before each of phase 3, in turns; 0: all of phase 2, then phase 3


@dataclass
class LCwoFState(State):
    learners: Learners


@register_method("lcwof")
class LCwoF(Method):
    """Phase 2 learns the novel classes with base-normalized cross-entropy under a weight constraint, the base head
    fixed: CE_BN + lambda ||theta - theta_1||^2 over the novel examples, where CE_BN = -log exp(w_y . f(x)) / sum over
    base and novel classes of exp(w_c . f(x)), and theta_1 is the last stage after phase 1. Phase 3 calibrates both
    heads: cross-entropy over all classes under the same constraint, on the novel examples and as few of each base
    class, replayed. Its length is what balances old and new, so no bias of few-shot classes is tuned unless asked
    for. Uses the shared base model.

    Serves both protocols: in a stream, phase 2 fixes the weights of all classes known so far, and phase 3, before every
    evaluation, replays one image a base class unless `phase3.replay_per_class` is given. `alternate` is for one set of
    novel classes, `distillation.unlabelled` is not for streams."""

    Config = LCwoFConfig
    grid = MappingProxyType({"weight_constraint": (1e1, 1e2, 5e2, 5e3, 5e4), "phase3.lr_head": (1e-3, 1e-2)})
    per_learner = frozenset({"weight_constraint", "distillation.weight"}) | {
        f"{phase}.{field}" for phase in ("phase2", "phase3") for field in ("lr_head", "lr_tail", "loss_weight")
    }
    stop = ("phase 3", "phase3.epochs")
    settles = True
    config: LCwoFConfig

    def phases(self) -> dict[str, int]:
        return {"phase 2": self.config.phase2.epochs, "phase 3": self.config.phase3.epochs}

    def stopping(self) -> tuple[str, str] | None:
        return self.stop if self.config.phase3.epochs else ("phase 2", "phase2.epochs")

    def constraint(self, shots: int) -> float:
        """lambda for this many shots."""
        if self.config.weight_constraint is not None:
            return self.config.weight_constraint
        return 5e2 if shots == 1 else 5e3

    def require_stream(self, sessions: int) -> None:
        if self.config.alternate and sessions > 1:
            raise LcwofError(
                f"method.alternate is for one set of novel classes, and the stream has {sessions}: leave it out."
            )
        self._require_unlabelled(None)

    def fit_base(self, base: Base) -> Scoring:
        """How embeddings are scored; where they are centred or whitened, from a few training images of each class."""
        config, cosine = self.config, self.config.head == "cosine"
        _require_consistent(config)
        self._require_unlabelled(base.unlabelled)
        scale = config.scale if cosine else None
        if not config.centred or not (cosine or config.start == "mean"):
            return Scoring(scale, bias=config.bias)
        few = max(1, min(_WHITEN if config.whiten else _CENTRE, int(base.pool.counts.min())))
        embedded = embed_plain(base.inputs, base.pool.table[:, :few])
        whitening = whitening_of(embedded, config.whiten) if config.whiten else None
        return Scoring(scale, embedded[:, :_CENTRE].mean(dim=(0, 1)), whitening, config.bias)

    def start(self, base: Base, fitted: Scoring, learners: int) -> LCwoFState:
        own = self.config.batch_norm == "adapting"
        return LCwoFState("phase 1", 0, Learners.start(base.inputs, learners, fitted, own))

    def grow(self, base: Base, fitted: Scoring, before: LCwoFState, task: Task) -> Iterator[LCwoFState]:
        """Phase 2. The constraint holds to the weights after phase 1, however many tasks there were."""
        config = self.config
        learners = before.learners.grown(task.way, task.draws)
        labels = task.labels + learners.base_head.shape[1]
        if config.start == "mean":
            learners.start_from_means(base.inputs, task.support, labels)
        yield LCwoFState("phase 2", 0, learners)
        if config.alternate:  # phase 2 is then part of `settle`
            return
        lam, draws = self.constraint(task.shots), task.draws["phase 2"]
        keep, seen = config.distillation, self.unlabelled(base)
        for epoch in learn_novel(
            learners, base.inputs, task.support, labels, config.phase2, lam, draws, keep, before.learners, seen
        ):
            yield LCwoFState("phase 2", epoch, learners)

    def unlabelled(self, base: Base) -> Tensor | None:
        """Images of validation classes to keep the answers about, spread over these classes."""
        wanted, there = self.config.distillation.unlabelled, base.unlabelled
        return there[torch.arange(wanted) * len(there) // wanted] if wanted and there is not None else None

    def _require_unlabelled(self, there: Tensor | None) -> None:
        wanted, found = self.config.distillation.unlabelled, 0 if there is None else len(there)
        if wanted > found:
            raise LcwofError(
                f"method.distillation.unlabelled = {wanted}: there are {found} images of validation classes, and none "
                "in streams, where these classes come later."
            )

    def calibration(self, memory: Task) -> Phase3:
        """Phase 3's settings. In a stream one image a base class is kept and replayed (section 3.3) by default."""
        how, stream = self.config.phase3, memory.lasting is not None
        return replace(how, replay_per_class=1) if stream and how.replay_per_class is None else how

    def settle(self, base: Base, fitted: Scoring, state: LCwoFState, memory: Task) -> Iterator[LCwoFState]:
        """Phase 3, on a copy."""
        if not self.config.phase3.epochs:
            return
        learners = state.learners.copy()
        yield LCwoFState("phase 3", 0, learners)
        how, draws = self.calibration(memory), memory.draws["phase 3"]
        lam = 0.0 if self.config.distillation.free_phase3 else self.constraint(memory.shots)
        labels = memory.labels + len(base.model.head)
        lasting = memory.lasting and memory.lasting["phase 3"]
        if self.config.alternate:
            yield from self._in_turns(base, learners, memory, labels)
            return
        for epoch in calibrate(learners, base.inputs, memory.support, labels, base.pool, how, lam, draws, lasting):
            yield LCwoFState("phase 3", epoch, learners)

    def _in_turns(self, base: Base, learners: Learners, memory: Task, labels: Tensor) -> Iterator[LCwoFState]:
        """Some epochs of phase 2, then one of phase 3, again and again."""
        novel, joint = (
            replace(self.config.phase2, epochs=self.config.alternate),
            replace(self.calibration(memory), epochs=1),
        )
        lam, draws = self.constraint(memory.shots), memory.draws
        for turn in range(self.config.phase3.epochs):
            one = base.inputs, memory.support, labels
            for _ in learn_novel(learners, *one, novel, lam, draws["phase 2", turn]):
                pass
            for _ in calibrate(learners, *one, base.pool, joint, lam, draws["phase 3", turn], draws["phase 3"]):
                pass
            yield LCwoFState("phase 3", turn + 1, learners)

    def kept(self, base: Base, memory: Task) -> int:
        how = self.calibration(memory)
        if not how.epochs:
            return 0
        each = replayed(how, base.pool, memory.shots)
        old = int(base.pool.counts.sum()) if how.replay == "unlim" else each * len(base.pool.counts)
        return old + memory.support.shape[1]

    def logits(self, state: LCwoFState, maps: Tensor) -> Tensor:
        return state.learners.logits(maps)

    def pack(self, state: LCwoFState) -> dict[str, Tensor]:
        return state.learners.weights()

    def unpack(self, base: Base, fitted: Scoring, tensors: dict[str, Tensor]) -> LCwoFState:
        return LCwoFState("phase 2", 0, Learners.unpack(base.inputs.tail, tensors, fitted))


def _require_consistent(config: LCwoFConfig) -> None:
    """Refuse settings that have no meaning beside each other."""
    cosine, keep = config.head == "cosine", config.distillation
    if cosine and config.bias:
        raise LcwofError("method.bias is of a linear head: leave it out with method.head = cosine.")
    if config.whiten and not (cosine and config.centred):
        raise LcwofError("method.whiten is of centred cosines: give method.head = cosine, and leave it centred.")
    if not keep.wanted and (keep.instead or keep.unlabelled or keep.free_phase3):
        raise LcwofError("method.distillation has settings but no weight: give method.distillation.weight, or none.")
    if keep.free_phase3 and not keep.instead:
        raise LcwofError(
            "method.distillation.free_phase3 is for distillation that stands instead of the constraint: give "
            "method.distillation.instead, too."
        )
    if config.alternate and keep.wanted:
        raise LcwofError("method.alternate and method.distillation do not go together: leave one of them out.")
