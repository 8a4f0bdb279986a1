"""Steps that a card repeats without being told each kernel anew."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import torch
from torch import Tensor

_WARM = 3  # times that a shape is stepped plainly first: libraries choose their kernels then


class Recorded:
    """A step that is done again and again: on a CUDA card recorded once for every shape of its inputs, and replayed
    from then on. Small kernels take longer to launch one by one than to run.

    The step keeps all that it changes in the same memory and asks the card for no value. One that cannot be recorded
    is done as it is.
    """

    def __init__(self, step: Callable[..., None], active: bool) -> None:
        self.step, self.active = step, active
        self._seen: Counter[object] = Counter()
        self._recorded: dict[object, tuple[list[Tensor], torch.cuda.CUDAGraph]] = {}

    def __call__(self, *inputs: Tensor) -> None:
        shapes = tuple((x.shape, x.dtype) for x in inputs)
        self._seen[shapes] += 1
        if self.active and self._seen[shapes] == _WARM + 1:
            self._record(shapes, inputs)
        if shapes not in self._recorded:
            self.step(*inputs)
            return
        kept, graph = self._recorded[shapes]
        for mine, given in zip(kept, inputs, strict=True):
            mine.copy_(given)
        graph.replay()

    def _record(self, shapes: object, inputs: tuple[Tensor, ...]) -> None:
        """What is recorded is not done yet."""
        kept, graph = [x.clone() for x in inputs], torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph):
                self.step(*kept)
        except RuntimeError:
            self.active = False
        else:
            self._recorded[shapes] = kept, graph
