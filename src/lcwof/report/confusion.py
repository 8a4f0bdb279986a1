"""What is mistaken for what in the joint space: between base and novel classes, class by class, and by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from lcwof.engine.recorded import RecordedAnswers

_TOGETHER = 5  # episodes in which both classes must have been in the running: fewer make shares of mere chance


class Shares(NamedTuple):
    """Where the samples of one kind (base or novel) went, in percent."""

    right: float  # B/J or N/J over all queries
    same_kind: float  # to another class of their own kind
    other_kind: float  # to a class of the other kind


class Confusion(NamedTuple):
    base: Shares
    novel: Shares


class ClassAccuracy(NamedTuple):
    name: str
    accuracy: float  # in the joint space, percent
    queries: int | None = None  # None: not counted, as in the rows of streams


class Mistake(NamedTuple):
    """How often samples of one class were taken for another, of those asked while both were in the running."""

    true: str
    answered: str
    share: float  # percent
    times: int


@dataclass(frozen=True)
class Mistakes:
    base: tuple[Mistake, ...]  # samples of base classes, the largest share first
    novel: tuple[Mistake, ...]
    left_out: int  # pairs that were mistaken, but met in too few episodes
    together: int  # episodes in which a pair must have met


def confusion(answers: RecordedAnswers) -> Confusion:
    """The shares of base and of novel samples; each adds up to 100."""
    true, answered, _ = answers.queries()
    base = len(answers.base)

    def shares(asked: np.ndarray, same: np.ndarray) -> Shares:
        right = answered[asked] == true[asked]
        of_kind = same[asked]
        return Shares(*(100 * float(part.mean()) for part in (right, of_kind & ~right, ~of_kind)))

    return Confusion(shares(true < base, answered < base), shares(true >= base, answered >= base))


def class_accuracies(answers: RecordedAnswers) -> tuple[list[ClassAccuracy], list[ClassAccuracy]]:
    """Accuracy in the joint space of the base and of the novel classes that were asked, the highest first."""
    true, answered, _ = answers.queries()
    asked = np.bincount(true, minlength=len(answers.names))
    right = np.bincount(true[true == answered], minlength=len(answers.names))
    found = [
        ClassAccuracy(name, 100 * int(right[i]) / int(asked[i]), int(asked[i])) if asked[i] else None
        for i, name in enumerate(answers.names)
    ]
    base, novel = found[: len(answers.base)], found[len(answers.base) :]
    first, second = (sorted(filter(None, part), key=lambda c: (-c.accuracy, c.name)) for part in (base, novel))
    return first, second


def mistakes(answers: RecordedAnswers, top: int = 5) -> Mistakes:
    """The `top` pairs of classes with the largest share of mistakes, for base and for novel samples.

    A novel class is in the running in some episodes only, so counts alone would favour pairs of base classes.
    """
    true, answered, _ = answers.by_name()
    size, base = len(answers.names), len(answers.base)
    wrong = true != answered
    count = np.bincount(true[wrong] * size + answered[wrong], minlength=size * size).reshape(size, size)
    asked = np.stack([np.bincount(row[row >= 0], minlength=size) for row in true])  # (E, classes), queries
    running = (asked > 0).astype(np.int64)  # every class in the running is asked for
    possible, episodes = asked.T @ running, running.T @ running
    together = min(_TOGETHER, len(true))
    share = np.where(episodes >= together, 100 * count / np.maximum(possible, 1), 0.0)
    left_out = int(((count > 0) & (episodes < together)).sum())

    def largest(rows: slice) -> tuple[Mistake, ...]:
        part = share[rows]
        order = np.argsort(-part, axis=None, kind="stable")[:top]
        pairs = [(rows.start + int(at) // size, int(at) % size) for at in order]
        names = answers.names
        return tuple(
            Mistake(names[i], names[j], float(share[i, j]), int(count[i, j])) for i, j in pairs if share[i, j] > 0
        )

    return Mistakes(largest(slice(0, base)), largest(slice(base, size)), left_out, together)
