"""Phase 1: learn the base classes from much data."""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lcwof.compute import Compute, repeatable
from lcwof.data.augment import NUMBERS, augment_batch, plain_batch
from lcwof.data.images import Dataset
from lcwof.errors import LcwofError
from lcwof.learning.mixing import cutmix, turned, turned_loss
from lcwof.learning.phase1 import Phase1, learning_rate
from lcwof.models import Backbone, BaseModel, build_backbone, pretrained
from lcwof.models.base import normalise
from lcwof.models.checkpoint import load_tensors, save_tensors
from lcwof.models.layers import Noise

_SAVE_EVERY = 45.0  # seconds between two saves of work in progress
_JUDGED_AT_ONCE = 256  # images


Progress = Callable[[int, dict[str, float]], None]  # epoch just finished, its figures


class Network(nn.Module):
    """Backbone and bias-free head in training: the loss of a batch."""

    def __init__(self, backbone: Backbone, classes: int, how: Phase1) -> None:
        super().__init__()
        self.backbone, self.head, self.how = backbone, nn.Linear(backbone.dim, classes, bias=False), how
        self.turn = nn.Linear(backbone.dim, 4 * classes, bias=False) if how.turns else None

    def forward(
        self,
        inputs: Tensor,
        targets: Tensor,
        strength: Tensor,
        by: Tensor | None = None,
        taught: Tensor | None = None,
    ) -> Tensor:
        """Soft cross-entropy of upright inputs, which are the first; targets and taught are theirs.

        With `taught`, teachers' softened answers, these count too (Hinton et al. 2015). With `by`, how far inputs are
        `turned`, a second head is asked class and angle together, and what it says of an image over all its angles
        teaches the first head (Lee et al. 2020).
        """
        noise = Noise(lambda shape: torch.rand(shape, device=inputs.device), strength)
        embedded = self.backbone(inputs, noise)
        logits = self.head(embedded[: len(targets)]).float()
        loss = F.cross_entropy(logits, targets)
        if taught is not None:
            heat = self.how.temperature
            apart = F.kl_div(F.log_softmax(logits / heat, dim=1), taught, reduction="batchmean")
            loss = torch.lerp(loss, heat**2 * apart, self.how.taught_part)
        if self.turn is not None and by is not None:
            asked, together = turned_loss(self.turn(embedded).float(), targets, by)
            from_it = F.kl_div(F.log_softmax(logits, dim=1), F.softmax(together.detach(), dim=1), reduction="batchmean")
            loss = loss + self.how.turns * asked + from_it
        return loss


