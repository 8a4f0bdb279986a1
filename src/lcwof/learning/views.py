"""A few augmented views of each image, in place of a new one every time: the frozen trunk then runs once for each view
and not once for each epoch. New views of replayed images were half of an episode's arithmetic."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from lcwof.randomness import keys_of

_MANY = 1 << 20  # more views than anyone asks for: view 3 of an image is the same however many there are

Make = Callable[[Tensor, Tensor], Tensor]  # images (n,), views (n,) -> their maps (n, ...)
Room = Callable[[], int]  # bytes that maps may take


def view_keys(image: Tensor, view: Tensor) -> Tensor:
    """What decides all that is random in a view: the image and the view's number, whoever looks at it."""
    return keys_of(image * _MANY + view, "view")


class KeptViews:
    """Maps of views, made when first asked for and kept while there is room; where there is none, the oldest go, and
    are made again when asked for again."""

    def __init__(self, make: Make, images: int, views: int, room: Room, device: torch.device) -> None:
        self._make, self._views, self._room, self._all = make, views, room, images * views
        self._row = torch.full((self._all + 1,), -1, device=device)  # of the maps, where a view's lies; then of none
        self._maps: Tensor | None = None
        self._place = self._row[:0]  # whose map a row holds
        self._next = 0  # row to write to

    def __call__(self, image: Tensor, view: Tensor) -> Tensor:
        """Maps of views of images, both of one shape: (...) -> (..., map)."""
        places = (image * self._views + view).flatten()
        while len(missing := places[self._row[places] < 0].unique()):  # again where some made way for others
            maps = self._make(missing // self._views, missing % self._views)
            if self._maps is None or len(self._maps) < min(len(places), self._all):  # those of one call always fit
                self._begin(len(places), maps)
            self._add(missing, maps)
        assert self._maps is not None
        return self._maps[self._row[places]].unflatten(0, image.shape)

    def _begin(self, at_least: int, maps: Tensor) -> None:
        """All the room at once: where memory grew and was copied, a card had no use for what was left between."""
        self._maps, self._next = None, 0
        self._row.fill_(-1)  # before: memory may run out
        most = min(self._all, max(at_least, self._room() // (maps[0].numel() * maps.element_size())))
        self._maps, self._place = maps.new_empty(most, *maps.shape[1:]), self._row.new_full((most,), self._all)

    def _add(self, places: Tensor, maps: Tensor) -> None:
        assert self._maps is not None
        rows = (self._next + torch.arange(len(places), device=places.device)) % len(self._place)
        self._row[self._place[rows]] = -1
        self._maps[rows], self._place[rows], self._row[places] = maps, places, rows
        self._next = (self._next + len(places)) % len(self._place)
