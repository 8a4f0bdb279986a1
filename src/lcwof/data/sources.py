"""Read what people have into `Images`: class folders, zips, photos, arrays, feature files."""

from __future__ import annotations

import functools
import io
import os
import threading
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath, PurePosixPath

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

from lcwof.data.arrays import to_uint8
from lcwof.data.cache import BROKEN, Job, Place, cache_key, decode_cached, decode_now
from lcwof.data.images import Images
from lcwof.errors import LcwofError

_IMAGES = frozenset(
    (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".jfif", ".avif", ".jp2")
)
_IGNORED_NAMES = frozenset(("thumbs.db",))
_IGNORED_TYPES = frozenset((".txt", ".md", ".csv", ".json", ".ini", ".xmp", ".aae"))
LAYOUT = "expected one folder a class with its images inside: ROOT/<class>/<file>"


@dataclass(frozen=True)
class _Listing:
    """What a set of directories and zips holds."""

    names: list[str]  # "class/file", sorted
    places: list[Place]
    bad: list[str]  # files in class folders that are no images


def read_folders(
    paths: Sequence[Path], *, size: int, channels: int = 3, skip_bad: bool = False, cache: bool = True
) -> Images:
    """One image set from directories and zips of class folders, resized and cropped to size x size.

    The class of an image is the folder it lies in; a class found in several places is one class. Files that
    are no readable images are an error, unless skip_bad leaves them out and lists them in `Images.bad`.
    """

    def make_job() -> Job:
        found = _list(paths)
        if found.bad and not skip_bad:  # said now, not after a long decoding
            raise _bad_files(found.bad, paths)
        decode = functools.partial(_decode_place, size=size, channels=channels)
        return Job(decode, found.places, (channels, size, size), found.names, found.bad)

    if cache:
        images = decode_cached(cache_key([_fingerprint(path) for path in paths], size, channels), make_job)
    else:
        images = decode_now(make_job())
    if images.bad and not skip_bad:
        raise _bad_files(images.bad, paths)
    if not len(images):
        raise LcwofError(f"none of the {len(images.bad)} files under {_join(paths)} can be read as an image.")
    return images


def list_classes(paths: Sequence[Path]) -> tuple[str, ...]:
    """The class folders under the given directories and zips, sorted, without reading any image."""
    return tuple(sorted({name.rsplit("/", 1)[0] for name in _list(paths).names}))


def read_images(items: Iterable[str | Path | Image.Image | np.ndarray], *, size: int, channels: int) -> Tensor:
    """Photos to predict on, as (n, C, size, size) uint8, prepared as `read_folders` prepares training images.

    An item is a path, a PIL image, or an array (H, W) or (H, W, C), uint8 or float in 0..1.
    """
    decoded = []
    for item in items:
        if isinstance(item, Image.Image):
            decoded.append(_prepare(item, size, channels))
        elif isinstance(item, np.ndarray):
            array = to_uint8(item, "the image array")
            if array.ndim == 3 and array.shape[2] == 1:
                array = array[:, :, 0]
            if array.ndim != 2 and not (array.ndim == 3 and array.shape[2] in (3, 4)):
                raise LcwofError(f"an image array has shape {item.shape}; expected (H, W) or (H, W, 3).")
            decoded.append(_prepare(Image.fromarray(array), size, channels))
        else:
            path = Path(item).expanduser()
            if not path.is_file():
                raise LcwofError(f"{path} does not exist or is not a file; give the path of an image.")
            try:
                decoded.append(_decode(path.read_bytes(), size, channels))
            except Image.DecompressionBombError as error:
                raise LcwofError(f"{path} has more pixels than Pillow reads: make it smaller.") from error
            except BROKEN as error:
                raise LcwofError(f"{path} cannot be read as an image: broken, truncated or another format.") from error
    if not decoded:
        return torch.zeros(0, channels, size, size, dtype=torch.uint8)
    return torch.from_numpy(np.stack(decoded))


