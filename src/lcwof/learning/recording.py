"""Steps that a card repeats by itself: recorded once as a CUDA graph, which asks for hundreds of small operations at
once where a program would ask for one after the other and keep the card waiting."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache

import torch
from torch import Tensor

from lcwof.errors import LcwofError

Step = Callable[..., Tensor]  # of tensors; whatever else it changes are the values of tensors that stay where they are
Shapes = tuple[torch.Size, ...]


class Recorded:
    """A step on a card. With the inputs of a shape it runs as it is the first time, is recorded the second, and is
    repeated from then on; its result is valid until the next call.

    A recording holds the operations and where in memory they work, nothing else: the step must do the same for all
    inputs of a shape, wait for no value, and change tensors in place only.
    """

    def __init__(self, step: Step, device: torch.device) -> None:
        self._step, self._device = step, device
        self._pool = torch.cuda.graph_pool_handle()  # memory that the recordings share: one runs at a time
        self._seen: set[Shapes] = set()
        self._recordings: dict[Shapes, tuple[torch.cuda.CUDAGraph, list[Tensor], Tensor]] = {}

    def __call__(self, *inputs: Tensor) -> Tensor:
        shapes = tuple(each.shape for each in inputs)
        if shapes not in self._seen:  # libraries make what they need, and choose how to compute
            self._seen.add(shapes)
            return self._step(*inputs)
        if shapes not in self._recordings:
            self._recordings[shapes] = self._record(inputs)
        graph, places, result = self._recordings[shapes]
        for place, given in zip(places, inputs, strict=True):
            place.copy_(given)
        with _memory_named():
            graph.replay()
        return result

    def _record(self, inputs: tuple[Tensor, ...]) -> tuple[torch.cuda.CUDAGraph, list[Tensor], Tensor]:
        """The recording, where its inputs are expected and where its result will be. Nothing is computed yet."""
        graph, places = torch.cuda.CUDAGraph(), [torch.empty_like(each) for each in inputs]
        here, aside = torch.cuda.current_stream(self._device), side_streams(self._device)[1]
        torch.cuda.empty_cache()  # what the first run has left over is not given back while recording
        aside.wait_stream(here)
        with _memory_named(), torch.cuda.stream(aside):
            graph.capture_begin(self._pool)
            try:
                result = self._step(*places)
            except Exception as error:
                try:
                    graph.capture_end()
                except RuntimeError:  # which leaves the card's memory in disorder
                    if "out of memory" not in str(error):
                        raise LcwofError(
                            f"a step of learning cannot be recorded ({error}): it must wait for no value of a tensor. "
                            "Call `descend` without recordable, and start the program again."
                        ) from error
                raise error
            graph.capture_end()
        here.wait_stream(aside)
        return graph, places, result

    def forget(self) -> None:
        """Give the memory of the recordings back."""
        if self._recordings:
            self._recordings.clear()
            with suppress(RuntimeError):  # after a recording that failed
                torch.cuda.empty_cache()


@cache
def side_streams(device: torch.device) -> tuple[torch.cuda.Stream, torch.cuda.Stream]:
    """Where a card prepares inputs beside its work, and where steps are recorded: two, so that they share nothing, and
    always the same, so that the memory they have used serves again."""
    return torch.cuda.Stream(device), torch.cuda.Stream(device)


@contextmanager
def _memory_named() -> Iterator[None]:
    """Memory that runs out while a recording is made ready has no error of its own; those who begin again with less
    look for torch's."""
    try:
        yield
    except RuntimeError as error:
        if isinstance(error, torch.OutOfMemoryError) or "out of memory" not in str(error):
            raise
        raise torch.OutOfMemoryError(str(error)) from error
