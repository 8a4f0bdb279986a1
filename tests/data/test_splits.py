"""The community's lists are read as they are published."""

from __future__ import annotations

from collections import Counter

import pytest

from lcwof.data.sources import read_folders
from lcwof.data.splits import (
    classes_of,
    find_entries,
    find_positions,
    read_fscil,
    read_list,
    read_ravi,
    read_tiered,
)
from lcwof.errors import LcwofError


def test_ravi_and_tiered_lists(tmp_path):
    (tmp_path / "train.csv").write_text("filename,label\nn01a.jpg,n01\nn02b.jpg,n02\n")
    assert read_ravi(tmp_path / "train.csv") == ("n01/n01a.jpg", "n02/n02b.jpg")
    (tmp_path / "val.csv").write_text("n01,n10\nn02,n10\n")
    assert read_tiered(tmp_path / "val.csv") == {"n01": "n10", "n02": "n10"}
    with pytest.raises(LcwofError, match=r"val.csv has the columns \['n01', 'n10'\]; expected filename,label"):
        read_ravi(tmp_path / "val.csv")
    with pytest.raises(LcwofError, match=r"expected class,category"):
        (tmp_path / "bad.csv").write_text("n01\n")
        read_tiered(tmp_path / "bad.csv")


def test_sessions_are_read_in_the_order_of_their_numbers(tmp_path):
    for i in range(1, 12):
        (tmp_path / f"session_{i}.txt").write_text(f"SET/train/class-{i}/a.jpg\n\n")
        (tmp_path / f"test_{i}.txt").write_text(f"SET/test/class-{i}/b.jpg\n")
    lists = read_fscil(tmp_path)
    assert [classes_of(session) for session in lists.sessions] == [(f"class-{i}",) for i in range(1, 12)]
    assert lists.tests[10] == ("SET/test/class-11/b.jpg",)
    (tmp_path / "test_4.txt").unlink()
    with pytest.raises(LcwofError, match=r"test_4.txt not found: looked for it at .*test_4.txt"):
        read_fscil(tmp_path)


def test_entries_match_whatever_the_leading_folders_and_extension(make_folder, tmp_path):
    images = read_folders([make_folder({"cat": 2, "dog": 2})], size=12)
    entries = ["SET/test/dog/1.jpg", "cat/0.webp"]
    assert find_entries(images, entries, tmp_path / "l.txt", tmp_path).tolist() == [3, 0]
    with pytest.raises(LcwofError, match=r"l.txt names 2 images that are not in .*, the first is cat/7.jpg"):
        find_entries(images, ["cat/0.jpg", "cat/7.jpg", "emu/0.jpg"], tmp_path / "l.txt", tmp_path)


def test_entries_of_skipped_images_are_left_out(make_folder, tmp_path):
    root = make_folder({"cat": 2})
    (root / "cat" / "0.png").write_bytes(b"broken")
    images = read_folders([root], size=12, skip_bad=True)
    assert find_entries(images, ["cat/0.jpg", "cat/1.jpg"], tmp_path / "l.txt", root).tolist() == [0]


def test_positions_must_exist(tmp_path):
    assert find_positions(["3", "0"], 4, tmp_path / "l.txt", tmp_path).tolist() == [3, 0]
    with pytest.raises(LcwofError, match=r"names 1 images .* the first is 4: expected positions 0 to 3"):
        find_positions(["3", "4"], 4, tmp_path / "l.txt", tmp_path)


def test_the_published_mini_imagenet_lists(real_data):
    lists = real_data / "splits" / "mini-imagenet"
    for part, classes in (("train", 64), ("val", 16), ("test", 20)):
        rows = Counter(entry.split("/")[0] for entry in read_ravi(lists / "ravi" / f"{part}.csv"))
        assert len(rows) == classes and set(rows.values()) == {600}
    fscil = read_fscil(lists / "fscil")
    assert [len(session) for session in fscil.sessions] == [30000] + [25] * 8
    assert [len(test) for test in fscil.tests] == [6000] + [500] * 8
    assert len(read_list(lists / "fscil" / "train.txt")) == 50000


def test_the_published_tiered_cub_and_cifar_lists(real_data):
    tiered = real_data / "splits" / "tiered-imagenet"
    parts = {part: read_tiered(tiered / f"{part}.csv") for part in ("train_a", "train_b", "val", "test")}
    assert {part: len(classes) for part, classes in parts.items()} == {
        "train_a": 200,
        "train_b": 151,
        "val": 97,
        "test": 160,
    }
    cub = read_fscil(real_data / "splits" / "cub200" / "fscil")
    assert [len(classes_of(session)) for session in cub.sessions] == [100] + [10] * 10
    cifar = read_fscil(real_data / "splits" / "cifar100" / "fscil")
    assert len(find_positions(sum(cifar.sessions, ()), 50000, tiered, tiered)) == 30200
