"""From image files on disk to labels."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.base import clone

import lcwof
from lcwof import FewShotClassifier, LcwofError
from lcwof.data import draw_strokes
from lcwof.learning import Phase2, Phase3
from lcwof.methods.lcwof import LCwoFConfig

QUICK = LCwoFConfig(weight_constraint=10.0, phase2=Phase2(epochs=40), phase3=Phase3(epochs=150))


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Drawings of 10 characters as PNG and JPEG files: 6 base classes, then two groups of new ones, and a test set."""
    root = tmp_path_factory.mktemp("photos")
    images = draw_strokes(10, 40, seed=3)
    for i, (pixels, label) in enumerate(zip(images.pixels, images.labels.tolist(), strict=True)):
        number = i % 40
        part = "base" if label < 6 else "new" if label < 8 else "newer"
        shots = 30 if label < 6 else 3 + label % 2  # unequal shots
        folder = root / (part if number < shots else "test") / f"char{label}"
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels[0].numpy()).save(folder / f"{number}.{'png' if i % 2 else 'jpg'}")
    return root


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LCWOF_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def fitted(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    classifier = FewShotClassifier("mlp", image_size=28, channels=1, epochs=15, device="cpu").fit(photos / "base")
    file = tmp_path_factory.mktemp("model") / "m.safetensors"
    classifier.save(file)
    return file


def accuracy(classifier: FewShotClassifier, folder: Path) -> float:
    return classifier.score(folder)


def only(photos: Path, classes: range, tmp: Path) -> Path:
    """The test images of some classes."""
    folder = tmp / f"test-{classes.start}-{classes.stop}"
    folder.mkdir()
    for label in classes:
        (folder / f"char{label}").symlink_to(photos / "test" / f"char{label}", target_is_directory=True)
    return folder


def test_fit_learn_learn_predict(photos: Path, fitted: Path, tmp_path: Path) -> None:
    base, new, newer = (only(photos, r, tmp_path) for r in (range(6), range(6, 8), range(8, 10)))
    classifier = FewShotClassifier.load(fitted, device="cpu")
    assert classifier.classes_ == tuple(f"char{i}" for i in range(6))
    before = accuracy(classifier, base)
    assert before > 0.8
    learned = classifier.learn(photos / "new", config=QUICK)
    for name, given, right in zip(learned.classes, learned.examples, learned.recognised, strict=True):
        files = sorted((photos / "new" / name).iterdir())
        answers = [classifier.classes_[row.argmax()] for row in classifier.predict_proba(files)]
        assert (given, right) == (len(files), answers.count(name))
    assert learned.classes == ("char6", "char7")
    assert learned.base_after >= 0.9 * learned.base_before
    assert accuracy(classifier, new) > 0.5
    assert accuracy(classifier, base) > 0.75 * before
    classifier.learn(photos / "newer", config=QUICK)
    assert classifier.classes_ == tuple(f"char{i}" for i in range(10))
    assert accuracy(classifier, newer) > 0.4
    assert accuracy(classifier, new) > 0.35, "the group learned before is still known"
    assert accuracy(classifier, base) > 0.6 * before
    image = next((photos / "test" / "char8").iterdir())
    said = classifier.predict(image)
    assert said.label in classifier.classes_ and 0 < said.probability <= 1
    assert said.is_new == (said.label in {"char6", "char7", "char8", "char9"})


def test_a_saved_classifier_answers_and_learns_as_before(photos: Path, fitted: Path, tmp_path: Path) -> None:
    first = FewShotClassifier.load(fitted, device="cpu")
    first.learn(photos / "new", config=QUICK)
    first.save(tmp_path / "again.safetensors")
    second = FewShotClassifier.load(tmp_path / "again.safetensors", device="cpu")
    files = sorted((photos / "test" / "char1").iterdir())
    np.testing.assert_allclose(first.predict_proba(files), second.predict_proba(files), atol=1e-6)
    first.learn(photos / "newer", config=QUICK)
    second.learn(photos / "newer", config=QUICK)
    np.testing.assert_allclose(first.predict_proba(files), second.predict_proba(files), atol=1e-5)


def test_balance_decides_whom_learning_favours(photos: Path, fitted: Path) -> None:
    epochs, kept = [], []
    for balance in ("novel", "even", "base"):
        classifier = FewShotClassifier.load(fitted, device="cpu")
        learned = classifier.learn(photos / "new", balance=balance, config=QUICK)  # type: ignore[arg-type]
        epochs.append(learned.epochs)
        kept.append(learned.base_after)
    assert epochs[0] <= epochs[1] <= epochs[2] and epochs[0] < epochs[2]
    assert kept[0] <= kept[1] <= kept[2] and kept[0] < kept[2]


def test_paths_pil_images_and_arrays_give_the_same_answer(photos: Path, fitted: Path) -> None:
    classifier = FewShotClassifier.load(fitted, device="cpu")
    file = next(p for p in sorted((photos / "test" / "char2").iterdir()) if p.suffix == ".png")
    image = Image.open(file)
    forms = [str(file), file, image, np.asarray(image)]
    answers = [classifier.predict(form) for form in forms]
    assert all(answer == answers[0] for answer in answers)
    together = classifier.predict(forms)
    assert [p.label for p in together] == [answers[0].label] * 4
    assert [p.probability for p in together] == pytest.approx([answers[0].probability] * 4, abs=1e-5)
    assert classifier.predict_proba(forms).shape == (4, 6)
    np.testing.assert_allclose(classifier.predict_proba(forms).sum(1), 1, atol=1e-5)
    assert classifier.predict([]) == []


def test_arrays_with_labels_can_be_fitted_and_learned() -> None:
    images = draw_strokes(5, 20, seed=1)
    arrays = [p[0].numpy() for p in images.pixels]
    names = [f"c{label}" for label in images.labels.tolist()]
    old = [i for i, name in enumerate(names) if name not in ("c3", "c4")]
    new = [i for i, name in enumerate(names) if name in ("c3", "c4")]
    classifier = FewShotClassifier("mlp", 28, 1, epochs=8, device="cpu")
    classifier.fit([arrays[i] for i in old], [names[i] for i in old])
    classifier.learn([arrays[i] for i in new[:3] + new[20:22]], ["c3"] * 3 + ["c4"] * 2, config=QUICK)
    assert classifier.classes_ == ("c0", "c1", "c2", "c3", "c4")
    assert classifier.score([arrays[i] for i in new], [names[i] for i in new]) > 0.5


def test_it_is_a_scikit_learn_estimator() -> None:
    classifier = FewShotClassifier("conv4", epochs=3)
    assert classifier.get_params()["epochs"] == 3
    assert clone(classifier).set_params(backbone="mlp").backbone == "mlp"


def test_the_replay_memory_is_counted(fitted: Path) -> None:
    about = FewShotClassifier.load(fitted, device="cpu").describe()
    assert about["images kept"] == {"replay": 6 * 5, "held out": 6 * 6, "few-shot": 0}


def test_mistakes_are_told_in_a_sentence(photos: Path, fitted: Path, tmp_path: Path) -> None:
    classifier = FewShotClassifier.load(fitted, device="cpu")
    with pytest.raises(LcwofError, match="class 'char0' is known already"):
        classifier.learn(photos / "base")
    with pytest.raises(LcwofError, match="no folder"):
        classifier.learn(tmp_path / "absent")
    with pytest.raises(LcwofError, match="balance='both': choose one of base, even, novel"):
        classifier.learn(photos / "new", balance="both")  # type: ignore[arg-type]
    with pytest.raises(LcwofError, match="balance='both': choose one of base, even, novel"):
        FewShotClassifier("mlp", balance="both").fit("absent")  # type: ignore[arg-type]
    with pytest.raises(LcwofError, match="give their class names in y"):
        classifier.learn([np.zeros((28, 28), np.uint8)])
    with pytest.raises(LcwofError, match="1 images but 2 labels"):
        classifier.learn([np.zeros((28, 28), np.uint8)], ["a", "b"])
    with pytest.raises(LcwofError, match="has not been fitted"):
        FewShotClassifier("mlp").predict(photos)
    with pytest.raises(LcwofError, match="at least two classes"):
        FewShotClassifier("mlp", 28, 1).fit([np.zeros((28, 28), np.uint8)], ["a"])
    assert len(classifier.classes_) == 6, "nothing was lost"


@pytest.mark.parametrize("shots", [1, 3])
def test_default_settings_keep_the_old_and_learn_the_new(
    photos: Path, fitted: Path, tmp_path: Path, shots: int
) -> None:
    """Six classes make epochs of one or two steps, a tenth of the paper's; learning must work all the same."""
    few = tmp_path / "few"
    for name in ("char6", "char7"):
        (few / name).mkdir(parents=True)
        for file in sorted((photos / "new" / name).iterdir())[:shots]:
            (few / name / file.name).symlink_to(file)
    classifier = FewShotClassifier.load(fitted, device="cpu")
    base, new = only(photos, range(6), tmp_path), only(photos, range(6, 8), tmp_path)
    before = classifier.score(base)
    learned = classifier.learn(few)
    assert learned.reached
    assert classifier.score(base) > 0.7 * before
    assert classifier.score(new) > 0.5


def test_a_batch_of_arrays_is_several_images(fitted: Path) -> None:
    classifier = FewShotClassifier.load(fitted, device="cpu")
    assert len(classifier.predict(np.zeros((5, 28, 28), np.uint8))) == 5
    assert classifier.predict(np.zeros((28, 28), np.uint8)).label in classifier.classes_


def test_parameters_reach_phase_1_and_bad_ones_are_refused(photos: Path) -> None:
    fast = FewShotClassifier("mlp", 28, 1, epochs=1, seed=7, device="cpu").fit(photos / "base")
    assert fast.describe()["phase 1"]["seed"] == 7
    for wrong in ({"epochs": 0}, {"memory": 0}, {"image_size": 0}):
        with pytest.raises(LcwofError, match=f"{next(iter(wrong))}=0: at least 1 is needed"):
            fast.set_params(**wrong).fit(photos / "base")
        fast.set_params(epochs=1, memory=5, image_size=28)
    with pytest.raises(LcwofError, match="adapt=2: FewShotClassifier adapts the last stage"):
        fast.learn(photos / "new", config=LCwoFConfig(adapt=2))


def test_a_failed_learn_changes_nothing(photos: Path, fitted: Path) -> None:
    classifier = FewShotClassifier.load(fitted, device="cpu")
    files = sorted((photos / "test" / "char1").iterdir())
    before = classifier.predict_proba(files)
    bad = LCwoFConfig(phase2=Phase2(epochs=2, lr_head=float("nan")))
    with pytest.raises(LcwofError, match="not a number"):
        classifier.learn(photos / "new", config=bad)
    assert np.array_equal(classifier.predict_proba(files), before)
    assert torch.equal(classifier.memory_.role.unique(), torch.tensor([0, 1]))


def test_no_images_and_a_home_written_short(fitted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    classifier = FewShotClassifier.load(fitted)
    with pytest.raises(LcwofError, match="no images: give at least one"):
        classifier.learn([], [])
    monkeypatch.setenv("HOME", str(tmp_path))
    classifier.save("~/kept.safetensors")
    assert FewShotClassifier.load("~/kept.safetensors").classes_ == classifier.classes_


@pytest.mark.parametrize(("loads", "policy"), [("0.50 0.31 0.22 3/120 77", "PASSIVE"), ("9.0 9.0 9.0 1/120 77", None)])
def test_threads_sleep_while_they_wait_where_something_else_runs(
    loads: str, policy: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    (tmp_path / "loadavg").write_text(loads)
    lcwof._share_cores(tmp_path / "loadavg")
    assert os.environ.get("OMP_WAIT_POLICY") == policy
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    lcwof._share_cores(tmp_path / "loadavg")
    lcwof._share_cores(tmp_path / "nowhere")
    assert os.environ["OMP_WAIT_POLICY"] == "ACTIVE"
