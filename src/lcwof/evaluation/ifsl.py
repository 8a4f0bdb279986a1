"""The incremental protocol: E streams learned together, session by session, each measured over all classes so far."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from lcwof.data.sessions import Streams
from lcwof.evaluation.answers import Answers, answers
from lcwof.evaluation.gfsl import Moments, query_logits, require_answers
from lcwof.evaluation.metrics import MEASURES, Margins, measures
from lcwof.methods import Base, Method, State, Task
from lcwof.randomness import Randomness


@dataclass(frozen=True)
class Session:
    """The measures and the answers of E streams after a session, at one moment of its learning."""

    number: int  # 1 is the base session
    phase: str
    epoch: int
    values: Tensor  # (E, len(MEASURES)); those of novel classes are nan in the base session
    origins: Tensor  # (E, number): percent right among all classes, by the session the classes came in
    classes: Tensor  # (E, C): the same, by class
    kept: int  # images in the exemplar memory
    answers: Answers
    margins: Margins | None = None  # None: in the base session there are no novel classes


def run_streams(
    method: Method,
    base: Base,
    fitted: Any,
    streams: Streams,
    seed: int,
    carry: bool = False,
    moments: Moments = lambda phase, epoch: False,
    resume: tuple[int, State] | None = None,
) -> Iterator[tuple[Session, State]]:
    """Learn the streams together; yields, for each session, the measures at every asked moment of settling and at its
    end, with the state that the next session builds on.

    By default settling (phase 3) is a side branch, as in the paper: the next session goes on from before it. `carry`
    goes on from what has settled. resume: a session and its state, to go on after it.
    """
    method.require_stream(streams.count - 1)
    done, chain = resume or (0, method.start(base, fitted, len(streams.numbers)))
    if not done:
        yield _measure(method, chain, base, streams, 1, 0), chain
        done = 1
    draws = Randomness.of_episodes(seed, streams.numbers)["learning"]
    for number in range(done + 1, streams.count + 1):
        task, memory = _tasks(streams, number, draws, base.inputs.device)
        chain = _last(method.states_of("grow", method.grow(base, fitted, chain, task)))
        kept = method.kept(base, memory)
        last, measured = chain, None
        for settled in method.states_of("settle", method.settle(base, fitted, chain, memory)):
            if measured is not None:
                yield measured, chain
            last, measured = settled, None
            if moments(last.phase, last.epoch):
                measured = _measure(method, last, base, streams, number, kept)
        if carry:
            chain = last
        yield measured or _measure(method, last, base, streams, number, kept), chain


def _last(states: Iterator[State]) -> State:
    state = next(states)
    for found in states:
        state = found
    return state


def _tasks(streams: Streams, number: int, draws: Randomness, device: torch.device) -> tuple[Task, Task]:
    """The task of a session, and all examples so far as one."""
    so_far = streams.steps[: number - 1]
    step, mine = so_far[-1], draws["session", number]
    before = [sum(s.way for s in so_far[:i]) for i in range(len(so_far))]
    support = torch.cat([s.support for s in so_far], dim=1).to(device)
    labels = torch.cat([s.labels + first for s, first in zip(so_far, before, strict=True)], dim=1).to(device)
    memory = Task(support, labels, before[-1] + step.way, mine, draws["memory"])
    return Task(step.support.to(device), step.labels.to(device), step.way, mine), memory


def _measure(method: Method, state: State, base: Base, streams: Streams, number: int, kept: int) -> Session:
    so_far = streams.steps[: number - 1]
    learners, known = len(streams.numbers), len(base.model.head)
    queries = [streams.base_queries.expand(learners, -1), *(s.queries for s in so_far)]
    ways = [known, *(s.way for s in so_far)]
    firsts = [sum(ways[:i]) for i in range(number)]
    labels = [streams.base_answers.expand(learners, -1), *(s.answers for s in so_far)]
    joint = torch.cat([each + first for each, first in zip(labels, firsts, strict=True)], dim=1)
    asked = torch.cat(queries, dim=1)
    logits = query_logits(method, state, base, asked).cpu()
    require_answers(method, logits, asked, sum(ways))
    given = answers(logits, joint, _novel_classes(streams, number))
    right = (given.answered == joint).double()
    cut = queries[0].shape[1]
    values, margins = torch.full((learners, len(MEASURES)), float("nan")), None
    if so_far:
        asked_of = logits[:, cut:], joint[:, cut:] - known, logits[:, :cut], joint[:, :cut], known
        values, margins = measures(*asked_of), Margins.of(*asked_of)
    else:
        for name in ("B/B", "B/J", "J/J"):
            values[:, MEASURES.index(name)] = right.float().mean(1) * 100
    by_class = _means(right, joint, sum(ways))
    origin = torch.arange(number).repeat_interleave(torch.tensor(ways))[joint]
    by_origin = _means(right, origin, number)
    return Session(number, state.phase, state.epoch, values, by_origin, by_class, kept, given, margins)


def _novel_classes(streams: Streams, number: int) -> Tensor:
    """The classes that have come by a session, as positions among all there are for sessions: (E, N)."""
    position = {name: at for at, name in enumerate(streams.novel)}
    so_far = streams.steps[: number - 1]
    came = [[position[name] for step in so_far for name in step.classes[i]] for i in range(len(streams.numbers))]
    return torch.tensor(came)


def _means(right: Tensor, group: Tensor, groups: int) -> Tensor:
    """Percent right in each group: (E, Q), (E, Q) -> (E, groups)."""
    total = torch.zeros(len(right), groups, dtype=right.dtype).scatter_add_(1, group, right)
    count = torch.zeros_like(total).scatter_add_(1, group, torch.ones_like(right))
    return 100 * total / count


def forgotten(sessions: list[dict[str, Any]]) -> list[float]:
    """By class, except those of the last session: the best accuracy in an earlier session less that in the last, below
    0 where a class has gained (Chaudhry et al. 2018).

    >>> forgotten([{"classes": [80.0, 70.0]}, {"classes": [90.0, 50.0, 60.0]}, {"classes": [85.0, 75.0, 40.0, 50.0]}])
    [5.0, -5.0, 20.0]
    """
    *earlier, last = (session["classes"] for session in sessions)
    older = len(earlier[-1]) if earlier else 0
    return [max(s[i] for s in earlier if i < len(s)) - last[i] for i in range(older)]


def summary_measures(sessions: list[dict[str, Any]]) -> dict[str, float]:
    """What a whole stream comes to: `drop`, the J/J lost from the first session to the last; `average`, the mean J/J
    over the sessions; `forgetting`, the mean of `forgotten` over the classes."""
    joint, fallen = [float(s["J/J"]) for s in sessions], forgotten(sessions)
    return {
        "drop": joint[0] - joint[-1],
        "average": fmean(joint),
        "forgetting": fmean(fallen) if fallen else 0.0,
    }
