"""Phase 1: learn the base classes from much data."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from lcwof.data.augment import NUMBERS, augment_batch, plain_batch
from lcwof.data.images import Dataset
from lcwof.errors import LcwofError
from lcwof.models import Backbone, BaseModel, build_backbone
from lcwof.models.base import normalise
from lcwof.models.layers import Noise


@dataclass(frozen=True)
class Phase1:
    """Defaults: the authors' settings. The recipe `fast.toml` is the quicker and stronger alternative."""

    backbone: str = "resnet12"
    epochs: int = 500
    batch: int = 16
    lr: float = 1e-3
    momentum: float = 0.9
    weight_decay: float = 5e-4
    schedule: Literal["steps", "one-cycle"] = "steps"
    milestones: tuple[int, ...] = (75, 150, 300)  # epochs after which `steps` multiplies the rate by 0.1
    drop_ramp: int = 40_000  # steps over which DropBlock reaches its full rate
    cutmix: float = 0.0  # part of the batches in which images are pasted into each other (Yun et al. 2019)
    average: float = 0.0  # decay of the running average of the weights that is kept instead of the last; 0: none
    seed: int = 0


Progress = Callable[[int, dict[str, float]], None]  # epoch just finished, its figures


class Network(nn.Module):
    """Backbone and bias-free head in training: the soft cross-entropy of a batch."""

    def __init__(self, backbone: Backbone, classes: int) -> None:
        super().__init__()
        self.backbone, self.head = backbone, nn.Linear(backbone.dim, classes, bias=False)

    def forward(self, inputs: Tensor, targets: Tensor, strength: Tensor) -> Tensor:
        noise = Noise(lambda shape: torch.rand(shape, device=inputs.device), strength)
        return F.cross_entropy(self.head(self.backbone(inputs, noise)).float(), targets)


def pretrain(
    data: Dataset, how: Phase1, device: torch.device, progress: Progress = lambda epoch, figures: None
) -> BaseModel:
    """Train backbone and bias-free head on the base training images.

    The epoch that is kept is the best on `split.select`, base images held out of training; test images are not read.
    On a CUDA card the step is compiled, in bfloat16 and channels-last; elsewhere it is plain float32.
    """
    if how.epochs < 1:
        raise LcwofError(f"phase 1 of {how.epochs} epochs learns nothing: at least 1 is needed.")
    torch.manual_seed(how.seed)
    fast = device.type == "cuda"
    classes, shape = len(data.split.base), _input_shape(data)
    network = Network(build_backbone(how.backbone, shape), classes).to(device)
    if fast:
        network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    averaged = (
        AveragedModel(network, multi_avg_fn=get_ema_multi_avg_fn(how.average), use_buffers=True)
        if how.average
        else None
    )
    kept: Network = averaged.module if averaged else network  # type: ignore[assignment]
    loss_of = torch.compile(network) if fast else network
    optimiser = torch.optim.SGD(
        network.parameters(), lr=how.lr, momentum=how.momentum, weight_decay=how.weight_decay, nesterov=True
    )
    train, labels = data.split.train, data.base_labels(data.split.train).to(device)
    steps_per_epoch = max(1, len(train) // how.batch)
    scheduler = _scheduler(optimiser, how, steps_per_epoch)
    pixels = data.images.pixels[train].to(device)
    best, step = _Best(), 0
    for epoch in range(1, how.epochs + 1):
        network.train()
        total = torch.zeros((), device=device)
        order = torch.randperm(len(train), device=device)
        for at in range(steps_per_epoch):
            chosen = order[at * how.batch : (at + 1) * how.batch]
            inputs, targets = _augmented(pixels[chosen], data), F.one_hot(labels[chosen], classes).float()
            if how.cutmix and inputs.dim() == 4 and float(torch.rand(())) < how.cutmix:
                inputs, targets = cutmix(inputs, targets)
            strength = torch.tensor(min(1.0, step / how.drop_ramp), device=device)
            with torch.autocast(device.type, torch.bfloat16, enabled=fast):
                loss = loss_of(_normalised(inputs, data, fast), targets, strength)
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            optimiser.step()
            scheduler.step()
            if averaged:
                averaged.update_parameters(network)
            total += loss.detach()
            step += 1
        if not bool(total.isfinite()):
            raise LcwofError(
                f"phase 1, epoch {epoch}: the loss is not a number. Lower the learning rate (lr={how.lr})."
            )
        accuracy = base_accuracy(_model(kept, data, how), data, data.split.select)
        best.offer(accuracy, kept, epoch)
        progress(epoch, {"loss": float(total) / steps_per_epoch, "accuracy": accuracy})
    kept.load_state_dict(best.state)
    about = {"data": data.name, "phase1": asdict(how), "epoch": best.epoch, "select accuracy": best.accuracy}
    return _model(kept, data, how, about).frozen()


def cutmix(images: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Paste one random rectangle of other images of the batch into each image, and mix the targets by area."""
    side = images.shape[-1]
    part = math.sqrt(1 - float(torch.rand(())))
    height = width = round(side * part)
    top, left = (int(torch.randint(0, side - height + 1, ())) for _ in range(2))
    order = torch.randperm(len(images), device=images.device)
    mixed = images.clone()
    box = (..., slice(top, top + height), slice(left, left + width))
    mixed[box] = images[order][box]
    other = height * width / side**2
    return mixed, torch.lerp(targets, targets[order], other)


@dataclass
class _Best:
    """The best epoch so far."""

    accuracy: float = -1.0
    state: dict[str, Tensor] = field(default_factory=dict)
    epoch: int = 0

    def offer(self, accuracy: float, network: nn.Module, epoch: int) -> None:
        if accuracy >= self.accuracy:  # of equals the later: its learning rate was lower
            self.accuracy, self.epoch = accuracy, epoch
            self.state = {name: value.detach().clone() for name, value in network.state_dict().items()}


def _model(network: Network, data: Dataset, how: Phase1, about: dict[str, Any] | None = None) -> BaseModel:
    """The network as a base model (the same tensors, not copies)."""
    return BaseModel(
        how.backbone,
        network.backbone,
        network.head.weight.detach(),
        data.split.base,
        _input_shape(data),
        data.mean,
        data.std,
        about or {},
    )


@torch.no_grad()
def base_accuracy(model: BaseModel, data: Dataset, index: Tensor) -> float:
    """B/B in percent on the given base images."""
    backbone = model.backbone
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


def _normalised(inputs: Tensor, data: Dataset, channels_last: bool) -> Tensor:
    inputs = normalise(inputs, data.mean, data.std)
    return inputs.to(memory_format=torch.channels_last) if channels_last and inputs.dim() == 4 else inputs


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
