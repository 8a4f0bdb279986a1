"""Streams of sessions as indices: after the base classes, one set of new classes after the other, a few shots each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from lcwof.data.datasets import divide
from lcwof.data.images import Dataset, Split
from lcwof.errors import LcwofError
from lcwof.randomness import Randomness


@dataclass(frozen=True)
class Step:
    """One session of E streams: entries are image indices, labels positions among the session's classes."""

    way: int
    support: Tensor  # (E, M)
    labels: Tensor  # (E, M)
    queries: Tensor  # (E, Q)
    answers: Tensor  # (E, Q)
    classes: tuple[tuple[str, ...], ...]  # the names of each stream's classes


@dataclass(frozen=True)
class Streams:
    """E streams, and the base test images, which they share."""

    numbers: tuple[int, ...]
    base_queries: Tensor  # (Q,)
    base_answers: Tensor  # (Q,)
    novel: tuple[str, ...]  # the names of all classes that there are for sessions
    steps: tuple[Step, ...]

    @property
    def count(self) -> int:
        """Sessions, the base session counted."""
        return 1 + len(self.steps)


@dataclass(frozen=True)
class FewShotClass:
    """A class that comes after the base classes."""

    name: str
    images: Tensor  # of drawn streams all of them, of listed ones those to test on
    shots: Tensor | None  # those to learn from; None: drawn from the images


