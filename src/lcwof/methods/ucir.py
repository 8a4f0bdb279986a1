"""UCIR: learning a unified classifier incrementally via rebalancing (Hou, Pan, Loy, Wang, Lin, CVPR 2019)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from types import MappingProxyType

import torch
import torch.nn.functional as F
from torch import Tensor

from lcwof.learning import Batch, Descent, Learners, Scoring, descend
from lcwof.learning.losses import cross_entropy, mean_where
from lcwof.methods.base import BEST, Base, Method, State, Task, register_method
from lcwof.methods.embeddings import balanced, cosine_head, herded


@dataclass(frozen=True)
class UCIRConfig:
    adapt: int = 1  # stages of the backbone that adapt, counted from the last
    exemplars: int = 20  # a base class, herded; of few-shot classes all shots are kept
    less_forget: float = 5.0  # times sqrt(old classes / new classes): weight of keeping directions of embeddings
    margin: float = 0.5  # by which an old exemplar's class should lead the nearest new classes, in cosines
    hardest: int = 2  # how many of those
    head_steps: int = 300  # full-batch Adam steps that fit the cosine head to the base classes
    head_lr: float = 1e-2
    novel_bias: float = 0.0  # added to the logits of few-shot classes
    descent: Descent = field(default_factory=lambda: Descent(epochs=40))


@dataclass
class UCIRState(State):
    learners: Learners
    index: Tensor  # (E, n): the exemplars
    labels: Tensor  # (E, n): their classes


Fitted = tuple[Tensor, Tensor, Tensor, Tensor]  # exemplars of base classes, their labels, the cosine head, its scale


def less_forget_weight(base: float, known: int, way: int) -> float:
    """lambda = lambda_base sqrt(|old classes| / |new classes|): the more there is to keep, the more it counts.

    >>> less_forget_weight(5.0, known=80, way=5)
    20.0
    """
    return base * (known / way) ** 0.5


def margin_ranking(cosines: Tensor, labels: Tensor, known: int, margin: float, hardest: int) -> Tensor:
    """sum over the K nearest new classes of max(margin - cos_y + cos_k, 0), averaged over samples of old classes.

    cosines: (E, B, C), the first `known` of old classes; labels: (E, B). Returns (E,).

    >>> margin_ranking(torch.tensor([[[0.9, 0.6, 0.1]]]), torch.tensor([[0]]), known=1, margin=0.5, hardest=2)
    tensor([0.2000])
    """
    own = cosines.gather(-1, labels.unsqueeze(-1))
    nearest = cosines[..., known:].topk(min(hardest, cosines.shape[-1] - known), dim=-1).values
    loss = (margin - own + nearest).clamp_min(0).sum(-1)
    return mean_where(loss, labels < known)


@register_method("ucir")
class UCIR(Method):
    """logits = s cos(f(x), w_c); loss = cross-entropy + lambda (1 - cos(f, f_old)) + a margin between the class of an
    old exemplar and the nearest new classes; new weights start imprinted, those of known classes stay as they are, and
    the last stage of the shared base model adapts. The cosine head and s are fitted to the base classes over it. Serves
    both protocols: in a stream, few-shot classes of earlier sessions are old ones, too, and all their shots exemplars.

    margin and the number of nearest classes are the source's, whose released code averages over these where its paper
    sums. Choices: s stays as fitted; every epoch shows as many exemplars of an old class as there are shots, which
    stands for the original's last, class-balanced fine-tuning; lambda, the source's among others, and a bias of
    few-shot classes are tuned without test data. By default rates, batch, momentum, weight decay and gradient clip are
    those of phase 2 of `lcwof`, not taken from the source, and the 40 epochs are ours; `tune` tries another rate of
    class weights, and fewer epochs."""

    Config = UCIRConfig
    grid = MappingProxyType({"descent.lr_head": (1e-3, 1e-2), "less_forget": (0.2, 1.0, 5.0), "novel_bias": (BEST,)})
    per_learner = frozenset({"descent.lr_head", "descent.lr_tail", "less_forget"})
    stop = ("learning", "descent.epochs")
    config: UCIRConfig

    def fit_base(self, base: Base) -> Fitted:
        return (
            *herded(base, self.config.exemplars),
            *cosine_head(base, self.config.head_steps, self.config.head_lr),
        )

    def start(self, base: Base, fitted: Fitted, learners: int) -> UCIRState:
        index, labels, weights, scale = fitted
        begun = Learners.start(base.inputs, learners, Scoring(scale=float(scale)))
        begun.base_head = weights.expand(learners, -1, -1).clone()
        return UCIRState("learning", 0, begun, *(x.expand(learners, -1) for x in (index, labels)))

    def grow(self, base: Base, fitted: Fitted, before: UCIRState, task: Task) -> Iterator[UCIRState]:
        config, old = self.config, before.learners
        learners = old.grown(task.way, task.draws)
        known = learners.base_head.shape[1]
        learners.start_from_means(base.inputs, task.support, task.labels + known)
        index = torch.cat([before.index, task.support], dim=1)
        labels = torch.cat([before.labels, task.labels + known], dim=1)
        scale = learners.scoring.scale or 1.0
        lam = less_forget_weight(config.less_forget, known, task.way)

        def objective(batch: Batch) -> Tensor:
            turned = (1 - F.cosine_similarity(batch.embedded, old.taught(batch)[0], dim=-1)).mean(-1)
            ranking = margin_ranking(batch.logits / scale, batch.labels, known, config.margin, config.hardest)
            return cross_entropy(batch.logits, batch.labels) + lam * turned + ranking

        draws = task.draws["ucir"]
        yield UCIRState("learning", 0, learners, index, labels)
        for epoch in descend(
            learners,
            ("novel_head",),
            lambda epoch: balanced(index, labels, task.shots, draws["exemplars", epoch]),
            base.inputs,
            config.descent,
            0.0,
            draws,
            "learning",
            objective,
            recordable=True,
        ):
            yield UCIRState("learning", epoch, learners, index, labels)

    def kept(self, base: Base, memory: Task) -> int:
        return int(base.pool.counts.clamp_max(self.config.exemplars).sum()) + memory.support.shape[1]

    def logits(self, state: UCIRState, maps: Tensor) -> Tensor:
        return state.learners.logits(maps)

    def pack(self, state: UCIRState) -> dict[str, Tensor]:
        return {**state.learners.weights(), "index": state.index, "labels": state.labels}

    def unpack(self, base: Base, fitted: Fitted, tensors: dict[str, Tensor]) -> UCIRState:
        scoring = Scoring(scale=float(fitted[3]))
        learners = Learners.unpack(base.inputs.tail, tensors, scoring)
        return UCIRState("resumed", 0, learners, tensors["index"], tensors["labels"])
