"""Directories, zips, photos and arrays become `Images`."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from lcwof.data.arrays import from_arrays, read_features, read_npz_images
from lcwof.data.sources import list_classes, read_folders, read_images
from lcwof.errors import LcwofError


def zip_folder(folder: Path, to: Path, prefix: str = "") -> Path:
    with zipfile.ZipFile(to, "w") as archive:
        for file in sorted(folder.rglob("*")):
            archive.write(file, prefix + str(file.relative_to(folder)))
    return to


def test_classes_and_images_are_sorted_and_named(make_folder):
    images = read_folders([make_folder({"dog": 2, "cat": 3})], size=12)
    assert images.classes == ("cat", "dog")
    assert images.names == ("cat/0.png", "cat/1.png", "cat/2.png", "dog/0.png", "dog/1.png")
    assert images.labels.tolist() == [0, 0, 0, 1, 1]
    assert images.pixels.shape == (5, 3, 12, 12) and images.pixels.dtype == torch.uint8


@pytest.mark.parametrize("cache", [True, False])
def test_images_of_the_wanted_size_keep_every_pixel(make_folder, cache):
    root = make_folder({"cat": 1})
    images = read_folders([root], size=12, cache=cache)
    expected = np.asarray(Image.open(root / "cat" / "0.png")).transpose(2, 0, 1)
    assert (images.pixels[0].numpy() == expected).all()


def test_a_zip_reads_as_the_folder_it_was_made_from(make_folder, tmp_path):
    root = make_folder({"cat": 2, "dog": 2})
    packed = zip_folder(root, tmp_path / "set.zip", prefix="download/images/")
    from_folder, from_zip = read_folders([root], size=8), read_folders([packed], size=8)
    assert from_zip.names == from_folder.names
    assert torch.equal(from_zip.pixels, from_folder.pixels)


def test_a_class_in_two_sources_is_one_class(make_folder, tmp_path):
    first = make_folder({"cat": 1, "dog": 1}, at="first")
    second = zip_folder(make_folder({"dog": 2, "emu": 1}, at="second"), tmp_path / "second.zip")
    images = read_folders([first, second], size=12)
    assert images.classes == ("cat", "dog", "emu")
    assert images.labels.bincount().tolist() == [1, 3, 1]
    assert list_classes([first, second]) == images.classes


@pytest.mark.parametrize("packed", [False, True])
def test_class_folders_lie_beside_each_other(make_folder, tmp_path, packed):
    root = make_folder({"cat": 1, "dog": 1})
    (root / "dog" / "puppies").mkdir()
    (root / "dog" / "0.png").rename(root / "dog" / "puppies" / "0.png")
    source = zip_folder(root, tmp_path / "set.zip") if packed else root
    with pytest.raises(LcwofError, match="at different depths, cat and dog/puppies: a class is one folder"):
        read_folders([source], size=8)


def test_hidden_files_and_well_known_junk_do_not_count(make_folder):
    root = make_folder({"cat": 1, "__MACOSX": 1, ".trash": 1})
    for name in (".DS_Store", "Thumbs.db", "notes.txt", "._0.png"):
        (root / "cat" / name).write_text("junk")
    assert read_folders([root], size=12).names == ("cat/0.png",)


def test_bad_files_are_an_error_that_names_the_first(make_folder):
    root = make_folder({"cat": 2})
    (root / "cat" / "clip.mp4").write_bytes(b"x")
    (root / "cat" / "tool.exe").write_bytes(b"x")
    with pytest.raises(LcwofError, match=r"2 files .* the first is cat/clip.mp4.*--skip-bad"):
        read_folders([root], size=12)
    assert read_folders([root], size=12, skip_bad=True).bad == ("cat/clip.mp4", "cat/tool.exe")


@pytest.mark.parametrize("cache", [True, False])
def test_broken_and_truncated_images_are_bad_files(make_folder, cache):
    root = make_folder({"cat": 3})
    whole = (root / "cat" / "1.png").read_bytes()
    (root / "cat" / "1.png").write_bytes(whole[: len(whole) // 2])
    (root / "cat" / "9.jpg").write_bytes(b"not an image")
    with pytest.raises(LcwofError, match=r"2 files are not readable images .* cat/1.png"):
        read_folders([root], size=12, cache=cache)
    images = read_folders([root], size=12, skip_bad=True, cache=cache)
    assert images.names == ("cat/0.png", "cat/2.png") and images.bad == ("cat/1.png", "cat/9.jpg")
    assert (images.pixels[1].numpy().transpose(1, 2, 0) == np.asarray(Image.open(root / "cat" / "2.png"))).all()


def test_an_empty_class_folder_is_named(make_folder):
    root = make_folder({"cat": 1, "dog": 0})
    with pytest.raises(LcwofError, match=r"class folder .*dog has no images"):
        read_folders([root], size=12)


def test_without_class_folders_the_layout_is_explained(tmp_path):
    Image.new("RGB", (4, 4)).save(tmp_path / "photo.png")
    with pytest.raises(LcwofError, match=r"no class folders.*ROOT/<class>/<file>"):
        read_folders([tmp_path], size=12)


def test_a_missing_source_and_a_file_that_is_no_zip_are_named(tmp_path):
    with pytest.raises(LcwofError, match="nowhere does not exist"):
        read_folders([tmp_path / "nowhere"], size=12)
    (tmp_path / "set.zip").write_bytes(b"not a zip")
    with pytest.raises(LcwofError, match=r"set.zip is not a readable zip"):
        read_folders([tmp_path / "set.zip"], size=12)


def test_the_shorter_side_is_resized_and_the_centre_kept(tmp_path):
    wide = np.zeros((10, 30, 3), np.uint8)
    wide[:, 10:20] = 200  # the middle third is what is kept
    pixels = read_images([wide], size=5, channels=3)
    assert pixels.shape == (1, 3, 5, 5)
    assert pixels[0, :, :, 2].eq(200).all()
    assert read_images([wide[:, 10:20]], size=20, channels=1).eq(200).all()


def test_photos_are_turned_upright(tmp_path):
    image = Image.new("RGB", (8, 8))
    image.paste((255, 255, 255), (0, 0, 4, 8))  # left half white
    exif = Image.Exif()
    exif[0x0112] = 6  # "turn a quarter clockwise": the left half becomes the top half
    image.save(tmp_path / "photo.png", exif=exif)
    upright = read_images([tmp_path / "photo.png"], size=8, channels=1)[0, 0]
    assert upright[:4].eq(255).all() and upright[4:].eq(0).all()


def test_transparent_pixels_are_white_and_16_bit_greys_keep_their_shades():
    clear = Image.new("RGBA", (4, 4), (0, 0, 0, 0))
    assert read_images([clear], size=4, channels=3).eq(255).all()
    deep = Image.fromarray(np.full((4, 4), 100 * 256, np.uint16))
    assert read_images([deep], size=4, channels=1).eq(100).all()


def test_photos_in_every_form_agree(tmp_path):
    array = np.random.default_rng(0).integers(0, 256, (6, 6, 3), dtype=np.uint8)
    Image.fromarray(array).save(tmp_path / "photo.png")
    items = [tmp_path / "photo.png", str(tmp_path / "photo.png"), Image.fromarray(array), array, array / 255]
    pixels = read_images(items, size=6, channels=3)
    assert (pixels.numpy() == array.transpose(2, 0, 1)).all()


def test_photos_that_cannot_be_read_are_named(tmp_path):
    (tmp_path / "text.jpg").write_text("hello")
    with pytest.raises(LcwofError, match=r"text.jpg cannot be read as an image"):
        read_images([tmp_path / "text.jpg"], size=6, channels=3)
    with pytest.raises(LcwofError, match=r"gone.jpg does not exist"):
        read_images([tmp_path / "gone.jpg"], size=6, channels=3)
    with pytest.raises(LcwofError, match="floats from 0 to 255; expected 0 to 1"):
        read_images([np.array([[0.0, 255.0]])], size=6, channels=3)


@pytest.mark.parametrize("shape", [(4, 5, 5), (4, 5, 5, 1), (4, 1, 5, 5)])
def test_arrays_of_every_layout(shape):
    array = np.arange(100, dtype=np.uint8).reshape(shape)
    images = from_arrays(array, [7, 7, 3, 7])
    assert images.classes == ("3", "7") and images.labels.tolist() == [1, 1, 0, 1]
    assert images.pixels.shape == (4, 1, 5, 5) and images.pixels.flatten().tolist() == list(range(100))


def test_arrays_with_class_names_and_other_types():
    images = from_arrays(np.ones((2, 3, 3), bool), np.array(["b", "a"]), classes=["a", "b"])
    assert images.labels.tolist() == [1, 0] and images.pixels.eq(255).all()
    assert from_arrays(np.full((1, 3, 3), 0.2), [0], classes=["a"]).pixels.eq(51).all()
    with pytest.raises(LcwofError, match="labels 0 to 5 for 2 classes"):
        from_arrays(np.ones((2, 3, 3), bool), [0, 5], classes=["a", "b"])
    with pytest.raises(LcwofError, match=r"2 rows.*one integer or string a row"):
        from_arrays(np.ones((2, 3, 3), bool), [0])


def test_feature_files(tmp_path):
    np.savez(tmp_path / "f.npz", features=np.eye(3), labels=["x", "y", "x"], names=["a", "b", "c"])
    features = read_features(tmp_path / "f.npz")
    assert features.is_features and features.pixels.dtype == torch.float32
    assert features.classes == ("x", "y") and features.names == ("a", "b", "c")
    np.savez(tmp_path / "g.npz", vectors=np.eye(3), labels=[0, 1, 2])
    with pytest.raises(LcwofError, match=r"g.npz has the arrays `vectors`, `labels`; `features` is missing"):
        read_features(tmp_path / "g.npz")


def test_pickled_arrays_are_refused(tmp_path):
    np.savez(tmp_path / "f.npz", features=np.eye(2), labels=np.array(["x", None], dtype=object))
    with pytest.raises(LcwofError, match=r"cannot be read as a .npz of plain arrays"):
        read_features(tmp_path / "f.npz")


def test_image_files_of_numpy_by_class_and_sample(tmp_path):
    pictures = np.zeros((2, 3, 5, 5), bool)
    pictures[1] = True
    np.savez(tmp_path / "i.npz", images=pictures, labels=np.array([[0, 0, 0], [1, 1, 1]]))
    images = read_npz_images(tmp_path / "i.npz")
    assert images.labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert images.pixels.shape == (6, 1, 5, 5) and images.pixels[3:].eq(255).all()


@pytest.mark.parametrize(
    ("kind", "white"), [(np.int32, 65535), (np.int32, 2**31 - 1), (np.float32, 1.0), (np.float32, 255)]
)
def test_greys_of_more_bits_are_what_they_are_in_eight(tmp_path, kind, white):
    ramp = np.linspace(0, 1, 144).reshape(12, 12)
    Image.fromarray((ramp * white).astype(kind)).save(tmp_path / "deep.tif")
    Image.fromarray((ramp * 255).astype(np.uint8)).save(tmp_path / "plain.png")
    deep, plain = read_images([tmp_path / "deep.tif", tmp_path / "plain.png"], size=12, channels=3).int()
    assert (deep - plain).abs().max() <= 1


@pytest.mark.parametrize("cache", [True, False])
def test_a_dangling_link_is_a_bad_file_and_not_a_broken_cache(make_folder, cache):
    root = make_folder({"cat": 2})
    (root / "cat" / "z.png").symlink_to(root / "nowhere.png")
    with pytest.raises(LcwofError, match=r"cat/z\.png"):
        read_folders([root], size=12, cache=cache)
    assert read_folders([root], size=12, cache=cache, skip_bad=True).bad == ("cat/z.png",)


def test_more_endings_of_photos_are_read_and_what_lies_beside_them_is_not(make_folder):
    root = make_folder({"cat": 2})
    (root / "cat" / "0.png").rename(root / "cat" / "0.jfif")
    for name in ("Picasa.ini", "0.xmp", "0.AAE"):
        (root / "cat" / name).touch()
    assert read_folders([root], size=12).names == ("cat/0.jfif", "cat/1.png")


def test_more_pixels_than_pillow_reads_are_too_many_and_not_broken(make_folder, monkeypatch):
    root = make_folder({"cat": 1})
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10)
    with pytest.raises(LcwofError, match="more pixels than Pillow reads"):
        read_images([root / "cat" / "0.png"], size=12, channels=3)


def test_the_home_folder_may_be_written_short(make_folder, monkeypatch):
    monkeypatch.setenv("HOME", str(make_folder({"cat": 1})))
    assert len(read_images(["~/cat/0.png"], size=12, channels=3)) == 1
