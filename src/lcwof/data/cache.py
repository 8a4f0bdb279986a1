"""Decode images once, in parallel, into a memory-mapped file in the user's cache folder.

A cache entry is a folder named by a hash of what it was made from, so it is never stale: a changed source has
another entry. It is written aside and renamed, so an interrupted build leaves nothing half-written.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import struct
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import IO

import numpy as np
import torch
from joblib import Parallel, delayed
from joblib.externals.loky import get_reusable_executor
from PIL import Image
from rich.console import Console
from rich.progress import Progress

from lcwof.data.images import Images
from lcwof.errors import LcwofError

FORMAT = 1  # part of every key: raise it when the decoding or the files below change
_BLOCK = 128  # images that a worker decodes before it hands them over
_PROCESSES_FROM = 5000  # images for which starting processes, a few seconds, is worth it
_SHOW_PROGRESS_FROM = 500  # fewer images are done before a bar could be read
_ABANDONED = 24 * 3600  # seconds after which an unfinished build is taken to have been killed

Place = tuple[Path, str]  # a directory or zip, and the path of an image inside it
Decode = Callable[[Place], np.ndarray]  # place -> (C, S, S) uint8

# What the image library raises for files that are broken, truncated or no images at all.
BROKEN = (
    OSError,
    SyntaxError,
    ValueError,
    TypeError,
    EOFError,
    LookupError,
    ArithmeticError,
    struct.error,
    zlib.error,
    Image.DecompressionBombError,
)


def cache_folder() -> Path:
    """Where decoded images are kept: $LCWOF_CACHE, or ~/.cache/lcwof."""
    return Path(os.environ.get("LCWOF_CACHE") or Path.home() / ".cache" / "lcwof").expanduser()


def cache_key(*parts: object) -> str:
    """A name for a cache entry: a hash of everything its content depends on."""
    return hashlib.sha256(json.dumps([FORMAT, *parts]).encode()).hexdigest()[:24]


def decode_all(decode: Decode, places: Sequence[Place]) -> Iterator[np.ndarray | None]:
    """The images in order; None stands for one that cannot be read."""
    count = len(places)
    # Small images keep the interpreter busier than the image library, which releases its lock: threads gain little.
    processes = count >= _PROCESSES_FROM and (os.cpu_count() or 1) > 1
    parallel = Parallel(n_jobs=-1, prefer="processes" if processes else "threads", return_as="generator")
    blocks = (places[start : start + _BLOCK] for start in range(0, count, _BLOCK))
    console = Console(stderr=True)
    quiet = count < _SHOW_PROGRESS_FROM or not console.is_terminal
    try:
        with Progress(console=console, disable=quiet, transient=True) as progress:
            task = progress.add_task(f"decoding {count} images, once", total=count)
            for images in parallel(delayed(_attempt)(decode, block) for block in blocks):
                yield from images
                progress.advance(task, len(images))
    finally:
        if processes:  # they would wait for more work, with all they have imported
            get_reusable_executor().shutdown(wait=False)


def _attempt(decode: Decode, places: Sequence[Place]) -> list[np.ndarray | None]:
    images: list[np.ndarray | None] = []
    for place in places:
        try:
            images.append(decode(place))
        except BROKEN as error:
            if isinstance(error, OSError) and error.errno not in (None, errno.ENOENT, errno.ELOOP):
                path, inside = place  # the disk failed, or may not be read: not the picture, so nothing to remember
                raise LcwofError(f"{inside} in {path} cannot be read: {error.strerror or error}.") from error
            images.append(None)
    return images


@dataclass(frozen=True)
class Job:
    """Images to decode: how, from where, of which shape (C, S, S), and what they are called."""

    decode: Decode
    places: list[Place]
    shape: tuple[int, int, int]
    names: list[str]  # "class/file"
    bad: list[str]  # files already known to be no images

    def __iter__(self) -> Iterator[tuple[str, np.ndarray | None]]:
        return zip(self.names, decode_all(self.decode, self.places), strict=True)


def decode_now(job: Job) -> Images:
    """Decode into memory, for small sets and for those who want no cache."""
    done = list(job)
    good = [(name, image) for name, image in done if image is not None]
    broken = [name for name, image in done if image is None]
    pixels = np.stack([image for _, image in good]) if good else np.zeros((0, *job.shape), np.uint8)
    return _as_images(pixels, [name for name, _ in good], job.bad + broken)


def decode_cached(key: str, make_job: Callable[[], Job]) -> Images:
    """The images of the cache entry `key`, decoded first when there is no sound entry yet.

    make_job is called only when needed, so that an existing entry costs no listing of its source.
    """
    folder = cache_folder() / key
    images = _open(folder)
    if images is None:
        _store(folder, make_job())
        images = _open(folder)
    if images is None:
        raise LcwofError(f"the cache entry {folder} cannot be read back; delete it, or set LCWOF_CACHE elsewhere.")
    return images


def _store(folder: Path, job: Job) -> None:
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        _sweep(folder.parent)
        with tempfile.TemporaryDirectory(prefix="building-", dir=folder.parent) as aside:
            _write(Path(aside), job)
            if _open(folder) is None:
                shutil.rmtree(folder, ignore_errors=True)  # a corrupt entry
            try:
                Path(aside).rename(folder)
            except OSError:
                if _open(folder) is None:  # unless another process has just finished the same entry
                    raise
    except OSError as error:
        needed = len(job.names) * prod(job.shape) / 2**20
        why = "is full" if error.errno == errno.ENOSPC else f"cannot be written ({error.strerror})"
        raise LcwofError(
            f"the cache folder {folder.parent} {why}; {needed:.0f} MiB are needed there: "
            "make room, or set LCWOF_CACHE to another folder."
        ) from error


def _write(folder: Path, job: Job) -> None:
    # Plain writes, not a memory map: on a full disk a write is an error to report, a map kills the process.
    good, broken = [], []
    with open(folder / "images.npy", "wb") as file:
        _write_header(file, (len(job.names), *job.shape))
        for name, image in job:
            if image is None:
                broken.append(name)
            else:
                good.append(name)
                file.write(image.tobytes())
        file.seek(0)  # unreadable images were left out: numpy's header has room for any number
        _write_header(file, (len(good), *job.shape))
    (folder / "index.json").write_text(json.dumps({"names": good, "bad": job.bad + broken}))


def _write_header(file: IO[bytes], shape: tuple[int, ...]) -> None:
    header = {"descr": "|u1", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)


def _sweep(folder: Path) -> None:
    """Remove what killed builds have left: they can be gigabytes that nobody would find."""
    for left in folder.glob("building-*"):
        if time.time() - left.stat().st_mtime > _ABANDONED:
            shutil.rmtree(left, ignore_errors=True)


def _open(folder: Path) -> Images | None:
    """A cache entry, or None when there is none or it is corrupt."""
    try:
        index = json.loads((folder / "index.json").read_text())
        # Copy-on-write, because torch warns about arrays it could not write to; nobody does write.
        empty = not index["names"]
        pixels = np.load(folder / "images.npy", mmap_mode=None if empty else "c", allow_pickle=False)
        if pixels.dtype != np.uint8 or pixels.ndim != 4:
            return None
        return _as_images(pixels, index["names"], index["bad"])
    except (OSError, ValueError, KeyError, TypeError, LcwofError):
        return None


def _as_images(pixels: np.ndarray, names: list[str], bad: list[str]) -> Images:
    folders = [name.rsplit("/", 1)[0] for name in names]
    classes = tuple(sorted(set(folders)))
    position = {name: i for i, name in enumerate(classes)}
    labels = torch.tensor([position[name] for name in folders], dtype=torch.int64)
    return Images(torch.from_numpy(pixels), labels, classes, tuple(names), tuple(sorted(bad)))