@dataclass(frozen=True)
class StreamSource:
    """Draws streams by number.

    With published lists, sessions and shots are those of the lists, and streams differ in what is random in learning;
    without, shots and queries are drawn for each stream. `shuffle` gives every stream a class order of its own.
    """

    data: Dataset
    classes: tuple[FewShotClass, ...]  # in the order of their sessions; shuffled, all there are
    ways: tuple[int, ...]  # classes of each session
    shot: int  # of drawn streams
    queries: int
    shuffle: bool
    seed: int

    @classmethod
    def of(
        cls,
        data: Dataset,
        way: int | None = None,
        shot: int | None = None,
        sessions: int | None = None,
        queries: int | None = None,
        shuffle: bool = False,
        seed: int = 0,
    ) -> StreamSource:
        """The data set's lists, unless way or shot is given or it has none: then `sessions` (as many as there are
        classes for) of `way` novel classes with `shot` examples and at most `queries` test images each. By default way
        and shot are those of the lists, or 5, and there are as many test images as of a base class, so that J/J is not
        mostly about the few classes that have more. A class with too few images has fewer shots, one image being left
        to test on."""
        queries = queries or max(1, len(data.split.test) // len(data.split.base))
        if data.sessions and way is None and shot is None:
            if sessions is not None and sessions > len(data.sessions):
                raise LcwofError(f"--sessions {sessions}: the lists of {data.name} have {len(data.sessions)}.")
            ways = tuple(len(session.classes) for session in data.sessions[:sessions])
            listed = [
                FewShotClass(name, tests, shots)
                for session in data.sessions
                for name, shots, tests in zip(session.classes, session.shots, session.tests, strict=True)
            ]
            return cls(data, tuple(listed if shuffle else listed[: sum(ways)]), ways, 0, queries, shuffle, seed)
        if data.sessions:
            first = data.sessions[0]
            way, shot = way or len(first.classes), len(first.shots[0]) if shot is None else shot
        novel = (*data.split.val, *data.split.novel)
        way, shot = min(5, len(novel)) if way is None else way, 5 if shot is None else shot
        if shot < 1:
            raise LcwofError(f"--shot {shot}: at least one example a class is needed.")
        if not 1 <= way <= len(novel):
            raise LcwofError(f"--way {way}: {data.name} has {len(novel)} classes beside the base classes.")
        count = len(novel) // way if sessions is None else sessions
        if not 1 <= count <= len(novel) // way:
            raise LcwofError(
                f"--sessions {count} of {way} classes: {data.name} has {len(novel)} classes beside the base classes, "
                f"enough for {len(novel) // way}."
            )
        names = novel if shuffle else novel[: count * way]
        groups = data.images.of_classes(names)
        for name, index in zip(names, groups, strict=True):
            if len(index) < 2:
                raise LcwofError(f"class {name!r} has one image: a shot and a test image need 2. Remove the class.")
        if max(map(len, groups)) <= shot:
            raise LcwofError(f"--shot {shot}: no class has {shot + 1} images, so many shots and one to test on.")
        found = tuple(FewShotClass(name, index, None) for name, index in zip(names, groups, strict=True))
        return cls(data, found, (way,) * count, shot, queries, shuffle, seed)

    @property
    def listed(self) -> bool:
        return self.shot == 0

    def draw(self, numbers: Sequence[int]) -> list[Streams]:
        """The numbered streams, those with the same shots a class together: unequal classes, shuffled, have others."""
        alone = [self._draw_one(number) for number in numbers]
        together: dict[object, list[Streams]] = {}
        for stream in alone:
            key = tuple((tuple(s.labels[0].tolist()), s.queries.shape[1]) for s in stream.steps)
            together.setdefault(key, []).append(stream)
        return [_stack(group) for group in together.values()]

    def _draw_one(self, number: int) -> Streams:
        draws = Randomness.of_episodes(self.seed, [number])["stream"]
        classes = list(self.classes)
        if self.shuffle:
            classes = [classes[at] for at in draws["class order"].permutation(len(classes))[0].tolist()]
        steps = []
        for way in self.ways:
            mine, classes = classes[:way], classes[way:]
            shots, tests = zip(*(self._images(draws, which) for which in mine), strict=True)
            steps.append(
                Step(
                    way,
                    torch.cat(shots)[None],
                    _positions(shots)[None],
                    torch.cat(tests)[None],
                    _positions(tests)[None],
                    (tuple(which.name for which in mine),),
                )
            )
        test = self.data.split.test
        novel = tuple(which.name for which in self.classes)
        return Streams((number,), test, self.data.base_labels(test), novel, tuple(steps))

    def _images(self, draws: Randomness, which: FewShotClass) -> tuple[Tensor, Tensor]:
        """Shots and test images of a class."""
        if which.shots is not None:
            return which.shots, which.images
        index = which.images[draws["images", which.name].permutation(len(which.images))[0]]
        shot = min(self.shot, len(index) - 1)
        return index[:shot], index[shot : shot + self.queries]


def _positions(groups: Sequence[Tensor]) -> Tensor:
    return torch.arange(len(groups)).repeat_interleave(torch.tensor([len(group) for group in groups]))


def _stack(streams: Sequence[Streams]) -> Streams:
    steps = []
    for parts in zip(*(stream.steps for stream in streams), strict=True):
        support, labels, queries, answers = (
            torch.cat([getattr(part, name) for part in parts]) for name in ("support", "labels", "queries", "answers")
        )
        classes = tuple(name for part in parts for name in part.classes)
        steps.append(Step(parts[0].way, support, labels, queries, answers, classes))
    numbers = tuple(n for stream in streams for n in stream.numbers)
    return replace(streams[0], numbers=numbers, steps=tuple(steps))


def pseudo_sessions(data: Dataset, held_out: int) -> Dataset:
    """A smaller problem of the same kind, made of base classes alone, to choose settings on: nothing of the real one's
    test images or later classes is in it.

    The last `held_out` base classes become the classes of the sessions, with all their training images to draw from;
    the others stay base classes, tested on the images that were held out of training, others being held out instead.
    """
    base = data.split.base
    if not 1 <= held_out < len(base):
        raise LcwofError(f"--pseudo {held_out}: of {len(base)} base classes, 1 to {len(base) - 1} can be held out.")
    kept, later = base[:-held_out], base[-held_out:]
    labels = {part: data.base_labels(getattr(data.split, part)) for part in ("train", "select")}
    of_part = {part: getattr(data.split, part) for part in ("train", "select")}
    train, test = (of_part[part][labels[part] < len(kept)] for part in ("train", "select"))
    groups = [(name, train[data.base_labels(train) == i]) for i, name in enumerate(kept)]
    small = next((name for name, group in groups if len(group) < 2), None)
    if small is not None or not len(test):
        raise LcwofError(
            f"--pseudo {held_out}: base class {small or kept[0]!r} has too few images to hold some out once more."
        )
    train, select = divide(groups, lambda n: max(1, min(10, n // 10)))
    # Few-shot classes use all their images, so the real test images of these must go.
    used = torch.cat([train, select, test, *(of_part[part][labels[part] >= len(kept)] for part in ("train", "select"))])
    used = used.sort().values
    images = replace(
        data.images,
        pixels=data.images.pixels[used],
        labels=data.images.labels[used],
        names=tuple(data.images.names[i] for i in used.tolist()),
    )
    train, select, test = (torch.searchsorted(used, part) for part in (train, select, test))
    split = Split(kept, (), later, train, select, test)
    return replace(
        data, name=f"{data.name}, {held_out} base classes as pseudo-sessions", images=images, split=split, sessions=()
    )