class Training:
    """Phase 1 in progress. An epoch is its number: what is random in it depends on the seed and on nothing before."""

    def __init__(self, data: Dataset, how: Phase1, device: torch.device, clip: float | None = None) -> None:
        torch.manual_seed(how.seed)
        self.clip = clip
        data = _as_looked_at(data, how)
        self.data, self.how, self.device = data, how, device
        self.fast = device.type == "cuda"
        compute = Compute.choose(device, "float32", compiled=self.fast)
        self.network = Network(build_backbone(how.backbone, data.input_shape), len(data.split.base), how).to(device)
        _require_sides(self.network.backbone, how, data.input_shape)
        known = pretrained(how.backbone)
        if known:
            self.network.backbone.load_state_dict(known.weights())
        self.network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.kept = copy.deepcopy(self.network) if how.average else self.network
        self.teachers = [_teacher(file, how, data).to(device) for file in how.teachers]
        for teacher in self.teachers:
            teacher.backbone.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.loss_of = compute.jit(self.network, mode="reduce-overhead", dynamic=False)
        self.answers = compute.jit(self._answers, dynamic=False)
        self.augmented = compute.jit(self._augmented, dynamic=False)
        self.optimiser = torch.optim.SGD(
            self.network.parameters(),
            lr=how.lr,
            momentum=how.momentum,
            weight_decay=how.weight_decay,
            nesterov=True,
            fused=self.fast,
        )
        train = data.split.train
        self.labels, self.pixels = data.base_labels(train).to(device), data.images.pixels[train].to(device)
        self.steps = max(1, len(train) // how.batch)
        self.augment = replace(data.augment, scale=(min(how.crop), max(how.crop))) if how.crop else data.augment
        self.best = _Best()
        self.done = 0  # epochs

    def epoch(self) -> dict[str, float]:
        """One more epoch; returns its figures."""
        how = self.how
        torch.manual_seed(_epoch_seed(how.seed, self.done))
        self.network.train()
        total = torch.zeros((), device=self.device)
        order = torch.randperm(len(self.labels), device=self.device)
        side = how.small_side if self.done < how.small_part * how.epochs else self.data.size
        for at in range(self.steps):
            step = self.done * self.steps + at
            for group in self.optimiser.param_groups:
                group["lr"] = learning_rate(how, step, self.steps)
            chosen = order[at * how.batch : (at + 1) * how.batch]
            inputs = self.augmented(self.pixels[chosen], side)
            targets = F.one_hot(self.labels[chosen], len(self.data.split.base)).float()
            if how.cutmix and inputs.dim() == 4 and float(torch.rand(())) < how.cutmix:
                inputs, targets = cutmix(inputs, targets)
            strength = torch.full((), min(1.0, step / how.drop_ramp), device=self.device)
            with torch.autocast(self.device.type, torch.bfloat16, enabled=self.fast):
                taught = self.answers(inputs) if self.teachers else None
                by = None
                if how.turns:
                    inputs, by = turned(inputs, how.angles)
                loss = self.loss_of(inputs, targets, strength, by, taught)
            self.optimiser.zero_grad(set_to_none=True)
            loss.backward()
            if self.clip is not None:
                torch.nn.utils.clip_grad_norm_(self.network.parameters(), self.clip)
            self.optimiser.step()
            self._average(step)
            total += loss.detach()
        self.done += 1
        if not bool(total.isfinite()):
            raise LcwofError(
                f"phase 1, epoch {self.done}: the loss is not a number. Lower the learning rate (lr={how.lr})."
            )
        figures = {"loss": float(total) / self.steps}
        if self.done % how.judge_every == 0 or self.done > 0.9 * how.epochs:
            self._judge()
        return {**figures, "accuracy": self.best.latest}

    @torch.no_grad()
    def _average(self, step: int) -> None:
        """Move the average of the weights (and BN statistics) a little towards the network's."""
        if self.kept is not self.network:
            decay = min(self.how.average, (1 + step) / (10 + step))
            torch._foreach_lerp_(_numbers(self.kept), _numbers(self.network), 1 - decay)

    def _augmented(self, pixels: Tensor, side: int) -> Tensor:
        if pixels.dim() == 2:
            return normalise(pixels, self.data.mean, self.data.std)
        if self.augment.is_none:
            images = plain_batch(pixels, side)
        else:
            numbers = torch.rand(len(pixels), NUMBERS, device=pixels.device)
            images = augment_batch(pixels, numbers, self.augment, side)
        return normalise(images, self.data.mean, self.data.std).to(memory_format=torch.channels_last)

    @torch.no_grad()
    def _answers(self, inputs: Tensor) -> Tensor:
        """The teachers', softened: the mean."""
        logits = [(teacher.backbone(inputs) @ teacher.head.T).float() for teacher in self.teachers]
        return F.softmax(torch.stack(logits) / self.how.temperature, dim=2).mean(0)

    def _judge(self) -> None:
        self.best.offer(self._accuracy(_model(self.kept, self.data, self.how)), self.kept, self.done)

    def _accuracy(self, model: BaseModel) -> float:
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.fast):
            return base_accuracy(model, self.data, self.data.split.select)

    def result(self) -> BaseModel:
        """The best epoch as a base model, looking at test images in the best of the views."""
        self.kept.load_state_dict(self.best.state)
        model = _model(self.kept, self.data, self.how).frozen()
        found = {}
        for view, mirror in product((None, *self.how.views), (False, True) if self.how.mirror else (False,)):
            model.view, model.mirror = view, mirror
            found[view, mirror] = self._accuracy(model)
        model.view, model.mirror = max(found, key=lambda shown: found[shown])
        model.about = {
            "data": self.data.name,
            "phase1": {**asdict(self.how), "teachers": [teacher.known_as for teacher in self.teachers]},
            "epoch": self.best.epoch,
            "select accuracy": found[model.view, model.mirror],
            "views": {f"{view or 'crop'}{', mirrored' * mirror}": found[view, mirror] for view, mirror in found},
        }
        return model

    def save(self, path: Path) -> None:
        tensors = {f"network.{k}": v for k, v in self.network.state_dict().items()}
        if self.kept is not self.network:
            tensors |= {f"kept.{k}": v for k, v in self.kept.state_dict().items()}
        tensors |= {f"best.{k}": v for k, v in self.best.state.items()}
        for i, state in self.optimiser.state_dict()["state"].items():
            tensors[f"momentum.{i}"] = state["momentum_buffer"]
        save_tensors(path, "phase 1 in progress", tensors, {**self._identity(), "done": self.done, **self.best.about()})

    def resume(self, path: Path) -> None:
        """Go on from what `save` wrote; refuses what another training wrote."""
        tensors, about = load_tensors(path, "phase 1 in progress")
        if any(about[key] != value for key, value in json.loads(json.dumps(self._identity())).items()):
            raise LcwofError(f"{path} was begun with other settings: remove it, or write to another --out.")

        def part(prefix: str) -> dict[str, Tensor]:
            return {k[len(prefix) + 1 :]: v for k, v in tensors.items() if k.startswith(f"{prefix}.")}

        self.network.load_state_dict(part("network"))
        if self.kept is not self.network:
            self.kept.load_state_dict(part("kept"))
        momentum = part("momentum")
        state = self.optimiser.state_dict()
        state["state"] = {
            i: {"momentum_buffer": torch.empty_like(weight).copy_(momentum[str(i)])}  # laid out in memory as the weight
            for i, weight in enumerate(self.network.parameters())
            if str(i) in momentum
        }
        self.optimiser.load_state_dict(state)
        best = {k: v.to(self.device) for k, v in part("best").items()}
        self.best = _Best(about["accuracy"], about["latest"], best, about["epoch"])
        self.done = about["done"]

    def _identity(self) -> dict[str, Any]:
        data = self.data
        return {
            "data": data.name,
            "classes": list(data.split.base),
            "images": len(data.split.train),
            "inputs": [list(data.input_shape), list(data.mean), list(data.std), asdict(self.augment)],
            "phase1": asdict(self.how),
        }


