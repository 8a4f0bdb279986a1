"""The practitioner's commands: fit, learn, predict, info."""

from __future__ import annotations

import json
import shlex
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

import lcwof
from lcwof.cli.console import (
    Device,
    Json,
    Overwrite,
    SkipBad,
    list_bad,
    phase1_progress,
    progress_bar,
    resumable,
    say,
)
from lcwof.data.sources import is_clutter, is_image
from lcwof.errors import LcwofError
from lcwof.learning import Phase1
from lcwof.models import BaseModel
from lcwof.models.checkpoint import kind_of, require_writable

_LOW = 70.0  # percent of held-out images

ModelFile = Annotated[Path, typer.Argument(help="Model file made by `lcwof fit`.")]


def fit(
    folder: Annotated[Path, typer.Argument(help="Folder (or zip) of class folders of images.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Model file to write.")] = Path("model.safetensors"),
    backbone: Annotated[
        str, typer.Option(help="conv4 (quick on a processor), resnet12, resnet18, efficientnet-lite0 (knows ImageNet).")
    ] = "conv4",
    image_size: Annotated[int, typer.Option(help="Side of the network input, in pixels.")] = 84,
    grey: Annotated[bool, typer.Option("--grey", help="Read images as greyscale.")] = False,
    epochs: Annotated[int, typer.Option(help="Epochs of phase 1.")] = 60,
    seed: Annotated[int, typer.Option(help="Seed of everything random.")] = 0,
    overwrite: Overwrite = False,
    device: Device = None,
    skip_bad: SkipBad = False,
    json_: Json = False,
) -> None:
    """Train a classifier on a folder of class folders.

    Examples:

    lcwof fit products/ -o products.safetensors

    lcwof fit products/ --backbone efficientnet-lite0 --image-size 160 --epochs 15

    lcwof fit scans/ --grey --image-size 28 --epochs 40 -o scans.safetensors
    """
    require_writable(out, replace=overwrite)
    classifier = lcwof.FewShotClassifier(
        backbone, image_size, 1 if grey else 3, epochs, device=device or "auto", seed=seed
    )
    with resumable(None), progress_bar("phase 1") as show:
        classifier.fit(
            folder,
            skip_bad=skip_bad,
            progress=phase1_progress(show, epochs),
        )
    classifier.save(out)
    list_bad(classifier.bad_)
    if json_:
        print(json.dumps({"file": str(out), **classifier.describe()}))
    else:
        say(
            f"{len(classifier.classes_)} classes, {classifier.accuracy_:.1f}% right on held-out images. Saved to {out}."
        )
        if backbone == "conv4" and not grey and classifier.accuracy_ < _LOW:
            say("Of photos, --backbone efficientnet-lite0, which knows ImageNet, is right far more often.")
        if classifier.few_:
            say(f"With under five images none could be held out of: {', '.join(classifier.few_)}.")


def learn(
    model: ModelFile,
    folder: Annotated[Path, typer.Argument(help="Folder of class folders with a few images of each new class.")],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="Where to save; default: the model file itself, what it was before being kept as NAME.before.",
        ),
    ] = None,
    balance: Annotated[str, typer.Option(help="Whom to favour: base, even or novel.")] = "even",
    overwrite: Overwrite = False,
    device: Device = None,
    skip_bad: SkipBad = False,
    json_: Json = False,
) -> None:
    """Teach a classifier new classes from a few images each; it keeps the old ones. Repeat for more classes.

    Examples:

    lcwof learn products.safetensors new_products/

    lcwof learn products.safetensors new_products/ --balance novel -o products-2.safetensors
    """
    from lcwof.app.balance import RETAIN  # brings scikit-learn, which takes a second

    if balance not in RETAIN:
        raise LcwofError(f"--balance {balance}: choose one of {', '.join(RETAIN)}.")
    classifier = lcwof.FewShotClassifier.load(model, device or "auto")
    in_place = out is None or out.resolve() == model.resolve()
    require_writable(out or model, replace=overwrite or in_place)
    with resumable(None), progress_bar("learning") as show:
        learned = classifier.learn(
            folder,
            balance=balance,  # type: ignore[arg-type]
            skip_bad=skip_bad,
            progress=lambda phase, epoch, total: show(epoch, total, phase),
        )
    before = _put_by(model) if in_place else model
    classifier.save(out or model)
    list_bad(classifier.bad_)
    if json_:
        print(json.dumps({"file": str(out or model), "before": str(before), **asdict(learned)}))
    else:
        say(
            f"Learned {', '.join(learned.classes)}. Held-out images of the first classes, in several augmented views, "
            f"which are harder than the images alone: {learned.base_before:.1f}% right among themselves, "
            f"{learned.base_after:.1f}% among all {len(classifier.classes_)} classes. Saved to {out or model}"
            + (f"; what it was before is in {before}." if in_place else ".")
        )
        favour = "" if balance == "novel" else "--balance novel, or "
        lost = [
            f"{name} {right} of {given}"
            for name, given, right in zip(learned.classes, learned.examples, learned.recognised, strict=True)
            if right < given
        ]
        if lost:
            say(
                f"Not all examples of new classes are recognised in the end: {', '.join(lost)}. Old classes that look "
                f"alike may have kept their place: consider {favour}more images of the new classes."
            )
        if not learned.reached:
            say(
                "Phase 3 ended before the first classes were back at the level asked for: consider "
                f"{favour.replace('or ', '')}more images of the new classes, or more of the old when fitting."
            )
        if favour and (lost or not learned.reached):
            again = ["lcwof", "learn", before, folder, "--balance", "novel", "-o", out or model, "--overwrite"]
            say(f"To try again: {shlex.join(map(str, again))}")


