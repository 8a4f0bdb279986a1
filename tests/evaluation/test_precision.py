"""Faster is the same method: bfloat16 over unfolded products against plain float32, on the same episodes."""

import pytest
import torch

from lcwof.compute import Compute
from lcwof.data import Dataset
from lcwof.data.episodes import EpisodeSource
from lcwof.evaluation import MEASURES, prepare, run_episodes
from lcwof.learning import Phase1, Phase2, Phase3, pretrain
from lcwof.methods.lcwof import LCwoF, LCwoFConfig

CPU = torch.device("cpu")


@pytest.mark.skipif(torch.cuda.is_available(), reason="a card has its own path: benchmarks/fast_vs_plain.py")
def test_half_precision_gives_the_same_figures_over_50_episodes(strokes: Dataset) -> None:
    model = pretrain(strokes, Phase1("conv4", 3, batch=32, lr=0.05, schedule="one-cycle"), CPU)
    config = LCwoFConfig(
        weight_constraint=10.0, phase2=Phase2(epochs=15), phase3=Phase3(epochs=10, lr_head=1e-2, lr_tail=1e-3)
    )
    source = EpisodeSource.of(strokes, "novel", 3, 1)
    found = []
    for compute in (Compute(CPU), Compute(CPU, torch.bfloat16)):
        method = LCwoF(config)
        base, fitted = prepare(method, model, strokes, compute)
        *_, last = run_episodes(method, base, fitted, source, range(50))
        found.append(last.values)
    assert found[0][:, MEASURES.index("hm")].mean() > 30, "the comparison is of learners that learned something"
    difference = found[1] - found[0]
    assert not torch.equal(*found), "the paths are different ones"
    assert abs(float(difference[:, MEASURES.index("hm")].mean())) < 0.3
    assert float(difference[:, : MEASURES.index("hm")].abs().max()) < 10, "of one episode, in points"
