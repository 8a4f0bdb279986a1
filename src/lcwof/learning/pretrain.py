"""Phase 1: learn the base classes from much data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lcwof.data.augment import NUMBERS, augment_batch, plain_batch
from lcwof.data.images import Dataset
from lcwof.errors import LcwofError
from lcwof.models import Backbone, BaseModel, build_backbone
from lcwof.models.layers import Noise


@dataclass(frozen=True)
class Phase1:
    """Defaults: the authors' settings. One-cycle with a higher rate and larger batch is the quick alternative."""

    backbone: str = "resnet12"
    epochs: int = 500
    batch: int = 16
    lr: float = 1e-3
    momentum: float = 0.9
    weight_decay: float = 5e-4
    schedule: Literal["steps", "one-cycle"] = "steps"
    milestones: tuple[int, ...] = (75, 150, 300)  # epochs after which `steps` multiplies the rate by 0.1
    drop_ramp: int = 40_000  # steps over which dropout and DropBlock reach their full rate
    label_smoothing: float = 0.0
    seed: int = 0


Progress = Callable[[int, dict[str, float]], None]  # epoch just finished, its figures


def pretrain(
    data: Dataset, how: Phase1, device: torch.device, progress: Progress = lambda epoch, figures: None
) -> BaseModel:
    """Train backbone and bias-free head on the base training images.

    The epoch that is kept is the best on `split.select`, base images held out of training; test images are not read.
    """
    torch.manual_seed(how.seed)
    shape = _input_shape(data)
    backbone = build_backbone(how.backbone, shape).to(device)
    head = nn.Linear(backbone.dim, len(data.split.base), bias=False, device=device)
    base = BaseModel(how.backbone, backbone, head.weight.data, data.split.base, shape, data.mean, data.std)
    backbone.requires_grad_(True)
    weights = [*backbone.parameters(), *head.parameters()]
    optimiser = torch.optim.SGD(weights, lr=how.lr, momentum=how.momentum, weight_decay=how.weight_decay, nesterov=True)
    train, labels = data.split.train, data.base_labels(data.split.train).to(device)
    steps_per_epoch = max(1, len(train) // how.batch)
    scheduler = _scheduler(optimiser, how, steps_per_epoch)
    pixels = data.images.pixels[train].to(device)
    best: tuple[float, dict[str, Tensor], Tensor, int] | None = None
    step = 0
    for epoch in range(1, how.epochs + 1):
        backbone.train()
        total = torch.zeros((), device=device)
        order = torch.randperm(len(train), device=device)
        for at in range(steps_per_epoch):
            chosen = order[at * how.batch : (at + 1) * how.batch]
            inputs = _augmented(pixels[chosen], data)
            noise = Noise(lambda shape: torch.rand(shape, device=device), min(1.0, step / how.drop_ramp))
            logits = head(backbone(base.normalise(inputs), noise))
            loss = F.cross_entropy(logits, labels[chosen], label_smoothing=how.label_smoothing)
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            optimiser.step()
            scheduler.step()
            total += loss.detach()
            step += 1
        if not bool(total.isfinite()):
            raise LcwofError(
                f"phase 1, epoch {epoch}: the loss is not a number. Lower the learning rate (lr={how.lr})."
            )
        accuracy = base_accuracy(base, data, data.split.select)
        figures = {"loss": float(total) / steps_per_epoch, "accuracy": accuracy}
        if best is None or accuracy > best[0]:
            state = {name: value.detach().clone() for name, value in backbone.state_dict().items()}
            best = (accuracy, state, head.weight.detach().clone(), epoch)
        progress(epoch, figures)
    assert best is not None
    backbone.load_state_dict(best[1])
    about: dict[str, Any] = {
        "data": data.name,
        "phase1": asdict(how),
        "epoch": best[3],
        "select accuracy": best[0],
    }
    return BaseModel(how.backbone, backbone, best[2], data.split.base, shape, data.mean, data.std, about)


@torch.no_grad()
def base_accuracy(model: BaseModel, data: Dataset, index: Tensor) -> float:
    """B/B in percent on the given base images."""
    backbone: Backbone = model.backbone
    was_training = backbone.training
    backbone.eval()
    device, labels = model.head.device, data.base_labels(index)
    right = 0
    for at in range(0, len(index), 1024):
        pixels = data.images.pixels[index[at : at + 1024]].to(device)
        inputs = pixels if pixels.dim() == 2 else plain_batch(pixels, data.size)
        logits = backbone(model.normalise(inputs)) @ model.head.T
        right += int((logits.argmax(1).cpu() == labels[at : at + 1024]).sum())
    backbone.train(was_training)
    return 100 * right / max(1, len(index))


def _input_shape(data: Dataset) -> tuple[int, ...]:
    pixels = data.images.pixels
    return (pixels.shape[1],) if pixels.dim() == 2 else (pixels.shape[1], data.size, data.size)


def _augmented(pixels: Tensor, data: Dataset) -> Tensor:
    if pixels.dim() == 2:
        return pixels
    if data.augment.is_none:
        return plain_batch(pixels, data.size)
    numbers = torch.rand(len(pixels), NUMBERS, device=pixels.device)
    return augment_batch(pixels, numbers, data.augment, data.size)


def _scheduler(optimiser: torch.optim.SGD, how: Phase1, steps: int) -> torch.optim.lr_scheduler.LRScheduler:
    if how.schedule == "one-cycle":
        return torch.optim.lr_scheduler.OneCycleLR(
            optimiser, how.lr, total_steps=how.epochs * steps, pct_start=0.3, cycle_momentum=False
        )
    return torch.optim.lr_scheduler.MultiStepLR(optimiser, [m * steps for m in how.milestones], gamma=0.1)
