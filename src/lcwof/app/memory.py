"""The images a classifier keeps: a few per base class for replay, some held out, and every few-shot example."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lcwof.data import Images
from lcwof.data.episodes import Pool
from lcwof.errors import LcwofError
from lcwof.randomness import Randomness

_REPLAY, _HELD_OUT, _FEW = 0, 1, 2
_HELD_OUT_PER_CLASS = 10


def hold_out(images: Images, seed: int) -> tuple[Tensor, Tensor]:
    """Training and held-out indices: a fifth of every class of five or more images."""
    train, held_out = [], []
    for number, group in enumerate(images.of_classes(images.classes)):
        order = group[Randomness.of_episodes(seed, [number])["hold out"].permutation(len(group))[0]]
        count = len(group) // 5
        held_out.append(order[:count])
        train.append(order[count:])
    if not any(len(part) for part in held_out):
        raise LcwofError(
            "fit needs a base class with five images or more: some are held out to choose the epoch and the balance."
        )
    return torch.cat(train), torch.cat(held_out)


@dataclass(frozen=True)
class Memory:
    """Images with joint labels, each with a role. Counted, because what is kept is what replay may use."""

    images: Images
    role: Tensor  # (N,): replayed base image, held-out base image, or few-shot example

    @classmethod
    def of_base(cls, images: Images, train: Tensor, held_out: Tensor, per_class: int, seed: int) -> Memory:
        """`per_class` training images and up to ten held-out ones of each base class."""
        kept, roles = [], []
        for role, index, most in ((_REPLAY, train, per_class), (_HELD_OUT, held_out, _HELD_OUT_PER_CLASS)):
            for label in range(len(images.classes)):
                group = index[images.labels[index] == label]
                order = Randomness.of_episodes(seed, [label])["memory", role].permutation(len(group))[0]
                kept.append(group[order[:most]])
                roles += [role] * len(kept[-1])
        index = torch.cat(kept)
        names = tuple(images.names[i] for i in index.tolist())
        part = Images(images.pixels[index].clone(), images.labels[index], images.classes, names)
        return cls(part, torch.tensor(roles))

    def with_examples(self, new: Images) -> Memory:
        """The memory with few-shot examples of new classes added, labelled after the known ones."""
        known = self.images
        images = Images(
            torch.cat([known.pixels, new.pixels]),
            torch.cat([known.labels, new.labels + len(known.classes)]),
            known.classes + new.classes,
            known.names + new.names,
        )
        return Memory(images, torch.cat([self.role, torch.full((len(new),), _FEW)]))

    def few(self, after: int) -> tuple[Tensor, Tensor]:
        """Indices and joint labels of the few-shot examples of classes numbered `after` and up."""
        index = ((self.role == _FEW) & (self.images.labels >= after)).nonzero()[:, 0]
        return index, self.images.labels[index]

    def held_out(self) -> tuple[Tensor, Tensor]:
        """Indices and labels of held-out base images, in an order that mixes the classes."""
        index = (self.role == _HELD_OUT).nonzero()[:, 0]
        index = index[Randomness.of_episodes(0, [0])["mix"].permutation(len(index))[0]]
        return index, self.images.labels[index]

    def replay(self) -> Pool:
        index = (self.role == _REPLAY).nonzero()[:, 0]
        labels = self.images.labels[index]
        return Pool.of([index[labels == label] for label in range(int(labels.max()) + 1)])

    def tensors(self) -> dict[str, Tensor]:
        return {
            "memory.pixels": self.images.pixels,
            "memory.labels": self.images.labels,
            "memory.role": self.role,
        }

    def description(self) -> dict[str, Any]:
        roles = ("replay", "held out", "few-shot")
        counts = {name: int((self.role == role).sum()) for role, name in enumerate(roles)}
        return {"counts": counts, "classes": list(self.images.classes), "names": list(self.images.names)}

    @classmethod
    def from_tensors(cls, tensors: dict[str, Tensor], about: dict[str, Any]) -> Memory:
        pixels, labels = tensors["memory.pixels"], tensors["memory.labels"]
        return cls(Images(pixels, labels, tuple(about["classes"]), tuple(about["names"])), tensors["memory.role"])
