"""A recipe: everything that decides a run, read strictly from TOML and the command line."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from lcwof.compute import Compute, Precision
from lcwof.config import build, flat, merge, parse_override, read_toml
from lcwof.data import load_dataset
from lcwof.data.images import Dataset
from lcwof.data.sessions import StreamSource, pseudo_sessions
from lcwof.errors import LcwofError
from lcwof.learning import Phase1
from lcwof.methods import Method, get_method
from lcwof.methods.base import require_grid
from lcwof.models import BaseModel

RECIPES = Path(__file__).parent.parent / "recipes"  # those that come with lcwof

_WORTH_COMPILING = 50  # episodes
_BEFORE = {"views": 0, "drop_blocks": True}  # what runs did that have no such settings yet, where it is not the default


@dataclass(frozen=True)
class Data:
    """Which data set, where it lies, and its loader's options."""

    name: str = "digits"
    root: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    skip_bad: bool = False
    pseudo: int = 0  # base classes to hold out as pseudo-sessions, for choosing settings of a stream

    def load(self) -> Dataset:
        root = Path(self.root) if self.root else None
        data = load_dataset(self.name, root, skip_bad=self.skip_bad, **self.options)
        return pseudo_sessions(data, self.pseudo) if self.pseudo else data


@dataclass(frozen=True)
class Evaluate:
    """The generalized protocol's settings; `answers` is for streams too, after their last session."""

    way: int = 5
    shot: int = 1
    episodes: int = 100
    queries: int = 15  # a class, base and novel alike (fewer where a class has fewer images)
    seed: int = 0
    curves: int = 0  # measure along learning, about this many times a phase; 0: at the end only
    answers: bool = True  # record every answer, 6 bytes a query: 3.7 MB for 600 episodes of 1,035 queries


@dataclass(frozen=True)
class Stream:
    """The incremental protocol's settings."""

    way: int | None = None  # new classes a session; none of these three: the data set's lists, where it has some
    shot: int | None = None  # examples a class
    sessions: int | None = None  # after the base session; none: as many as there are classes for
    streams: int = 5
    queries: int | None = None  # at most, a few-shot class; none: as many as a base class has; lists say it themselves
    shuffle: bool = False  # a class order of its own for every stream
    carry: bool = False  # build on what has settled, instead of settling on the side for each evaluation
    seed: int = 0

    def source(self, data: Dataset) -> StreamSource:
        return StreamSource.of(data, self.way, self.shot, self.sessions, self.queries, self.shuffle, self.seed)


@dataclass(frozen=True)
class Tune:
    episodes: int = 50  # validation episodes a candidate
    streams: int = 3  # of pseudo-sessions a candidate
    grid: dict[str, Any] | None = None  # lists by setting (["best"] of novel_bias); None: the method's; {}: only stops


@dataclass(frozen=True)
class Recipe:
    """All sections. `method` is kept as a mapping until its name says which settings it has."""

    data: Data = field(default_factory=Data)
    phase1: Phase1 = field(default_factory=Phase1)
    method: dict[str, Any] = field(default_factory=lambda: {"name": "lcwof"})
    evaluate: Evaluate = field(default_factory=Evaluate)
    stream: Stream = field(default_factory=Stream)
    tune: Tune = field(default_factory=Tune)
    tuning: dict[str, Any] = field(default_factory=dict)  # what `lcwof tune` chose for `method`, and why: for reports
    model: str | None = None  # the base model of phase 1
    device: str = "auto"
    precision: Precision = "auto"  # of trunk and tail; auto: bfloat16 where the device has it in hardware
    compile: bool | None = (
        None  # compile first, one to two minutes (of streams only parts); None: on a CUDA card when it pays
    )
    at_once: int | None = None  # learners side by side; None: chosen from the machine

    @property
    def method_name(self) -> str:
        """As it was given: a registered name, or "file.py:Name"."""
        return str(self.method.get("name", "lcwof"))

    def kind(self) -> type[Method]:
        return get_method(self.method_name)

    def method_config(self) -> Any:
        settings = {key: value for key, value in self.method.items() if key != "name"}
        return build(self.kind().Config, settings, "method")

    def grid(self) -> dict[str, Any]:
        """What `tune` tries: lists of values by setting of the method."""
        grid = dict(self.kind().grid) if self.tune.grid is None else flat(self.tune.grid)
        require_grid(self.kind(), self.method_config(), grid, "tune.grid")
        return grid

    def compute(self, method: Method, episodes: int, sessions: int = 1) -> Compute:
        """How to compute that many episodes, or streams of sessions. Of these only parts are compiled: the shapes of
        steps change from session to session."""
        device = pick_device(self.device)
        pays = device.type == "cuda" and method.adapt > 0 and episodes * sessions >= _WORTH_COMPILING
        wanted = pays if self.compile is None else self.compile
        return Compute.choose(device, self.precision, wanted and sessions == 1, wanted)

    def load_model(self) -> BaseModel:
        if self.model is None:
            raise LcwofError("no base model: give --model FILE, made by `lcwof pretrain`.")
        return BaseModel.load(Path(self.model)).to(pick_device(self.device))

    def resolved(self) -> dict[str, Any]:
        """Every setting, defaults included, as it will be written into the run folder."""
        tree = dataclasses.asdict(self)
        tree["method"] = {"name": self.method_name, **dataclasses.asdict(self.method_config())}
        return tree


