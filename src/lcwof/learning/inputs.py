"""What the tails of all learners see: augmented or plain images run through the shared, frozen trunk."""

from __future__ import annotations

import torch
from torch import Tensor

from lcwof.data.augment import NUMBERS, Augment, augment_batch, plain_batch
from lcwof.data.images import Images
from lcwof.errors import LcwofError
from lcwof.models import BaseModel
from lcwof.models.layers import Noise
from lcwof.randomness import Randomness

_CUDA_CHUNK = 2048  # images through the trunk at once
_CPU_PIXELS = 30_000  # the same on a processor, in pixels: larger maps leave its cache and are paged in anew each time


def keyed_noise(draws: Randomness) -> Noise:
    """Noise for drop layers from keyed streams; each layer that asks gets numbers of its own."""
    calls = 0

    def uniform(shape: torch.Size) -> Tensor:
        nonlocal calls
        calls += 1
        return draws[calls].uniform(*shape[1:])

    return Noise(uniform)


class Inputs:
    """Trunk outputs ("maps") of images. Plain ones are computed once per image and kept.

    Augmented images also meet the trunk's dropout, which the authors leave on in all phases.
    """

    def __init__(self, model: BaseModel, images: Images, augment: Augment, adapt: int) -> None:
        found = tuple(images.pixels.shape[1:2])
        if found != model.shape[:1]:
            raise LcwofError(
                f"the model expects {model.shape[0]} channels or features, the data have {found[0]}: "
                "use the data set (or --channels) it was trained on."
            )
        self.model, self.augment, self.adapt = model.frozen(), augment, adapt
        self.device = model.head.device
        self.pixels = images.pixels.to(self.device)
        self.size = model.shape[-1]
        self.trunk = model.backbone.trunk(adapt)
        cpu = self.device.type == "cpu" and not images.is_features
        self.chunk = max(8, _CPU_PIXELS // self.size**2) if cpu else _CUDA_CHUNK
        self.augments = not (images.is_features or augment.is_none)
        self._maps: Tensor | None = None  # of the images asked for so far, in the order they came
        self._row = torch.full((len(images),), -1)  # where in _maps an image's map lies

    @torch.no_grad()
    def augmented(self, index: Tensor, draws: Randomness) -> Tensor:
        """Maps of freshly augmented images, index (E, M) -> (E, M, ...); what is drawn depends on the learner alone."""
        if not self.augments:
            return self.plain(index)
        draws = draws.to(self.device)
        numbers = draws.uniform(index.shape[1], NUMBERS).flatten(0, 1)
        drops = draws["drop"].spread(index.shape[1])
        flat = index.to(self.device).flatten()
        chunk = self.chunk
        parts = []
        for at in range(0, len(flat), chunk):
            pixels = self.pixels[flat[at : at + chunk]]
            images = augment_batch(pixels, numbers[at : at + chunk], self.augment, self.size)
            parts.append(self._run(images, keyed_noise(drops.slice(at, at + chunk))))
        return torch.cat(parts).unflatten(0, index.shape)

    @torch.no_grad()
    def plain(self, index: Tensor) -> Tensor:
        """Maps of images under the test transform, index (...) -> (..., map)."""
        flat = index.cpu().flatten()
        missing = flat[self._row[flat] < 0].unique()
        if len(missing):
            self._keep(missing)
        assert self._maps is not None
        return self._maps[self._row[flat].to(self.device)].unflatten(0, index.shape)

    def _keep(self, missing: Tensor) -> None:
        known = [] if self._maps is None else [self._maps]
        self._row[missing] = torch.arange(len(missing)) + (len(known[0]) if known else 0)
        for part in missing.split(self.chunk):
            pixels = self.pixels[part.to(self.device)]
            known.append(self._run(pixels if pixels.dim() == 2 else plain_batch(pixels, self.size)))
        self._maps = torch.cat(known)

    def _run(self, inputs: Tensor, noise: Noise | None = None) -> Tensor:
        return self.trunk(self.model.normalise(inputs), noise)
