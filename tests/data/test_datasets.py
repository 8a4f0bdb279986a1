"""Every registered data set: its parts are disjoint, its counts are the published ones, its errors help."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from lcwof.data import Dataset, dataset_names, load_dataset
from lcwof.data.check import check_dataset
from lcwof.data.datasets import dataset_entry
from lcwof.data.episodes import EpisodeSource
from lcwof.errors import LcwofError
from lcwof.evaluation import MEASURES, prepare, run_episodes
from lcwof.learning import Phase1, base_accuracy, pretrain
from lcwof.methods.pn import Prototypes

NEED_FILES = [name for name in dataset_names() if dataset_entry(name).reads_files]


def counts(data: Dataset, part: str) -> set[int]:
    """How many images of that part a base class has."""
    index = getattr(data.split, part)
    return set(torch.bincount(data.base_labels(index), minlength=len(data.split.base)).tolist())


def assert_sound(data: Dataset) -> None:
    split, pixels = data.split, data.images.pixels
    parts = torch.cat([split.train, split.select, split.test])
    assert len(parts.unique()) == len(parts)
    assert set(data.base_labels(parts).tolist()) == set(range(len(split.base)))
    assert all(len(group) for group in data.images.of_classes(split.val + split.novel))
    assert len(data.mean) == len(data.std) == pixels.shape[1] and pixels.dtype == torch.uint8


@pytest.mark.parametrize("name", [name for name in dataset_names() if name not in NEED_FILES])
def test_data_sets_without_files_are_sound_and_the_same_every_time(name):
    data, again = load_dataset(name), load_dataset(name)
    assert_sound(data)
    assert torch.equal(data.images.pixels, again.images.pixels)
    assert torch.equal(data.split.train, again.split.train)
    assert min(counts(data, "select")) >= 15 and min(counts(data, "test")) >= 15


@pytest.mark.parametrize("name", NEED_FILES)
def test_missing_files_say_where_to_put_them(name, tmp_path, monkeypatch):
    monkeypatch.delenv("LCWOF_DATA", raising=False)
    with pytest.raises(LcwofError, match=r"needs .*--root or LCWOF_DATA"):
        load_dataset(name)
    with pytest.raises(LcwofError, match=str(tmp_path)):
        load_dataset(name, tmp_path)
    with pytest.raises(LcwofError, match="gone does not exist"):
        load_dataset(name, tmp_path / "gone")


def test_unknown_names_and_options_list_the_known_ones():
    with pytest.raises(LcwofError, match=r"no data set named 'digit'; there are digits, strokes, "):
        load_dataset("digit")
    with pytest.raises(LcwofError, match=r"digits has no option 'bases'; its options: base, val"):
        load_dataset("digits", bases=3)
    with pytest.raises(LcwofError, match=r"option base of data set digits is '3'; expected a whole number"):
        load_dataset("digits", base="3")
    with pytest.raises(LcwofError, match=r"base=8 and val=2 of 10 classes"):
        load_dataset("digits", base=8)


def test_digits():
    data = load_dataset("digits")
    assert (data.split.base, data.split.val, data.split.novel) == (tuple("012345"), ("6", "7"), ("8", "9"))
    assert data.images.pixels.shape == (1797, 1, 8, 8) and data.images.pixels.max() == 255
    assert not data.augment.flip and data.size == 8


def test_strokes_take_their_numbers_from_options():
    data = load_dataset("strokes", classes=10, base=5, val=2, per_class=8)
    assert (len(data.split.base), len(data.split.val), len(data.split.novel)) == (5, 2, 3)
    assert (counts(data, "train"), counts(data, "select"), counts(data, "test")) == ({4}, {2}, {2})


def test_the_root_comes_from_the_environment(make_folder, monkeypatch):
    monkeypatch.setenv("LCWOF_DATA", str(make_folder({name: 10 for name in "abcde"})))
    assert load_dataset("folder", size=12).name == "folder/set"


def test_flat_folders_are_divided_60_20_20(make_folder):
    data = load_dataset("folder", make_folder({name: 10 for name in "abcdefghij"}), size=12)
    assert_sound(data)
    assert (data.split.base, data.split.val, data.split.novel) == (tuple("abcdef"), ("g", "h"), ("i", "j"))
    assert (counts(data, "train"), counts(data, "select"), counts(data, "test")) == ({7}, {1}, {2})
    counted = load_dataset("folder", make_folder({}), size=12, base=3, val=1)
    assert counted.split.base == ("a", "b", "c") and counted.split.val == ("d",)


def test_folders_named_base_val_novel_decide(make_folder):
    root = make_folder({"base/z": 4, "base/y": 3, "val/b": 2, "novel/a": 2})
    data = load_dataset("folder", root, size=12)
    assert_sound(data)
    assert (data.split.base, data.split.val, data.split.novel) == (("y", "z"), ("b",), ("a",))
    (root / "novel" / "y").mkdir()
    Image.new("RGB", (12, 12)).save(root / "novel" / "y" / "0.png")
    with pytest.raises(LcwofError, match=r"class 'y' is in both the base and the novel classes"):
        load_dataset("folder", root, size=12)


def test_a_base_class_too_small_to_divide_is_named(make_folder):
    root = make_folder({"a": 2, "b": 5, "c": 5})
    with pytest.raises(LcwofError, match=r"base class 'a' .* has 2 readable images: at least 3 are needed"):
        load_dataset("folder", root, size=12)


def write_lists(folder: Path, files: dict[str, list[str]]) -> None:
    folder.mkdir(parents=True)
    for name, lines in files.items():
        (folder / name).write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize("flat", [False, True])
def test_mini_imagenet_in_class_folders_or_in_one_folder(make_folder, tmp_path, flat):
    """The original download has all files in one folder; the class is in the file name."""
    classes = [f"n0000000{i}" for i in range(4)]
    root = make_folder({name: 6 for name in classes}, at="mini-imagenet").parent
    for name in classes:
        for file in (root / "mini-imagenet" / name).iterdir():
            folder = root / "mini-imagenet" / ("images" if flat else name)
            folder.mkdir(exist_ok=True)
            file.rename(folder / f"{name}{file.name}")
        if flat:
            (root / "mini-imagenet" / name).rmdir()
    parts = {"train": classes[:2], "val": classes[2:3], "test": classes[3:]}
    ravi = {
        f"{part}.csv": ["filename,label", *(f"{c}{i}.jpg,{c}" for c in of for i in range(6))]
        for part, of in parts.items()
    }
    write_lists(root / "splits" / "mini-imagenet" / "ravi", ravi)
    fscil = {
        "train.txt": [f"M/train/{c}/{c}{i}.jpg" for c in classes for i in range(4)],
        "test.txt": [f"M/test/{c}/{c}{i}.jpg" for c in classes for i in (4, 5)],
    }
    write_lists(root / "splits" / "mini-imagenet" / "fscil", fscil)
    data = load_dataset("mini-imagenet", root)
    assert_sound(data)
    assert data.split.base == tuple(classes[:2]) and data.split.novel == tuple(classes[3:])
    tested = [data.images.names[i] for i in data.split.test]
    assert tested == [f"{c}/{c}{i}.png" for c in classes[:2] for i in (4, 5)]
    (root / "splits" / "mini-imagenet" / "fscil" / "test.txt").write_text("M/test/n00000000/n000000009.jpg\n")
    with pytest.raises(LcwofError, match=r"test.txt names 1 images that are not in .*n000000009.jpg"):
        load_dataset("mini-imagenet", root)


def test_cifar100_by_positions(tmp_path):
    random = np.random.default_rng(0)
    labels = np.arange(9).repeat(6)  # one class a session
    arrays = {"train_labels": labels, "test_labels": labels[::-1]}
    arrays |= {f"{h}_images": random.integers(0, 256, (54, 32, 32, 3), dtype=np.uint8) for h in ("train", "test")}
    np.savez(tmp_path / "cifar100.npz", **arrays)
    lists = {f"session_{s}.txt": [str((s - 1) * 6 + i) for i in range(5)] for s in range(1, 10)}
    lists |= {f"test_{s}.txt": [str(53 - (s - 1) * 6)] for s in range(1, 10)}
    write_lists(tmp_path / "splits" / "cifar100" / "fscil", lists)
    data = load_dataset("cifar100", tmp_path)
    assert_sound(data)
    assert (data.split.base, data.split.val, data.split.novel) == (("0",), tuple("1234"), tuple("5678"))
    assert sorted(data.split.train.tolist() + data.split.select.tolist()) == [0, 1, 2, 3, 4]
    assert data.split.test.tolist() == [54 + 53]
    assert (data.images.pixels[0].numpy() == arrays["train_images"][0].transpose(2, 0, 1)).all()
    assert [session.classes for session in data.sessions] == [(c,) for c in "12345678"]
    third = data.sessions[2]
    assert third.shots[0].tolist() == [18, 19, 20, 21, 22] and third.tests[0].tolist() == [54 + 53 - 18]
    assert (data.images.labels[third.shots[0]] == 3).all() and (data.images.labels[third.tests[0]] == 3).all()


def write_clips(file, **changed):
    """Five classes of ten clips, each around a point of its own; the last four clips of a class are to test on."""
    random = np.random.default_rng(0)
    labels = np.arange(5).repeat(10)
    arrays = {
        "features": np.eye(5, 7)[labels] * 5 + random.normal(size=(50, 7)),
        "labels": labels,
        "classes": np.array(["archery", "bowling", "diving", "fencing", "golf"]),
        "parts": np.array(["base", "novel", "base", "val", "base"]),
        "test": np.tile(np.arange(10) >= 6, 5),
    }
    np.savez(file, **(arrays | changed))


def test_clips_of_videos(tmp_path):
    write_clips(tmp_path / "mini-kinetics.npz")
    write_clips(tmp_path / "ucf101-protogan.npz")
    data = load_dataset("mini-kinetics", tmp_path)
    assert data.split.base == ("archery", "diving", "golf")
    assert data.split.val == ("fencing",) and data.split.novel == ("bowling",)
    assert (counts(data, "train"), counts(data, "select"), counts(data, "test")) == ({5}, {1}, {4})
    assert data.split.test.tolist() == [6, 7, 8, 9, 26, 27, 28, 29, 46, 47, 48, 49]
    assert load_dataset("ucf101", tmp_path, split="protogan").name == "ucf101-protogan"
    with pytest.raises(LcwofError, match=r"features of ucf101 not found: looked for .*ucf101\.npz"):
        load_dataset("ucf101", tmp_path)
    for wrong, why in (
        ({"parts": np.array(["base", "test", "base", "val", "base"])}, "base, val or novel of each of its 5 classes"),
        ({"test": np.zeros(49)}, "a value for each of its 50 clips"),
        ({"parts": np.array(["novel"] * 5)}, "names no base class"),
        ({"parts": np.array(["base"] * 5)}, "names no novel class"),
        ({"test": np.zeros(50)}, "base class 'archery' in .* has 10 clips, 0 to test on"),
    ):
        write_clips(tmp_path / "mini-kinetics.npz", **wrong)
        with pytest.raises(LcwofError, match=why):
            load_dataset("mini-kinetics", tmp_path)


def test_cifar100_in_class_folders(make_folder, tmp_path):
    for half, number in (("train", 3), ("test", 2)):
        make_folder({f"c{i:02d}": number for i in range(100)}, at=f"cifar100/{half}", size=32)
    data = load_dataset("cifar100", tmp_path)
    assert_sound(data)
    assert (len(data.split.base), len(data.split.val), len(data.split.novel)) == (60, 20, 20)
    assert counts(data, "train") == {2} and counts(data, "test") == {2}


def test_tiered_imagenet(make_folder, tmp_path):
    make_folder({f"n{i}": 8 for i in range(4)}, at="tiered-imagenet")
    lists = {"train_a.csv": ["n0,x", "n2,x"], "val.csv": ["n1,y"], "test.csv": ["n3,z"]}
    write_lists(tmp_path / "splits" / "tiered-imagenet", lists)
    data = load_dataset("tiered-imagenet", tmp_path)
    assert_sound(data)
    assert data.split.base == ("n0", "n2") and data.name == "tiered-imagenet/held-out-100"
    assert (counts(data, "train"), counts(data, "select"), counts(data, "test")) == ({2}, {2}, {4})


def test_real_omniglot(real_data):
    data = load_dataset("omniglot", real_data)
    assert_sound(data)
    assert data.name == "omniglot/base-200"
    assert (len(data.split.base), len(data.split.val), len(data.split.novel)) == (200, 50, 659)
    assert (counts(data, "train"), counts(data, "select"), counts(data, "test")) == ({12}, {3}, {5})
    assert data.split.val[-1] == "background-963"  # the last of 964
    drawers = [{data.images.names[i][-2:] for i in part} for part in (data.split.train, data.split.test)]
    assert len(drawers[0]) == 12 and not drawers[0] & drawers[1]  # tested on hands that were not trained on
    ink = data.images.pixels.float().mean() / 255
    assert 0.05 < ink < 0.12  # bright ink on black
    with pytest.raises(LcwofError, match=r"base=920 and val=50: omniglot has 964 background characters"):
        load_dataset("omniglot", real_data, base=920)


@pytest.mark.slow
def test_real_mini_imagenet(real_data):
    data = load_dataset("mini-imagenet", real_data)
    assert_sound(data)
    assert data.name == "mini-imagenet/held-out-100"
    assert (len(data.split.base), len(data.split.val), len(data.split.novel)) == (64, 16, 20)
    assert (counts(data, "train"), counts(data, "select"), counts(data, "test")) == ({480}, {20}, {100})
    assert {len(group) for group in data.images.of_classes(data.split.val + data.split.novel)} == {600}
    assert data.images.pixels.shape == (60000, 3, 84, 84)
    assert check_dataset("mini-imagenet", real_data).duplicates == 8  # known to be in the original set


@pytest.mark.slow
def test_real_cub200(real_data):
    data = load_dataset("cub200", real_data)
    assert_sound(data)
    assert (len(data.split.base), len(data.split.val), len(data.split.novel)) == (100, 50, 50)
    assert (counts(data, "train"), counts(data, "select")) == ({25}, {5}) and len(data.split.test) == 2864
    assert data.images.pixels.shape == (11788, 3, 92, 92) and data.size == 84


def test_feature_files_can_be_learned_from(tmp_path: Path) -> None:
    """Vectors in a .npz, through phase 1 with the paper's MLP to an evaluated episode."""
    random = np.random.default_rng(0)
    labels = np.repeat(np.arange(10), 20)
    features = np.eye(10)[labels] * 3 + random.normal(size=(200, 10))
    np.savez(tmp_path / "f.npz", features=features, labels=labels)
    data = load_dataset("npz", tmp_path / "f.npz")
    assert [len(part) for part in (data.split.base, data.split.val, data.split.novel)] == [6, 2, 2]
    model = pretrain(data, Phase1("mlp", 10, batch=16, lr=0.05, schedule="one-cycle"), torch.device("cpu"))
    assert base_accuracy(model, data, data.split.test) > 70
    base, fitted = prepare(Prototypes(), model, data)
    *_, last = run_episodes(Prototypes(), base, fitted, EpisodeSource.of(data, "novel", 2, 5), range(5))
    assert float(last.values[:, MEASURES.index("N/N")].mean()) > 70


def test_images_in_an_npz_are_a_data_set(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (40, 12, 12), dtype=np.uint8)
    np.savez(tmp_path / "i.npz", images=pixels, labels=np.repeat(np.arange(5), 8))
    data = load_dataset("npz", tmp_path / "i.npz", base=3, val=1)
    assert data.images.pixels.shape == (40, 1, 12, 12) and data.size == 12 and len(data.split.base) == 3
    np.savez(tmp_path / "o.npz", pictures=pixels, labels=np.repeat(np.arange(5), 8))
    with pytest.raises(LcwofError, match=r"has the arrays .*pictures.*: `features` or `images` is needed beside"):
        load_dataset("npz", tmp_path / "o.npz")
