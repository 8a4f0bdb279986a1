"""Data sets by name, and those that need no download: digits, strokes, and people's own folders."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from lcwof.data.arrays import from_arrays, read_features, read_npz, read_npz_images
from lcwof.data.augment import Augment
from lcwof.data.images import Dataset, Images, Split
from lcwof.data.sources import LAYOUT, list_classes, read_folders
from lcwof.data.strokes import SIZE, draw_strokes
from lcwof.errors import LcwofError
from lcwof.randomness import Randomness

DRAWINGS = Augment(scale=(0.7, 1.0), ratio=(0.8, 1.25), rotate=10, flip=False, jitter=0)
Parts = tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]  # base, val and novel classes
_NOT_OPTIONS = ("root", "skip_bad")  # parameters of loaders that `load_dataset` takes itself


@dataclass(frozen=True)
class DatasetEntry:
    """What the registry knows of a data set."""

    name: str
    about: str
    get: str  # where people get it
    needs: str  # which files under --root
    load: Callable[..., Dataset]
    find: Callable[..., object] | None  # (root, **options): raises LcwofError when the files are not there; reads none

    @property
    def reads_files(self) -> bool:
        return "root" in inspect.signature(self.load).parameters

    @property
    def options(self) -> dict[str, inspect.Parameter]:
        parameters = inspect.signature(self.load, eval_str=True).parameters
        return {name: p for name, p in parameters.items() if name not in _NOT_OPTIONS}


_REGISTRY: dict[str, DatasetEntry] = {}


def register_dataset(
    name: str, *, about: str, get: str, needs: str, find: Callable[..., object] | None = None
) -> Callable[[Callable[..., Dataset]], Callable[..., Dataset]]:
    """Make a loader known by name.

    A loader that reads files takes `root`, and `skip_bad` if they can be broken; all others are options.
    """

    def register(load: Callable[..., Dataset]) -> Callable[..., Dataset]:
        _REGISTRY[name] = DatasetEntry(name, about, get, needs, load, find)
        return load

    return register


def dataset_names() -> tuple[str, ...]:
    return tuple(_REGISTRY)


def dataset_entry(name: str) -> DatasetEntry:
    if name not in _REGISTRY:
        raise LcwofError(f"no data set named {name!r}; there are {', '.join(_REGISTRY)}.")
    return _REGISTRY[name]


def default_root(root: Path | None = None) -> Path | None:
    """The folder data sets lie in: the one given, or $LCWOF_DATA, or none."""
    if root is None and os.environ.get("LCWOF_DATA"):
        root = Path(os.environ["LCWOF_DATA"])
    return None if root is None else Path(root).expanduser()


def is_present(name: str, root: Path | None = None, **options: object) -> bool:
    """Whether the files of a data set are where they are looked for; none is read."""
    entry, root = dataset_entry(name), default_root(root)
    if not entry.reads_files:
        return True
    if root is None or not root.exists():
        return False
    try:
        if entry.find:
            entry.find(root, **options)
    except LcwofError:
        return False
    return True


def load_dataset(name: str, root: Path | None = None, *, skip_bad: bool = False, **options: object) -> Dataset:
    """A registered data set. root is the folder its files lie in, by default $LCWOF_DATA."""
    entry = dataset_entry(name)
    for option, value in options.items():
        if option not in entry.options:
            known = ", ".join(entry.options) or "none"
            raise LcwofError(f"data set {name} has no option {option!r}; its options: {known}.")
        kind = entry.options[option].annotation
        if type(value) is not kind or (isinstance(value, int) and value < 0):
            wanted = "a whole number, 0 or more" if kind is int else f"a {kind.__name__}"
            raise LcwofError(f"option {option} of data set {name} is {value!r}; expected {wanted}.")
    if not entry.reads_files:
        return entry.load(**options)
    root = default_root(root)
    if root is None:
        raise LcwofError(
            f"data set {name} needs {entry.needs}: give their folder with --root or LCWOF_DATA. {entry.get}"
        )
    if not root.exists():
        raise LcwofError(f"the data folder {root} does not exist: set it with --root or LCWOF_DATA.")
    if "skip_bad" in inspect.signature(entry.load).parameters:
        options["skip_bad"] = skip_bad
    return entry.load(root=root, **options)


def part_classes(classes: Sequence[str], base: int, val: int) -> Parts:
    """The first `base` classes, the next `val` classes, and the rest, which are novel."""
    if base < 1 or val < 1 or base + val >= len(classes):
        raise LcwofError(f"base={base} and val={val} of {len(classes)} classes: base, val and novel need one at least.")
    return tuple(classes[:base]), tuple(classes[base : base + val]), tuple(classes[base + val :])


def divide(groups: Sequence[tuple[str, Tensor]], *counts: Callable[[int], int]) -> list[Tensor]:
    """Each class's images divided at random, the same way on every machine.

    groups: name and image positions of each class. counts: how many of n images a part but the first takes;
    the first part is what remains. Returns the positions in each part, sorted.
    """
    draws = Randomness.of_episodes(seed=0, episodes=[0])
    parts: list[list[Tensor]] = [[] for _ in range(len(counts) + 1)]
    for name, index in groups:
        sizes = [count(len(index)) for count in counts]
        remains = len(index) - sum(sizes)
        order = index[draws["divide", name].permutation(len(index))[0]]
        for part, piece in zip(parts, order.split([remains, *sizes]), strict=True):
            part.append(piece)
    return [torch.cat(part).sort().values for part in parts]


def divided_split(images: Images, parts: Parts, select: Callable[[int], int], test: Callable[[int], int]) -> Split:
    """A split whose base images come in one lot: of n images a class, select(n) and test(n) are held out."""
    base, val, novel = parts
    train, selecting, testing = divide(list(zip(base, images.of_classes(base), strict=True)), select, test)
    return Split(base, val, novel, train, selecting, testing)


def normalisation(pixels: Tensor, train: Tensor) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and deviation of each channel (in 0..1) or feature, over at most 2000 of the training images."""
    sample = pixels[train[:: max(1, len(train) // 2000)]].double()
    if pixels.dim() == 2:  # features: each has a scale of its own
        mean, std = sample.mean(dim=0), sample.std(dim=0)
    else:
        mean, std = sample.mean(dim=(0, 2, 3)) / 255, sample.std(dim=(0, 2, 3)) / 255
    return tuple(mean.tolist()), tuple(std.clamp(min=1e-3).tolist())


def drawings(name: str, images: Images, split: Split, size: int) -> Dataset:
    """A data set of small grey drawings, which must not be mirrored."""
    return Dataset(name, images, split, size, *normalisation(images.pixels, split.train), DRAWINGS)


@register_dataset(
    "digits",
    about="1,797 handwritten digits, 8x8, that come with scikit-learn",
    get="It is part of scikit-learn.",
    needs="nothing",
)
def digits(*, base: int = 6, val: int = 2) -> Dataset:
    from sklearn.datasets import load_digits  # takes a second to import

    found = load_digits()
    images = from_arrays(found.images / 16, found.target)
    parts = part_classes(images.classes, base, val)
    split = divided_split(images, parts, select=lambda n: round(0.15 * n), test=lambda n: round(0.35 * n))
    return drawings(f"digits/base-{base}", images, split, size=8)


@register_dataset(
    "strokes",
    about="random handwritten characters, 28x28, drawn by this program",
    get="It is made on the spot.",
    needs="nothing",
)
def strokes(*, classes: int = 100, base: int = 64, val: int = 16, per_class: int = 60, seed: int = 0) -> Dataset:
    if per_class < 4:
        raise LcwofError(f"per_class={per_class}: at least 4 drawings of a character are needed.")
    images = draw_strokes(classes, per_class, seed)
    parts = part_classes(images.classes, base, val)
    split = divided_split(images, parts, select=lambda n: n // 4, test=lambda n: n // 4)
    return drawings(f"strokes/base-{base}", images, split, SIZE)


@register_dataset(
    "folder",
    about="your own images: one folder a class, or base/ val/ novel/ with such folders in each",
    get="It is your own.",
    needs="ROOT/<class>/<file>, or ROOT/{base,val,novel}/<class>/<file>",
)
def folder(root: Path, skip_bad: bool, *, size: int = 84, base: int = 0, val: int = 0) -> Dataset:
    places = [root / part for part in ("base", "val", "novel")]
    if places[0].is_dir():
        absent = next((place for place in places if not place.is_dir()), None)
        if absent is not None:
            raise LcwofError(f"{root} has a folder base but none named {absent.name}; {LAYOUT}, or all three.")
        if base or val:
            raise LcwofError(f"the folders of {root} say which classes are base and val; leave out base= and val=.")
        parts = list_classes(places[:1]), list_classes(places[1:2]), list_classes(places[2:])
    else:
        places = [root]
        parts = _fifths(list_classes(places), base, val, root)
    images = read_folders(places, size=size, skip_bad=skip_bad)
    split = _own_split(images, parts, root)
    return Dataset(f"folder/{root.resolve().name}", images, split, size, *normalisation(images.pixels, split.train))


@register_dataset(
    "npz",
    about="your own arrays in one .npz: `features` (N, D) or `images` (N, H, W[, C]), and `labels`",
    get="It is your own.",
    needs="ROOT itself is the .npz file",
)
def npz(root: Path, *, base: int = 0, val: int = 0) -> Dataset:
    found = read_npz(root, "labels")
    if not {"features", "images"} & found.keys():
        raise LcwofError(f"{root} has the arrays {', '.join(found)}: `features` or `images` is needed beside `labels`.")
    images = read_features(root) if "features" in found else read_npz_images(root)
    split = _own_split(images, _fifths(images.classes, base, val, root), root)
    size = 0 if images.is_features else images.pixels.shape[-1]
    augment = Augment.none() if images.is_features else DRAWINGS if size < 64 else Augment()
    return Dataset(f"npz/{root.stem}", images, split, size, *normalisation(images.pixels, split.train), augment)


def _fifths(classes: Sequence[str], base: int, val: int, root: Path) -> Parts:
    """A user's classes in sorted order: three fifths base, a fifth val, the rest novel, unless they say otherwise."""
    if len(classes) < 3:
        raise LcwofError(f"{root} has {len(classes)} classes; base, val and novel need one each.")
    val = val or max(1, round(0.2 * len(classes)))
    return part_classes(classes, base or len(classes) - 2 * val, val)


def _own_split(images: Images, parts: Parts, root: Path) -> Split:
    """A tenth of a user's base images to select on, a fifth to test on, at least one each."""
    for name, index in zip(parts[0], images.of_classes(parts[0]), strict=True):
        if len(index) < 3:
            raise LcwofError(
                f"base class {name!r} in {root} has {len(index)} readable images: at least 3 are needed, "
                "one each to train, to select and to test on."
            )
    return divided_split(images, parts, select=lambda n: max(1, round(0.1 * n)), test=lambda n: max(1, round(0.2 * n)))
