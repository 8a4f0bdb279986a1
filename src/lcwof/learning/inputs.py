"""What the tails of all learners see: augmented or plain images run through the shared, frozen trunk."""

from __future__ import annotations

import torch
from torch import Tensor

from lcwof.data.augment import NUMBERS, Augment, augment_batch, plain_batch
from lcwof.data.images import Images
from lcwof.errors import LcwofError
from lcwof.models import BaseModel
from lcwof.randomness import Randomness

_CHUNK = {"cpu": 512, "cuda": 8192}  # images through the trunk at once


class Inputs:
    """Trunk outputs ("maps") of images. Plain ones are computed once per image and kept."""

    def __init__(self, model: BaseModel, images: Images, augment: Augment, adapt: int) -> None:
        found = tuple(images.pixels.shape[1:2])
        if found != model.shape[:1]:
            raise LcwofError(
                f"the model expects {model.shape[0]} channels or features, the data have {found[0]}: "
                "use the data set (or --channels) it was trained on."
            )
        self.model, self.augment, self.adapt = model, augment, adapt
        self.device = model.head.device
        self.pixels = images.pixels.to(self.device)
        self.size = model.shape[-1]
        self.trunk = model.backbone.trunk(adapt)
        self.augments = not (images.is_features or augment.is_none)
        self._maps: Tensor | None = None
        self._known = torch.zeros(len(images), dtype=torch.bool)

    @torch.no_grad()
    def augmented(self, index: Tensor, draws: Randomness) -> Tensor:
        """Maps of freshly augmented images, index (E, M) -> (E, M, ...); what is drawn depends on the learner alone."""
        if not self.augments:
            return self.plain(index)
        numbers = draws.to(self.device).uniform(index.shape[1], NUMBERS).flatten(0, 1)
        flat = index.to(self.device).flatten()
        chunk = _CHUNK.get(self.device.type, 2048)
        parts = []
        for at in range(0, len(flat), chunk):
            pixels = self.pixels[flat[at : at + chunk]]
            parts.append(self._run(augment_batch(pixels, numbers[at : at + chunk], self.augment, self.size)))
        return torch.cat(parts).unflatten(0, index.shape)

    @torch.no_grad()
    def plain(self, index: Tensor) -> Tensor:
        """Maps of images under the test transform, index (...) -> (..., map)."""
        flat = index.cpu().flatten()
        missing = flat[~self._known[flat]].unique()
        chunk = _CHUNK.get(self.device.type, 2048)
        for at in range(0, len(missing), chunk):
            part = missing[at : at + chunk].to(self.device)
            pixels = self.pixels[part]
            maps = self._run(pixels if pixels.dim() == 2 else plain_batch(pixels, self.size))
            if self._maps is None:
                self._maps = maps.new_empty(len(self._known), *maps.shape[1:])
            self._maps[part] = maps
        self._known[missing] = True
        assert self._maps is not None
        return self._maps[flat.to(self.device)].unflatten(0, index.shape)

    def _run(self, inputs: Tensor) -> Tensor:
        return self.trunk(self.model.normalise(inputs))
