"""What this machine makes of LCwoF: a plain loop over episodes, this engine with few and many at once, and phase 1."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from lcwof.compute import Compute
from lcwof.data import load_dataset
from lcwof.data.augment import Augment
from lcwof.data.datasets import divided_split
from lcwof.data.episodes import EpisodeSource
from lcwof.data.images import Dataset, Images
from lcwof.engine.origin import hardware, versions
from lcwof.engine.plain import PlainEpisode
from lcwof.evaluation.gfsl import measure, prepare
from lcwof.learning import Phase1, Phase2, Phase3
from lcwof.learning.pretrain import Training
from lcwof.methods import Base, State, Task
from lcwof.methods.lcwof import LCwoF, LCwoFConfig
from lcwof.models import BaseModel, build_backbone
from lcwof.randomness import Randomness

WAY, BASE = 5, 64
PHASES = {"phase 2": Phase2().epochs, "phase 3": Phase3().epochs}  # what a whole episode is scaled to


@dataclass(frozen=True)
class Timing:
    """Seconds of one episode of 150 + 200 epochs, from as many epochs as there was time for."""

    name: str
    at_once: int
    views: float  # replayed images through the trunk, where views of them are kept; 0: part of the phases
    phase2: float
    phase3: float
    evaluation: float
    epochs: tuple[int, int]  # that were timed
    memory: float  # GiB, the most there was in use, on a processor since the process began; 0: unknown
    flops: float  # an episode's

    @property
    def episode(self) -> float:
        return self.views + self.phase2 + self.phase3 + self.evaluation

    @property
    def rate(self) -> float:
        """Arithmetic done, TFLOP/s."""
        return self.flops / self.episode / 1e12


@dataclass(frozen=True)
class Bench:
    about: dict[str, Any]
    timings: list[Timing]
    ceiling: float  # TFLOP/s of a large matrix product in the same precision
    phase1: float | None  # training images a second

    def as_json(self) -> dict[str, Any]:
        rows = [{**asdict(t), "episode": t.episode, "tflops": t.rate} for t in self.timings]
        return {**self.about, "timings": rows, "ceiling_tflops": self.ceiling, "phase1_images_per_second": self.phase1}


@dataclass(frozen=True)
class Setup:
    """What is timed: a base model of random weights, which cost the same arithmetic, and episodes for it."""

    data: Dataset
    model: BaseModel
    source: EpisodeSource
    method: LCwoF

    @classmethod
    def make(cls, device: torch.device, shot: int) -> Setup:
        data, backbone = _data(device)
        shape = (data.images.pixels.shape[1], data.size, data.size)
        network = build_backbone(backbone, shape)
        head = torch.randn(BASE, network.dim) / network.dim**0.5
        model = BaseModel(backbone, network, head, data.split.base, shape, data.mean, data.std).to(device).frozen()
        method = LCwoF(LCwoFConfig(phase3=Phase3(replay_per_class=1)))
        return cls(data, model, EpisodeSource.of(data, "novel", WAY, shot), method)

    def prepare(self, compute: Compute | None = None) -> tuple[Base, Any]:
        return prepare(self.method, self.model, self.data, compute)

    def only(self, phase: str, epochs: int, views: int) -> LCwoF:
        """The method with that many epochs of one phase and none of the other."""
        config = self.method.config
        two, three = (epochs, 0) if phase == "phase 2" else (0, epochs)
        phase2 = replace(config.phase2, epochs=two, views=views)
        return LCwoF(replace(config, phase2=phase2, phase3=replace(config.phase3, epochs=three, views=views)))

    def task(self, learners: int, device: torch.device) -> Task:
        draws = Randomness.of_episodes(self.source.seed, range(learners))["learning"]
        return Task.of_shots(self.source.draw(range(learners)).support, draws, device)

    def learn(self, phase: str, epochs: int, base: Base, fitted: Any, learners: int) -> Iterator[State]:
        """The states after each epoch of one phase, over views that are there after the first."""
        states = self.only(phase, epochs, 1).learn(base, fitted, self.task(learners, base.inputs.device))
        return (state for state in states if state.phase == phase and state.epoch > 0)

    @property
    def few(self) -> int:
        return WAY * self.source.shot

    @property
    def views(self) -> int:
        """Of all replayed images of an episode together; few-shot examples are augmented anew in every epoch."""
        return BASE * self.method.config.phase3.views

    def flops(self, kept: bool) -> float:
        """Of a whole episode, a backward pass counted as two forward ones; the trunk over test images not counted.
        kept: of replayed images every view passes the trunk once, not every image in every epoch."""
        backbone, adapt = self.model.backbone, self.method.adapt
        image = torch.zeros(1, *self.model.shape, device=self.model.head.device)
        counts = []
        with torch.no_grad():
            for stage in (backbone.trunk(adapt), backbone.tail(adapt)):
                with FlopCounterMode(display=False) as counter:
                    image = stage(image)
                counts.append(counter.get_total_flops())
        seen = PHASES["phase 2"] * self.few + PHASES["phase 3"] * (self.few + BASE)
        queries = self.source.queries * WAY + self.source.base_queries * BASE
        through = self.views + sum(PHASES.values()) * self.few if kept else seen
        return through * counts[0] + (3 * seen + queries) * counts[1]


def bench(
    device: torch.device,
    compute: Compute,
    at_once: Sequence[int],
    shot: int = 1,
    seconds: float = 10.0,
    phase1: bool = True,
    notice: Callable[[str], None] = lambda text: None,
) -> Bench:
    """Time a plain loop, this engine with each number of episodes at once, and phase 1: about `seconds` each."""
    setup = Setup.make(device, shot)
    notice("plain loop, one episode after the other")
    timings = [_time_plain(setup, seconds)]
    fast, fitted = setup.prepare(compute)
    for learners in at_once:
        notice(f"this engine, {learners} at once")
        while True:
            try:
                timings.append(_time_engine(setup, fast, fitted, learners, seconds))
                break
            except torch.OutOfMemoryError:
                if learners == 1:
                    raise
                notice(f"Out of memory with {learners} episodes at once: trying {learners // 2}.")
                learners //= 2
    if phase1:
        notice("phase 1")
    about = {
        "hardware": hardware(device),
        "precision": compute.words,
        "backbone": setup.model.backbone_name,
        "data": setup.data.name,
        "setting": f"{BASE} base classes, {WAY}-way {shot}-shot, {setup.source.queries} queries a class",
        "versions": versions(),
    }
    rate = _phase1_rate(setup, device, seconds) if phase1 else None
    return Bench(about, timings, _ceiling(device, compute.dtype), rate)


def _data(device: torch.device) -> tuple[Dataset, str]:
    """Drawn characters for conv4 on a processor, noise the size of mini-ImageNet's images for resnet12 on a card."""
    if device.type != "cuda":
        return load_dataset("strokes", base=BASE), "conv4"
    classes = tuple(f"class {i:02}" for i in range(BASE + 20))
    each, size = 200, 84
    pixels = torch.randint(0, 256, (len(classes) * each, 3, size, size), dtype=torch.uint8)
    labels = torch.arange(len(classes)).repeat_interleave(each)
    images = Images(pixels, labels, classes, tuple(str(i) for i in range(len(labels))))
    parts = (classes[:BASE], (), classes[BASE:])
    split = divided_split(images, parts, select=lambda n: n // 10, test=lambda n: n // 4)
    return Dataset("noise", images, split, size, (0.5,) * 3, (0.3,) * 3, Augment()), "resnet12"


def _time_plain(setup: Setup, seconds: float) -> Timing:
    base, _ = setup.prepare()
    device = base.inputs.device
    spent, timed = [], []
    for phase, epochs in PHASES.items():
        episode = PlainEpisode(setup.only(phase, 1, 0), base, setup.source, 0)
        mean, count = _rate(_repeat(episode.phase2 if phase == "phase 2" else episode.phase3), seconds / 3, device)
        spent.append(mean * epochs)
        timed.append(count)
    drawn = setup.source.draw([0])
    queries = torch.cat([drawn.novel_queries.flatten(), drawn.base_queries.flatten()]).split(64)
    mean, _ = _rate(_repeat(lambda: [episode.logits(part) for part in queries]), seconds / 3, device)
    flops = setup.flops(kept=False)
    return Timing("plain loop", 1, 0.0, spent[0], spent[1], mean, (timed[0], timed[1]), _memory(device), flops)


def _time_engine(setup: Setup, base: Base, fitted: Any, learners: int, seconds: float) -> Timing:
    device = base.inputs.device
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    index = base.pool.table.flatten()[:BASE].expand(learners, -1)
    draws = Randomness.of_episodes(0, range(learners))
    mean, _ = _rate(_repeat(lambda: base.inputs.augmented(index, draws)), seconds / 4, device)
    views = mean / index.numel() * setup.views
    spent, timed = [], []
    for phase, epochs in PHASES.items():
        mean, count = _rate(setup.learn(phase, 10 * epochs, base, fitted, learners), seconds / 4, device)
        spent.append(mean * epochs / learners)
        timed.append(count)
    state = next(iter(setup.method.learn(base, fitted, setup.task(learners, device))))
    episodes = setup.source.draw(range(learners))
    mean, _ = _rate(_repeat(lambda: measure(setup.method, state, base, episodes, learners)), seconds / 4, device)
    counts, memory, flops = (timed[0], timed[1]), _memory(device), setup.flops(kept=True)
    return Timing("lcwof", learners, views, spent[0], spent[1], mean / learners, counts, memory, flops)


def _repeat(function: Callable[[], Any]) -> Iterator[None]:
    while True:
        function()
        yield


def _rate(steps: Iterator[Any], seconds: float, device: torch.device) -> tuple[float, int]:
    """Mean seconds a step, over about the given time and at least two; one step before them warms up."""

    def wait() -> float:
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        if device.type == "mps":
            torch.mps.synchronize()
        return time.perf_counter()

    next(steps)
    start, count = wait(), 0
    for _ in steps:
        count += 1
        if count > 1 and time.perf_counter() - start > seconds:
            break
    return (wait() - start) / count, count


def _memory(device: torch.device) -> float:
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**30
    try:
        import resource
    except ImportError:  # not on Windows
        return 0.0
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most / (2**30 if sys.platform == "darwin" else 2**20)  # bytes there, KiB elsewhere


def _ceiling(device: torch.device, dtype: torch.dtype) -> float:
    side = 8192 if device.type == "cuda" else 1024
    a = torch.randn(side, side, device=device).to(dtype)
    mean, _ = _rate(_repeat(lambda: a @ a), 1.0, device)
    return 2 * side**3 / mean / 1e12


def _phase1_rate(setup: Setup, device: torch.device, seconds: float) -> float:
    data = setup.data
    part = replace(data, split=replace(data.split, train=data.split.train[:2048], select=data.split.select[:64]))
    training = Training(part, Phase1(setup.model.backbone_name, epochs=1000, batch=128, judge_every=1000), device)
    mean, _ = _rate(_repeat(training.epoch), min(seconds, 5.0), device)
    return training.steps * training.how.batch / mean
