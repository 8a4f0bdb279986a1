"""The generalized protocol: E episodes learned together, measured where asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lcwof.data.episodes import Episodes, EpisodeSource, Pool
from lcwof.data.images import Dataset
from lcwof.evaluation.metrics import measures
from lcwof.learning import Inputs
from lcwof.methods import Base, Method, State, Task
from lcwof.models import BaseModel
from lcwof.randomness import Randomness

_QUERY_CHUNK = {"cpu": 2048, "cuda": 16384}  # query images, over all learners, through the tails at once

Moments = Callable[[str, int], bool]  # (phase, epoch) -> measure here?


@dataclass(frozen=True)
class Measured:
    """The measures of E learners at one moment of their learning."""

    phase: str
    epoch: int
    values: Tensor  # (E, len(MEASURES))


def prepare(method: Method, model: BaseModel, data: Dataset) -> tuple[Base, Any]:
    """What a method works with on a data set: inputs cut where the method starts to adapt, and its base fit."""
    model.require_classes(data.split.base)
    labels = data.base_labels(data.split.train)
    pool = Pool.of([data.split.train[labels == i] for i in range(len(data.split.base))])
    base = Base(model, Inputs(model, data.images, data.augment, method.adapt), pool)
    return base, method.fit_base(base)


def run_episodes(
    method: Method,
    base: Base,
    fitted: Any,
    source: EpisodeSource,
    numbers: Sequence[int],
    moments: Moments = lambda phase, epoch: False,
) -> Iterator[Measured]:
    """Learn the numbered episodes together; yields the measures at each asked moment and, last, at the end.

    The result of an episode does not depend on which others it runs with.
    """
    episodes = source.draw(numbers)
    draws = Randomness.of_episodes(source.seed, numbers)["learning"]
    task = Task.of_shots(episodes.support, draws, base.inputs.device)
    state: State | None = None
    measured: Measured | None = None
    for state in method.learn(base, fitted, task):
        measured = None
        if moments(state.phase, state.epoch):
            measured = _measure(method, state, base, episodes)
            yield measured
    assert state is not None, f"method {method.name} yielded no state"
    if measured is None:
        yield _measure(method, state, base, episodes)


@torch.no_grad()
def _measure(method: Method, state: State, base: Base, episodes: Episodes) -> Measured:
    def judge(queries: Tensor) -> tuple[Tensor, Tensor]:
        learners, classes, each = queries.shape
        flat = queries.flatten(1)
        labels = torch.arange(classes, device=base.inputs.device).repeat_interleave(each).expand(learners, -1)
        step = max(1, _QUERY_CHUNK.get(base.inputs.device.type, 2048) // learners)
        parts = [method.logits(state, base.inputs.plain(part)) for part in flat.split(step, dim=1)]
        return torch.cat(parts, dim=1), labels

    novel = judge(episodes.novel_queries)
    old = judge(episodes.base_queries)
    values = measures(*novel, *old, base=episodes.base_queries.shape[1])
    return Measured(state.phase, state.epoch, values.cpu())
