"""Read arrays into `Images`: in memory, image files of numpy, feature files. Nothing is ever unpickled."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import ArrayLike

from lcwof.data.images import Images
from lcwof.errors import LcwofError


def from_arrays(
    pixels: np.ndarray,
    labels: ArrayLike,
    classes: Sequence[str] | None = None,
    *,
    what: str = "the image array",
) -> Images:
    """Images from arrays in memory.

    pixels: (N, H, W), (N, H, W, C) or (N, C, H, W) with C of 1 or 3; uint8, bool, or float in 0..1. Only the
    centre of images that are not square is kept. labels: N integers or strings; with `classes`, integers are
    positions in it.
    """
    array = to_uint8(np.asarray(pixels), what)
    if array.ndim == 3:
        array = array[:, None]
    elif array.ndim == 4 and array.shape[3] in (1, 3):
        array = array.transpose(0, 3, 1, 2)
    if array.ndim != 4 or array.shape[1] not in (1, 3):
        raise LcwofError(f"{what} has shape {np.shape(pixels)}; expected (N, H, W), (N, H, W, C) or (N, C, H, W).")
    height, width = array.shape[2:]
    side = min(height, width)
    top, left = (height - side) // 2, (width - side) // 2
    array = np.array(array[:, :, top : top + side, left : left + side], order="C")  # the caller keeps the original
    return _labelled(torch.from_numpy(array), labels, classes, what)


def read_npz_images(path: Path) -> Images:
    """A .npz with `images` and `labels`, one label an image.

    Also images (classes, samples, H, W) with labels (classes, samples), as Omniglot is stored.
    """
    arrays = read_npz(path, "images", "labels")
    images, labels = arrays["images"], arrays["labels"]
    if labels.ndim == 2 and images.shape[:2] == labels.shape:
        images, labels = images.reshape(-1, *images.shape[2:]), labels.reshape(-1)
    return from_arrays(images, labels, what=f"`images` in {path}")


def read_features(path: Path) -> Images:
    """A .npz with `features` (N, D) and `labels`, optionally `names` and `classes`: vectors, not images."""
    arrays = read_npz(path, "features", "labels")
    features = arrays["features"]
    if features.ndim != 2 or not np.issubdtype(features.dtype, np.number):
        raise LcwofError(f"`features` in {path} is {features.dtype} {features.shape}; expected numbers (N, D).")
    if not np.isfinite(features).all():
        raise LcwofError(f"`features` in {path} has values that are not finite; remove or mend those rows.")
    vectors = torch.from_numpy(features.astype(np.float32))
    classes = [str(name) for name in arrays["classes"]] if "classes" in arrays else None
    names = [str(name) for name in arrays["names"]] if "names" in arrays else None
    return _labelled(vectors, arrays["labels"], classes, f"`features` in {path}", names)


def read_npz(path: Path, *required: str) -> dict[str, np.ndarray]:
    """All arrays of a .npz that has at least the required ones."""
    if not path.is_file():
        raise LcwofError(f"{path} does not exist; expected a .npz with {_quoted(required)}.")
    try:
        with np.load(path, allow_pickle=False) as file:
            missing = [name for name in required if name not in file.files]
            if missing:
                raise LcwofError(f"{path} has the arrays {_quoted(file.files)}; `{missing[0]}` is missing.")
            return {name: file[name] for name in file.files}
    except (OSError, ValueError, AttributeError, EOFError, zipfile.BadZipFile) as error:
        raise LcwofError(f"{path} cannot be read as a .npz of plain arrays ({error}).") from error


def to_uint8(array: np.ndarray, what: str) -> np.ndarray:
    """Pixels as 0..255, from bytes, truth values or floats in 0..1."""
    if array.dtype == np.uint8:
        return array
    if array.dtype == np.bool_:
        return array.astype(np.uint8) * np.uint8(255)
    if np.issubdtype(array.dtype, np.floating):
        if array.size and not (array.min() >= 0 and array.max() <= 1):  # written so that NaN fails as well
            raise LcwofError(f"{what} has floats from {array.min():g} to {array.max():g}; expected 0 to 1.")
        return np.round(array * 255).astype(np.uint8)
    raise LcwofError(f"{what} has type {array.dtype}; expected uint8 (0..255), bool, or float (0..1).")


def _labelled(
    pixels: torch.Tensor,
    labels: ArrayLike,
    classes: Sequence[str] | None,
    what: str,
    names: Sequence[str] | None = None,
) -> Images:
    given = np.asarray(labels)
    if given.ndim != 1 or len(given) != len(pixels) or given.dtype.kind not in "iuUS":
        raise LcwofError(
            f"{what} has {len(pixels)} rows, its labels are {given.dtype} {given.shape}; "
            "expected one integer or string a row."
        )
    if classes is None:
        found, positions = np.unique(given, return_inverse=True)
        classes = [str(label) for label in found]
    elif given.dtype.kind in "iu":
        positions = given
        if len(given) and not 0 <= given.min() <= given.max() < len(classes):
            raise LcwofError(f"{what} has labels {given.min()} to {given.max()} for {len(classes)} classes.")
    else:
        table = {name: i for i, name in enumerate(classes)}
        unknown = sorted({str(label) for label in given} - set(table))
        if unknown:
            raise LcwofError(f"{what} has the label {unknown[0]!r}, which is not among its classes.")
        positions = np.array([table[str(label)] for label in given])
    if names is None:
        names = [f"{classes[label]}/{i:06d}" for i, label in enumerate(positions)]
    where = torch.from_numpy(np.asarray(positions).astype(np.int64))
    return Images(pixels, where, tuple(map(str, classes)), tuple(names))


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
