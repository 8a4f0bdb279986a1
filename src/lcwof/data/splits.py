"""Read the community's split lists as they are published, and find the images they name."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import torch
from torch import Tensor

from lcwof.data.images import Images
from lcwof.errors import LcwofError


@dataclass(frozen=True)
class FscilLists:
    """The incremental benchmark: training and test images of each session, the base session first.

    An entry is a path ("MINI-ImageNet/train/<class>/<file>") or, for CIFAR, a position in the original set. A
    session's test list has the images of its own classes only; an evaluation after it uses all lists so far.
    """

    sessions: tuple[tuple[str, ...], ...]
    tests: tuple[tuple[str, ...], ...]


def read_list(path: Path) -> tuple[str, ...]:
    """One entry a line; empty lines do not count."""
    return tuple(line.strip() for line in _text(path).splitlines() if line.strip())


def read_ravi(path: Path) -> tuple[str, ...]:
    """A csv with the columns `filename,label`, as entries "label/filename"."""
    rows = csv.DictReader(_text(path).splitlines())
    if rows.fieldnames is None or not {"filename", "label"} <= set(rows.fieldnames):
        raise LcwofError(f"split {path} has the columns {rows.fieldnames}; expected filename,label.")
    return tuple(f"{row['label']}/{row['filename']}" for row in rows)


def read_tiered(path: Path) -> dict[str, str]:
    """A csv of `class,category` without a header, as class -> category."""
    rows = [line.split(",") for line in read_list(path)]
    wrong = next((row for row in rows if len(row) != 2), None)
    if wrong is not None:
        raise LcwofError(f"split {path} has the line {','.join(wrong)!r}; expected class,category.")
    return {name.strip(): category.strip() for name, category in rows}


def read_fscil(folder: Path) -> FscilLists:
    """session_1.txt, session_2.txt, ... and test_1.txt, test_2.txt, ... of one folder."""
    count = len(list(folder.glob("session_*.txt")))
    if count == 0:
        raise LcwofError(f"no session lists in {folder}: looked for session_1.txt and test_1.txt there.")
    numbers = range(1, count + 1)
    return FscilLists(
        tuple(read_list(folder / f"session_{i}.txt") for i in numbers),
        tuple(read_list(folder / f"test_{i}.txt") for i in numbers),
    )


def classes_of(entries: Iterable[str]) -> tuple[str, ...]:
    """The classes of path entries, in order of appearance."""
    return tuple(dict.fromkeys(PurePosixPath(entry).parent.name for entry in entries))


def find_entries(images: Images, entries: Sequence[str], split: Path, root: Path) -> Tensor:
    """Positions of the listed images, by class folder and file name without extension.

    Leading folders and the extension are a matter of who packed the images; lists and copies disagree about
    them. Entries of images that were skipped as unreadable are left out.
    """
    bad = {_stem(name) for name in images.bad}
    position = {_stem(name): i for i, name in reversed(list(enumerate(images.names)))}
    wanted = [stem for stem in map(_stem, entries) if stem in position or stem not in bad]
    found = [position.get(stem, -1) for stem in wanted]
    missing = [entry for entry in entries if _stem(entry) not in position and _stem(entry) not in bad]
    if missing:
        raise LcwofError(
            f"split {split} names {len(missing)} images that are not in {root}, the first is {missing[0]}."
        )
    return torch.tensor(found, dtype=torch.int64)


def find_positions(entries: Sequence[str], count: int, split: Path, root: Path) -> Tensor:
    """Entries that are positions in a set of `count` images, as CIFAR's lists have them."""
    wrong = [entry for entry in entries if not entry.isdecimal() or int(entry) >= count]
    if wrong:
        raise LcwofError(
            f"split {split} names {len(wrong)} images that are not in {root}, the first is {wrong[0]}: "
            f"expected positions 0 to {count - 1}."
        )
    return torch.tensor([int(entry) for entry in entries], dtype=torch.int64)


def _stem(entry: str) -> tuple[str, str]:
    folder, _, file = entry.rpartition("/")
    return folder.rpartition("/")[2], file.rpartition(".")[0] or file


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise LcwofError(
            f"split list {path.name} not found: looked for it at {path}; put the data set's lists there."
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise LcwofError(f"split list {path} cannot be read ({error}).") from error