def read_recipe(files: Sequence[Path], options: dict[str, Any], overrides: Sequence[str]) -> Recipe:
    """Files in order, then command-line options (None: not given), then `--set`; later wins.

    Naming another method drops the settings of the one named before: they are not its own.
    """
    tree: dict[str, Any] = {}
    for file in files:
        read = read_toml(_shipped(file))
        if not isinstance(read.get("method", {}), dict):
            raise LcwofError(f'{file}: method = {read["method"]!r}; write a section, [method] with name = "...".')
        _change_method(tree, read.get("method", {}).get("name"))
        _overlay(tree, read)
    _change_method(tree, options.get("method.name"))
    for dotted, value in options.items():
        if value is not None:
            merge(tree, dotted.split("."), value)
    for text in overrides:
        merge(tree, *parse_override(text))
    recipe = build(Recipe, tree, "recipe")
    recipe.method_config()  # a wrong setting is found before any work starts
    return recipe


def _shipped(file: Path) -> Path:
    """The file; where there is none and it is named without a folder, the recipe of that name that comes with lcwof."""
    if file.exists() or file.parent != Path():
        return file
    if (RECIPES / file.name).exists():
        return RECIPES / file.name
    known = ", ".join(sorted(recipe.name for recipe in RECIPES.glob("*.toml")))
    raise LcwofError(f"no recipe {file} here, and none of that name comes with lcwof: {known}.")


def _change_method(tree: dict[str, Any], name: str | None) -> None:
    if name is not None and "method" in tree and tree["method"].get("name", "lcwof") != name:
        del tree["method"]
        tree.pop("tuning", None)
        tree.get("tune", {}).pop("grid", None)


def _overlay(tree: dict[str, Any], other: dict[str, Any]) -> None:
    for key, value in other.items():
        if isinstance(value, dict) and isinstance(tree.get(key), dict):
            _overlay(tree[key], value)
        else:
            tree[key] = value


def set_apart(method: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a method, as resolved recipes and run folders have them, that are not its defaults: so that one
    that did not have a setting yet is the same as one that leaves it alone, or gives what was done then.

    >>> set_apart({"name": "pn", "meta_steps": 300})
    {'name': 'pn', 'meta_steps': 300}
    >>> set_apart({"name": "ft", "descent": {"epochs": 30}})
    {'name': 'ft', 'descent.epochs': 30, 'descent.views': 0, 'descent.drop_blocks': True}
    """
    try:
        defaults = flat(dataclasses.asdict(get_method(str(method["name"])).Config()))
    except LcwofError:  # one of a file that is gone: other than any that there is
        defaults = {}
    defaults, found = (json.loads(json.dumps(x)) for x in (defaults, flat(method)))
    missing = {key: key.rsplit(".", 1)[-1] for key in defaults if key not in found}
    found |= {key: _BEFORE[name] for key, name in missing.items() if name in _BEFORE}
    return {key: value for key, value in found.items() if key not in defaults or defaults[key] != value}


def pick_device(name: str) -> torch.device:
    """`auto`: a CUDA card, else Apple's, else the processor."""
    if name == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise LcwofError(f"--device {name}: not usable here ({str(error).splitlines()[0]}).") from None
    return device


def learners_at_once(method: Method, model: BaseModel) -> int:
    """How many episodes to learn together on this machine."""
    if method.adapt == 0:
        return 100
    weights = sum(w.numel() for w in model.backbone.tail(method.adapt).parameters()) + model.head.numel()
    if model.head.device.type == "cuda":
        # As long as there is that much: a third of the card, whatever else is on it, so that a search and its test, or
        # two processes, have as many. What is compiled is for one number.
        free, whole = torch.cuda.mem_get_info()
        budget, most = min(whole // 3, free + torch.cuda.memory_reserved()), 100
    else:
        budget, most = 2 << 30, 10  # more would leave the processor's cache
    return int(max(1, min(most, budget // (8 * 4 * weights))))  # weight, gradient, velocity and their temporaries
