"""Phases 2 and 3, to be read against section 3 of the paper.

Defaults are the settings of the authors' released code; every constant of the method is a field here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from lcwof.data.episodes import Pool
from lcwof.learning.inputs import Inputs
from lcwof.learning.learners import Batch, Descent, Learners, descend
from lcwof.learning.losses import distillation, labelled_cross_entropy
from lcwof.randomness import Randomness


@dataclass(frozen=True)
class Phase2(Descent):
    """Novel class training: L = CE_BN + lambda L2^WC on the few novel examples alone, base head fixed (eq. 4)."""

    epochs: int = 150
    normalised: bool = True  # CE_BN (eq. 2), among all classes; False: cross-entropy among the new ones alone (eq. 1)


@dataclass(frozen=True)
class Distillation:
    """Another way to preserve knowledge in phase 2: keep the answers about known classes as they were (KD). The weight
    may be a tensor (E,), one a learner, none of them 0."""

    weight: float = 0.0  # 0: none
    temperature: float = 2.0
    unlabelled: int = 0  # images of validation classes, without their labels, whose answers are kept as well (KD+)
    instead: bool = False  # of the weight constraint in phase 2
    free_phase3: bool = False  # where it stands instead of the constraint: no constraint in phase 3 either

    @property
    def wanted(self) -> bool:
        return isinstance(self.weight, Tensor) or self.weight != 0


@dataclass(frozen=True)
class Phase3(Descent):
    """Joint calibration: balanced replay of base and novel examples, both heads free (section 3.2)."""

    epochs: int = 200  # how far to calibrate: `lcwof tune` chooses it on validation classes
    lr_head: float = 1e-3
    lr_tail: float = 1e-4
    loss_weight: float = 0.1
    replay: Literal["lim", "unlim"] = "lim"  # base examples drawn once, or anew before every epoch
    replay_per_class: int | None = None  # None: as many as the shots, so that the set is balanced; in streams one
    per_batch: int | None = None  # base examples in every batch, beside all few-shot ones; None: shuffled together


def learn_novel(
    learners: Learners,
    inputs: Inputs,
    support: Tensor,
    labels: Tensor,
    how: Phase2,
    lam: float,
    draws: Randomness,
    keep: Distillation = Distillation(),
    before: Learners | None = None,
    unlabelled: Tensor | None = None,
) -> Iterator[int]:
    """Phase 2. support: (E, M) image indices; labels: (E, M) joint labels, all of them novel.

    CE_BN over novel samples is the cross-entropy of the joint logits, known classes first, with their head fixed. With
    `keep`, the answers of `before` about these classes are kept, on the novel samples and on some of the unlabelled
    images (n,), which join every batch.
    """
    known = learners.base_head.shape[1]
    first = 0 if how.normalised else known  # of the classes that samples are scored among
    more = unlabelled.to(support.device) if keep.wanted and unlabelled is not None else support[0, :0]
    each = how.batch  # few-shot images of a batch
    joining = min(each, len(more))  # images beside them

    def samples(epoch: int) -> tuple[Tensor, Tensor]:
        if not joining:
            return support, labels
        order = draws["order", epoch].permutation(support.shape[1]).to(support.device)
        parts = []
        for number, some in enumerate(order.split(each, dim=1)):
            drawn = draws["unlabelled", epoch, number].permutation(len(more))[:, :joining].to(support.device)
            parts += [(support.gather(1, some), labels.gather(1, some)), (more[drawn], torch.full_like(drawn, -1))]
        index, answers = zip(*parts, strict=True)
        return torch.cat(index, dim=1), torch.cat(answers, dim=1)

    def objective(batch: Batch) -> Tensor:
        targets = torch.where(batch.labels >= 0, batch.labels - first, -1)
        loss = labelled_cross_entropy(batch.logits[..., first:], targets)
        if keep.wanted and before is not None:
            loss = loss + keep.weight * distillation(batch.logits, before.taught(batch)[1], keep.temperature)
        return loss

    lam, how = 0.0 if keep.wanted and keep.instead else lam, replace(how, batch=each + joining)
    heads = ("novel_head",)
    yield from descend(
        learners, heads, samples, inputs, how, lam, draws, "phase 2", objective, not joining, recordable=True
    )


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
        index = torch.cat([replayed.flatten(1), support], dim=1)
        if how.per_batch is None:
            return index, joint
        order = draws["mixture", epoch].permutation(len(base_labels))
        places = in_every_batch(order, how.per_batch, support.shape[1])
        return index.gather(1, places), joint.gather(1, places)

    heads, shuffled = ("base_head", "novel_head"), how.per_batch is None
    how = how if how.per_batch is None else replace(how, batch=how.per_batch + support.shape[1])
    yield from descend(learners, heads, samples, inputs, how, lam, draws, "phase 3", shuffled=shuffled)


def in_every_batch(order: Tensor, each: int, few: int) -> Tensor:
    """Batches one after the other that hold `each` of the first samples, in the given order (E, n), and all of the
    `few` that come after these. Where n is no multiple of `each`, some are in the last batch again.

    >>> in_every_batch(torch.tensor([[2, 0, 1]]), 2, 1)
    tensor([[2, 0, 3, 1, 2, 3]])
    """
    learners, total = order.shape
    batches = -(-total // each)
    filled = order[:, torch.arange(batches * each, device=order.device) % total].view(learners, batches, each)
    rest = (total + torch.arange(few, device=order.device)).expand(learners, batches, few)
    return torch.cat([filled, rest], dim=2).flatten(1)
