"""What every registered method owes, whichever it is."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import pytest
import torch

from lcwof.config import build, replace_field
from lcwof.data import Dataset
from lcwof.data.episodes import EpisodeSource
from lcwof.errors import LcwofError
from lcwof.evaluation import MEASURES, Measured, prepare, run_episodes
from lcwof.learning import Phase1, Phase2, pretrain
from lcwof.methods import Method, Task, get_method, method_names
from lcwof.models import BaseModel
from lcwof.randomness import Randomness

SHORT: dict[str, dict[str, Any]] = {  # enough epochs to learn an easy task, few enough for a test
    "lcwof": {"phase2.epochs": 40, "phase3.epochs": 30, "weight_constraint": 10.0},
    "aan": {"meta_steps": 40},
    "dfsl": {"meta_steps": 60},
    "ft": {"descent.epochs": 10},
    "icarl": {"descent.epochs": 10},
    "idlvq": {"descent.epochs": 5, "base_steps": 20},
    "joint": {"descent.epochs": 10},
    "protogan": {"meta_steps": 30, "steps": 20, "novel_bias": 4.0},
    "rgfsl": {"meta_steps": 60},
    "sdc": {"descent.epochs": 5},
    "topic": {"descent.epochs": 5, "gas_passes": 1},
    "ucir": {"descent.epochs": 10},
}


def method_for_test(name: str) -> Method:
    kind = get_method(name)
    config = kind.Config()
    for key, value in SHORT.get(name, {}).items():
        config = replace_field(config, key, value)
    return kind(config)


def measure(name: str, data: Dataset, model: BaseModel, numbers: list[int], shot: int = 1) -> Measured:
    method = method_for_test(name)
    base, fitted = prepare(method, model, data)
    source = EpisodeSource.of(data, "novel", 3, shot)
    return list(run_episodes(method, base, fitted, source, numbers))[-1]


@pytest.mark.parametrize("name", method_names())
def test_learns_an_easy_task_far_above_chance(name: str, strokes: Dataset, strokes_model: BaseModel) -> None:
    values = measure(name, strokes, strokes_model, list(range(8)), shot=5).values.mean(0)
    found = dict(zip(MEASURES, values.tolist(), strict=True))
    assert found["N/N"] > 60, found  # chance is 33
    assert found["N/J"] > 30, found  # chance in the joint space is under 7
    assert found["hm"] > 20, found  # without a bias from validation, too, neither side is lost


@pytest.mark.parametrize("name", ["iw", "topic"])
def test_imprinted_classes_do_not_win_every_time(name: str, digits: Dataset) -> None:
    """Without a bias, on embeddings that have much in common: base weights at class means do, fitted ones do not."""
    model = pretrain(digits, Phase1("mlp", 15), torch.device("cpu"))
    source, found = EpisodeSource.of(digits, "novel", 2, 5), []
    for steps in (get_method(name).Config().head_steps, 300):
        method = method_for_test(name)
        method.config = replace_field(replace_field(method.config, "head_steps", steps), "novel_bias", 0.0)
        values = list(run_episodes(method, *prepare(method, model, digits), source, list(range(8))))[-1].values.mean(0)
        found.append(float(values[MEASURES.index("hm")]))
    assert found[0] > 50 and found[1] < 20, found


@pytest.mark.parametrize("name", method_names())
def test_an_episode_gives_the_same_alone_in_a_batch_and_in_another_order(
    name: str, strokes: Dataset, strokes_model: BaseModel
) -> None:
    batch = measure(name, strokes, strokes_model, list(range(7))).values
    alone = measure(name, strokes, strokes_model, [3]).values
    mixed = measure(name, strokes, strokes_model, [6, 3, 1]).values
    one_answer = 100 / 45  # a single query may fall on the other side of a tie
    torch.testing.assert_close(alone[0], batch[3], atol=one_answer, rtol=0)
    torch.testing.assert_close(mixed, batch[[6, 3, 1]], atol=one_answer, rtol=0)


@pytest.mark.parametrize("name", method_names())
def test_logits_do_not_depend_on_the_number_of_learners(name: str, digits: Dataset, digits_model: BaseModel) -> None:
    """To float tolerance, on a convolutional tail; few steps, so that rounding has no time to grow."""
    kind = get_method(name)
    config = kind.Config()
    for key, value in SHORT.get(name, {}).items():
        if key.endswith(("epochs", "steps")):
            config = replace_field(config, key, value if key == "meta_steps" else 3)
    method = kind(config)
    base, fitted = prepare(method, digits_model, digits)
    source = EpisodeSource.of(digits, "novel", 2, 5)

    def logits(numbers: list[int]) -> torch.Tensor:
        task = Task.of_shots(source.draw(numbers).support, Randomness.of_episodes(0, numbers), "cpu")
        *_, state = method.learn(base, fitted, task)
        return method.logits(state, base.inputs.plain(digits.split.test[:50].expand(len(numbers), -1)))

    together, alone = logits(list(range(7))), logits([4])
    assert together.shape == (7, 50, 8)
    torch.testing.assert_close(together[4], alone[0], atol=2e-4, rtol=2e-4)


KEEPING = [name for name in method_names() if get_method(name).keeps_base]


def test_who_promises_to_keep_base_logits() -> None:
    assert KEEPING == ["aan", "dfsl", "gfsv", "iw", "pn"]


@pytest.mark.parametrize("name", KEEPING)
def test_promised_base_logits_stay(name: str, digits: Dataset, digits_model: BaseModel) -> None:
    method = method_for_test(name)
    base, fitted = prepare(method, digits_model, digits)
    shots, draws = EpisodeSource.of(digits, "novel", 2, 5).draw([0, 1]).support, Randomness.of_episodes(0, [0, 1])
    task = Task.of_shots(shots, draws, "cpu")
    start = method.start(base, fitted, 2)
    maps = base.inputs.plain(digits.split.test[:50].expand(2, -1))
    before = method.logits(start, maps)
    *_, state = method.learn(base, fitted, task)
    after = method.logits(state, maps)
    assert before.shape[-1] == 6 and after.shape[-1] == 8
    torch.testing.assert_close(after[..., :6], before, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", method_names())
def test_the_base_model_is_left_as_it_was(name: str, digits: Dataset, digits_model: BaseModel) -> None:
    before = {k: v.clone() for k, v in digits_model.tensors().items()}
    method = method_for_test(name)
    base, fitted = prepare(method, digits_model, digits)
    list(run_episodes(method, base, fitted, EpisodeSource.of(digits, "novel", 2, 1), [0]))
    for key, value in digits_model.tensors().items():
        assert torch.equal(value, before[key]), key


@pytest.mark.parametrize("name", method_names())
def test_is_documented_and_its_grid_names_real_settings(name: str) -> None:
    kind = get_method(name)
    said = " ".join((kind.__doc__ or "").split())
    assert "base model" in said, "says what it needs at base time"
    assert "Serves both protocols" in said, "says which protocols it serves, which the tests of streams hold it to"
    kind().require_stream(8)
    for key, values in kind.grid.items():
        for value in values:
            replace_field(kind.Config(), key, value)
    if kind.stop:
        phase, field = kind.stop
        assert kind(replace_field(kind.Config(), field, 17)).phases()[phase] == 17


@pytest.mark.parametrize("name", [name for name in method_names() if hasattr(get_method(name).Config(), "descent")])
def test_who_descends_as_phase_2_does_says_so(name: str) -> None:
    kind = get_method(name)
    phase2 = Phase2()
    how = replace(kind.Config().descent, epochs=phase2.epochs)
    assert asdict(how).items() <= asdict(phase2).items()
    said = " ".join((kind.__doc__ or "").split())
    assert "rates, batch, momentum, weight decay and gradient clip" in said and "of phase 2 of `lcwof`" in said


def test_unknown_methods_and_settings_are_refused() -> None:
    with pytest.raises(LcwofError, match="no method named 'magic'"):
        get_method("magic")
    with pytest.raises(LcwofError, match=r"unknown key method\.wieght_constraint: did you mean 'weight_constraint'"):
        build(get_method("lcwof").Config, {"wieght_constraint": 1.0}, "method")
