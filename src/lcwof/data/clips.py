"""The video benchmarks of the paper, as feature vectors of clips."""

from __future__ import annotations

from pathlib import Path

import torch

from lcwof.data.arrays import read_features, read_npz
from lcwof.data.augment import Augment
from lcwof.data.datasets import divide, normalisation, register_dataset
from lcwof.data.images import Dataset, Split
from lcwof.errors import LcwofError

_GET = "Make features of the videos' clips with a network of your choice; the paper's are not public."
_HOLDS = "features (N, D), labels (N,), classes (C,), parts (C,) and test (N,)"


@register_dataset(
    "mini-kinetics",
    about="features of clips of Kinetics, 64 base classes",
    get=_GET,
    needs=f"mini-kinetics.npz: {_HOLDS}",
    find=lambda root: _file(root, "mini-kinetics"),
)
def mini_kinetics(root: Path) -> Dataset:
    return read_clips("mini-kinetics", _file(root, "mini-kinetics"))


@register_dataset(
    "ucf101",
    about="features of clips of UCF101, 51 base classes",
    get=_GET,
    needs=f"ucf101.npz, or ucf101-SPLIT.npz with the option split: {_HOLDS}",
    find=lambda root, **options: _find_ucf(root, **options),
)
def ucf101(root: Path, *, split: str = "") -> Dataset:
    name = f"ucf101-{split}" if split else "ucf101"
    return read_clips(name, _file(root, name))


def _find_ucf(root: Path, split: str = "") -> Path:
    """The file of a split; without one, any that is there."""
    if split:
        return _file(root, f"ucf101-{split}")
    return next(root.glob("ucf101*.npz"), None) or _file(root, "ucf101")


def _file(root: Path, name: str) -> Path:
    file = root / f"{name}.npz"
    if not file.is_file():
        raise LcwofError(f"features of {name} not found: looked for {file}. {_GET}")
    return file


def read_clips(name: str, file: Path) -> Dataset:
    """A .npz of clips. `parts` says of each class whether it is base, val or novel, `test` of each clip whether it is
    one to test on; of the other clips of a base class a tenth is held out to select on."""
    arrays = read_npz(file, "features", "labels", "classes", "parts", "test")
    images = read_features(file)
    parts = [str(part) for part in arrays["parts"]]
    if len(parts) != len(images.classes) or set(parts) - {"base", "val", "novel"}:
        raise LcwofError(f"`parts` in {file} must say base, val or novel of each of its {len(images.classes)} classes.")
    if arrays["test"].shape != arrays["labels"].shape:
        raise LcwofError(f"`test` in {file} must have a value for each of its {len(arrays['labels'])} clips.")
    base, val, novel = (
        tuple(c for c, part in zip(images.classes, parts, strict=True) if part == wanted)
        for wanted in ("base", "val", "novel")
    )
    tested = torch.from_numpy(arrays["test"].astype(bool))
    if not base or not novel:
        raise LcwofError(f"`parts` in {file} names no {'novel' if base else 'base'} class: both are needed.")
    groups = list(zip(base, images.of_classes(base), strict=True))
    for c, index in groups:
        left = int(tested[index].sum())
        if len(index) - left < 2 or left < 1:
            raise LcwofError(
                f"base class {c!r} in {file} has {len(index)} clips, {left} to test on: 2 and 1 are needed."
            )
    test = torch.cat([index[tested[index]] for _, index in groups]).sort().values
    train, select = divide([(c, index[~tested[index]]) for c, index in groups], lambda n: max(1, n // 10))
    split = Split(base, val, novel, train, select, test)
    return Dataset(name, images, split, 0, *normalisation(images.pixels, train), Augment.none())