def pretrain(
    data: Dataset,
    how: Phase1,
    device: torch.device,
    progress: Progress = lambda epoch, figures: None,
    unfinished: Path | None = None,
    clip: float | None = None,
) -> BaseModel:
    """Train backbone and bias-free head on the base training images; clip: a limit of the gradient's norm.

    The epoch that is kept is the best on `split.select`, base images held out of training; test images are not read.
    On a CUDA card the step is compiled, in bfloat16; elsewhere it is plain float32. Work in progress
    is kept in the file `unfinished`, every minute or so and at the end, and resumed from it.
    """
    if how.epochs < 1:
        raise LcwofError(f"phase 1 of {how.epochs} epochs learns nothing: at least 1 is needed.")
    if how.temperature <= 0:
        raise LcwofError(f"phase1.temperature = {how.temperature}: above 0 is needed.")
    with repeatable(how.repeatable):
        training = Training(data, how, device, clip)
        if unfinished and unfinished.exists():
            training.resume(unfinished)
        saved = time.monotonic()
        while training.done < how.epochs:
            figures = training.epoch()
            progress(training.done, figures)
            if unfinished and time.monotonic() - saved > _SAVE_EVERY:
                training.save(unfinished)
                saved = time.monotonic()
        if unfinished:
            training.save(unfinished)  # whoever keeps the result removes it then
        return training.result()


def _epoch_seed(seed: int, epoch: int) -> int:
    return seed * 1_000_003 + epoch


