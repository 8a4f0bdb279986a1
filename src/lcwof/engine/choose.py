"""Choosing a recipe's settings without test data, and writing down what was chosen and why."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from lcwof import __version__
from lcwof.compute import Compute
from lcwof.config import to_toml
from lcwof.data.cache import cache_key
from lcwof.data.images import Dataset
from lcwof.data.sessions import pseudo_sessions
from lcwof.engine.folder import read_lines
from lcwof.engine.recipe import Recipe, learners_at_once, set_apart
from lcwof.errors import LcwofError
from lcwof.evaluation import Candidate, Tried, Tuning, combinations, tune, tune_streams
from lcwof.learning.inputs import even
from lcwof.methods import Fitting, Method, own_code
from lcwof.models import BaseModel
from lcwof.models.checkpoint import unfinished, write_aside

Outcome = Literal["balanced", "base-biased"]
OUTCOMES: dict[str, Literal["hm", "J/J"]] = {"balanced": "hm", "base-biased": "J/J"}
Progress = Callable[[int, int], None]


class TriedFile(Tried):
    """What was tried, a line of JSON for each combination of settings, in a file that goes when all is chosen. What
    was tried for another choice is not looked at."""

    def __init__(self, file: Path, asked: str) -> None:
        self._file, self._asked = file, asked
        try:
            self._lines = [line for line in read_lines(file) if line["asked"] == asked]
        except (OSError, KeyError, LcwofError) as error:
            raise LcwofError(
                f"{file} is in the way, and not what an interrupted choice has left: remove it."
            ) from error

    def get(self, settings: dict[str, Any]) -> list[Candidate] | None:
        asked = json.loads(json.dumps(settings))
        found = (line["candidates"] for line in self._lines if line["settings"] == asked)
        return next(([Candidate.from_json(each) for each in candidates] for candidates in found), None)

    def add(self, settings: dict[str, Any], candidates: list[Candidate]) -> None:
        self._lines.append(
            {"asked": self._asked, "settings": settings, "candidates": [each.as_json() for each in candidates]}
        )
        write_aside(self._file, "".join(json.dumps(line) + "\n" for line in self._lines).encode())


def _over(recipe: Recipe, streams: bool) -> tuple[int, dict[str, Any]]:
    """How many episodes or streams a choice is made on, and of which kind."""
    tree = recipe.resolved()
    if streams:
        return recipe.tune.streams, {key: value for key, value in tree["stream"].items() if key != "streams"}
    return recipe.tune.episodes, {key: tree["evaluate"][key] for key in ("way", "shot")}


def _kept(
    file: Path | None, recipe: Recipe, model: BaseModel, data: Dataset, compute: Compute, streams: bool = False
) -> Tried:
    """What was tried before of what a recipe asks, whatever else its grid had."""
    if file is None:
        return Tried()
    about = [model.told(), data.name, len(data.images), recipe.data.pseudo, str(compute.dtype), __version__]
    asked = [set_apart(recipe.resolved()["method"]), *_over(recipe, streams), about, own_code(recipe.kind())]
    return TriedFile(file, cache_key(asked))


def what_is_asked(recipe: Recipe, model: BaseModel | None, protocol: str, outcome: str = "") -> str:
    """What a choice depends on, in short. Without an outcome: what its candidates depend on."""
    data = (recipe.data.name, recipe.data.options, recipe.data.pseudo)
    about, code = model.told() if model else None, own_code(recipe.kind())
    method = set_apart(recipe.resolved()["method"])
    asked = [method, recipe.grid(), *_over(recipe, protocol == "ifsl"), about, data, outcome]
    return cache_key([*asked, code] if code else asked)


def choose(
    recipe: Recipe,
    model: BaseModel,
    data: Dataset,
    progress: Progress = lambda done, total: None,
    fitting: Fitting = lambda what, done, total: None,
    kept_in: Path | None = None,
) -> tuple[Tuning, Recipe]:
    """What validation episodes choose for a recipe's method, and the recipe with it in place. What was tried is kept in
    a file meanwhile, so that an interrupted choice goes on; whoever keeps the choice removes it."""
    config = recipe.method_config()
    method = recipe.kind()(config)
    compute = recipe.compute(method, recipe.tune.episodes * len(combinations(recipe.grid())))
    tuning = tune(
        recipe.kind(),
        config,
        model,
        data,
        recipe.evaluate.way,
        recipe.evaluate.shot,
        recipe.tune.episodes,
        _at_once(recipe, method, model),
        compute=compute,
        grid=recipe.grid(),
        progress=progress,
        fitting=fitting,
        known=_kept(kept_in, recipe, model, data, compute),
    )
    return tuning, _chosen(recipe, tuning, {"why": tuning.why()})


def _at_once(recipe: Recipe, method: Method, model: BaseModel) -> int:
    """Learners side by side; where the test is compiled as many as it will have, so that one compiling serves both."""
    fits, episodes = recipe.at_once or learners_at_once(method, model), recipe.evaluate.episodes
    if not recipe.compute(method, episodes).compiled:
        return fits
    return even(episodes, fits)


def choose_stream(
    recipe: Recipe,
    model: BaseModel,
    data: Dataset,
    outcome: str = "balanced",
    progress: Progress = lambda done, total: None,
    fitting: Fitting = lambda what, done, total: None,
    pseudo: Dataset | None = None,
    kept_in: Path | None = None,
) -> tuple[Tuning, Recipe]:
    """What streams of pseudo-sessions choose. model: one that does not know the base classes that play later ones;
    data: the data set as it is; pseudo: its `pseudo_sessions`, where they are made already; kept_in: as in `choose`.
    The recipe returned is for the real stream."""
    require_pseudo(recipe, outcome)
    how, config = recipe.stream, recipe.method_config()
    if data.sessions:  # pseudo-sessions like those of the lists
        first = data.sessions[0]
        how = dataclasses.replace(how, way=how.way or len(first.classes), shot=how.shot or len(first.shots[0]))
    pseudo = pseudo_sessions(data, recipe.data.pseudo) if pseudo is None else pseudo
    if how.sessions:  # as many as there are classes for, where there are fewer
        how = dataclasses.replace(how, sessions=min(how.sessions, recipe.data.pseudo // (how.way or 5)) or None)
    method, streams, source = recipe.kind()(config), recipe.tune.streams, how.source(pseudo)
    compute = recipe.compute(method, streams * len(combinations(recipe.grid())), 1 + len(source.ways))
    tuning = tune_streams(
        recipe.kind(),
        config,
        model,
        pseudo,
        source,
        streams,
        recipe.at_once or learners_at_once(method, model),
        OUTCOMES[outcome],
        how.carry,
        compute,
        recipe.grid(),
        progress,
        fitting,
        _kept(kept_in, recipe, model, data, compute, streams=True),
    )
    return tuning, chosen_stream(recipe, tuning, outcome)


def chosen_stream(recipe: Recipe, tuning: Tuning, outcome: str) -> Recipe:
    """The recipe for the real stream with what pseudo-sessions chose."""
    why = {"why": f"{outcome}: {tuning.why()}", "protocol": "ifsl", "pseudo": recipe.data.pseudo}
    real = dataclasses.replace(recipe, data=dataclasses.replace(recipe.data, pseudo=0))
    return _chosen(real, tuning, why)


def require_pseudo(recipe: Recipe, outcome: str) -> None:
    """Refuse what `choose_stream` cannot choose."""
    if outcome not in OUTCOMES:
        raise LcwofError(f"--outcome {outcome}: choose one of {', '.join(OUTCOMES)}.")
    if not recipe.data.pseudo:
        raise LcwofError(
            "no pseudo-sessions: give --pseudo N, the number of base classes to hold out, and a model made by "
            "`lcwof pretrain --pseudo N`."
        )


def _chosen(recipe: Recipe, tuning: Tuning, why: dict[str, Any]) -> Recipe:
    settings = dataclasses.asdict(tuning.apply(recipe.method_config()))
    chosen = {**why, "settings": tuning.best.settings}
    return dataclasses.replace(recipe, method={"name": recipe.method_name, **settings}, tuning=chosen)


def write_choice(tuning: Tuning, chosen: Recipe, out: Path) -> None:
    """A recipe with the chosen settings and the reason for them, and every candidate in a .json beside it."""
    if chosen.tuning.get("protocol") == "ifsl":
        command = f"lcwof stream {out} --model BASE, a base model of all base classes"
        seen = (
            f"training images of the base classes, {chosen.tuning['pseudo']} classes of them as later sessions. Not "
            "seen: test images, later classes."
        )
        keys = ["data", "method", "stream", "tuning"]
    else:
        command = f"lcwof evaluate {out}"
        seen = "validation classes and base images held out of training. Not seen: novel classes, base test images."
        keys = ["model", "data", "method", "evaluate", "tuning"]
    settings = [f"#   {key} = {value}" for key, value in tuning.best.settings.items()]
    lines = [f"# {command}", f"# Chosen for {tuning.setting}: {tuning.why()}.", *settings, f"# Seen: {seen}", ""]
    sections = {key: chosen.resolved()[key] for key in keys}
    write_aside(out, "\n".join([*lines, to_toml(sections)]).encode())
    write_aside(out.with_suffix(".json"), json.dumps(tuning.as_json(), indent=1).encode())
    unfinished(out).unlink(missing_ok=True)
