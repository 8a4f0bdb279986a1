"""Training on made-up episodes of base classes, for methods that learn how to learn new ones."""

from __future__ import annotations

import copy
import hashlib
import inspect
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import skip_init

from lcwof import __version__
from lcwof.data.cache import cache_key
from lcwof.errors import Diverged
from lcwof.learning import Inputs, Learners, Scoring
from lcwof.learning.tail import stack
from lcwof.methods import embeddings
from lcwof.methods.base import Base, Method
from lcwof.methods.embeddings import base_embeddings
from lcwof.models.checkpoint import load_tensors, save_tensors
from lcwof.models.layers import channels_last
from lcwof.randomness import Randomness

_SAVE_EVERY = 5.0  # seconds: what an interruption loses at most
_SAVING = 0.05  # part of the time that saving may take; large modules are saved more seldom
_KIND = "meta-training"


@dataclass(frozen=True)
class FakeEpisodes:
    """E made-up episodes: some base classes play novel ones and are taken out of the base side."""

    fake: Tensor  # (E, way): which base classes play novel ones
    support: Tensor  # (E, way * shot, D) embeddings, or (E, way * shot) image indices
    labels: Tensor  # (E, way * shot)
    queries: Tensor  # (E, Q, D) or (E, Q): of fake novel classes, then of base classes
    answers: Tensor  # (E, Q): positions in [all base classes, fake novel classes]
    each: int  # queries a class


class FakeSource:
    """Draws made-up episodes from the embeddings of base training images, or from what is given for each of them, by
    class: their indices, where it is the embedding that is trained."""

    def __init__(self, base: Base, seed: int = 0, groups: Sequence[Tensor] | None = None) -> None:
        groups = base_embeddings(base) if groups is None else groups
        self.embedded = torch.cat(list(groups))
        counts = torch.tensor([len(group) for group in groups])
        self.counts = counts.to(self.embedded.device)
        self.starts = (counts.cumsum(0) - counts).to(self.embedded.device)
        self.least, self.seed = int(counts.min()), seed

    def draw(self, step: int, episodes: int, way: int, shot: int, queries: int) -> FakeEpisodes:
        """Where a class has too few images for as many shots and queries there are fewer of either: what is shown is
        not asked for."""
        shot = max(1, min(shot, self.least - 1))
        queries = max(1, min(queries, self.least - shot))
        draws = Randomness.of_episodes(self.seed, range(step * episodes, (step + 1) * episodes), self.embedded.device)
        classes = len(self.counts)
        fake = draws["classes"].permutation(classes)[:, :way]
        drawn = self._images(draws["images"], fake, shot + queries)
        old = draws["base classes"].permutation(classes - way)[:, : min(way, classes - way)]
        rest = torch.ones(len(fake), classes, dtype=torch.bool, device=fake.device).scatter(1, fake, False)
        old = rest.nonzero()[:, 1].view(len(fake), -1).gather(1, old)  # among the classes that are not fake
        asked = self._images(draws["base images"], old, queries)
        labels = torch.arange(way, device=fake.device).repeat_interleave(shot).expand(len(fake), -1)
        answers = [torch.arange(way, device=fake.device).expand_as(fake) + classes, old]
        return FakeEpisodes(
            fake,
            self.embedded[drawn[..., :shot].flatten(1)],
            labels,
            self.embedded[torch.cat([drawn[..., shot:].flatten(1), asked.flatten(1)], dim=1)],
            torch.cat([a.repeat_interleave(queries, dim=1) for a in answers], dim=1),
            queries,
        )

    def of_every_class(self, step: int, each: int) -> Tensor:
        """Random embeddings of every base class, class by class, (C_B * each, D)."""
        draws = Randomness.of_episodes(self.seed, [step], self.embedded.device)["every class"]
        classes = torch.arange(len(self.counts), device=self.embedded.device)
        return self.embedded[self._images(draws, classes[None], each).flatten()]

    def _images(self, draws: Randomness, classes: Tensor, each: int) -> Tensor:
        """Random images of classes, (E, C) -> (E, C, each), different ones where a class has enough."""
        counts = self.counts[classes].unsqueeze(-1)
        places = torch.arange(int(self.counts.max()), device=classes.device)
        scores = draws.uniform(classes.shape[1], len(places)).masked_fill(
            places >= counts, 2.0
        )  # those not there: last
        at = torch.arange(each, device=classes.device) % counts
        return self.starts[classes].unsqueeze(-1) + scores.argsort(dim=-1).gather(-1, at)


class BaseTail(nn.Module):
    """The stages that adapt, to be trained further on base data: one for all learners. BN stays in evaluation mode."""

    def __init__(self, inputs: Inputs) -> None:
        super().__init__()
        self.structure = inputs.tail
        self.chain = copy.deepcopy(self.structure.chain).requires_grad_(True)

    def forward(self, maps: Tensor) -> Tensor:
        """Embeddings, (E, B, ...) -> (E, B, D)."""
        weights = {name: weight[None] for name, weight in self.chain.named_parameters()}
        return self.structure.embed(weights, maps.flatten(0, 1)[None], once=True)[0].unflatten(0, maps.shape[:2])

    def start(self, inputs: Inputs, learners: int, scoring: Scoring | None = None) -> Learners:
        """E learners that begin with this tail in place of the base model's."""
        begun = Learners.start(inputs, learners, scoring)
        for name, weight in self.chain.named_parameters():
            begun.tail[name] = stack(channels_last(weight.detach()) if weight.dim() == 4 else weight, learners)
        return begun


