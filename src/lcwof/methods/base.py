"""What a method is: `fit_base` once; then, for E learners at once, `start` with the base classes, `grow` by the classes
of a task, `settle` before an evaluation; `logits` over all classes known.

Generalized few-shot learning is one task; incremental learning is one after the other.

Registering a method makes it listed, tested, tunable and runnable from the command line.
"""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import module_from_spec, spec_from_file_location
from operator import attrgetter
from pathlib import Path
from traceback import extract_tb
from types import MappingProxyType
from typing import Any, ClassVar, TypeVar

from torch import Tensor

from lcwof.config import build, flat, merge, without_default
from lcwof.data.episodes import Pool
from lcwof.errors import LcwofError
from lcwof.learning import Inputs
from lcwof.models import BaseModel
from lcwof.randomness import Randomness

Fitting = Callable[
    [str, int, int], None
]  # how far a base fit is that takes long: what it does, steps done, of how many


@dataclass(frozen=True)
class Base:
    """What a method may use of the base classes: the model of phase 1 and the base training images."""

    model: BaseModel
    inputs: Inputs
    pool: Pool  # base training images by class
    fitting: Fitting = lambda what, done, total: None
    store: Path | None = None  # where base fits that take long are kept
    unlabelled: Tensor | None = None  # images of validation classes, for methods that learn from unlabelled ones


@dataclass(frozen=True)
class Task:
    """Few-shot examples of E learners. Queries are not here: a method never sees them while learning."""

    support: Tensor  # (E, M) image indices
    labels: Tensor  # (E, M) positions among the task's classes
    way: int
    draws: Randomness
    lasting: Randomness | None = None  # draws that are the same in every task of a stream: what is kept, is kept

    @classmethod
    def of_shots(cls, shots: Tensor, draws: Randomness, device: Any) -> Task:
        """A task from (E, N, K) image indices."""
        learners, way, shot = shots.shape
        labels = shots.new_zeros(learners, way, shot) + shots.new_tensor(range(way)).view(1, -1, 1)
        return cls(shots.flatten(1).to(device), labels.flatten(1).to(device), way, draws)

    @property
    def shots(self) -> int:
        """Examples a class, rounded where classes differ."""
        return max(1, round(self.support.shape[1] / self.way))


@dataclass
class State:
    """Where learning stands. Methods subclass it with what `logits` needs."""

    phase: str
    epoch: int


BEST = "best"  # in a grid, of `novel_bias`: the value that is best for what was learned, found without learning again


class Method(ABC):
    """One system. Subclasses name their Config; its fields are the method's settings."""

    name: ClassVar[str]
    Config: ClassVar[type]
    StateClass: ClassVar[type[State]] = State  # which tensors make a state; `unpack` builds it
    grid: ClassVar[Mapping[str, Sequence[Any]]] = MappingProxyType({})  # settings of `learn` that `tune` tries
    # Numbers that `fit_base` does not look at and that may be tensors (E,), one a learner: `tune` tries some at once.
    # Derived classes must say so themselves.
    per_learner: ClassVar[frozenset[str]] = frozenset()
    stop: ClassVar[tuple[str, str] | None] = None  # (phase, field): the epoch `tune` may stop at, and its setting
    settles: ClassVar[bool] = False  # whether that phase is part of `settle`, and not of `grow`
    keeps_base: ClassVar[bool] = False  # a promise: the logits of base classes stay as they are, whatever is learned

    def __init__(self, config: Any = None) -> None:
        self.config = self.Config() if config is None else config

    @property
    def novel_bias(self) -> float:
        """Added to the logits of few-shot classes where all classes are asked: a setting that a Config may have."""
        return getattr(self.config, "novel_bias", 0.0)

    @property
    def adapt(self) -> int:
        """How many stages of the backbone change while learning, where the inputs end: a setting that a Config may
        have."""
        return getattr(self.config, "adapt", 0)

    def stopping(self) -> tuple[str, str] | None:
        """`stop` with these settings."""
        return self.stop

    def phases(self) -> dict[str, int]:
        """The phases that `learn` goes through and their epochs: here, the one that `stop` names; none for closed
        forms."""
        return {} if self.stop is None else {self.stop[0]: attrgetter(self.stop[1])(self.config)}

    def require_stream(self, sessions: int) -> None:
        """Refuse settings that do not go with a stream of so many sessions after the base session; called before
        anything is learned. Here, none."""
        return None

    def fit_base(self, base: Base) -> Any:
        """What the method prepares from base data, once for all episodes."""
        return None

    @abstractmethod
    def start(self, base: Base, fitted: Any, learners: int) -> State:
        """E learners that know the base classes alone."""

    @abstractmethod
    def grow(self, base: Base, fitted: Any, before: Any, task: Task) -> Iterator[State]:
        """Learn the classes of a task beside those known before; yields the state after every epoch, last the one that
        the next task would build on. `before` stays as it is."""

    def settle(self, base: Base, fitted: Any, state: Any, memory: Task) -> Iterator[State]:
        """Make ready for an evaluation of all classes; yields after every epoch. `state` stays as it is. memory: the
        few-shot examples of all tasks so far, labels being positions among all few-shot classes in order."""
        return iter(())

    def learn(self, base: Base, fitted: Any, task: Task) -> Iterator[State]:
        """One task from the base classes on: E episodes of the generalized protocol."""
        state = self.start(base, fitted, len(task.support))
        for grown in self.states_of("grow", self.grow(base, fitted, state, task)):
            state = grown
            yield grown
        yield from self.states_of("settle", self.settle(base, fitted, state, task))

    def states_of(self, hook: str, found: Any) -> Iterator[State]:
        """What a hook yields, which a method of one's own may get wrong."""
        if not isinstance(found, Iterator):
            raise LcwofError(f"{type(self).__name__}.{hook} must yield states: `yield`, not `return`.")
        for state in found:
            if not isinstance(state, State):
                raise LcwofError(f"{type(self).__name__}.{hook} yields a {type(state).__name__}, expected a State.")
            yield state

    def kept(self, base: Base, memory: Task) -> int:
        """Images that `settle` wants kept: the exemplar memory of a stream."""
        return 0

    @abstractmethod
    def logits(self, state: Any, maps: Tensor) -> Tensor:
        """Logits of all classes, base classes first, then by task: maps (E, Q, ...) -> (E, Q, C)."""

    def pack(self, state: Any) -> dict[str, Tensor]:
        """What there is to keep of a state, so that an interrupted stream goes on: here, its tensors."""
        return {name: value for name, value in vars(state).items() if isinstance(value, Tensor)}

    def unpack(self, base: Base, fitted: Any, tensors: dict[str, Tensor]) -> State:
        """The state that was packed."""
        return self.StateClass("resumed", 0, **tensors)


