"""Look a data set over before spending hours on it: counts, broken files, test images trained on."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor

from lcwof.data.datasets import load_dataset
from lcwof.data.images import Dataset

_SHOWN = 5  # duplicates named in a report
_QUERIES = 15  # images a class that an episode of the usual protocol asks about


@dataclass(frozen=True)
class PartCount:
    """One part of a data set."""

    name: str  # "base train", "base select", "base test", "val" or "novel"
    classes: int
    images: int
    smallest_class: str
    smallest: int  # how many images that class has


@dataclass(frozen=True)
class CheckReport:
    """What was found. `problems` is empty when there is nothing to put right."""

    name: str
    parts: tuple[PartCount, ...]
    bad: tuple[str, ...]  # files that cannot be read as images
    duplicates: int  # pairs of pixel-identical images in the whole set
    leaks: int  # of those, pairs with one image trained on and the other evaluated on
    duplicate_names: tuple[tuple[str, str], ...]  # the first few pairs, leaks first
    problems: tuple[str, ...]
    notes: tuple[str, ...]  # what is no fault of the set, but worth knowing

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


def check_dataset(name: str, root: Path | None = None, **options: object) -> CheckReport:
    """Load a data set, leaving out broken images, and report on it."""
    data = load_dataset(name, root, skip_bad=True, **options)
    images, split = data.images, data.split
    val, novel = (
        torch.cat([torch.zeros(0, dtype=torch.int64), *images.of_classes(c)]) for c in (split.val, split.novel)
    )
    parts = (
        _count(data, "base train", split.base, split.train),
        _count(data, "base select", split.base, split.select),
        _count(data, "base test", split.base, split.test),
        _count(data, "val", split.val, val),
        _count(data, "novel", split.novel, novel),
    )
    pairs = _identical(images.pixels, torch.cat([split.train, split.select, split.test, val, novel]))
    trained = set(split.train.tolist())
    leaks = [pair for pair in pairs if len(trained & set(pair)) == 1]
    named = [(images.names[a], images.names[b]) for a, b in sorted(pairs, key=lambda pair: pair not in leaks)]
    problems = [f"{len(images.bad)} files cannot be read as images"] if images.bad else []
    notes = []
    for part in parts[2:]:
        shots = 0 if part.name == "base test" else 1  # at least, beside the queries
        asked = part.smallest - shots
        has = f"class {part.smallest_class!r} has {part.smallest} {part.name} images"
        if part.classes and asked < 1:
            problems.append(f"{has}: none to ask about{' beside one to learn from' if shots else ''}")
        elif part.classes and asked < _QUERIES:
            notes.append(f"{has}: so episodes ask about {asked} of every such class at most, {_QUERIES} is usual")
    if leaks:
        problems.append(f"{len(leaks)} images to evaluate on are pixel for pixel in the training images as well")
    return CheckReport(
        data.name, parts, images.bad, len(pairs), len(leaks), tuple(named[:_SHOWN]), tuple(problems), tuple(notes)
    )


def _count(data: Dataset, name: str, classes: tuple[str, ...], index: Tensor) -> PartCount:
    counts = torch.bincount(data.images.labels[index], minlength=len(data.images.classes))
    position = {known: i for i, known in enumerate(data.images.classes)}
    sizes = {known: int(counts[position[known]]) for known in classes}
    smallest = min(sizes, key=lambda known: sizes[known], default="")
    return PartCount(name, len(classes), len(index), smallest, sizes.get(smallest, 0))


def _identical(pixels: Tensor, index: Tensor) -> list[tuple[int, int]]:
    """Pairs of positions whose pixels are the same: each repetition with the first of its kind."""
    first: dict[bytes, int] = {}
    pairs = []
    for i in index.tolist():
        digest = hashlib.blake2b(pixels[i].numpy().tobytes(), digest_size=16).digest()
        if digest in first:
            pairs.append((first[digest], i))
        first.setdefault(digest, i)
    return pairs
