"""Incremental learning vector quantization (Xu, Shen, Zhao, Neural Computing and Applications 2012)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import MappingProxyType

import torch
import torch.nn.functional as F
from torch import Tensor

from lcwof.methods.base import BEST, Base, Method, State, Task, register_method
from lcwof.methods.embeddings import base_means


@dataclass(frozen=True)
class VectorsConfig:
    threshold: float = 1.0  # distance beyond which a sample becomes a prototype, for unit embeddings
    away: float = 0.05  # part of the way that the nearest prototype of another class is pushed
    novel_bias: float = 0.0  # added to the logits of few-shot classes


@dataclass
class VectorsState(State):
    vectors: Tensor  # (E, P, D): prototypes
    owners: Tensor  # (E, P): their classes, -1 where a place is free
    wins: Tensor  # (E, P): samples each has been moved by
    classes: Tensor  # (): how many


def learn_sample(state: VectorsState, sample: Tensor, label: Tensor, config: VectorsConfig) -> None:
    """One sample (E, D) of one class (E,) each, in place: the nearest prototype of its class moves towards it by
    1 / wins, the nearest of another class away; farther than the threshold from its class, it becomes a prototype."""
    apart = torch.cdist(sample.unsqueeze(1), state.vectors).squeeze(1)  # (E, P)
    free, own = state.owners < 0, state.owners == label.unsqueeze(1)
    near, winner = apart.masked_fill(~own, torch.inf).min(1)
    rival = apart.masked_fill(own | free, torch.inf).argmin(1)
    everyone = torch.arange(len(sample), device=sample.device)
    fresh = near > config.threshold
    place = torch.where(fresh, free.byte().argmax(1), winner)  # the first free place, or the winner's
    wins = torch.where(fresh, 0.0, state.wins[everyone, place]) + 1
    was = state.vectors[everyone, place]
    state.vectors[everyone, place] = torch.where(fresh[:, None], sample, was + (sample - was) / wins[:, None])
    state.wins[everyone, place] = wins
    state.owners[everyone, place] = label
    pushed = state.vectors[everyone, rival]
    part = torch.where(fresh, 0.0, config.away)[:, None]
    state.vectors[everyone, rival] = pushed - part * (sample - pushed)


@register_method("ilvq")
class Vectors(Method):
    """Prototypes among unit embeddings learn online, one example after the other: the nearest of its class moves to it,
    p += (f(x) - p) / n with n the examples that moved it, the nearest of another class away, q -= away (f(x) - q), and
    an example farther than the threshold from its class becomes a prototype; the nearest prototype decides. Uses the
    shared base model, keeps no images. Serves both protocols: in a stream, examples of later sessions go on moving the
    prototypes that are there.

    Choices: base classes start with their means; one threshold, tuned without test data, where the original adapts one
    for each prototype along the way and looks at the two nearest of any class; one `away`, tuned, too; no edges between
    prototypes, along which the original moves neighbours too and finds prototypes to remove; a bias of few-shot classes
    tuned without test data."""

    Config, StateClass = VectorsConfig, VectorsState
    grid = MappingProxyType({"threshold": (0.5, 0.8, 1.0, 1.2), "away": (0.0, 0.05), "novel_bias": (BEST,)})
    config: VectorsConfig

    def fit_base(self, base: Base) -> Tensor:
        return base_means(base, normalise=True)

    def start(self, base: Base, fitted: Tensor, learners: int) -> VectorsState:
        count = len(fitted)
        owners = torch.arange(count, device=fitted.device).expand(learners, -1).clone()
        wins = base.pool.counts.to(fitted).expand(learners, -1).clone()
        classes = torch.tensor(count, device=fitted.device)
        return VectorsState("vectors", 0, fitted.expand(learners, -1, -1).clone(), owners, wins, classes)

    def grow(self, base: Base, fitted: Tensor, before: VectorsState, task: Task) -> Iterator[VectorsState]:
        embedded = F.normalize(base.inputs.plain(task.support), dim=-1)
        learners, count, dim = embedded.shape
        known = int(before.classes)
        state = VectorsState(
            "vectors",
            1,
            torch.cat([before.vectors, embedded.new_zeros(learners, count, dim)], dim=1),
            torch.cat([before.owners, before.owners.new_full((learners, count), -1)], dim=1),
            torch.cat([before.wins, before.wins.new_zeros(learners, count)], dim=1),
            before.classes + task.way,
        )
        order = task.draws["ilvq"].to(embedded.device).permutation(count)
        for at in order.T:
            everyone = torch.arange(learners, device=embedded.device)
            learn_sample(state, embedded[everyone, at], task.labels[everyone, at] + known, self.config)
        yield state

    def logits(self, state: VectorsState, maps: Tensor) -> Tensor:
        classes = int(state.classes)
        near = -torch.cdist(F.normalize(maps, dim=-1), state.vectors).square()  # (E, Q, P)
        taken = state.owners >= 0
        near = near.masked_fill(~taken.unsqueeze(1), -torch.inf)
        owners = state.owners.clamp_min(0).unsqueeze(1).expand_as(near)
        return near.new_full((*near.shape[:2], classes), -torch.inf).scatter_reduce(2, owners, near, "amax")
