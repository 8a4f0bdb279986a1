"""The incremental baselines that train: losses and steps on cases worked by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from lcwof.data import Dataset
from lcwof.evaluation import prepare
from lcwof.methods.embeddings import base_images
from lcwof.methods.meta import BaseTail, FakeSource
from lcwof.methods.pn import Episodic, Prototypes, PrototypesConfig, episodic_loss
from lcwof.models import BaseModel


def test_episodic_loss_of_two_prototypes() -> None:
    shots, labels = torch.tensor([[[0.0], [2.0], [4.0]]]), torch.tensor([[0, 0, 1]])  # prototypes 1 and 4
    queries, answers = torch.tensor([[[2.0], [2.0]]]), torch.tensor([[0, 1]])  # squared distances 1 and 4
    loss = episodic_loss(shots, labels, queries, answers, 2, torch.tensor(0.5))
    torch.testing.assert_close(loss, (F.softplus(torch.tensor(-1.5)) + F.softplus(torch.tensor(1.5))) / 2)


def test_steps_of_episodic_training_lower_the_loss_of_their_episode(digits: Dataset, digits_model: BaseModel) -> None:
    base, fitted = prepare(Prototypes(PrototypesConfig(meta_steps=1)), digits_model, digits)
    module = Episodic(BaseTail(base.inputs), fitted.spread)
    fake = FakeSource(base, groups=base_images(base)).draw(0, episodes=2, way=4, shot=1, queries=5)
    assert fake.support.shape == (2, 4) and not fake.support.is_floating_point()
    asked = base.inputs.plain(fake.queries[:, :20]), fake.answers[:, :20] - 6
    optimiser = torch.optim.Adam(module.parameters(), lr=1e-4)
    losses = []
    for _ in range(4):
        loss = module.loss(base.inputs.plain(fake.support), fake.labels, *asked, 4)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses == sorted(losses, reverse=True) and losses[-1] < 0.5 * losses[0]
    assert all(weight.grad is not None and weight.grad.abs().max() > 0 for weight in module.parameters())


def test_an_interrupted_episodic_training_ends_as_an_uninterrupted_one(
    digits: Dataset, digits_model: BaseModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lcwof.methods.meta._SAVE_EVERY", 0.0)
    monkeypatch.setenv("LCWOF_CACHE", str(tmp_path / "a"))
    config = PrototypesConfig(meta_steps=4, meta_episodes=1, meta_queries=5)
    _, whole = prepare(Prototypes(config), digits_model, digits)
    monkeypatch.setenv("LCWOF_CACHE", str(tmp_path / "b"))
    steps: list[int] = []

    def stop(what: str, done: int, total: int) -> None:
        steps.append(done)
        if len(steps) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare(Prototypes(config), digits_model, digits, fitting=stop)
    biased = PrototypesConfig(meta_steps=4, meta_episodes=1, meta_queries=5, novel_bias=0.5)
    _, resumed = prepare(Prototypes(biased), digits_model, digits, fitting=stop)
    assert steps == [1, 2, 3, 3, 4], "goes on after the last save; another bias is the same training"
    for name, value in whole.tail.state_dict().items():
        torch.testing.assert_close(resumed.tail.state_dict()[name], value)
    _, shared = prepare(Prototypes(), digits_model, digits)
    assert not torch.allclose(whole.means, shared.means, atol=1e-4), "something was trained"
