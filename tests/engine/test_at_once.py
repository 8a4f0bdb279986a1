"""How many learners a run teaches at once: what decides it, and that its results do not hang on it."""

from __future__ import annotations

import dataclasses
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from small_recipe import SHORT, recipe
from typer.testing import CliRunner

from lcwof.cli.main import app
from lcwof.compute import Compute
from lcwof.data import Dataset
from lcwof.engine import Recipe, Run, evaluate_run, learners_at_once
from lcwof.methods import Base, State, Task
from lcwof.methods.lcwof import LCwoF
from lcwof.methods.pn import Prototypes
from lcwof.models import BaseModel


def test_out_of_memory_goes_on_with_fewer_at_once(
    strokes: Dataset, strokes_model: BaseModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = evaluate_run(recipe(), strokes_model, strokes, tmp_path / "whole")
    learn = Prototypes.learn

    def small(self: Prototypes, base: Base, fitted: Any, task: Task) -> Iterator[State]:
        if len(task.support) > 1:
            raise torch.OutOfMemoryError
        yield from learn(self, base, fitted, task)

    monkeypatch.setattr(Prototypes, "learn", small)
    said: list[str] = []
    run = evaluate_run(recipe(), strokes_model, strokes, tmp_path / "small", notice=said.append)
    assert run.rows == whole.rows
    assert said == [
        "Out of memory with 4 episodes at once: going on with 2.",
        "Out of memory with 2 episodes at once: going on with 1.",
    ]


@pytest.mark.parametrize(
    ("batch", "number", "said"),
    [
        (1, [], "The last attempt was killed with 9 episodes at once: going on with 4."),
        (1, ["--at-once", "4"], "with 4 episodes at once: if it was for want of memory, --at-once 2 takes less."),
        (2, ["--at-once", "4"], None),  # after a batch that was done, it was not their number
    ],
)
def test_killed_in_its_first_batch_a_run_goes_on_with_fewer_at_once(
    strokes: Dataset, strokes_model: BaseModel, tmp_path: Path, batch: int, number: list[str], said: str | None
) -> None:
    """A process of its own is killed, as the system does when memory runs out, or time. A number that was asked for is
    kept."""
    model = tmp_path / "base.safetensors"
    strokes_model.save(model)
    script = f"""
import os, signal, sys
from lcwof.cli.main import app
from lcwof.methods.pn import Prototypes
learn, calls = Prototypes.learn, []
def dying(self, base, fitted, task):
    calls.append(1)
    if len(calls) == {batch}:
        os.kill(os.getpid(), signal.SIGKILL)
    yield from learn(self, base, fitted, task)
Prototypes.learn = dying
app(sys.argv[1:])
"""
    options = ["data.options.classes=24", "data.options.base=12", "data.options.val=6", "evaluate.way=3"]
    sets = [part for option in options for part in ("--set", option)]
    asked = ["evaluate", "--data", "strokes", "--model", str(model), "--method", "pn", "--episodes", "9", *sets]
    out = [*number, "--device", "cpu", "-o", str(tmp_path / "r")]
    killed = subprocess.run([sys.executable, "-c", script, *asked, *out], capture_output=True, text=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    again = CliRunner().invoke(app, [*asked, *out])
    assert again.exit_code == 0, again.output
    words = " ".join(again.output.split())
    assert said in words if said else "was killed with" not in words
    run = Run.read(tmp_path / "r")
    assert run.rows == evaluate_run(recipe(), strokes_model, strokes, tmp_path / "whole").rows
    assert not (tmp_path / "r" / "working").exists()


def test_results_do_not_depend_on_how_many_run_at_once(
    strokes: Dataset, strokes_model: BaseModel, tmp_path: Path
) -> None:
    short = recipe("lcwof", episodes=5, **SHORT)
    one = evaluate_run(dataclasses.replace(short, at_once=1), strokes_model, strokes, tmp_path / "1")
    five = evaluate_run(dataclasses.replace(short, at_once=5), strokes_model, strokes, tmp_path / "5")
    same = [a == b for a, b in zip(one.rows, five.rows, strict=True)]
    assert sum(same) >= 4, "at most one episode may have a query that rounding tips over"
    for a, b in zip(one.rows, five.rows, strict=True):
        assert a == pytest.approx(b, abs=100 / 45)


@pytest.mark.parametrize(("compiled", "sizes"), [(True, [3, 3]), (False, [4, 1])])
def test_a_compiled_run_has_equal_batches_so_that_little_is_filled_up(
    strokes: Dataset,
    strokes_model: BaseModel,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    compiled: bool,
    sizes: list[int],
) -> None:
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    monkeypatch.setattr(Recipe, "compute", lambda self, method, n: Compute(torch.device("cpu"), compiled=compiled))
    seen: list[int] = []
    start = LCwoF.start
    monkeypatch.setattr(LCwoF, "start", lambda self, b, f, n: seen.append(n) or start(self, b, f, n))
    run = evaluate_run(recipe("lcwof", episodes=5, **SHORT), strokes_model, strokes, tmp_path / "r")
    assert seen == sizes and len(run.rows) == 5


def test_learners_at_once_suit_the_method(strokes_model: BaseModel) -> None:
    assert learners_at_once(Prototypes(), strokes_model) == 100
    assert learners_at_once(LCwoF(), strokes_model) == 10


def test_learners_at_once_on_a_card_do_not_hang_on_what_else_is_on_it(
    strokes_model: BaseModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But for one that is nearly full. Each takes 32 bytes a weight; here a card has room for 120 of them."""
    head = SimpleNamespace(numel=strokes_model.head.numel, device=SimpleNamespace(type="cuda"))
    model: Any = SimpleNamespace(backbone=strokes_model.backbone, head=head)
    weights = sum(w.numel() for w in model.backbone.tail(LCwoF().adapt).parameters()) + head.numel()
    whole = 120 * 32 * weights
    free = iter((whole, whole // 2, whole // 3, whole // 12))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (next(free), whole))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda: 0)
    assert [learners_at_once(LCwoF(), model) for _ in range(4)] == [40, 40, 40, 10]
