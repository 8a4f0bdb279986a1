"""Phases 2 and 3, to be read against section 3 of the paper.

Defaults are the settings of the authors' released code; every constant of the method is a field here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from lcwof.data.episodes import Pool
from lcwof.learning.inputs import Inputs
from lcwof.learning.learners import Descent, Learners, descend
from lcwof.randomness import Randomness


@dataclass(frozen=True)
class Phase2(Descent):
    """Novel class training: L = CE_BN + lambda L2^WC on the few novel examples alone, base head fixed (eq. 4)."""

    epochs: int = 150


@dataclass(frozen=True)
class Phase3(Descent):
    """Joint calibration: balanced replay of base and novel examples, both heads free (section 3.2)."""

    epochs: int = 200  # how far to calibrate: `lcwof tune` chooses it on validation classes
    lr_head: float = 1e-3
    lr_tail: float = 1e-4
    loss_weight: float = 0.1
    replay: Literal["lim", "unlim"] = "lim"  # base examples drawn once, or anew before every epoch
    replay_per_class: int | None = None  # None: as many as the shots, so that the set is balanced


def learn_novel(
    learners: Learners,
    inputs: Inputs,
    support: Tensor,
    labels: Tensor,
    how: Phase2,
    lam: float,
    draws: Randomness,
) -> Iterator[int]:
    """Phase 2. support: (E, M) image indices; labels: (E, M) joint labels, all of them novel.

    CE_BN over novel samples is the cross-entropy of the joint logits, known classes first, with their head fixed.
    """
    yield from descend(learners, ("novel_head",), lambda epoch: (support, labels), inputs, how, lam, draws, "phase 2")


def replayed(how: Phase3, base: Pool, shots: int) -> int:
    """Images a base class that phase 3 replays."""
    return min(how.replay_per_class or shots, int(base.counts.min()))


def calibrate(
    learners: Learners,
    inputs: Inputs,
    support: Tensor,
    labels: Tensor,
    base: Pool,
    how: Phase3,
    lam: float,
    draws: Randomness,
    lasting: Randomness | None = None,
) -> Iterator[int]:
    """Phase 3. As phase 2, on the few-shot examples together with replayed examples of the base classes.

    base: the images that may be replayed, by class; base classes are the first of the joint labels. lasting: what
    decides the images that are drawn once, where that is not `draws`.
    """
    base, draws = base.to(inputs.device), draws.to(inputs.device)
    classes = len(base.counts)
    few = learners.base_head.shape[1] + learners.novel_head.shape[1] - classes
    each = replayed(how, base, max(1, round(support.shape[1] / few)))
    base_labels = torch.arange(classes, device=inputs.device).repeat_interleave(each)
    joint = torch.cat([base_labels.expand(len(draws), -1), labels], dim=1)
    once = base.draw((lasting or draws)["replay"].to(inputs.device), each)

    def samples(epoch: int) -> tuple[Tensor, Tensor]:
        replayed = once if how.replay == "lim" else base.draw(draws["replay", epoch], each)
        return torch.cat([replayed.flatten(1), support], dim=1), joint

    yield from descend(learners, ("base_head", "novel_head"), samples, inputs, how, lam, draws, "phase 3")
