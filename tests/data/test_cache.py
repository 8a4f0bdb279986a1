"""Images are decoded once; a cache entry is whole or absent."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import lcwof.data.cache as cache_module
import lcwof.data.sources as sources
from lcwof.data.sources import read_folders
from lcwof.errors import LcwofError


@pytest.fixture
def decoded(monkeypatch) -> list[int]:
    """Grows by one for every image that is decoded."""
    calls: list[int] = []
    decode = sources._decode
    monkeypatch.setattr(sources, "_decode", lambda *args: (calls.append(1), decode(*args))[1])
    return calls


def entry_of(cache: Path) -> Path:
    (entry,) = cache.iterdir()
    return entry


def test_the_second_read_decodes_nothing(make_folder, decoded):
    root = make_folder({"cat": 3})
    first = read_folders([root], size=12)
    assert len(decoded) == 3
    second = read_folders([root], size=12)
    assert len(decoded) == 3
    assert torch.equal(first.pixels, second.pixels)
    assert (first.names, first.classes) == (second.names, second.classes)


def test_a_changed_source_or_size_is_decoded_again(make_folder, decoded):
    root = make_folder({"cat": 2})
    read_folders([root], size=12)
    read_folders([root], size=6)
    assert len(decoded) == 4
    Image.new("RGB", (12, 12), "white").save(root / "cat" / "1.png")
    assert read_folders([root], size=12).pixels[1].eq(255).all()
    Image.new("RGB", (12, 12)).save(root / "cat" / "2.png")
    assert len(read_folders([root], size=12)) == 3


@pytest.mark.parametrize("damage", ["truncate", "index", "missing"])
def test_a_corrupt_entry_is_rebuilt(make_folder, cache, damage):
    root = make_folder({"cat": 2})
    expected = read_folders([root], size=12).pixels.clone()
    entry = entry_of(cache)
    if damage == "truncate":
        (entry / "images.npy").write_bytes((entry / "images.npy").read_bytes()[:-1])
    elif damage == "index":
        (entry / "index.json").write_text('{"names": ["cat/0.png"')
    else:
        (entry / "images.npy").unlink()
    assert torch.equal(read_folders([root], size=12).pixels, expected)
    assert np.load(entry / "images.npy").shape == (2, 3, 12, 12)


def test_an_interrupted_build_leaves_nothing(make_folder, cache, monkeypatch):
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cache_module, "_write_header", interrupt)
    with pytest.raises(KeyboardInterrupt):
        read_folders([make_folder({"cat": 2})], size=12)
    assert list(cache.iterdir()) == []


def test_a_full_disk_is_reported_with_the_space_needed(make_folder, cache, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(cache_module, "_write_header", full)
    with pytest.raises(LcwofError, match=r"is full; 3 MiB are needed there: make room, or set LCWOF_CACHE"):
        read_folders([make_folder({"cat": 1})], size=1024)
    assert list(cache.iterdir()) == []


def test_a_cache_folder_that_cannot_be_made_is_named(make_folder, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("LCWOF_CACHE", str(tmp_path / "file"))
    with pytest.raises(LcwofError, match=r"cache folder .*file cannot be written"):
        read_folders([make_folder({"cat": 1})], size=12)


def test_leftovers_of_killed_builds_are_removed_but_not_running_ones(make_folder, cache):
    old, running = cache / "building-old", cache / "building-running"
    old.mkdir()
    running.mkdir()
    os.utime(old, (time.time() - 2 * 24 * 3600,) * 2)
    read_folders([make_folder({"cat": 1})], size=12)
    assert not old.exists() and running.exists()


def test_many_images_keep_their_order_across_threads_and_blocks(make_folder, monkeypatch):
    monkeypatch.setattr(cache_module, "_BLOCK", 7)
    root = make_folder({"cat": 23}, size=4)
    images = read_folders([root], size=4)
    for name, pixels in zip(images.names, images.pixels, strict=True):
        assert (pixels.numpy().transpose(1, 2, 0) == np.asarray(Image.open(root / name))).all()


def test_processes_decode_what_threads_do(make_folder, monkeypatch):
    """Large sets are decoded by processes, from folders and zips alike, and say as much about broken files."""
    root = make_folder({"cat": 9, "dog": 4})
    (root / "dog" / "broken.png").write_bytes(b"no image")
    threads = read_folders([root], size=12, skip_bad=True, cache=False)
    monkeypatch.setattr(cache_module, "_PROCESSES_FROM", 2)
    monkeypatch.setattr(cache_module, "_BLOCK", 3)
    processes = read_folders([root], size=12, skip_bad=True, cache=False)
    assert torch.equal(threads.pixels, processes.pixels)
    assert (threads.names, threads.bad) == (processes.names, processes.bad) and processes.bad == ("dog/broken.png",)


def test_an_image_that_may_not_be_read_is_named_and_not_remembered_as_broken(make_folder, monkeypatch):
    root = make_folder({"cat": 2})

    def refuse(place, size, channels):
        raise PermissionError(errno.EACCES, "Permission denied")

    with (
        monkeypatch.context() as patch,
        pytest.raises(LcwofError, match=r"cat/0\.png in .* cannot be read: Permission"),
    ):
        patch.setattr(sources, "_decode_place", refuse)
        read_folders([root], size=12, skip_bad=True)
    assert len(read_folders([root], size=12).pixels) == 2, "once it may be read"
