"""FewShotClassifier: phases 1 to 3 for one's own images, one learner of the same engine that runs the benchmarks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image
from sklearn.base import BaseEstimator
from torch import Tensor

from lcwof.app.balance import RETAIN, Balance, held_out_views, paced
from lcwof.app.memory import Memory, hold_out
from lcwof.compute import Compute
from lcwof.data import Augment, Dataset, Images, Split, read_folders, read_images
from lcwof.data.datasets import DRAWINGS, normalisation
from lcwof.engine.recipe import pick_device
from lcwof.errors import LcwofError
from lcwof.evaluation.metrics import accuracy
from lcwof.learning import Inputs, Learners, Phase1, Scoring, Tail, calibrate, learn_novel, pretrain
from lcwof.methods.lcwof import LCwoF, LCwoFConfig
from lcwof.models import BaseModel, load_tensors, pretrained, save_tensors
from lcwof.randomness import Randomness

Picture = str | Path | Image.Image | np.ndarray

_PREDICT_AT_ONCE = 256  # images
_CHECK_EVERY = 2  # epochs of phase 3
_CLIP = 2.0  # of the gradient in phase 1: small batches at this rate diverge now and then without


class Prediction(NamedTuple):
    """What the classifier says of one image."""

    label: str
    probability: float
    is_new: bool  # learned from a few examples, not in the original training


@dataclass(frozen=True)
class Learned:
    """What one call of `learn` did, for people."""

    classes: tuple[str, ...]
    epochs: int  # of phase 3
    reached: bool  # whether the balance asked for was reached
    base_before: float  # accuracy on held-out base images among the base classes, percent
    base_after: float  # the same images among all classes
    examples: tuple[int, ...]  # given of each new class
    recognised: tuple[int, ...]  # of these, how many are right in the end


class FewShotClassifier(BaseEstimator):
    """Fit on much data, then learn new classes from a few examples each, keeping the old ones.

    backbone: conv4 is quick on a processor, resnet12 is the paper's and wants a GPU, efficientnet-lite0 knows ImageNet
    (extra `pretrained`; image_size 112 to 224).
    image_size, channels: of the network input. epochs: of phase 1. memory: images kept per base class for replay.
    balance: whom to favour when learning, "base", "even" or "novel".
    """

    def __init__(
        self,
        backbone: str = "resnet12",
        image_size: int = 84,
        channels: int = 3,
        epochs: int = 60,
        memory: int = 5,
        balance: Balance = "even",
        device: str = "auto",
        seed: int = 0,
    ) -> None:
        self.backbone = backbone
        self.image_size = image_size
        self.channels = channels
        self.epochs = epochs
        self.memory = memory
        self.balance = balance
        self.device = device
        self.seed = seed

    def fit(
        self,
        X: str | Path | Sequence[Picture],
        y: Iterable[Any] | None = None,
        skip_bad: bool = False,
        progress: Callable[[int, dict[str, float]], None] = lambda epoch, figures: None,
    ) -> FewShotClassifier:
        """Phase 1. X: a folder (or zip) of class folders, or images with their labels in y."""
        for name in ("epochs", "memory", "image_size", "channels"):
            if getattr(self, name) < 1:
                raise LcwofError(f"{name}={getattr(self, name)}: at least 1 is needed.")
        _require_known(self.balance)
        images = self._read(X, y, skip_bad)
        if len(images.classes) < 2:
            raise LcwofError(f"fit needs at least two classes, found {len(images.classes)}.")
        train, held_out = hold_out(images, self.seed)
        empty = torch.empty(0, dtype=torch.long)
        data = Dataset(
            "own images",
            images,
            Split(images.classes, (), (), train, held_out, empty),
            self.image_size,
            *normalisation(images.pixels, train),
            self._augment(),
        )
        # What knows nothing yet needs many steps, so of few images smaller batches.
        most = 64 if pretrained(self.backbone) else min(64, max(16, len(train) // 32))
        quick = Phase1(
            self.backbone,
            self.epochs,
            batch=min(most, len(train)),
            lr=0.05,
            schedule="one-cycle",
            drop_ramp=1000,
            seed=self.seed,
        )
        self.base_ = pretrain(data, quick, pick_device(self.device), progress, clip=_CLIP)
        self.accuracy_ = float(self.base_.about["select accuracy"])
        self.memory_ = Memory.of_base(images, train, held_out, self.memory, self.seed)
        self.groups_: list[tuple[str, ...]] = [images.classes]
        self.bad_ = images.bad
        counts = torch.bincount(images.labels, minlength=len(images.classes)).tolist()
        self.few_ = tuple(name for name, n in zip(images.classes, counts, strict=True) if n < 5)
        self._chain: Learners | None = None
        self._now: Learners | None = None
        return self

    def learn(
        self,
        X: str | Path | Sequence[Picture],
        y: Iterable[Any] | None = None,
        balance: Balance | None = None,
        skip_bad: bool = False,
        config: LCwoFConfig | None = None,
        progress: Callable[[str, int, int], None] = lambda phase, epoch, total: None,
    ) -> Learned:
        """Phases 2 and 3 on a few examples of new classes. Call it again for the next group of classes."""
        self._need_fit()
        balance = balance or self.balance
        _require_known(balance)
        new = self._read(X, y, skip_bad)
        known = set(self.classes_)
        repeated = [name for name in new.classes if name in known]
        if repeated:
            raise LcwofError(
                f"class {repeated[0]!r} is known already: give the new examples another class name, or begin from a "
                "model that does not know it; `lcwof learn` keeps that of before as NAME.before.safetensors."
            )
        method = LCwoF(config)
        if method.adapt != 1:
            raise LcwofError(f"adapt={method.adapt}: FewShotClassifier adapts the last stage, so 1.")
        draws = Randomness.of_episodes(self.seed, [len(self.groups_)])
        memory = self.memory_.with_examples(new)
        inputs = Inputs(self.base_, memory.images, self._augment(), method.adapt)
        way = len(new.classes)
        chain = (self._chain or Learners.start(inputs, 1)).grown(way, draws)
        fresh, fresh_labels = memory.few(after=len(known))
        lam = method.constraint(max(1, round(len(fresh) / way)))
        device = inputs.device
        steps = method.config.phase2, paced(method.config.phase3, len(self.groups_[0]), memory)
        for epoch in learn_novel(
            chain,
            inputs,
            fresh[None].to(device),
            fresh_labels[None].to(device),
            steps[0],
            lam,
            draws["phase 2"],
        ):
            progress("learning", epoch, steps[0].epochs)
        now = chain.copy()
        few, few_labels = memory.few(after=len(self.groups_[0]))
        judged = held_out_views(inputs, *memory.held_out(), draws["held out"])
        before, after = self._base_accuracies(now, *judged)
        epochs, reached = 0, after >= RETAIN[balance] * before
        for epoch in calibrate(
            now,
            inputs,
            few[None].to(device),
            few_labels[None].to(device),
            memory.replay(),
            steps[1],
            lam,
            draws["phase 3"],
        ):
            progress("calibrating", epoch, steps[1].epochs)
            epochs = epoch
            if epoch % _CHECK_EVERY == 0:
                before, after = self._base_accuracies(now, *judged)
                reached = after >= RETAIN[balance] * before
                if reached:
                    break
        self._chain, self._now, self.memory_ = chain, now, memory
        self.groups_.append(new.classes)
        self.bad_ = new.bad
        right = now.logits(inputs.plain(fresh[None])).argmax(-1)[0].cpu() == fresh_labels
        given, known_again = (
            tuple(int((right[fresh_labels == label] | every).sum()) for label in fresh_labels.unique().tolist())
            for every in (True, False)
        )
        return Learned(new.classes, epochs, reached, before, after, given, known_again)

    @property
    def classes_(self) -> tuple[str, ...]:
        """All class names, in the order of `predict_proba`'s columns: base first, then as learned."""
        self._need_fit()
        return tuple(name for group in self.groups_ for name in group)

    def predict_proba(self, X: Picture | Sequence[Picture]) -> np.ndarray:
        """Probabilities (n, number of classes)."""
        self._need_fit()
        items: list[Any] = [X] if _is_one(X) else list(X)  # type: ignore[arg-type]
        if not items:
            return np.zeros((0, len(self.classes_)), np.float32)
        parts = [self._judge(items[at : at + _PREDICT_AT_ONCE]) for at in range(0, len(items), _PREDICT_AT_ONCE)]
        return np.concatenate(parts)

    @torch.no_grad()
    def _judge(self, items: list[Any]) -> np.ndarray:
        pixels = read_images(items, size=self._stored_size(), channels=self.channels)
        images = Images(pixels, torch.zeros(len(pixels), dtype=torch.long), ("?",), ("?",) * len(pixels))
        inputs = Inputs(self.base_, images, Augment.none(), 1 if self._now else 0)
        maps = inputs.plain(torch.arange(len(pixels))[None])
        logits = self._now.logits(maps) if self._now else maps @ self.base_.head.T
        return logits[0].float().softmax(-1).cpu().numpy()

    def predict(self, X: Picture | Sequence[Picture]) -> Any:
        """A Prediction for one image, a list of them for several."""
        probabilities = self.predict_proba(X)
        base, classes = len(self.groups_[0]), self.classes_
        best = probabilities.argmax(1)
        found = [Prediction(classes[b], float(p[b]), bool(b >= base)) for b, p in zip(best, probabilities, strict=True)]
        return found[0] if _is_one(X) else found

    def score(self, X: str | Path | Sequence[Picture], y: Iterable[Any] | None = None) -> float:
        """Accuracy, 0 to 1, on a folder of class folders or on images with labels."""
        images = self._read(X, y, skip_bad=False)
        unknown = [name for name in images.classes if name not in set(self.classes_)]
        if unknown:
            raise LcwofError(f"class {unknown[0]!r} is not known to the classifier.")
        said = self.predict([p.permute(1, 2, 0).squeeze(-1).numpy() for p in images.pixels])
        truth = [images.classes[i] for i in images.labels.tolist()]
        return sum(p.label == t for p, t in zip(said, truth, strict=True)) / len(truth)

    def save(self, path: str | Path) -> None:
        """One .safetensors file with the model, what it has learned, and the images it keeps for replay."""
        self._need_fit()
        tensors = {**self.base_.tensors(), **self.memory_.tensors()}
        for name, learners in (("chain", self._chain), ("now", self._now)):
            if learners:
                tensors |= {f"{name}.{key}": weight[0] for key, weight in learners.weights().items()}
        about = {
            "base": self.base_.description(),
            "params": {k: v for k, v in self.get_params().items() if k != "device"},
            "groups": [list(group) for group in self.groups_],
            "memory": self.memory_.description(),
        }
        save_tensors(Path(path).expanduser(), "classifier", tensors, about)

    @classmethod
    def load(cls, path: str | Path, device: str = "auto") -> FewShotClassifier:
        path = Path(path).expanduser()
        tensors, about = load_tensors(path, "classifier")
        self = cls(**about["params"], device=device)
        self.base_ = BaseModel.from_tensors(tensors, about["base"], path).to(pick_device(device))
        self.accuracy_ = float(self.base_.about["select accuracy"])
        self.groups_ = [tuple(group) for group in about["groups"]]
        self.memory_ = Memory.from_tensors(tensors, about["memory"])
        self.bad_, self.few_ = (), ()
        self._chain, self._now = (_unpack(tensors, name, self.base_) for name in ("chain", "now"))
        return self

    def describe(self) -> dict[str, Any]:
        """What the model is and knows, for `lcwof info`."""
        self._need_fit()
        return {
            "backbone": self.backbone,
            "input": list(self.base_.shape),
            "base accuracy on held-out images": round(self.accuracy_, 2),
            "classes": {"base": list(self.groups_[0]), "learned": [list(g) for g in self.groups_[1:]]},
            "images kept": self.memory_.description()["counts"],
            "phase 1": self.base_.about["phase1"],
        }

    def _base_accuracies(self, learners: Learners, maps: Tensor, labels: Tensor) -> tuple[float, float]:
        """(B/B, B/J) on views of held-out base images."""
        with torch.no_grad():
            logits = learners.logits(maps)
        own = accuracy(logits[..., : len(self.groups_[0])], labels)
        return float(own), float(accuracy(logits, labels))

    def _augment(self) -> Augment:
        if self.image_size >= 64:
            return Augment(scale=(0.3, 1.0))
        return DRAWINGS

    def _stored_size(self) -> int:
        return round(self.image_size * 92 / 84) if self.image_size >= 64 else self.image_size

    def _read(self, X: str | Path | Sequence[Picture], y: Iterable[Any] | None, skip_bad: bool) -> Images:
        if isinstance(X, str | Path):
            folder = Path(X).expanduser()
            if not folder.exists():
                raise LcwofError(f"no folder {folder}.")
            return read_folders([folder], size=self._stored_size(), channels=self.channels, skip_bad=skip_bad)
        if y is None:
            raise LcwofError("images without labels: give their class names in y, or a folder of class folders.")
        names = [str(label) for label in y]
        if len(names) != len(X):
            raise LcwofError(f"{len(X)} images but {len(names)} labels.")
        if not names:
            raise LcwofError("no images: give at least one of each class.")
        classes = tuple(sorted(set(names)))
        labels = torch.tensor([classes.index(name) for name in names], dtype=torch.long)
        pixels = read_images(list(X), size=self._stored_size(), channels=self.channels)
        return Images(pixels, labels, classes, tuple(f"{name}/{i}" for i, name in enumerate(names)))

    def _need_fit(self) -> None:
        if not hasattr(self, "base_"):
            raise LcwofError("this classifier has not been fitted: call fit(...) or load(...) first.")


def _require_known(balance: str) -> None:
    if balance not in RETAIN:
        raise LcwofError(f"balance={balance!r}: choose one of {', '.join(RETAIN)}.")


def _is_one(X: Any) -> bool:
    """One picture, not several: a (n, H, W) array is n pictures, a (H, W, 3) array is one."""
    if isinstance(X, np.ndarray):
        return X.ndim == 2 or (X.ndim == 3 and X.shape[-1] in (1, 3, 4))
    return isinstance(X, str | Path | Image.Image)


def _unpack(tensors: dict[str, Tensor], name: str, base: BaseModel) -> Learners | None:
    found = {k[len(name) + 1 :]: v[None].to(base.head.device) for k, v in tensors.items() if k.startswith(f"{name}.")}
    if not found:
        return None
    return Learners.unpack(Tail(base, 1, Compute(base.head.device)), found, Scoring())