def is_image(path: Path) -> bool:
    """Whether a file can be decoded."""
    try:
        _decode(path.read_bytes(), 8, 3)
    except BROKEN:
        return False
    return True


def _list(paths: Sequence[Path]) -> _Listing:
    images: list[tuple[str, Path, str]] = []
    bad = []
    for path in paths:
        files, folders = _walk_zip(path) if path.is_file() else _walk_directory(path)
        visible = [file for file in map(PurePosixPath, files) if not is_clutter(file)]
        found = [file for file in visible if file.suffix.lower() in _IMAGES and len(file.parts) > 1]
        classes = {file.parent for file in found}
        # A folder without images beside class folders was meant to be one; other folders are none of ours.
        beside = {folder.parent for folder in classes}
        inner = {parent for folder in classes for parent in folder.parents}
        for folder in sorted(map(PurePosixPath, folders)):
            if folder.parent in beside and folder not in classes | inner and not is_clutter(folder):
                raise LcwofError(f"the class folder {path / folder} has no images: add some or remove it.")
        _refuse_merged(classes, path)
        _refuse_uneven(classes, path)
        images += [(f"{file.parent.name}/{file.name}", path, str(file)) for file in found]
        stray = {file for file in visible if file.suffix.lower() in _IMAGES and len(file.parts) == 1}
        junk = {file for file in visible if file.parent in classes} - set(found)
        bad += ["/".join(file.parts[-2:]) for file in sorted(junk | stray)]
    if not images:
        raise LcwofError(f"no class folders with images in {_join(paths)}; {LAYOUT}.")
    images.sort(key=lambda image: image[0])
    return _Listing([name for name, _, _ in images], [(path, inside) for _, path, inside in images], bad)


def _refuse_merged(classes: set[PurePosixPath], path: Path) -> None:
    """The class is the folder right above the image; two such folders of one name in one source are two classes."""
    seen: dict[str, PurePosixPath] = {}
    for folder in sorted(classes):
        if folder.name in seen:
            raise LcwofError(
                f"{path} has two class folders named {folder.name!r}, {seen[folder.name]} and {folder}: a class is one "
                "folder of images, without folders inside; rename or move them."
            )
        seen[folder.name] = folder


def _refuse_uneven(classes: set[PurePosixPath], path: Path) -> None:
    """Class folders lie beside each other; one that lies deeper is a part of another class, most likely."""
    if len({len(folder.parts) for folder in classes}) > 1:
        high, *_, deep = sorted(classes, key=lambda folder: (len(folder.parts), folder))
        raise LcwofError(
            f"{path} has class folders at different depths, {high} and {deep}: a class is one folder of images, "
            "without folders inside, and all lie beside each other; move the images, or the folders."
        )


def _walk_directory(path: Path) -> tuple[list[str], set[str]]:
    """All files and folders below a directory, relative to it."""
    if not path.is_dir():
        raise LcwofError(f"{path} does not exist or is neither a directory nor a zip.")
    files: list[str] = []
    folders: set[str] = set()
    for where, below, names in os.walk(path, followlinks=True):
        inside = Path(where).relative_to(path)
        below[:] = [name for name in below if not is_clutter(PurePosixPath(name))]
        folders.update((inside / name).as_posix() for name in below)
        files += [(inside / name).as_posix() for name in names]
    return files, folders


def _walk_zip(path: Path) -> tuple[list[str], set[str]]:
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, OSError) as error:
        raise LcwofError(f"{path} is not a readable zip ({error}); download or make it again.") from error
    return [n for n in names if not n.endswith("/")], {n.rstrip("/") for n in names if n.endswith("/")}


def is_clutter(path: PurePath) -> bool:
    """Whether a file or folder is what systems and people leave beside images, and nobody means as one."""
    if any(part.startswith(".") or part == "__MACOSX" for part in path.parts):
        return True
    return path.name.lower() in _IGNORED_NAMES or path.suffix.lower() in _IGNORED_TYPES


