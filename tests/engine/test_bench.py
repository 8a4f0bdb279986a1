import json
from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from typer.testing import CliRunner

from lcwof.cli.main import app
from lcwof.compute import Compute
from lcwof.engine.bench import Bench, Setup, Timing, _time_engine, bench
from lcwof.errors import LcwofError


def test_bench_prints_a_table_and_writes_json(tmp_path: Path) -> None:
    out = tmp_path / "bench.json"
    asked = ["bench", "--at-once", "1", "--at-once", "2", "--seconds", "0.1", "--device", "cpu", "-o", str(out)]
    result = CliRunner().invoke(app, asked)
    assert result.exit_code == 0, result.output
    found = json.loads(out.read_text())
    assert [(t["name"], t["at_once"]) for t in found["timings"]] == [("plain loop", 1), ("lcwof", 1), ("lcwof", 2)]
    for timing in found["timings"]:
        parts = [timing[part] for part in ("views", "phase2", "phase3", "evaluation")]
        assert timing["episode"] == pytest.approx(sum(parts))
        assert (timing["views"] > 0) == (timing["name"] == "lcwof"), "the loop makes no views ahead"
        assert min(timing["phase2"], timing["phase3"], timing["evaluation"], timing["tflops"]) > 0
        assert timing["tflops"] < found["ceiling_tflops"], "faster than the machine can multiply"
    assert "phase 3" in result.output and "…" not in result.output, "all columns fit in 80"
    assert found["phase1_images_per_second"] > 0


@pytest.mark.parametrize("asked", [[], ["--no-compile"]])
def test_steps_are_compiled_or_recorded_on_a_card(
    asked: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found: list[Compute] = []

    def note(device: torch.device, compute: Compute, *more: object) -> Bench:
        found.append(compute)
        raise LcwofError("enough")

    monkeypatch.setattr("lcwof.compute.has_triton", lambda: True)
    monkeypatch.setattr("lcwof.cli.bench.pick_device", lambda name: torch.device("cuda"))
    monkeypatch.setattr("lcwof.cli.bench.run_bench", note)
    CliRunner().invoke(app, ["bench", "--precision", "float32", "-o", str(tmp_path / "bench.json"), *asked])
    assert [(c.compiled, c.parts, c.records) for c in found] == [(not asked, True, bool(asked))]


def test_views_are_counted_once_an_image_and_the_loop_makes_them_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = torch.device("cpu")
    setup = Setup.make(cpu, shot=1)
    assert setup.views == 64 * 32
    again = setup.flops(kept=False) - setup.flops(kept=True)  # passes of replayed images that the views save
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        setup.model.backbone.trunk(1)(torch.zeros(1, *setup.model.shape))
    assert again == (200 * 64 - 64 * 32) * counter.get_total_flops()
    base, fitted = setup.prepare(Compute(cpu))
    monkeypatch.setattr("lcwof.engine.bench._rate", lambda steps, seconds, device: (1.0, 1))
    timing = _time_engine(setup, base, fitted, 2, 1.0)
    assert timing.views == pytest.approx(32 / 2), "a second for one view of each image of two episodes"


def test_out_of_memory_measures_fewer_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def scarce(setup: object, base: object, fitted: object, learners: int, seconds: float) -> Timing:
        if learners > 3:
            raise torch.OutOfMemoryError
        return Timing("lcwof", learners, 1.0, 1.0, 1.0, 1.0, (1, 1), 1.0, 1.0)

    monkeypatch.setattr("lcwof.engine.bench._time_engine", scarce)
    said: list[str] = []
    cpu = torch.device("cpu")
    found = bench(cpu, Compute(cpu), [12], seconds=0.1, phase1=False, notice=said.append)
    assert [t.at_once for t in found.timings] == [1, 3]
    assert "Out of memory with 12 episodes at once: trying 6." in said
