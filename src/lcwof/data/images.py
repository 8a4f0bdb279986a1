"""Images held once as one uint8 tensor and indexed by everything; a data set is images and a split of its classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from lcwof.data.augment import Augment
from lcwof.errors import LcwofError


@dataclass(frozen=True)
class Images:
    """N images, or N feature vectors, with a label each."""

    pixels: Tensor  # (N, C, H, W) uint8, possibly memory-mapped; or (N, D) float32 features
    labels: Tensor  # (N,) int64, positions in `classes`
    classes: tuple[str, ...]
    names: tuple[str, ...]  # one an image, as the split lists name it: "class/file"
    bad: tuple[str, ...] = ()  # files that could not be read and were skipped on request

    def __post_init__(self) -> None:
        n = len(self.pixels)
        if len(self.labels) != n or len(self.names) != n:
            raise LcwofError(f"{n} images, {len(self.labels)} labels and {len(self.names)} names do not match.")
        if n and int(self.labels.max()) >= len(self.classes):
            raise LcwofError(f"label {int(self.labels.max())} has no name: only {len(self.classes)} classes.")

    def __len__(self) -> int:
        return len(self.pixels)

    @property
    def is_features(self) -> bool:
        return self.pixels.dim() == 2

    def of_classes(self, names: Sequence[str]) -> list[Tensor]:
        """The indices of the images of each named class, in the order given."""
        position = {name: i for i, name in enumerate(self.classes)}
        missing = [name for name in names if name not in position]
        if missing:
            raise LcwofError(f"no class named {missing[0]!r} among the {len(self.classes)} classes.")
        order = torch.argsort(self.labels, stable=True)
        ends = torch.bincount(self.labels, minlength=len(self.classes)).cumsum(0).tolist()
        starts = [0, *ends[:-1]]
        return [order[starts[position[name]] : ends[position[name]]] for name in names]


@dataclass(frozen=True)
class Split:
    """Which classes play which part, and how the images of the base classes are divided.

    Validation and novel classes use all their images: an episode divides them into shots and queries.
    """

    base: tuple[str, ...]
    val: tuple[str, ...]
    novel: tuple[str, ...]
    train: Tensor  # base images that phase 1 learns from and phase 3 replays
    select: Tensor  # base images held out of training: every choice (epoch, lambda, scale) is made on these
    test: Tensor  # base images that only the final evaluation sees

    def __post_init__(self) -> None:
        for first, second in (("base", "val"), ("base", "novel"), ("val", "novel")):
            both = set(getattr(self, first)) & set(getattr(self, second))
            if both:
                raise LcwofError(f"class {sorted(both)[0]!r} is in both the {first} and the {second} classes.")


@dataclass(frozen=True)
class Session:
    """Classes that arrive together: the few images of each to learn from, and those to test on. Counts may differ."""

    classes: tuple[str, ...]
    shots: tuple[Tensor, ...]  # by class
    tests: tuple[Tensor, ...]


@dataclass(frozen=True)
class Dataset:
    """Everything an experiment reads: images, split, and how images become network input."""

    name: str  # with the variant, because same-named sets differ: "mini-imagenet/held-out-100"
    images: Images
    split: Split
    size: int  # side of the square network input; 0 for features
    mean: tuple[float, ...]
    std: tuple[float, ...]
    augment: Augment = field(default_factory=Augment)
    part_of: str = ""  # the larger set its classes were taken from, which pretrained networks may know
    sessions: tuple[Session, ...] = ()  # the published sessions after the base session, where there are such lists

    def __post_init__(self) -> None:
        seen = set(self.split.base)
        for number, session in enumerate(self.sessions, start=2):
            if not session.classes:
                raise LcwofError(
                    f"session {number} of {self.name} has no classes: remove its lists, and number those after it anew."
                )
            for name, shots, tests in zip(session.classes, session.shots, session.tests, strict=True):
                if name in seen:
                    raise LcwofError(
                        f"session {number} of {self.name} repeats the class {name!r}, which is known already."
                    )
                if not len(shots) or not len(tests):
                    kind = "to learn from" if not len(shots) else "to test on"
                    raise LcwofError(f"session {number} of {self.name}: class {name!r} has no images {kind}.")
                seen.add(name)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Of one network input: (C, H, W), or (D,)."""
        pixels = self.images.pixels
        return (pixels.shape[1],) if self.images.is_features else (pixels.shape[1], self.size, self.size)

    def base_labels(self, index: Tensor) -> Tensor:
        """Labels of base images as positions in `split.base`, the order of the base head."""
        position = {name: i for i, name in enumerate(self.split.base)}
        table = torch.tensor([position.get(name, -1) for name in self.images.classes])
        return table[self.images.labels[index]]
