"""The answers of a run on disk, of streams those after the last session. Each batch of episodes leaves a small file of
its own, so that those of finished episodes survive an interruption; the end of the run makes one file of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence

from lcwof.engine.folder import RunFolder
from lcwof.evaluation import Answers
from lcwof.models.checkpoint import load_tensors, save_tensors

_FILE, _KIND = "answers.safetensors", "answers"
_TENSORS = ("classes", "true", "answered", "confidence", "bound")  # older files have no bound


@dataclass(frozen=True)
class RecordedAnswers:
    """The answers of a run's episodes or streams, with the names that its classes have."""

    base: tuple[str, ...]
    novel: tuple[str, ...]
    episodes: tuple[int, ...]
    given: Answers

    def by_name(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """True class, answered class, both (E, Q) as positions in `names`, and confidence (E, Q); -1 after the last
        query of a stream that has fewer than others."""
        true = self.given.true.long().expand_as(self.given.answered)
        return self._named(true), self._named(self.given.answered.long()), self.given.confidence.float().numpy()

    def queries(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The same of the queries of all episodes in a row, (n,)."""
        true, answered, confidence = self.by_name()
        asked = true >= 0
        return true[asked], answered[asked], confidence[asked]

    @property
    def names(self) -> tuple[str, ...]:
        """All classes, base first."""
        return (*self.base, *self.novel)

    def _named(self, joint: torch.Tensor) -> np.ndarray:
        base = torch.arange(len(self.base)).expand(len(joint), -1)
        none = torch.full((len(joint), 1), -1)  # last, so that -1 stays -1
        novel = len(self.base) + self.given.classes.long()
        table = torch.cat([base, novel, none], dim=1)  # joint position -> position here
        return np.take_along_axis(table.numpy(), joint.numpy(), axis=1)


def keep_answers(
    folder: RunFolder, base: Sequence[str], novel: Sequence[str], numbers: Sequence[int], given: Answers
) -> None:
    """Write down the answers of a batch. A batch that is done again replaces what was left of it."""
    about = {"base": base, "novel": novel, "episodes": list(numbers)}
    tensors = {name: tensor for name in _TENSORS if (tensor := getattr(given, name)) is not None}
    file = folder.partial / f"answers-{numbers[0]:06d}.safetensors"
    folder.write(lambda: save_tensors(file, _KIND, tensors, about))


def join_answers(folder: RunFolder, asked: int) -> None:
    """One file of those of the batches, in the order of episodes; killed in between, it can be done again."""
    files = sorted(folder.partial.glob("answers*.safetensors"))
    found: dict[int, dict[str, torch.Tensor]] = {}
    for file in files:
        tensors, about = load_tensors(file, _KIND)
        tensors["true"] = tensors["true"].expand_as(tensors["answered"])
        for i, number in enumerate(about["episodes"]):
            found[number] = {name: tensors[name][i] for name in _TENSORS if name in tensors}
    numbers = sorted(number for number in found if number < asked)
    if not numbers:
        return
    joined = {}
    for name in (name for name in _TENSORS if all(name in found[number] for number in numbers)):
        each = [found[number][name] for number in numbers]
        joined[name] = pad_sequence(each, batch_first=True, padding_value=-1)
    if bool((joined["true"] == joined["true"][0]).all()):
        joined["true"] = joined["true"][0]
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
