"""The published benchmarks, read from people's own copies of the images and lists; none is bundled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from lcwof.data.arrays import from_arrays, read_npz
from lcwof.data.datasets import divide, divided_split, drawings, normalisation, register_dataset
from lcwof.data.images import Dataset, Images, Session, Split
from lcwof.data.sources import read_folders
from lcwof.data.splits import (
    FscilLists,
    classes_of,
    find_entries,
    find_positions,
    read_fscil,
    read_list,
    read_ravi,
    read_tiered,
)
from lcwof.errors import LcwofError
from lcwof.randomness import Randomness

IMAGENET_MEAN = (120.396 / 255, 115.594 / 255, 104.540 / 255)
IMAGENET_STD = (70.682 / 255, 68.276 / 255, 72.545 / 255)
_SET_ROOT = "Set the folder with --root or LCWOF_DATA."
_GET = {
    "omniglot": "Get Omniglot (Lake et al.) as two arrays of truth values, characters x drawers x 105 x 105.",
    "mini-imagenet": "Get Ravi and Larochelle's images and lists, and the incremental lists of Tao et al.",
    "cub200": "Get CUB-200-2011 from Caltech, and the incremental lists of Tao et al.",
    "cifar100": "Get CIFAR-100 from its authors, saved as arrays, and the incremental lists of Tao et al.",
    "tiered-imagenet": "Get tiered-ImageNet (Ren et al.) as class folders, and its lists of classes.",
}


@register_dataset(
    "omniglot",
    about="1,623 handwritten characters by 20 people each, at 28x28",
    get=_GET["omniglot"],
    needs="omniglot/images_{background,evaluation}.npz",
    find=lambda root: [_omniglot(root, part) for part in ("background", "evaluation")],
)
def omniglot(root: Path, *, base: int = 200, val: int = 50) -> Dataset:
    """Base: the first background characters; validation: the last ones; novel: all evaluation characters."""

    def choose(total: int) -> Sequence[int]:
        if base < 1 or val < 1 or base + val > total:
            raise LcwofError(f"base={base} and val={val}: omniglot has {total} background characters for both.")
        return [*range(base), *range(total - val, total)]

    known = _characters(_omniglot(root, "background"), choose)
    new = _characters(_omniglot(root, "evaluation"), range)
    images = _join(known, new)
    # The same people for every character: a base test image is by a hand that no training image is by.
    groups = torch.stack(images.of_classes(known.classes[:base]))
    groups = groups[:, Randomness.of_episodes(0, [0])["drawers"].permutation(groups.shape[1])[0]]
    train, select, test = (part.flatten().sort().values for part in groups.split([12, 3, 5], dim=1))
    split = Split(known.classes[:base], known.classes[base:], new.classes, train, select, test)
    return drawings(f"omniglot/base-{base}", images, split, 28)


@register_dataset(
    "mini-imagenet",
    about="100 ImageNet classes x 600 images, 84x84; base classes tested on 100 held-out images each",
    get=_GET["mini-imagenet"],
    needs="mini-imagenet*.zip or mini-imagenet/, and splits/mini-imagenet/{ravi,fscil}/",
    find=lambda root: (_sources(root, "mini-imagenet", "images"), _lists(root, "mini-imagenet", "fscil")),
)
def mini_imagenet(root: Path, skip_bad: bool) -> Dataset:
    """The published setting tests base classes on other ImageNet images, which nobody can get any more."""
    ravi = _lists(root, "mini-imagenet", "ravi")
    base, val, novel = (classes_of(read_ravi(ravi / f"{part}.csv")) for part in ("train", "val", "test"))
    images = read_folders(_sources(root, "mini-imagenet", "images"), size=84, skip_bad=skip_bad)
    if len(images.classes) == 1:  # the original download: all files in one folder, named by class and number
        images = _by_file_name(images, length=len(base[0]))
    train, test = _listed(images, _lists(root, "mini-imagenet", "fscil"), base, root)
    split = Split(base, val, novel, *_held_out(images, train, base, 20), test)
    return Dataset("mini-imagenet/held-out-100", images, split, 84, IMAGENET_MEAN, IMAGENET_STD, part_of="ImageNet")


@register_dataset(
    "mini-imagenet-fscil",
    about="the incremental benchmark: 60 base classes, then 8 sessions of 5 classes with 5 images each",
    get=_GET["mini-imagenet"],
    needs="mini-imagenet*.zip or mini-imagenet/, and splits/mini-imagenet/fscil/",
    find=lambda root: (_sources(root, "mini-imagenet", "images"), _lists(root, "mini-imagenet", "fscil")),
)
def mini_imagenet_fscil(root: Path, skip_bad: bool) -> Dataset:
    lists = _lists(root, "mini-imagenet", "fscil")
    fscil = read_fscil(lists)
    base = classes_of(fscil.sessions[0])
    images = read_folders(_sources(root, "mini-imagenet", "images"), size=84, skip_bad=skip_bad)
    if len(images.classes) == 1:
        images = _by_file_name(images, length=len(base[0]))
    train, test, sessions = _sessions(images, fscil, lists, root)
    novel = tuple(name for session in sessions for name in session.classes)
    split = Split(base, (), novel, *_held_out(images, train, base, 20), test)
    look = 84, IMAGENET_MEAN, IMAGENET_STD
    return Dataset("mini-imagenet/fscil-60", images, split, *look, part_of="ImageNet", sessions=sessions)


@register_dataset(
    "cub200",
    about="200 kinds of birds, 11,788 photos; 100 base, 50 validation and 50 novel classes",
    get=_GET["cub200"],
    needs="cub200*.zip or cub200/, and splits/cub200/fscil/",
    find=lambda root: (_sources(root, "cub200", "CUB_200_2011"), _lists(root, "cub200", "fscil")),
)
def cub200(root: Path, skip_bad: bool, *, side: int = 92) -> Dataset:
    """side: of the photos as they are kept; more where phase 1 looks at them larger and they are."""
    if side < 8:
        raise LcwofError(f"side={side}: photos of birds need 8 pixels at least.")
    lists = _lists(root, "cub200", "fscil")
    fscil = read_fscil(lists)
    base, *later = (classes_of(session) for session in fscil.sessions)
    val, novel = sum(later[:5], ()), sum(later[5:], ())
    images = read_folders(_sources(root, "cub200", "CUB_200_2011"), size=side, skip_bad=skip_bad)
    train, test, sessions = _sessions(images, fscil, lists, root)
    split = Split(base, val, novel, *_held_out(images, train, base, 5), test)
    return Dataset("cub200/fscil-100", images, split, 84, IMAGENET_MEAN, IMAGENET_STD, sessions=sessions)


@register_dataset(
    "cifar100",
    about="100 kinds of things, 60,000 photos, 32x32; 60 base, 20 validation and 20 novel classes",
    get=_GET["cifar100"],
    needs="cifar100.npz ({train,test}_{images,labels}) and splits/cifar100/fscil/, or cifar100/{train,test}/",
    find=lambda root: _cifar(root),
)
def cifar100(root: Path, skip_bad: bool) -> Dataset:
    """Without lists, in class folders, the classes in alphabetical order are those of the lists."""
    file = _cifar(root)
    later: tuple[Session, ...] = ()
    if file.is_dir():
        halves = [read_folders([file / half], size=32, skip_bad=skip_bad) for half in ("train", "test")]
        images = _join(*halves)
        train, test = (torch.arange(len(half)) for half in halves)
        parts = [halves[0].classes[:60], halves[0].classes[60:80], halves[0].classes[80:]]
    else:
        arrays = read_npz(file, "train_images", "train_labels", "test_images", "test_labels")
        halves = [from_arrays(arrays[f"{h}_images"], arrays[f"{h}_labels"], what=str(file)) for h in ("train", "test")]
        lists = _lists(root, "cifar100", "fscil")
        fscil = read_fscil(lists)
        sessions = [find_positions(s, len(halves[0]), lists, file) for s in fscil.sessions]
        tests = [find_positions(t, len(halves[1]), lists, file) for t in fscil.tests]
        train, test = sessions[0], tests[0]
        groups = [torch.cat([train[:0], *part]) for part in (sessions[:1], sessions[1:5], sessions[5:])]
        parts = [tuple(halves[0].classes[i] for i in halves[0].labels[g].unique()) for g in groups]
        images = _join(*halves)
        pairs = zip(sessions[1:], tests[1:], strict=True)
        later = tuple(_by_class(images, shots, queries + len(halves[0])) for shots, queries in pairs)
    base, val, novel = parts
    wanted = torch.tensor([name in set(base) for name in images.classes])
    train, test = (i[wanted[images.labels[i]]] for i in (train, test + len(halves[0])))
    split = Split(base, val, novel, *_held_out(images, train, base, 20), test)
    return Dataset("cifar100/fscil-60", images, split, 32, *normalisation(images.pixels, split.train), sessions=later)


@register_dataset(
    "tiered-imagenet",
    about="608 ImageNet classes, 84x84; 200 base classes tested on 100 held-out images each",
    get=_GET["tiered-imagenet"],
    needs="tiered-imagenet/ or tiered-imagenet*.zip, and splits/tiered-imagenet/*.csv",
    find=lambda root: (_sources(root, "tiered-imagenet"), _lists(root, "tiered-imagenet")),
)
def tiered_imagenet(root: Path, skip_bad: bool) -> Dataset:
    lists = _lists(root, "tiered-imagenet")
    base, val, novel = (tuple(read_tiered(lists / f"{part}.csv")) for part in ("train_a", "val", "test"))
    images = read_folders(_sources(root, "tiered-imagenet"), size=84, skip_bad=skip_bad)
    split = divided_split(images, (base, val, novel), select=lambda n: min(20, n // 4), test=lambda n: min(100, n // 2))
    return Dataset("tiered-imagenet/held-out-100", images, split, 84, IMAGENET_MEAN, IMAGENET_STD, part_of="ImageNet")


def _absent(what: str, name: str, places: Sequence[Path | str]) -> LcwofError:
    looked = " and ".join(map(str, places))
    return LcwofError(f"{what} of {name} not found: looked for {looked}. {_GET[name]} {_SET_ROOT}")


def _sources(root: Path, name: str, *others: str) -> list[Path]:
    """The zips root/name*.zip, or else the first directory of that or another name."""
    zips = sorted(root.glob(f"{name}*.zip"))
    folders = [root / other for other in (name, *others)]
    found = zips or [place for place in folders if place.is_dir()][:1]
    if not found:
        raise _absent("images", name, [root / f"{name}*.zip", *folders])
    return found


def _lists(root: Path, name: str, *below: str) -> Path:
    folder = Path(root, "splits", name, *below)
    if not folder.is_dir():
        raise _absent("split lists", name, [folder])
    return folder


def _omniglot(root: Path, part: str) -> Path:
    places = [root / "omniglot" / f"images_{part}.npz", root / f"images_{part}.npz"]
    found = next((place for place in places if place.is_file()), None)
    if found is None:
        raise _absent(places[0].name, "omniglot", places)
    return found


def _cifar(root: Path) -> Path:
    places = [root / "cifar100.npz", root / "cifar100"]
    found = next((place for place in places if place.exists()), None)
    if found is None:
        raise _absent("images", "cifar100", places)
    return found


def _characters(path: Path, choose: Callable[[int], Sequence[int]]) -> Images:
    """Chosen characters of an Omniglot file at 28x28, ink bright on black; names are "part-number/drawer"."""
    pictures = read_npz(path, "images")["images"]
    if pictures.ndim != 4 or pictures.shape[1] != 20 or pictures.dtype != np.bool_:
        raise LcwofError(f"`images` in {path} is {pictures.dtype} {pictures.shape}; expected bool (n, 20, H, W).")
    paper = bool(pictures[0].mean() > 0.5)  # True is the paper in the original files, the ink in some copies
    numbers = choose(len(pictures))
    blocks = torch.tensor(numbers).split(50)  # as floats, all pictures together would fill the memory
    ink = ((torch.from_numpy(pictures[block]) ^ paper).flatten(0, 1)[:, None] for block in blocks)
    small = torch.cat([F.interpolate(block.float(), (28, 28), mode="area") for block in ink])
    pixels = (small * 255).round().to(torch.uint8)
    part = path.stem.removeprefix("images_")
    classes = tuple(f"{part}-{n:03d}" for n in numbers)
    names = tuple(f"{name}/{drawer:02d}" for name in classes for drawer in range(20))
    return Images(pixels, torch.arange(len(classes)).repeat_interleave(20), classes, names)


def _join(first: Images, second: Images) -> Images:
    """Two image sets as one; a class in both is one class."""
    classes = tuple(dict.fromkeys(first.classes + second.classes))
    position = {name: i for i, name in enumerate(classes)}
    moved = torch.tensor([position[name] for name in second.classes])
    return Images(
        torch.cat([first.pixels, second.pixels]),
        torch.cat([first.labels, moved[second.labels]]),
        classes,
        first.names + second.names,
        first.bad + second.bad,
    )


def _by_file_name(images: Images, length: int) -> Images:
    """Images labelled by the first characters of their file names."""
    files = [name.rsplit("/", 1)[1] for name in images.names]
    classes = tuple(sorted({file[:length] for file in files}))
    position = {name: i for i, name in enumerate(classes)}
    labels = torch.tensor([position[file[:length]] for file in files])
    return replace(images, labels=labels, classes=classes, names=tuple(f"{f[:length]}/{f}" for f in files))


def _listed(images: Images, lists: Path, base: Sequence[str], root: Path) -> list[Tensor]:
    """The images of base classes in train.txt and in test.txt."""
    found = []
    for path in (lists / "train.txt", lists / "test.txt"):
        entries = read_list(path)
        wanted = [entry for entry in entries if classes_of([entry])[0] in set(base)]
        found.append(find_entries(images, wanted, path, root))
    return found


def _sessions(
    images: Images, lists: FscilLists, folder: Path, root: Path
) -> tuple[Tensor, Tensor, tuple[Session, ...]]:
    """Training and test images of the base session, and the sessions after it."""
    shots, tests = (
        [find_entries(images, entries, folder, root) for entries in part] for part in (lists.sessions, lists.tests)
    )
    later = zip(shots[1:], tests[1:], strict=True)
    return shots[0], tests[0], tuple(_by_class(images, shot, test) for shot, test in later)


def _by_class(images: Images, shots: Tensor, tests: Tensor) -> Session:
    """A session's images by class; its classes are those it has images to learn from, in order of appearance."""
    labels = list(dict.fromkeys(images.labels[shots].tolist()))
    by_class = ([part[images.labels[part] == label] for label in labels] for part in (shots, tests))
    return Session(tuple(images.classes[label] for label in labels), *map(tuple, by_class))


def _held_out(images: Images, train: Tensor, base: Sequence[str], select: int) -> tuple[Tensor, Tensor]:
    """Training images less `select` a class, and those; of classes that small, half."""
    labels, position = images.labels[train], {name: i for i, name in enumerate(images.classes)}
    groups = [(name, train[labels == position[name]]) for name in base]
    rest, taken = divide(groups, lambda n: min(select, n // 2))
    return rest, taken
