"""How to compute: on which device, how precisely, compiled or not."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, cast, get_args

import torch
from torch.utils._triton import has_triton

from lcwof.errors import LcwofError

Precision = Literal["auto", "float32", "bfloat16"]
# What products need to come to the same every time; torch looks at it once, before the first.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
_SHAPES = 64  # of inputs that one function may be compiled for; beyond it torch.compile silently stops compiling
F = TypeVar("F", bound=Callable[..., Any])


def pick_precision(name: str) -> Precision:
    if name not in get_args(Precision):
        raise LcwofError(f"--precision {name}: choose one of {', '.join(get_args(Precision))}.")
    return cast(Precision, name)


@dataclass(frozen=True)
class Compute:
    """The plain way is float32, step by step. Weights, losses, heads and linear layers are float32 either way:
    `dtype` is what convolutions and the maps between them are computed in."""

    device: torch.device
    dtype: torch.dtype = torch.float32
    compiled: bool = False
    parts: bool = False  # the trunk, which learners share, and updates of weights are compiled, whatever of the rest is
    records: bool = False  # steps that are not compiled are recorded and repeated, which a card can do by itself

    @classmethod
    def choose(
        cls, device: torch.device, precision: Precision = "auto", compiled: bool = False, parts: bool = False
    ) -> Compute:
        """`auto`: bfloat16 where the device computes faster with it, else float32. A card without Triton, which the
        compiler needs there, computes step by step."""
        if precision == "auto":
            precision = "bfloat16" if has_bfloat16(device) else "float32"
        can = device.type != "cuda" or has_triton()
        compiled, parts = compiled and can, (parts or compiled) and can
        return cls(device, getattr(torch, precision), compiled, parts, device.type == "cuda" and not compiled)

    def jit(self, function: F, part: bool = False, **options: Any) -> F:
        """The function, compiled where that is asked: anew for every shape of its inputs, so shapes are kept few.
        part: it is one of the `parts`."""
        if not (self.parts if part else self.compiled):
            return function
        torch._dynamo.config.cache_size_limit = _SHAPES
        # Shapes are few, so the fastest convolution of each is worth finding, unless the same is wanted every time.
        torch.backends.cudnn.benchmark = not torch.are_deterministic_algorithms_enabled()
        return torch.compile(function, **options)  # type: ignore[return-value]

    @property
    def words(self) -> str:
        what = ", compiled" if self.compiled else ", parts compiled" if self.parts else ""
        return str(self.dtype).removeprefix("torch.") + what


@contextmanager
def repeatable(wanted: bool = True) -> Iterator[None]:
    """While it lasts, a card computes the same, bit for bit, every time: no order of sums is left to chance, nothing is
    chosen by what was fastest a moment ago."""
    if not wanted:
        yield
        return
    import torch._inductor.config as inductor  # here: it takes a while

    places: list[tuple[Any, str, bool]] = [
        (torch.backends.cudnn, "benchmark", False),
        (torch.utils.deterministic, "fill_uninitialized_memory", False),  # takes time, and nothing here reads it
        (inductor, "deterministic", True),
    ]
    places = [place for place in places if hasattr(*place[:2])]
    was = [getattr(where, name) for where, name, _ in places]
    before = torch.get_deterministic_debug_mode()
    torch.use_deterministic_algorithms(True)
    try:
        for where, name, value in places:
            setattr(where, name, value)
        yield
    finally:
        torch.set_deterministic_debug_mode(before)
        for (where, name, _), value in zip(places, was, strict=True):
            setattr(where, name, value)


def has_bfloat16(device: torch.device) -> bool:
    """Whether the device has instructions for bfloat16 products."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    known = getattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)  # private, so it may go
    return device.type == "cpu" and known()
