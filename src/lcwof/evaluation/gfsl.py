"""The generalized protocol: E episodes learned together, measured where asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from lcwof.compute import Compute
from lcwof.data.cache import cache_folder
from lcwof.data.episodes import Episodes, EpisodeSource, Pool
from lcwof.data.images import Dataset
from lcwof.errors import Diverged, LcwofError
from lcwof.evaluation.answers import Answers, answers
from lcwof.evaluation.metrics import Margins, measures
from lcwof.learning import Inputs
from lcwof.learning.inputs import even
from lcwof.methods import Base, Fitting, Method, State, Task, own_code
from lcwof.models import BaseModel
from lcwof.randomness import Randomness

_QUERY_CHUNK = {"cpu": 512, "cuda": 4096}  # query images, over all learners, through the tails at once

_ROUNDING = 0.1  # how far, in their standard deviations, logits may differ between batches of other sizes

# Base queries of an episode, about, where it is not the result that is measured: what more would tell is less than what
# its few novel ones leave open.
_BASE_QUERIES = 300

Moments = Callable[[str, int], bool]  # (phase, epoch) -> measure here?


@dataclass(frozen=True)
class Measured:
    """The measures and the answers of E learners at one moment of their learning."""

    phase: str
    epoch: int
    values: Tensor  # (E, len(MEASURES))
    margins: Margins
    answers: Answers


def prepare(
    method: Method,
    model: BaseModel,
    data: Dataset,
    compute: Compute | None = None,
    fitting: Fitting = lambda what, done, total: None,
    *,
    streams: bool = False,
) -> tuple[Base, Any]:
    """What a method works with on a data set: inputs cut where the method starts to adapt, and its base fit. In streams
    there are no unlabelled images: validation classes come in later sessions."""
    model.require(data)
    labels = data.base_labels(data.split.train)
    pool = Pool.of([data.split.train[labels == i] for i in range(len(data.split.base))])
    inputs = _inputs(model, data, method.adapt, compute or Compute(model.head.device))
    unlabelled = torch.cat(data.images.of_classes(data.split.val)) if data.split.val and not streams else None
    base = Base(model, inputs, pool, fitting, cache_folder() / "fits", unlabelled)
    fitted = method.fit_base(base)
    if own_code(type(method)) and not inputs.compute.compiled:  # which would compile for one learner and for two
        _require_independent(method, base, fitted, [data.split.train[labels == i][:4] for i in range(4)])
    return base, fitted


def _require_independent(method: Method, base: Base, fitted: Any, images: Sequence[Tensor]) -> None:
    """Refuse a user's method whose answers after a first epoch hang on what is learned beside it: in either of two
    episodes, of base images that play new classes."""
    images = [each for each in images if len(each) == 4]
    if len(images) < 2:
        return
    pairs = [[images[0], images[1]], [images[-1], images[-2]]]  # other classes where there are four
    shots = torch.stack([torch.stack([each[i : i + 1] for each in pair]) for i, pair in enumerate(pairs)])
    asked = torch.stack([torch.cat([each[2:] for each in images])] * 2)

    def answered(numbers: list[int]) -> Tensor:
        draws = Randomness.of_episodes(0, numbers)["learning"]
        task = Task.of_shots(shots[numbers], draws, base.inputs.device)
        *_, state = islice(method.learn(base, fitted, task), 2)  # where it stands, and after an epoch
        return query_logits(method, state, base, asked[numbers])

    both, one, other = answered([0, 1]), answered([0]), answered([1])
    alone = torch.cat([one, other])
    apart = float((both - alone).abs().max()) if both.shape == alone.shape else float("inf")
    if apart > _ROUNDING * max(float(alone.std()), float(both.std())):
        raise LcwofError(
            f"method {method.name} answers otherwise when another episode is learned beside it (its logits differ by "
            f"up to {apart:.2g}): every tensor of a state needs a leading E, one entry a learner, and learners may not "
            "be mixed, nor random numbers come from elsewhere than task.draws."
        )


_made: list[tuple[BaseModel, Dataset, Inputs]] = []


def _inputs(model: BaseModel, data: Dataset, adapt: int, compute: Compute) -> Inputs:
    """Those used last for the same model and data serve again, with what they have compiled and computed: a study runs
    many methods one after the other."""
    for at, (known, theirs, inputs) in enumerate(_made):
        if known is model and theirs is data and (inputs.adapt, inputs.compute) == (adapt, compute):
            _made.append(_made.pop(at))
            return inputs
    made = Inputs(model, data.images, data.augment, adapt, compute)
    _made.append((model, data, made))
    del _made[:-2]  # one for methods that adapt, one for those that do not
    return made


def run_episodes(
    method: Method,
    base: Base,
    fitted: Any,
    source: EpisodeSource,
    numbers: Sequence[int],
    moments: Moments = lambda phase, epoch: False,
    filled_to: int = 0,
) -> Iterator[Measured]:
    """Learn the numbered episodes together; yields the measures at each asked moment, by some of the base queries, and,
    last, at the end, by all.

    The result of an episode does not depend on which others it runs with. `filled_to`: where code is compiled for a
    number of learners, fewer episodes are filled up to it by repeating one.
    """
    asked = len(numbers)
    numbers = [*numbers, *[numbers[-1]] * (filled_to - asked)]
    episodes = source.draw(numbers)
    draws = Randomness.of_episodes(source.seed, numbers)["learning"]
    task = Task.of_shots(episodes.support, draws, base.inputs.device)
    some = replace(episodes, base_queries=episodes.base_queries[..., : base_queries(len(base.model.head))])
    whole = some.base_queries.shape == episodes.base_queries.shape
    state: State | None = None
    measured: Measured | None = None
    for state in method.learn(base, fitted, task):
        measured = None
        if moments(state.phase, state.epoch):
            measured = measure(method, state, base, some, asked)
            yield measured
    assert state is not None, f"method {method.name} yielded no state"
    if measured is None or not whole:
        yield measure(method, state, base, episodes, asked)


def base_queries(classes: int) -> int:
    """Of each base class, where it is not the result that is measured."""
    return -(-_BASE_QUERIES // classes)


@torch.no_grad()
def query_logits(method: Method, state: State, base: Base, queries: Tensor) -> Tensor:
    """Logits of query images, (E, Q) -> (E, Q, C), a few at a time, the bias of few-shot classes added."""
    learners, total = queries.shape
    most = max(1, _QUERY_CHUNK.get(base.inputs.device.type, 512) // learners)
    # Compiled, always as many, so that it is compiled once however many queries there are.
    step = min(most, total) if base.inputs.compute.compiled else even(total, most)
    parts = []
    for part in queries.split(step, dim=1):
        full = torch.cat([part, queries[:, : step - part.shape[1]]], dim=1)  # the last as long as the others: see `jit`
        found = method.logits(state, base.inputs.plain(full))
        if not isinstance(found, Tensor):
            raise LcwofError(f"{type(method).__name__}.logits returns a {type(found).__name__}, expected a Tensor.")
        if not found.is_floating_point():
            raise LcwofError(f"{type(method).__name__}.logits returns {found.dtype}, expected floating-point numbers.")
        if base.model.mirror:
            found = (found + method.logits(state, base.inputs.plain(full, mirrored=True))) / 2
        parts.append(found[:, : part.shape[1]])
    logits = torch.cat(parts, dim=1)
    logits[..., len(base.model.head) :] += method.novel_bias
    return logits


def require_answers(method: Method, logits: Tensor, queries: Tensor, classes: int) -> None:
    """Refuse logits that would be scored, but are no answers: of other classes than asked for, or no numbers."""
    if logits.shape != (*queries.shape, classes):
        raise LcwofError(
            f"the logits of method {method.name} come to shape {tuple(logits.shape)}, expected "
            f"{(*queries.shape, classes)}: learners, queries, classes."
        )
    if bool(logits.isnan().any()):
        raise Diverged(f"method {method.name} answers with NaN: what it learned, or its logits, diverged.")


@torch.no_grad()
def measure(method: Method, state: State, base: Base, episodes: Episodes, asked: int) -> Measured:
    """The measures of the first `asked` learners as they stand."""
    novel, old = episodes.novel_queries, episodes.base_queries
    queries = torch.cat([novel.flatten(1), old.flatten(1)], dim=1)
    logits = query_logits(method, state, base, queries)
    require_answers(method, logits, queries, old.shape[1] + novel.shape[1])
    cut = novel.shape[1] * novel.shape[2]
    labels = [_labels(each).to(logits.device) for each in (novel, old)]
    asked_of = logits[:asked, :cut], labels[0][:asked], logits[:asked, cut:], labels[1][:asked], old.shape[1]
    true = torch.cat([labels[0][0] + old.shape[1], labels[1][0]])
    given = answers(logits[:asked], true, episodes.classes[:asked])
    return Measured(state.phase, state.epoch, measures(*asked_of).cpu(), Margins.of(*asked_of), given)


def _labels(queries: Tensor) -> Tensor:
    """Positions of classes for queries (E, C, Q), as (E, C * Q)."""
    learners, classes, each = queries.shape
    return torch.arange(classes).repeat_interleave(each).expand(learners, -1)
