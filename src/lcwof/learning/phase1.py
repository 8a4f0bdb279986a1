"""The settings of phase 1, and the learning rate that they mean."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Phase1:
    """Defaults: the authors' settings. The recipe `fast.toml` is the quicker and stronger alternative."""

    backbone: str = "resnet12"
    epochs: int = 500
    batch: int = 16
    lr: float = 1e-3
    momentum: float = 0.9
    weight_decay: float = 5e-4
    schedule: Literal["steps", "one-cycle"] = "steps"
    milestones: tuple[int, ...] = (75, 150, 300)  # epochs after which `steps` multiplies the rate by 0.1
    drop_ramp: int = 40_000  # steps over which DropBlock reaches its full rate
    cutmix: float = 0.0  # part of the batches in which images are pasted into each other (Yun et al. 2019)
    turns: float = 0.0  # weight of telling class and angle of images turned; above 0 each is shown upright and turned
    angles: int = 4  # of the four right angles, how many each image is then shown at, which costs as much time
    teachers: tuple[str, ...] = ()  # files of base models of the same classes: their mean answer is learned too
    taught_part: float = 0.5  # of the loss: how much the teachers count
    temperature: float = 4.0  # at which answers are compared
    side: int | None = None  # of the network's inputs, in pixels; None: the data set's own
    small_part: float = 0.0  # of the epochs, at the start, on smaller images, which are quicker
    small_side: int = 64  # of those images
    average: float = 0.0  # decay of the running average of the weights that is kept instead of the last; 0: none
    crop: tuple[float, ...] | None = None  # area of the random crops, least and most; None: the data set's own
    views: tuple[int, ...] = ()  # sides of whole test images to try beside the common crop; the best held-out one stays
    mirror: bool = False  # try each view with mirror images, too
    judge_every: int = 1  # epochs between two looks at the held-out images; every epoch in the last tenth
    seed: int = 0
    repeatable: bool = False  # on a card, use only operations that come to the same, bit for bit, every time: slower


def learning_rate(how: Phase1, step: int, steps: int) -> float:
    """The rate at a step, `steps` of them an epoch. `one-cycle`: up over three tenths of the steps, then down to 0,
    both as half a cosine.

    >>> learning_rate(Phase1(epochs=10, lr=1.0, schedule="one-cycle"), step=3, steps=1)
    1.0
    """
    if how.schedule == "steps":
        return float(how.lr * 0.1 ** sum(step >= milestone * steps for milestone in how.milestones))
    top = 0.3 * how.epochs * steps
    rest = how.epochs * steps - top
    part = 1 - step / top if step < top else (step - top) / rest
    return float(how.lr * (1 + math.cos(math.pi * part)) / 2)