def _as_looked_at(data: Dataset, how: Phase1) -> Dataset:
    """The data set with the side and the normalisation of inputs that the network is to have."""
    if how.side is not None:
        if data.images.is_features:
            raise LcwofError("phase1.side is for images, but the data are feature vectors: leave it out.")
        if how.side < 8:
            raise LcwofError(f"phase1.side = {how.side}: at least 8 pixels are needed.")
        data = replace(data, size=how.side)
    known = pretrained(how.backbone)
    if known and known.knows == data.part_of:
        raise LcwofError(
            f"{how.backbone} has learned {known.knows}, which the classes of {data.name} come from: novel ones would "
            "not be new to it. Choose another backbone."
        )
    return replace(data, mean=known.mean, std=known.std) if known else data


@torch.no_grad()
def _require_sides(backbone: Backbone, how: Phase1, shape: tuple[int, ...]) -> None:
    """Refuse images of other sides than the network's own where it takes none."""
    if how.turns and len(shape) == 1:
        raise LcwofError("phase1.turns turns images, but the data are feature vectors: leave it out.")
    if how.mirror and len(shape) == 1:
        raise LcwofError("phase1.mirror is for images, but the data are feature vectors: leave it out.")
    if how.turns and not 2 <= how.angles <= 4:
        raise LcwofError(f"phase1.angles = {how.angles}: upright and one to three others make 2, 3 or 4.")
    sides = [*how.views, *([how.small_side] if how.small_part else [])]
    device = next(backbone.parameters()).device
    for side in sides:
        try:
            backbone.eval()(torch.zeros(1, shape[0], side, side, device=device))
        except RuntimeError:
            raise LcwofError(
                f"{how.backbone} takes images of {shape[-1]} pixels only, not of {side}: "
                "leave phase1.views and phase1.small_part out, or of a recipe that has them set them to [] and 0."
            ) from None
    backbone.train()


def _numbers(network: nn.Module) -> list[Tensor]:
    """What an average of networks averages: weights and BN statistics, not counters."""
    return [x for x in (*network.parameters(), *network.buffers()) if x.is_floating_point()]


def _teacher(file: str, how: Phase1, data: Dataset) -> BaseModel:
    model = BaseModel.load(Path(file)).frozen()
    model.require(data)
    mine, its = (data.input_shape, data.mean, data.std), (model.shape, model.mean, model.std)
    if mine != its:
        raise LcwofError(f"the teacher {file} looks at inputs of shape, mean and deviation {its}, not {mine}.")
    _require_sides(model.backbone, replace(how, views=(), backbone=f"the teacher {file}"), data.input_shape)
    return model.frozen()


@dataclass
class _Best:
    """The best epoch so far."""

    accuracy: float = -1.0
    latest: float = 0.0
    state: dict[str, Tensor] = field(default_factory=dict)
    epoch: int = 0

    def about(self) -> dict[str, float]:
        return {"accuracy": self.accuracy, "latest": self.latest, "epoch": self.epoch}

    def offer(self, accuracy: float, network: nn.Module, epoch: int) -> None:
        self.latest = accuracy
        if accuracy >= self.accuracy:  # of equals the later: its learning rate was lower
            self.accuracy, self.epoch = accuracy, epoch
            self.state = {name: value.detach().clone() for name, value in network.state_dict().items()}


def _model(network: Network, data: Dataset, how: Phase1) -> BaseModel:
    """The network as a base model (the same tensors, not copies)."""
    return BaseModel(
        how.backbone,
        network.backbone,
        network.head.weight.detach(),
        data.split.base,
        data.input_shape,
        data.mean,
        data.std,
    )


@torch.no_grad()
def base_accuracy(model: BaseModel, data: Dataset, index: Tensor) -> float:
    """B/B in percent on the given base images."""
    backbone = model.backbone
    was_training = backbone.training
    backbone.eval()
    device, labels = model.head.device, data.base_labels(index)
    right = 0
    for part in range(0, len(index), _JUDGED_AT_ONCE):
        at = slice(part, part + _JUDGED_AT_ONCE)
        pixels = data.images.pixels[index[at]].to(device)
        inputs = model.normalise(pixels if pixels.dim() == 2 else plain_batch(pixels, model.shape[-1], model.view))
        embedded = backbone(inputs)
        if model.mirror:
            embedded = embedded + backbone(inputs.flip(-1))
        logits = embedded @ model.head.T
        right += int((logits.argmax(1).cpu() == labels[at]).sum())
    backbone.train(was_training)
    return 100 * right / max(1, len(index))