_METHODS: dict[str, type[Method]] = {}
M = TypeVar("M", bound=type[Method])


def register_method(name: str) -> Callable[[M], M]:
    def register(method: M) -> M:
        there = _METHODS.get(name)
        if there and (there.__module__, there.__qualname__) != (method.__module__, method.__qualname__):
            raise LcwofError(
                f"a method is named {name!r} already, {there.__qualname__} of {inspect.getfile(there)}: give yours "
                "another name."
            )
        method.name = name
        _METHODS[name] = method
        return method

    return register


def method_names() -> list[str]:
    return sorted(_METHODS)


def get_method(name: str) -> type[Method]:
    """A registered method, or one in a file of the user's own: "path/to/file.py:Name", Name being its class."""
    file, colon, wanted = name.rpartition(":")
    if colon and file.endswith(".py"):
        return _from_file(Path(file).expanduser(), wanted)
    if name not in _METHODS:
        raise LcwofError(
            f"no method named {name!r}: choose one of {', '.join(method_names())}, or write path/to/file.py:Name."
        )
    return _METHODS[name]


def own_code(kind: type[Method]) -> str | None:
    """A hash of the file of a user's own method, so that what another version of it did is told apart; None for those
    that come with the package, whose version tells."""
    if not kind.__module__.startswith(_OWN):
        return None
    return hashlib.sha256(Path(inspect.getfile(kind)).read_bytes()).hexdigest()[:12]


_OWN = "lcwof_method_"  # modules made of users' files


def _from_file(file: Path, wanted: str) -> type[Method]:
    file = file.resolve()
    key = f"{_OWN}{file}"
    if key not in sys.modules:
        if not file.is_file():
            raise LcwofError(f"no file {file} to take a method from.")
        spec = spec_from_file_location(key, file)
        assert spec is not None and spec.loader is not None
        sys.modules[key] = module_from_spec(spec)
        try:
            spec.loader.exec_module(sys.modules[key])
        except BaseException as error:
            del sys.modules[key]
            if not isinstance(error, Exception):
                raise
            lines = [frame.lineno for frame in extract_tb(error.__traceback__) if frame.filename == str(file)]
            line = error.lineno if isinstance(error, SyntaxError) else lines[-1] if lines else None
            where = f", line {line}" if line else ""
            told = str(error) if isinstance(error, LcwofError) else f"{type(error).__name__}: {error}."
            raise LcwofError(f"{file}{where} cannot be read as a method: {told}") from error
    kind = getattr(sys.modules[key], wanted, None)
    if not (isinstance(kind, type) and issubclass(kind, Method)):
        found = [n for n, v in vars(sys.modules[key]).items() if isinstance(v, type) and issubclass(v, Method)]
        there = ", ".join(n for n in found if n != "Method") or "none"
        raise LcwofError(f"{file} has no method class {wanted!r}; its method classes: {there}.")
    if "name" not in vars(kind):  # not that of a method it derives from
        kind.name = wanted
    _require_complete(kind, file)
    return kind


def _require_complete(kind: type[Method], file: Path) -> None:
    """Say at once what a user's own method lacks, rather than in the middle of its first run."""
    if lacking := sorted(getattr(kind, "__abstractmethods__", ())):
        raise LcwofError(f"{file}: {kind.__name__} lacks {', '.join(lacking)}.")
    config = getattr(kind, "Config", None)
    if not (isinstance(config, type) and dataclasses.is_dataclass(config)):
        raise LcwofError(f"{file}: {kind.__name__} needs a Config, a dataclass of its settings, empty if it has none.")
    if without := without_default(config):
        raise LcwofError(f"{file}: settings need defaults; of {kind.__name__}.Config {', '.join(without)} has none.")
    try:
        build(config, dataclasses.asdict(config()), "Config")
        require_grid(kind, config(), kind.grid, f"{kind.__name__}.grid")
        if kind.stop and kind.stop[1] not in flat(dataclasses.asdict(config())):
            raise LcwofError(f"{kind.__name__}.stop: no setting is named {kind.stop[1]!r}.")
    except LcwofError as error:
        raise LcwofError(f"{file}: {error}") from None


def require_grid(kind: type[Method], config: Any, grid: Mapping[str, Any], where: str) -> None:
    """Refuse a grid with values that the settings cannot have."""
    for key, values in grid.items():
        if not isinstance(values, (list, tuple)) or not values:
            raise LcwofError(f"{where}.{key} = {values!r}: write a list of values to try.")
        for value in values:
            tree = dataclasses.asdict(config)
            merge(tree, key.split("."), 0.0 if (key, value) == ("novel_bias", BEST) else value)
            build(kind.Config, tree, where)
