"""What happens when a step cannot be recorded, on a card that is made up."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from lcwof.errors import LcwofError
from lcwof.learning import recording
from lcwof.learning.recording import Recorded


def tried(monkeypatch: pytest.MonkeyPatch, error: Exception, spoilt: bool) -> None:
    """A step that runs once, and then fails while it is recorded; spoilt: the recording cannot be ended."""

    def end() -> None:
        if spoilt:
            raise RuntimeError("the recording is spoilt")

    stream = SimpleNamespace(wait_stream=lambda other: None)
    made_up: dict[str, Any] = {
        "CUDAGraph": lambda: SimpleNamespace(capture_begin=lambda pool: None, capture_end=end),
        "graph_pool_handle": lambda: (0, 0),
        "current_stream": lambda device: stream,
        "stream": lambda which: nullcontext(),
        "empty_cache": lambda: None,
    }
    for name, value in made_up.items():
        monkeypatch.setattr(torch.cuda, name, value)
    monkeypatch.setattr(recording, "side_streams", lambda device: (stream, stream))
    calls = 0

    def step(x: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise error
        return x

    recorded = Recorded(step, torch.device("cpu"))
    recorded(torch.ones(2))
    recorded(torch.ones(2))


@pytest.mark.parametrize("spoilt", [False, True])
def test_running_out_of_memory_is_told_as_such(monkeypatch: pytest.MonkeyPatch, spoilt: bool) -> None:
    """Those who begin again with fewer learners wait for that error, whatever class the card gives it."""
    for error in (torch.OutOfMemoryError("CUDA out of memory."), RuntimeError("CUDA error: out of memory")):
        with pytest.raises(torch.OutOfMemoryError):
            tried(monkeypatch, error, spoilt)


def test_a_step_that_cannot_be_recorded_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(LcwofError, match=r"cannot be recorded \(it waited\): it must wait for no value"):
        tried(monkeypatch, RuntimeError("it waited"), spoilt=True)
    with pytest.raises(ValueError, match="a mistake of its own"):
        tried(monkeypatch, ValueError("a mistake of its own"), spoilt=False)
