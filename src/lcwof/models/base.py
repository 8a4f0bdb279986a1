"""The outcome of phase 1: a backbone, a bias-free head for the base classes, and what inputs they expect."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lcwof.data.images import Dataset
from lcwof.errors import LcwofError
from lcwof.models.backbones import Backbone, build_backbone
from lcwof.models.checkpoint import load_tensors, save_tensors


def normalise(inputs: Tensor, mean: Sequence[float], std: Sequence[float]) -> Tensor:
    """Subtract the mean and divide by the deviation, channel by channel (or feature by feature)."""
    shape = (-1, 1, 1) if inputs.dim() == 4 else (-1,)
    centre = torch.tensor(mean, device=inputs.device).view(shape)
    return (inputs - centre) / torch.tensor(std, device=inputs.device).view(shape)


@dataclass
class BaseModel:
    """A classifier of the base classes. Frozen: later phases work on copies of its tail and head."""

    backbone_name: str
    backbone: Backbone
    head: Tensor  # (C_B, D)
    classes: tuple[str, ...]
    shape: tuple[int, ...]  # of one input: (C, H, W) or (D,)
    mean: tuple[float, ...]
    std: tuple[float, ...]
    view: int | None = None  # side at which whole test images are shown; None: the common crop of `plain_batch`
    mirror: bool = False  # whether tests take the mean of what is said of an image and of its mirror image
    about: dict[str, Any] = field(default_factory=dict)  # data set, accuracy, recipe: for people and reports

    def normalise(self, inputs: Tensor) -> Tensor:
        """Images in [0, 1], or features, to network input."""
        return normalise(inputs, self.mean, self.std)

    def frozen(self) -> BaseModel:
        """The model as later phases use it: BN in evaluation mode, no gradients."""
        self.backbone.eval().requires_grad_(False)
        return self

    def to(self, device: torch.device | str) -> BaseModel:
        self.backbone.to(device)
        self.head = self.head.to(device)
        return self

    def require(self, data: Dataset) -> None:
        """Refuse a data set whose base classes, or images, are not like those this model was trained on."""
        asked, told = data.split.base, self.about.get("data")
        its = f", of {told}," if told else ""
        if asked != self.classes:
            other = next((c for c in self.classes if c not in set(asked)), None)
            hint = f"the model knows {other!r}, which the data set does not" if other else "in another order"
            if not other and len(self.classes) < len(asked):
                hint = "the model lacks some; was it made with --pseudo?"
            raise LcwofError(
                f"the model was trained on {len(self.classes)} other base classes{its} than the {len(asked)} of "
                f"{data.name} ({hint}): use the data set and options of its pretraining."
            )
        if data.input_shape != self.shape:
            mine, other = (" x ".join(map(str, shape)) for shape in (self.shape, data.input_shape))
            raise LcwofError(
                f"the model was trained on inputs of {mine}{its} and {data.name} now has {other}: use the options of "
                "its pretraining, such as --set data.options.size=..."
            )

    def told(self) -> dict[str, Any]:
        """What runs say of the model they were made with, and are compared by."""
        return {**self.about, "mirror": True} if self.mirror else self.about

    @property
    def known_as(self) -> str:
        """Which model it is, whatever file it lies in: what those that it teaches say of it."""
        figures = {"epoch": "epoch {}", "select accuracy": "{:.2f}% of held-out images"}
        told = [words.format(self.about[key]) for key, words in figures.items() if key in self.about]
        return self.backbone_name + (f" ({', '.join(told)})" if told else "")

    def description(self) -> dict[str, Any]:
        return {
            "backbone": self.backbone_name,
            "classes": list(self.classes),
            "shape": list(self.shape),
            "mean": list(self.mean),
            "std": list(self.std),
            "view": self.view,
            "mirror": self.mirror,
            "about": self.about,
        }

    def tensors(self) -> dict[str, Tensor]:
        return {"head": self.head, **{f"backbone.{k}": v for k, v in self.backbone.state_dict().items()}}

    @classmethod
    def from_tensors(cls, tensors: dict[str, Tensor], about: dict[str, Any], source: Path) -> BaseModel:
        shape = tuple(about["shape"])
        backbone = build_backbone(about["backbone"], shape)
        prefix = "backbone."
        weights = {k[len(prefix) :]: v for k, v in tensors.items() if k.startswith(prefix)}
        try:
            backbone.load_state_dict(weights)
        except RuntimeError as error:
            raise LcwofError(f"{source} does not fit the backbone {about['backbone']!r} it names.") from error
        head = tensors["head"]
        if head.shape != (len(about["classes"]), backbone.dim):
            raise LcwofError(f"{source}: head of shape {tuple(head.shape)} for {len(about['classes'])} classes.")
        return cls(
            about["backbone"],
            backbone,
            head,
            tuple(about["classes"]),
            shape,
            tuple(about["mean"]),
            tuple(about["std"]),
            about.get("view"),
            about.get("mirror", False),
            about["about"],
        ).frozen()

    def save(self, path: Path) -> None:
        save_tensors(path, "base model", self.tensors(), self.description())

    @classmethod
    def load(cls, path: Path) -> BaseModel:
        return cls.from_tensors(*load_tensors(path, "base model"), source=path)