def predict(
    model: ModelFile,
    images: Annotated[list[Path], typer.Argument(help="Image files, or folders of them.")],
    device: Device = None,
    skip_bad: SkipBad = False,
    json_: Json = False,
) -> None:
    """Say which class each image shows, how sure the classifier is, and whether the class was learned later.

    Example: lcwof predict products.safetensors photo.jpg shelf/*.jpg
    """
    classifier = lcwof.FewShotClassifier.load(model, device or "auto")
    files = [file for path in images for file in _files(path)]
    if skip_bad:
        bad = tuple(str(file) for file in files if not is_image(file))
        list_bad(bad)
        files = [file for file in files if str(file) not in bad]
    try:
        found = classifier.predict(files)
    except LcwofError as error:
        hint = "" if skip_bad or len(files) < 2 else " --skip-bad goes on with the others."
        raise LcwofError(f"{error}{hint}") from error
    if json_:
        print(json.dumps([{"image": str(f), **p._asdict()} for f, p in zip(files, found, strict=True)]))
        return
    wide = max([len("class"), *(len(p.label) for p in found)])
    say(f"{'class':{wide}}  probability  learned   image")
    for file, p in zip(files, found, strict=True):
        say(f"{p.label:{wide}}  {p.probability:11.3f}  {'later' if p.is_new else 'at first':8}  {file}")


def info(
    model: Annotated[Path, typer.Argument(help="Model file made by `lcwof fit` or `lcwof pretrain`.")],
    json_: Json = False,
) -> None:
    """Say what a model file holds: classes, backbone, accuracy, images kept; of a base model, how it was made.

    Examples:

    lcwof info products.safetensors

    lcwof info base.safetensors
    """
    if model.is_file() and kind_of(model) == "base model":
        _base_info(BaseModel.load(model), json_)
        return
    about = lcwof.FewShotClassifier.load(model, "cpu").describe()
    if json_:
        print(json.dumps(about))
        return
    say(f"{about['backbone']}, input {' x '.join(map(str, about['input']))}")
    say(f"base classes ({len(about['classes']['base'])}): {', '.join(about['classes']['base'])}")
    for number, group in enumerate(about["classes"]["learned"], 1):
        say(f"learned {number}: {', '.join(group)}")
    say(f"held-out accuracy after phase 1: {about['base accuracy on held-out images']}%")
    say("images kept: " + ", ".join(f"{n} {role}" for role, n in about["images kept"].items()))


def _base_info(model: BaseModel, json_: bool) -> None:
    about = model.description()
    if json_:
        print(json.dumps(about))
        return
    told = model.about
    say(f"a base model: {model.backbone_name}, input {' x '.join(map(str, model.shape))}")
    say(f"base classes ({len(model.classes)}): {', '.join(model.classes)}")
    known = {"data": "data", "select accuracy": "accuracy on held-out images, %", "test accuracy": "on test images, %"}
    for key, name in known.items():
        if key in told:
            say(f"{name}: {told[key]:.2f}" if isinstance(told[key], float) else f"{name}: {told[key]}")
    shown = f"whole images at {model.view} pixels" if model.view else "the common crop"
    say(f"tests are shown {shown}{' and its mirror image' * model.mirror}")
    usual = asdict(Phase1())
    made = {k: v for k, v in told.get("phase1", {}).items() if v != json.loads(json.dumps(usual.get(k)))}
    say("phase 1, where other than the defaults: " + (", ".join(f"{k} {v}" for k, v in made.items()) or "nothing"))


def _put_by(model: Path) -> Path:
    """A copy of a model file beside it, in place of the last one."""
    before = model.with_name(f"{model.stem}.before{model.suffix}")
    shutil.copyfile(model, before)
    return before


def _files(path: Path) -> list[Path]:
    if not path.exists():
        raise LcwofError(f"no file {path}.")
    if not path.is_dir():
        return [path]
    files = sorted(p for p in path.rglob("*") if p.is_file() and not is_clutter(p.relative_to(path)))
    if not files:
        raise LcwofError(f"{path} holds no files.")
    return files
