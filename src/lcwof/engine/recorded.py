"""The answers of a run on disk. Each batch of episodes leaves a small file of its own, so that those of finished
episodes survive an interruption; the end of the run makes one file of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from lcwof.data.images import Split
from lcwof.engine.folder import RunFolder
from lcwof.evaluation import Answers
from lcwof.models.checkpoint import load_tensors, save_tensors

_FILE, _KIND = "answers.safetensors", "answers"
_EACH = ("classes", "answered", "confidence", "bound")  # one an episode; older files have no bound


@dataclass(frozen=True)
class RecordedAnswers:
    """The answers of a run's episodes, with the names that its classes have."""

    base: tuple[str, ...]
    novel: tuple[str, ...]
    episodes: tuple[int, ...]
    given: Answers

    def by_name(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """True class, answered class, both (E, Q) as positions in `names`, and confidence (E, Q)."""
        true = self.given.true.long().expand_as(self.given.answered)
        return self._named(true), self._named(self.given.answered.long()), self.given.confidence.float().numpy()

    @property
    def names(self) -> tuple[str, ...]:
        """All classes, base first."""
        return (*self.base, *self.novel)

    def _named(self, joint: torch.Tensor) -> np.ndarray:
        base = torch.arange(len(self.base)).expand(len(joint), -1)
        table = torch.cat([base, len(self.base) + self.given.classes.long()], dim=1)  # joint position -> position here
        return table.gather(1, joint).numpy()


def keep_answers(folder: RunFolder, split: Split, numbers: Sequence[int], given: Answers) -> None:
    """Write down the answers of a batch. A batch that is done again replaces what was left of it."""
    about = {"base": split.base, "novel": split.novel, "episodes": list(numbers)}
    tensors = {name: getattr(given, name) for name in ("true", *_EACH)}
    file = folder.partial / f"answers-{numbers[0]:06d}.safetensors"
    folder.write(lambda: save_tensors(file, _KIND, tensors, about))


def join_answers(folder: RunFolder, asked: int) -> None:
    """One file of those of the batches, in the order of episodes; killed in between, it can be done again."""
    files = sorted(folder.partial.glob("answers*.safetensors"))
    found: dict[int, dict[str, torch.Tensor]] = {}
    for file in files:
        tensors, about = load_tensors(file, _KIND)
        for i, number in enumerate(about["episodes"]):
            found[number] = {name: tensors[name][i] for name in _EACH if name in tensors}
    numbers = sorted(number for number in found if number < asked)
    if not numbers:
        return
    whole = [name for name in _EACH if all(name in found[number] for number in numbers)]
    joined = {name: torch.stack([found[number][name] for number in numbers]) for name in whole}
    joined["true"] = tensors["true"]
    folder.write(lambda: save_tensors(folder.partial / _FILE, _KIND, joined, {**about, "episodes": numbers}))
    for file in files:
        if file.name != _FILE:
            file.unlink()


def read_answers(path: Path) -> RecordedAnswers | None:
    """The answers in a run folder; None where none were recorded."""
    if not (path / _FILE).exists():
        return None
    tensors, about = load_tensors(path / _FILE, _KIND)
    given = Answers(**tensors)
    return RecordedAnswers(tuple(about["base"]), tuple(about["novel"]), tuple(about["episodes"]), given)
