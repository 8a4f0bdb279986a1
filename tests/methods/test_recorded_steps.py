"""Methods come to the same whether a card asks for every operation of a step or repeats what it recorded."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from lcwof.compute import Compute
from lcwof.config import replace_field
from lcwof.data import Dataset
from lcwof.data.episodes import EpisodeSource
from lcwof.evaluation import gfsl, prepare
from lcwof.learning import Descent, Learners, Phase1, descend, learners, pretrain
from lcwof.methods import Task, get_method
from lcwof.models import BaseModel
from lcwof.randomness import Randomness

CPU = torch.device("cpu")
SHORT = {"descent.epochs": 8}
LCWOF = {"phase2.epochs": 8, "phase3.epochs": 8, "weight_constraint": 10.0}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "lcwof": ("lcwof", LCWOF),
    "lcwof, cosine head": ("lcwof", {**LCWOF, "head": "cosine", "start": "mean", "whiten": 0.3}),
    "lcwof, distillation": ("lcwof", {**LCWOF, "distillation.weight": 1.0, "bias": True}),
    "lcwof, unlabelled images": ("lcwof", {**LCWOF, "distillation.weight": [0.5, 5.0], "distillation.unlabelled": 9}),
    "lcwof, own statistics": ("lcwof", {**LCWOF, "batch_norm": "adapting"}),
    "lcwof, mixed batches": ("lcwof", {**LCWOF, "phase3.per_batch": 3, "phase3.replay": "unlim"}),
    "lcwof, side by side": ("lcwof", {**LCWOF, "weight_constraint": [1.0, 100.0], "phase3.lr_head": [1e-3, 1e-2]}),
    "ft": ("ft", SHORT),
    "joint": ("joint", {**SHORT, "per_class": 2}),
    "icarl": ("icarl", {**SHORT, "exemplars": 2}),
    "ucir": ("ucir", {**SHORT, "exemplars": 2, "head_steps": 5}),
    "ucir, side by side": ("ucir", {**SHORT, "exemplars": 2, "head_steps": 5, "less_forget": [1.0, 25.0]}),
    "sdc": ("sdc", SHORT),
    "idlvq": ("idlvq", {**SHORT, "exemplars": 2, "base_steps": 5}),
    "topic": ("topic", {**SHORT, "nodes": 20, "gas_passes": 1, "head_steps": 5, "node_rate": 0.5, "push": 1.0}),
}


_WAITS = ("aten._local_scalar_dense", "aten.nonzero", "aten.equal", "aten.is_nonzero")


class Waits(RuntimeError):
    """A card would have to be waited for, which a recording cannot."""


class _Notes(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.done: list[tuple[Any, tuple[Any, ...], dict[str, Any], Any]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if str(func).startswith(_WAITS):
            raise Waits(str(func))
        found = func(*args, **(kwargs or {}))
        self.done.append((func, args, kwargs or {}, found))
        return found


def _memory(values: Iterable[Any]) -> set[int]:
    return {value.untyped_storage().data_ptr() for value in values if isinstance(value, Tensor)}


class Replayed:
    """Stands in for `Recorded`: the second call is noted, and repeated from then on as a card would repeat it."""

    repeated = 0

    def __init__(self, step: Any, device: torch.device) -> None:
        self._step = step
        self._seen: set[Any] = set()
        self._notes: dict[Any, Any] = {}

    def __call__(self, *inputs: Tensor) -> Tensor:
        shapes = tuple(each.shape for each in inputs)
        if shapes not in self._seen:
            self._seen.add(shapes)
            return self._step(*inputs)
        if shapes not in self._notes:
            places = [each.clone() for each in inputs]
            with _Notes() as notes:
                result = self._step(*places)
            self._notes[shapes] = notes.done, places, result
            return result
        done, places, result = self._notes[shapes]
        Replayed.repeated += 1
        for place, given in zip(places, inputs, strict=True):
            place.copy_(given)
        with torch.no_grad():
            for func, args, kwargs, found in done:
                _again(func, args, kwargs, found)
        return result

    def forget(self) -> None:
        pass


def _again(func: Any, args: Any, kwargs: Any, found: Any) -> None:
    """Do an operation once more, its results where they were. A view is there already, and so is what an operation
    changes in place once it is done."""
    args, kwargs = tree_map_only(Tensor, lambda x: x.detach(), (args, kwargs))
    made = func(*args, **kwargs)
    given = _memory(tree_leaves((args, kwargs)))
    for place, value in zip(tree_leaves(found), tree_leaves(made), strict=True):
        if isinstance(place, Tensor) and not _memory([place]) & given:
            place.detach().copy_(value)


def learned(name: str, settings: dict[str, Any], data: Dataset, model: BaseModel, compute: Compute) -> Tensor:
    """Logits of some images after two tasks, one on top of the other."""
    kind = get_method(name)
    config = kind.Config()
    for key, value in settings.items():  # a list: one for each of the two learners
        own = torch.tensor(value, device=compute.device) if isinstance(value, list) else value
        config = replace_field(config, key, own)
    method = kind(config)
    base, fitted = prepare(method, model, data, compute)
    shots = EpisodeSource.of(data, "novel", 2, 3).draw([0, 1]).support
    state = method.start(base, fitted, 2)
    for number, way in enumerate((2, 1)):
        draws = Randomness.of_episodes(0, [0, 1])["session", number]
        task = Task.of_shots(shots[:, :way], draws, compute.device)
        *_, state = method.grow(base, fitted, state, task)
    *_, state = state, *method.settle(base, fitted, state, replace(task, labels=task.labels + 2, way=3))
    return method.logits(state, base.inputs.plain(shots.flatten(1))).cpu()


@pytest.mark.parametrize("case", CASES)
def test_repeating_a_noted_step_is_taking_it(
    case: str, digits: Dataset, digits_model: BaseModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learners, "Recorded", Replayed)
    monkeypatch.setattr(gfsl, "_made", [])  # no maps of earlier tests, made beside others and rounded otherwise
    before = Replayed.repeated
    noted = learned(*CASES[case], digits, digits_model, Compute(CPU, records=True))
    assert Replayed.repeated > before + 5
    assert torch.equal(noted, learned(*CASES[case], digits, digits_model, Compute(CPU)))


CARD = torch.device("cuda")
needs_a_card = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA card")


@needs_a_card
@pytest.mark.parametrize("case", CASES)
def test_a_card_that_repeats_comes_to_the_same(case: str, digits: Dataset, digits_model: BaseModel) -> None:
    model = copy.deepcopy(digits_model).to(CARD)
    one, other = (learned(*CASES[case], digits, model, Compute(CARD, records=records)) for records in (True, False))
    torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3)


@needs_a_card
@pytest.mark.parametrize("case", ["lcwof", "lcwof, side by side", "icarl"])
def test_what_is_compiled_is_recorded_as_well(case: str, strokes: Dataset) -> None:
    """As streams compute on a card: in bfloat16, updates compiled, with DropBlock."""
    model = pretrain(strokes, Phase1("resnet12", 1, batch=32, lr=0.05), CARD)
    ways = (Compute(CARD, torch.bfloat16, parts=True, records=records) for records in (True, False))
    one, other = (learned(*CASES[case], strokes, model, compute) for compute in ways)
    torch.testing.assert_close(one, other, rtol=2e-2, atol=2e-2)


def descended(
    objective: Callable[[Any], Tensor], data: Dataset, model: BaseModel, recordable: bool = True, epochs: int = 8
) -> None:
    base, _ = prepare(get_method("ft")(), model, data, Compute(CPU, records=True))
    shots = EpisodeSource.of(data, "novel", 2, 3).draw([0]).support
    draws = Randomness.of_episodes(0, [0])
    task = Task.of_shots(shots, draws, "cpu")
    start = Learners.start(base.inputs, 1).grown(2, draws)
    labels, how = task.labels + start.base_head.shape[1], Descent(epochs, batch=3)
    given = ("novel_head",), lambda epoch: (task.support, labels), base.inputs, how, 0.0, draws, "test", objective
    for _ in descend(start, *given, recordable=recordable):
        pass


def test_an_objective_that_waits_is_found(
    digits: Dataset, digits_model: BaseModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learners, "Recorded", Replayed)

    def waiting(batch: learners.Batch) -> Tensor:
        loss = learners.joint_cross_entropy(batch)
        return loss * 2 if float(loss.detach().sum()) > 0 else loss

    descended(learners.joint_cross_entropy, digits, digits_model)
    with pytest.raises(Waits):
        descended(waiting, digits, digits_model)


def test_only_objectives_that_say_so_are_recorded_and_only_for_long(
    digits: Dataset, digits_model: BaseModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: Any) -> None:
        raise AssertionError("recorded")

    def own(batch: learners.Batch) -> Tensor:
        return learners.joint_cross_entropy(batch)

    monkeypatch.setattr(learners, "Recorded", refused)
    descended(own, digits, digits_model, recordable=False)
    descended(own, digits, digits_model, epochs=7)
    with pytest.raises(AssertionError, match="recorded"):
        descended(own, digits, digits_model)
    with pytest.raises(AssertionError, match="recorded"):
        descended(learners.joint_cross_entropy, digits, digits_model, recordable=False)
