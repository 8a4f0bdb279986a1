"""What the tails of all learners see: augmented or plain images run through the shared, frozen trunk."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from lcwof.compute import Compute
from lcwof.data.augment import NUMBERS, Augment, augment_batch, plain_batch
from lcwof.data.images import Images
from lcwof.errors import LcwofError
from lcwof.learning.tail import Tail, keyed_noise
from lcwof.learning.views import KeptViews, view_keys
from lcwof.models import BaseModel
from lcwof.models.layers import Conv2d, channels_last, fold_norms
from lcwof.randomness import Randomness, substream, uniform

_CUDA_CHUNK, _CUDA_LEAST = 2048, 64  # images through the trunk at once
# The same on a processor, in pixels: larger maps leave its cache and are paged in anew each time, smaller ones idle it.
_CPU_PIXELS = {torch.float32: 45_000, torch.bfloat16: 120_000}
_CPU_VIEWS = 1 << 30  # bytes of views kept
# Between two convolutions the trunk is a chain of cheap operations: rather do one twice than write maps out in between.
_FUSE_MORE = {"realize_reads_threshold": 64, "realize_acc_reads_threshold": 64, "realize_opcount_threshold": 256}


class Inputs:
    """Trunk outputs ("maps") of images, channels last. Plain ones are computed once per image and kept, and so are
    views of images where an augmented image is one of several.

    Augmented images also meet the trunk's dropout, which the authors leave on in all phases; its DropBlock if asked.
    """

    def __init__(
        self, model: BaseModel, images: Images, augment: Augment, adapt: int, compute: Compute | None = None
    ) -> None:
        found = tuple(images.pixels.shape[1:2])
        if found != model.shape[:1]:
            raise LcwofError(
                f"the model expects {model.shape[0]} channels or features, the data have {found[0]}: "
                "use the data set (or --channels) it was trained on."
            )
        self.device = model.head.device
        self.compute = compute or Compute(self.device)
        self.model, self.augment, self.adapt = model.frozen(), augment, adapt
        self.tail = Tail(model, adapt, self.compute)
        self.pixels = images.pixels.to(self.device)
        self.size = model.shape[-1]
        self.trunk = copy.deepcopy(model.backbone.trunk(adapt))
        fold_norms(self.trunk)
        self._convolves = any(isinstance(part, Conv2d) for part in model.backbone.modules())
        for conv in self.trunk.modules():
            if isinstance(conv, Conv2d):  # what else there is stays float32
                conv.to(self.compute.dtype).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        cpu = self.device.type == "cpu" and not images.is_features
        self.chunk = max(8, _CPU_PIXELS[self.compute.dtype] // self.size**2) if cpu else _CUDA_CHUNK
        self.augments = not (images.is_features or augment.is_none)
        # Two functions, so that images are written out once between them and not made anew for every value read.
        self._augment = self.compute.jit(self.network_inputs, part=True)
        self._run = self.compute.jit(self._through_trunk, part=True, options=_FUSE_MORE)
        self._maps: Tensor | None = None  # of the images asked for so far, in the order they came
        self._row = torch.full((2 * len(images),), -1)  # where in _maps an image's map lies; then mirror images
        self._views: dict[tuple[int, bool], KeptViews] = {}  # by how many, and whether DropBlock dropped
        self._cropped: dict[float, Inputs] = {}

    def cropped(self, least: float | None) -> Inputs:
        """The same, but with random crops of at least this part of an image's area."""
        if least is None:
            return self
        if least not in self._cropped:
            other = copy.copy(self)
            other.augment = replace(self.augment, scale=(least, max(self.augment.scale)))
            other._augment = self.compute.jit(other.network_inputs, part=True)
            other._views, other._cropped = {}, {}
            self._cropped[least] = other
        return self._cropped[least]

    @torch.no_grad()
    def augmented(
        self, index: Tensor, draws: Randomness, blocks: bool = False, views: int = 0, few: Tensor | None = None
    ) -> Tensor:
        """Maps of augmented images, index (E, M) -> (E, M, ...): of new views or, with `views`, of one among so many
        that each image has, but for the `few` (E, M), whose views are always new. What is drawn depends on the learner
        alone. Learners of the same episode that look at the same images, as where settings are tried, share their
        maps."""
        if not self.augments:
            return self.plain(index)
        index, draws = index.to(self.device), draws.to(self.device)
        if len(set(draws.episodes)) < len(draws):
            first, which = _repeated(draws.episodes)
            once = index[first]
            if torch.equal(index, once[which]):
                theirs = few if few is None else few[first]
                return self.augmented(once, draws.part(first), blocks, views, theirs)[which]
        flat, each = index.flatten(), index.shape[1]
        numbers, keys = draws.uniform(each, NUMBERS).flatten(0, 1), draws["drop"].spread(each)
        new = torch.full_like(flat, not views, dtype=torch.bool) if few is None or not views else few.flatten()
        parts = []
        rest, some = (~new).nonzero()[:, 0], new.nonzero()[:, 0]  # what a card is waited for comes first
        if len(rest):
            view = drawn_views(draws, each, views).flatten()
            parts.append((rest, self._kept_views(views, blocks)(flat[rest], view[rest])))
        if len(some):
            parts.append((some, self._augmented(flat[some], numbers[some], keys[some], blocks)))
        if len(parts) == 1:
            return parts[0][1].unflatten(0, index.shape)
        maps = parts[0][1].new_empty(len(flat), *parts[0][1].shape[1:])
        for places, found in parts:
            maps[places] = found
        return maps.unflatten(0, index.shape)

    def _augmented(self, flat: Tensor, numbers: Tensor, keys: Tensor, blocks: bool) -> Tensor:
        step = even(len(flat), self.chunk)
        parts = []
        for part in (slice(at, at + step) for at in range(0, len(flat), step)):
            images = self._augment(*self._mark(self.pixels[flat[part]], numbers[part]))
            images, drawn = self._mark(images, keys[part])
            parts.append(self._run(images, drawn, blocks))
        return torch.cat(parts)

    def _kept_views(self, views: int, blocks: bool) -> KeptViews:
        def make(image: Tensor, view: Tensor) -> Tensor:
            asked = len(image)
            if self.device.type == "cuda":  # filled up to a few sizes, so that the card learns how to compute each once
                filled = torch.arange(rounded_up(asked, self.chunk), device=self.device) % asked
                image, view = image[filled], view[filled]
            return self._augmented(image, *view_noise(image, view), blocks)[:asked]

        if (views, blocks) not in self._views:
            cuda = self.device.type == "cuda"
            room = (lambda: torch.cuda.mem_get_info(self.device)[0] // 6) if cuda else (lambda: _CPU_VIEWS)
            self._views[views, blocks] = KeptViews(make, len(self.pixels), views, room, self.device)
        return self._views[views, blocks]

    def _mark(self, *batch: Tensor) -> tuple[Tensor, ...]:
        """Tell the compiler that the number of images is not fixed, so that it compiles once for all."""
        for tensor in batch if self.compute.parts else ():
            torch._dynamo.maybe_mark_dynamic(tensor, 0)
        return batch

    def network_inputs(self, pixels: Tensor, numbers: Tensor | None = None) -> Tensor:
        """What the trunk is given: images augmented by the numbers, or under the test transform, and normalised."""
        if pixels.dim() == 2:
            inputs = pixels
        elif numbers is None:
            inputs = plain_batch(pixels, self.size, self.model.view)
        else:
            inputs = augment_batch(pixels, numbers, self.augment, self.size)
        inputs = self.model.normalise(inputs)
        return channels_last(inputs.to(self.compute.dtype)) if self._convolves else inputs

    def _through_trunk(self, inputs: Tensor, keys: Tensor, blocks: bool) -> Tensor:
        return _whole(self.trunk(inputs, keyed_noise(keys, blocks)))

    @torch.no_grad()
    def plain(self, index: Tensor, mirrored: bool = False) -> Tensor:
        """Maps of images, or of their mirror images, under the test transform, index (...) -> (..., map)."""
        flat = index.cpu().flatten() + mirrored * len(self.pixels)
        missing = flat[self._row[flat] < 0].unique()
        if len(missing):
            self._keep(missing, mirrored)
        assert self._maps is not None
        return self._maps[self._row[flat].to(self.device)].unflatten(0, index.shape)

    def _keep(self, missing: Tensor, mirrored: bool) -> None:
        known = [] if self._maps is None else [self._maps]
        first = len(known[0]) if known else 0
        for part in missing.split(self.chunk):
            inputs = self.network_inputs(self.pixels[part.to(self.device) % len(self.pixels)])
            known.append(_whole(self.trunk(inputs.flip(-1) if mirrored else inputs)))
        self._maps = torch.cat(known)
        self._row[missing] = first + torch.arange(len(missing))  # last: memory may run out before


def drawn_views(draws: Randomness, images: int, views: int) -> Tensor:
    """Which of its views each of so many images of a learner shows: (E, images)."""
    return (draws["view"].uniform(images) * views).long()


def view_noise(image: Tensor, view: Tensor) -> tuple[Tensor, Tensor]:
    """The numbers that augment views of images, (n, NUMBERS), and the keys by which the trunk drops, (n,)."""
    keys = view_keys(image, view)
    return uniform(keys, (NUMBERS,)), substream(keys, 1)


def rounded_up(images: int, most: int) -> int:
    """A number of images, not fewer, among a few: powers of two up to `most`, and its multiples.

    >>> [rounded_up(n, 2048) for n in (1, 64, 65, 2048, 2049, 3450)]
    [64, 64, 128, 2048, 4096, 4096]
    """
    return -(-images // most) * most if images > most else max(_CUDA_LEAST, 1 << (images - 1).bit_length())


def _repeated(episodes: Sequence[int]) -> tuple[list[int], list[int]]:
    """Where each number comes first, and which of these each is.

    >>> _repeated([7, 8, 7])
    ([0, 1], [0, 1, 0])
    """
    first: dict[int, int] = {}
    for at, number in enumerate(episodes):
        first.setdefault(number, at)
    places = {number: place for place, number in enumerate(first)}
    return list(first.values()), [places[number] for number in episodes]


def _whole(maps: Tensor) -> Tensor:
    """Maps as tails take them. Embeddings, where the trunk is all there is, and features are float32 whatever they were
    computed in."""
    return maps.movedim(1, -1).contiguous() if maps.dim() == 4 else maps.float()


def even(total: int, most: int) -> int:
    """A size of at most `most` that cuts `total` into nearly equal parts, or exactly equal ones where a few fewer do.

    >>> even(6900, 2048)
    1725
    """
    parts = -(-total // most)
    return -(-total // parts)