def meta_train(
    method: Method,
    base: Base,
    module: nn.Module,
    loss_of: Callable[[int], Tensor],
    steps: int,
    lr: float,
    betas: tuple[float, float] = (0.9, 0.999),
    rates: Mapping[str, float] = MappingProxyType({}),
) -> None:
    """Train a module by Adam, parameters that are named in `rates` at a rate of their own; the loss of a step depends
    on its number alone, and moves what it depends on. Where the base has a place for it, the outcome is kept there and
    found again, and an interrupted training goes on."""
    file = base.store / f"{cache_key(_identity(method, base))}.safetensors" if base.store else None
    named = dict(module.named_parameters())
    parts: list[dict[str, Any]] = [{"params": [weight for name, weight in named.items() if name not in rates]}]
    parts += [{"params": [named[name]], "lr": rate} for name, rate in rates.items()]
    optimiser = torch.optim.Adam(parts, lr=lr, betas=betas)
    done = 0
    if file and file.exists():
        tensors, about = load_tensors(file, _KIND)
        done = about["steps"]
        module.load_state_dict({k.removeprefix("module."): v for k, v in tensors.items() if k.startswith("module.")})
        state = optimiser.state_dict()
        state["state"] = {
            i: {key: tensors[f"adam.{i}.{key}"] for key in ("step", "exp_avg", "exp_avg_sq")}
            for i in range(len(named))
            if f"adam.{i}.step" in tensors
        }
        optimiser.load_state_dict(state)
    saved, wait = time.monotonic(), _SAVE_EVERY
    for step in range(done, steps):
        optimiser.zero_grad()
        loss_of(step).backward()
        optimiser.step()
        base.fitting("meta-training", step + 1, steps)
        now = time.monotonic()
        if file and (step + 1 == steps or now - saved > wait):
            tensors = {f"module.{k}": v for k, v in module.state_dict().items()}
            for i, kept in optimiser.state_dict()["state"].items():
                tensors |= {f"adam.{i}.{key}": value for key, value in kept.items()}
            save_tensors(file, _KIND, tensors, {"steps": step + 1})
            saved = time.monotonic()
            wait = max(_SAVE_EVERY, (saved - now) / _SAVING)
    module.requires_grad_(False)
    if not all(bool(weight.isfinite().all()) for weight in named.values()):
        raise Diverged(
            f"{method.name}: training on made-up episodes came to what is not a number. It needs two base classes or "
            "more; if there are, lower its rate (meta_lr)."
        )


def _identity(method: Method, base: Base) -> list[object]:
    """What the outcome of a meta-training depends on."""
    config = {key: value for key, value in asdict(method.config).items() if key != "novel_bias"}  # that is chosen later
    source = hashlib.sha256()
    for code in (inspect.getfile(type(method)), __file__, embeddings.__file__):
        source.update(Path(code).read_bytes())
    seen = base.pool.table[:, 0]  # an image of each class tells data sets apart
    content = hashlib.sha256()
    for tensor in (*base.model.tensors().values(), base.pool.table, base.pool.counts, base.inputs.pixels[seen]):
        content.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    how = __version__, str(base.inputs.compute.dtype)
    return [method.name, config, base.model.description(), source.hexdigest(), content.hexdigest(), how]


def ruled_out(logits: Tensor, out: Tensor) -> Tensor:
    """Logits (E, Q, C) in which the classes listed in `out` (E, n) cannot win."""
    ruled = torch.zeros(logits.shape[0], logits.shape[2], dtype=torch.bool, device=logits.device)
    return logits.masked_fill(ruled.scatter(1, out, True).unsqueeze(1), -torch.inf)


def cosine_logits(embedded: Tensor, weights: Tensor, scale: Tensor, out: Tensor | None = None) -> Tensor:
    """scale * cos, (E, Q, D), (E, C, D) -> (E, Q, C); classes listed in `out` (E, n) are ruled out."""
    logits = scale * F.normalize(embedded, dim=-1) @ F.normalize(weights, dim=-1).mT
    return logits if out is None else ruled_out(logits, out)


def fresh_linear(inputs: int, outputs: int, purpose: str) -> nn.Linear:
    """A layer with weights U(±1/sqrt(inputs)), the same on every machine for the same purpose, and no bias yet."""
    layer = skip_init(nn.Linear, inputs, outputs)
    drawn = Randomness.of_episodes(0, [0])["layer", purpose].uniform(outputs, inputs)[0]
    with torch.no_grad():
        layer.weight.copy_((2 * drawn - 1) / inputs**0.5)
        layer.bias.zero_()
    return layer
