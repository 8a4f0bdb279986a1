"""One's own images, from files to labels, as a person types it."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image
from typer.testing import CliRunner

from lcwof.cli.main import app
from lcwof.data import draw_strokes
from lcwof.errors import LcwofError

runner = CliRunner()
MLP = ("--backbone", "mlp", "--grey", "--image-size", 28, "--device", "cpu")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LCWOF_CACHE", str(tmp_path / "cache"))


def lcwof(*words: object) -> str:
    result = runner.invoke(app, [str(word) for word in words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def drawings(root: Path, part: str, labels: range, count: int) -> Path:
    images = draw_strokes(8, 20, seed=5)
    for label in labels:
        folder = root / part / f"char{label}"
        folder.mkdir(parents=True)
        for i in range(count):
            Image.fromarray(images.pixels[label * 20 + i, 0].numpy()).save(folder / f"{i}.png")
    return root / part


def test_own_images_from_files_to_labels(tmp_path: Path) -> None:
    old, new = drawings(tmp_path, "old", range(6), 20), drawings(tmp_path, "new", range(6, 8), 3)
    model = tmp_path / "m.safetensors"
    words = ["--backbone", "mlp", "--grey", "--image-size", 28, "--epochs", 8, "--device", "cpu"]
    assert "6 classes" in lcwof("fit", old, "-o", model, *words)
    assert "Learned char6, char7" in " ".join(lcwof("learn", model, new, "--device", "cpu").split())
    found = json.loads(lcwof("predict", model, new / "char6" / "0.png", new / "char7", "--json"))
    assert [f["label"] for f in found] == ["char6", "char7", "char7", "char7"]
    assert all(f["is_new"] for f in found)
    about = json.loads(lcwof("info", model, "--json"))
    assert about["classes"]["learned"] == [["char6", "char7"]]
    assert "learned 1: char6, char7" in lcwof("info", model)


def test_class_names_with_brackets_are_printed_as_they_are(tmp_path: Path) -> None:
    old = drawings(tmp_path, "old", range(3), 10)
    (old / "char1").rename(old / "[b] odd")
    model = tmp_path / "m.safetensors"
    lcwof("fit", old, "-o", model, "--backbone", "mlp", "--grey", "--image-size", 28, "--epochs", 1)
    assert "[b] odd" in lcwof("info", model)
    for extra in sorted((old / "char2").iterdir())[3:]:
        extra.unlink()
    said = lcwof("fit", old, "-o", model, *MLP, "--epochs", 1, "--overwrite")
    assert "none could be held out of: char2." in said
    assert "[b] odd" in lcwof("predict", model, old / "[b] odd")


def test_bad_files_are_named_and_skipped_on_request(tmp_path: Path, shell: Callable[..., tuple[int, str]]) -> None:
    old = drawings(tmp_path, "old", range(3), 10)
    (old / "char1" / "broken.png").write_bytes(b"not a picture")
    words = ["fit", old, "-o", tmp_path / "m.safetensors", "--backbone", "mlp", "--grey", "--image-size", 28]
    status, said = shell(*words, "--epochs", 1)
    assert status == 2 and "broken.png" in said and "--skip-bad" in said
    status, said = shell(*words, "--epochs", 1, "--skip-bad")
    assert status == 0 and "broken.png" in said
    predict = ["predict", tmp_path / "m.safetensors", old / "char1"]
    status, said = shell(*predict)
    assert status == 2 and "broken.png cannot be read as an image" in said and "0x" not in said and "--skip-bad" in said
    status, said = shell(*predict, "--skip-bad")
    assert status == 0 and "broken.png" in said and "9.png" in said


def test_what_a_model_was_before_it_learned_is_kept_to_try_again(tmp_path: Path) -> None:
    old, new = drawings(tmp_path, "old", range(4), 20), tmp_path / "new ones"
    for twin in range(3):  # which cannot be told from what is known already
        shutil.copytree(old / f"char{twin}", new / f"twin{twin}")
    model, before = tmp_path / "m.safetensors", tmp_path / "m.before.safetensors"
    lcwof("fit", old, "-o", model, *MLP, "--epochs", 4)
    fitted = model.read_bytes()
    said = lcwof("learn", model, new, "--device", "cpu")
    assert f"Saved to {model}; what it was before is in {before}." in said and before.read_bytes() == fitted
    (advice,) = [line for line in said.splitlines() if line.startswith("To try again: lcwof ")]
    again = lcwof(*shlex.split(advice)[4:], "--device", "cpu")
    assert (
        "Learned twin0, twin1, twin2" in again and "consider --balance novel" not in again and "try again" not in again
    )
    assert before.read_bytes() == fitted, "the file that was given is left alone"


def test_a_model_is_not_replaced_unasked(tmp_path: Path) -> None:
    old, new = drawings(tmp_path, "old", range(3), 10), drawings(tmp_path, "new", range(3, 5), 3)
    model, other = tmp_path / "m.safetensors", tmp_path / "other.safetensors"
    lcwof("fit", old, "-o", model, *MLP, "--epochs", 1)
    other.write_bytes(b"precious")
    for words in (["fit", old, "-o", model, *MLP], ["learn", model, new, "-o", other]):
        result = runner.invoke(app, [str(word) for word in words])
        assert isinstance(result.exception, LcwofError) and "is there already" in str(result.exception)
    assert other.read_bytes() == b"precious"
    lcwof("learn", model, new, "-o", other, "--overwrite", "--device", "cpu")
    assert "learned 1: char3, char4" in lcwof("info", other)
    assert not (tmp_path / "m.before.safetensors").exists(), "the model itself is as it was"
    fitted = model.read_bytes()
    lcwof("learn", model, new, "-o", new / ".." / model.name, "--device", "cpu")
    assert (tmp_path / "m.before.safetensors").read_bytes() == fitted, "the same file by another path"


def test_predictions_are_a_line_each_and_clutter_in_a_folder_is_left_out(tmp_path: Path) -> None:
    old = drawings(tmp_path, "old", range(3), 10)
    model = tmp_path / "m.safetensors"
    lcwof("fit", old, "-o", model, *MLP, "--epochs", 1)
    shelf = tmp_path / ("a folder with a name that is longer than what fits into a line of a terminal" * 2)
    (old / "char1").rename(shelf)
    for clutter in ("Thumbs.db", ".hidden.png", "notes.txt"):
        (shelf / clutter).write_bytes(b"not a picture")
    head, *lines = lcwof("predict", model, shelf).splitlines()
    assert head.split() == ["class", "probability", "learned", "image"]
    assert [line.split("  ")[-1] for line in lines] == [str(file) for file in sorted(shelf.glob("[0-9].png"))]


def test_a_fit_that_is_interrupted_says_that_nothing_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*args: object, **more: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("lcwof.FewShotClassifier.fit", interrupted)
    result = runner.invoke(app, ["fit", str(tmp_path), "-o", str(tmp_path / "m.safetensors")])
    assert result.exit_code == 130 and "Interrupted. Nothing of it is kept." in result.output
