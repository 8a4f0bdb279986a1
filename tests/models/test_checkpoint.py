import dataclasses
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from lcwof.data import Dataset
from lcwof.errors import LcwofError
from lcwof.models import BaseModel, save_tensors
from lcwof.models.checkpoint import require_writable, unfinished, write_aside


def test_a_model_comes_back_as_it_was(digits_model: BaseModel, tmp_path: Path) -> None:
    file = tmp_path / "m.safetensors"
    digits_model.save(file)
    back = BaseModel.load(file)
    assert back.description() == digits_model.description() | {"about": back.about}
    for name, tensor in digits_model.tensors().items():
        assert torch.equal(back.tensors()[name], tensor)
    assert [p.name for p in tmp_path.iterdir()] == ["m.safetensors"]


def refused(path: Path, words: str) -> None:
    with pytest.raises(LcwofError, match=words) as caught:
        BaseModel.load(path)
    assert "\n" not in str(caught.value)


def test_wrong_files_are_named_for_what_they_are(digits_model: BaseModel, tmp_path: Path) -> None:
    refused(tmp_path / "none.safetensors", "no file")
    refused(tmp_path, "is a folder")
    file = tmp_path / "m.safetensors"
    digits_model.save(file)
    cut = tmp_path / "cut.safetensors"
    cut.write_bytes(file.read_bytes()[:-1000])
    refused(cut, "truncated or another format")
    picture = tmp_path / "picture.safetensors"
    picture.write_bytes(b"\x89PNG\r\n\x1a\n" + b"0" * 100)
    refused(picture, "not a readable model file")
    save_file({"w": torch.zeros(2)}, tmp_path / "foreign.safetensors")
    refused(tmp_path / "foreign.safetensors", "was not written by lcwof")
    save_tensors(tmp_path / "other.safetensors", "classifier", {"w": torch.zeros(2)}, {})
    refused(tmp_path / "other.safetensors", "holds a classifier, but a base model is needed")


def test_weights_of_another_backbone_are_refused(digits_model: BaseModel, tmp_path: Path) -> None:
    about = digits_model.description() | {"backbone": "resnet10"}
    save_tensors(tmp_path / "m.safetensors", "base model", digits_model.tensors(), about)
    refused(tmp_path / "m.safetensors", "does not fit the backbone 'resnet10'")


def test_a_model_of_other_classes_or_inputs_is_refused(digits_model: BaseModel, digits: Dataset) -> None:
    digits_model.require(digits)
    split = dataclasses.replace(digits.split, base=digits.split.base[:2])
    with pytest.raises(
        LcwofError, match="trained on 6 other base classes, of digits/base-6, than the 2 of digits/base-6"
    ):
        digits_model.require(dataclasses.replace(digits, split=split))
    with pytest.raises(
        LcwofError, match=r"trained on inputs of 1 x 8 x 8, of digits/base-6, and .* now has 1 x 16 x 16"
    ):
        digits_model.require(dataclasses.replace(digits, size=16))


@pytest.mark.parametrize("name", ["", ".", "/"])
def test_what_has_no_name_cannot_be_written(name: str) -> None:
    for write in (lambda path: write_aside(path, b""), unfinished):
        with pytest.raises(LcwofError, match="names nothing that can be written"):
            write(Path(name))


def test_a_home_that_no_shell_has_put_in_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(LcwofError, match="write it out"):
        require_writable(Path("~/model.safetensors"))
    assert not list(tmp_path.iterdir())