def _fingerprint(path: Path) -> list[object]:
    """Changes when the source changes. A zip is one file; of a directory every file counts."""
    if path.is_file():
        about = path.stat()
        return [str(path.resolve()), about.st_size, about.st_mtime_ns]
    files, folders = _walk_directory(path)
    listed: list[object] = [str(path.resolve()), sorted(folders)]
    for name in sorted(files):
        try:
            about = (path / name).stat()
            listed.append([name, about.st_size, about.st_mtime_ns])
        except OSError:  # a dangling link
            listed.append([name])
    return listed


_mine = threading.local()  # each thread has its own open zip, because a handle seeks and cannot be shared


def _decode_place(place: Place, size: int, channels: int) -> np.ndarray:
    path, inside = place
    if path.is_dir():
        return _decode((path / inside).read_bytes(), size, channels)
    about = path.stat()
    now = (path, about.st_size, about.st_mtime_ns)
    if getattr(_mine, "opened", None) != now:
        _mine.opened, _mine.archive = now, zipfile.ZipFile(path)
    return _decode(_mine.archive.read(inside), size, channels)


def _decode(data: bytes, size: int, channels: int) -> np.ndarray:
    with Image.open(io.BytesIO(data)) as image:
        image.draft(None, (2 * size, 2 * size))  # lets JPEG skip detail far below the final size
        return _prepare(image, size, channels)


def _prepare(image: Image.Image, size: int, channels: int) -> np.ndarray:
    """Upright, in the wanted colours, shorter side at `size`, centre cut out: (C, size, size) uint8.

    An image that already has the size keeps every pixel as decoded.
    """
    image = ImageOps.exif_transpose(image)
    if image.mode.startswith("I;16"):  # a plain conversion would clip 16-bit greys to white
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    elif image.mode in ("I", "F"):
        image = Image.fromarray(_to_bytes(np.asarray(image, dtype=np.float64)))
    if image.has_transparency_data:  # what lies under transparent pixels is arbitrary; show them on white
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    image = image.convert("RGB" if channels == 3 else "L")
    width, height = image.size
    shorter = min(width, height)
    if shorter != size:
        width, height = (max(size, round(side * size / shorter)) for side in (width, height))
        image = image.resize((width, height), Image.Resampling.BICUBIC)
    left, top = (width - size) // 2, (height - size) // 2
    array = np.asarray(image.crop((left, top, left + size, top + size)))
    return np.ascontiguousarray(array.reshape(size, size, channels).transpose(2, 0, 1))


def _to_bytes(values: np.ndarray) -> np.ndarray:
    """Greys of more than 8 bits, or from 0 to 1, as 8: white is the lowest of 1, 255, 65535, 2^31 - 1 and 2^32 - 1 that
    is not exceeded.

    >>> _to_bytes(np.array([[0.0, 0.5, 1.0]])), _to_bytes(np.array([[0.0, 256.0, 65535.0]]))
    (array([[  0, 128, 255]], dtype=uint8), array([[  0,   1, 255]], dtype=uint8))
    """
    values = np.nan_to_num(values).clip(0, 2.0**32 - 1)
    white = next(top for top in (1.0, 255.0, 65535.0, 2.0**31 - 1, 2.0**32 - 1) if values.max(initial=0) <= top)
    return (values / white * 255).round().astype(np.uint8)


def _bad_files(bad: Sequence[str], paths: Sequence[Path]) -> LcwofError:
    number = "1 file is not a readable image" if len(bad) == 1 else f"{len(bad)} files are not readable images"
    return LcwofError(
        f"{number} in {_join(paths)}, the first is {bad[0]}: remove such files, or leave them out with --skip-bad."
    )


def _join(paths: Sequence[Path]) -> str:
    return ", ".join(map(str, paths))
