"""The engine against an ordinary implementation: one network, torch.optim, autograd for everything."""

import dataclasses

import pytest
import torch

from lcwof.data import Dataset
from lcwof.data.episodes import EpisodeSource
from lcwof.engine.plain import PlainEpisode
from lcwof.evaluation.gfsl import prepare, query_logits
from lcwof.learning import Phase2, Phase3
from lcwof.methods import Task
from lcwof.methods.lcwof import LCwoF, LCwoFConfig, LCwoFState
from lcwof.models import BaseModel, build_backbone
from lcwof.randomness import Randomness


@pytest.mark.parametrize(
    ("backbone", "shot", "blocks", "views", "crop"),
    [
        ("mlp", 1, False, 0, None),
        ("conv4", 5, False, 32, None),
        ("conv4-wide", 1, False, 2, 0.1),
        ("resnet12", 1, False, 0, 0.5),
        ("resnet12", 1, True, 2, None),
    ],
)
def test_three_learners_at_once_learn_what_each_learns_alone(
    digits: Dataset, backbone: str, shot: int, blocks: bool, views: int, crop: float | None
) -> None:
    torch.manual_seed(0)
    network = build_backbone(backbone, (1, 8, 8))
    head = torch.randn(6, network.dim) / network.dim**0.5
    model = BaseModel(backbone, network, head, digits.split.base, (1, 8, 8), digits.mean, digits.std).frozen()
    model.mirror = backbone == "conv4"
    config = LCwoFConfig(
        weight_constraint=1.0,
        phase2=Phase2(epochs=3, lr_tail=0.01, batch=4, drop_blocks=blocks, views=views, least_crop=crop),
        phase3=Phase3(epochs=2, lr_tail=0.01, lr_head=0.01, batch=5, drop_blocks=blocks, views=views, least_crop=crop),
    )
    method = LCwoF(dataclasses.replace(config))
    base, fitted = prepare(method, model, digits)
    source = EpisodeSource.of(digits, "novel", 2, shot)
    numbers = [3, 1, 4]
    draws = Randomness.of_episodes(source.seed, numbers)["learning"]
    task = Task.of_shots(source.draw(numbers).support, draws, "cpu")
    *_, state = method.learn(base, fitted, task)
    assert isinstance(state, LCwoFState)
    together = state.learners
    for e, number in enumerate(numbers):
        alone = PlainEpisode(method, base, source, number)
        alone.phase2()
        alone.phase3()
        start = dict(base.inputs.tail.anchor)
        for name, weight in alone.tail.named_parameters():
            moved = weight.detach() - start[name]
            torch.testing.assert_close(together.tail[name][e] - start[name], moved, atol=2e-5, rtol=1e-3)
        torch.testing.assert_close(together.novel_head[e], alone.novel_head.detach(), atol=1e-4, rtol=1e-3)
        torch.testing.assert_close(together.base_head[e], alone.base_head.detach(), atol=1e-4, rtol=1e-3)
        queries = source.draw([number]).novel_queries.flatten()
        found = query_logits(method, state, base, queries.expand(3, -1))[e]
        torch.testing.assert_close(found, alone.logits(queries), atol=1e-3, rtol=1e-3)
