"""Recorded steps: on a card the same numbers as plain ones; elsewhere the bookkeeping, with a recorder made by hand."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor

from lcwof.config import replace_field
from lcwof.data import Dataset
from lcwof.data.episodes import EpisodeSource
from lcwof.evaluation import prepare
from lcwof.learning import learners as learners_module
from lcwof.learning.recorded import Recorded
from lcwof.methods import Task, get_method
from lcwof.models import BaseModel
from lcwof.randomness import Randomness


def test_shapes_are_recorded_after_a_few_steps_and_replayed_with_new_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    total, told = torch.zeros(()), list[str]()

    class Graph:
        def replay(self) -> None:
            told.append("replay")
            assert recorder is not None
            total.add_(recorder._recorded[((torch.Size([2]), torch.float32),)][0][0].sum())

    @contextmanager
    def recording(graph: Graph) -> Iterator[None]:
        before = total.clone()
        yield
        total.copy_(before)  # a card records, and does nothing

    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "graph", recording)

    def step(x: Tensor) -> None:
        told.append("step")
        total.add_(x.sum())

    recorder: Recorded | None = Recorded(step, active=True)
    assert recorder is not None
    for value in range(1, 7):
        recorder(torch.full((2,), float(value)))
    assert told == ["step"] * 3 + ["step"] + ["replay"] * 3 and float(total) == 2 * 21
    told.clear()
    plain = Recorded(step, active=False)
    for _ in range(5):
        plain(torch.ones(2))
    assert told == ["step"] * 5


def test_a_step_that_cannot_be_recorded_is_done_plainly(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def refusing(graph: object) -> Iterator[None]:
        yield
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(torch.cuda, "CUDAGraph", object)
    monkeypatch.setattr(torch.cuda, "graph", refusing)
    done: list[int] = []
    recorder = Recorded(lambda x: done.append(1), active=True)
    for _ in range(6):
        recorder(torch.ones(1))
    assert len(done) == 7 and not recorder.active, "once for nothing, while it was tried"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA card")
@pytest.mark.parametrize("name", ["lcwof", "ucir", "idlvq", "icarl"])
def test_recorded_and_plain_steps_learn_the_same(
    name: str, digits: Dataset, digits_model: BaseModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = get_method(name).Config()
    for key, value in {"phase2.epochs": 12, "phase3.epochs": 12, "descent.epochs": 12}.items():
        if hasattr(config, key.split(".")[0]):
            config = replace_field(config, key, value)
    method, found, recorded = get_method(name)(config), [], []
    for active in (False, True):

        class Watched(Recorded):
            def __init__(self, step: object, active: bool, wanted: bool = active) -> None:
                super().__init__(step, active and wanted)  # type: ignore[arg-type]
                recorded.append(self)

        monkeypatch.setattr(learners_module, "Recorded", Watched)
        base, fitted = prepare(method, digits_model.to("cuda"), digits)
        shots = EpisodeSource.of(digits, "novel", 2, 5).draw([0, 1, 2]).support
        *_, state = method.learn(base, fitted, Task.of_shots(shots, Randomness.of_episodes(0, [0, 1, 2]), "cuda"))
        found.append(method.logits(state, base.inputs.plain(digits.split.test[:60].expand(3, -1).cuda())))
    assert any(one._recorded for one in recorded), "steps were recorded"
    torch.testing.assert_close(*found, atol=1e-3, rtol=1e-3)
