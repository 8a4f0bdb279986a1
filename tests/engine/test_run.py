"""Run folders: what is written, what survives an interruption, what is refused."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from small_recipe import SHORT, recipe

from lcwof.data import Dataset
from lcwof.engine import Run, evaluate_run, find_runs, pick_device
from lcwof.errors import Diverged, LcwofError
from lcwof.models import BaseModel


def test_a_run_folder_tells_the_whole_story(strokes: Dataset, strokes_model: BaseModel, tmp_path: Path) -> None:
    tuned = dataclasses.replace(recipe("lcwof", curves=2, **SHORT), tuning={"why": "because"})
    run = evaluate_run(tuned, strokes_model, strokes, tmp_path / "r")
    assert sorted(p.name for p in run.path.iterdir()) == [
        "answers.safetensors",
        "curves.jsonl",
        "rows.jsonl",
        "run.json",
    ]
    assert [row["episode"] for row in run.rows] == list(range(9))
    assert run.about["data"] == "strokes/base-12"
    assert run.about["recipe"]["method"]["phase2"]["lr_head"] == 1e-2, "defaults are written out"
    assert run.about["recipe"]["tuning"] == {"why": "because"}
    assert run.about["versions"]["torch"] and run.about["hardware"].startswith("cpu") and run.about["seconds"] >= 0
    curve = run.curves[0]
    moments = list(zip(curve["phase"], curve["epoch"], strict=True))
    assert moments == [("phase 2", 0), ("phase 2", 1), ("phase 2", 4), ("phase 3", 0), ("phase 3", 1), ("phase 3", 4)]
    assert curve["hm"][-1] == pytest.approx(run.rows[0]["hm"], abs=0.01)
    assert run.title == "lcwof 3w1s"
    mean, interval = run.summary()["N/N"]
    assert mean == pytest.approx(sum(row["N/N"] for row in run.rows) / 9) and interval > 0


def test_an_interrupted_run_resumes_with_the_same_numbers(
    strokes: Dataset, strokes_model: BaseModel, tmp_path: Path
) -> None:
    whole = evaluate_run(recipe(curves=1), strokes_model, strokes, tmp_path / "whole")

    def stop(done: int, total: int) -> None:
        if done == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        evaluate_run(recipe(curves=1), strokes_model, strokes, tmp_path / "cut", progress=stop)
    assert not (tmp_path / "cut").exists()
    partial = tmp_path / "cut.partial"
    with (partial / "rows.jsonl").open("a") as file:
        file.write('{"episode": 4, "N/N": 1')  # as a kill leaves it
    seen: list[int] = []
    again = evaluate_run(
        recipe(curves=1), strokes_model, strokes, tmp_path / "cut", progress=lambda done, total: seen.append(done)
    )
    assert seen == [4, 8, 9]
    assert again.rows == whole.rows and again.curves == whole.curves
    assert not partial.exists()


def test_a_run_begun_with_other_settings_is_not_mixed(
    strokes: Dataset, strokes_model: BaseModel, tmp_path: Path
) -> None:
    def stop(done: int, total: int) -> None:
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        evaluate_run(recipe(), strokes_model, strokes, tmp_path / "r", progress=stop)
    other = {"method.novel_bias": 0.5}
    with pytest.raises(LcwofError, match="begun with other settings"):
        evaluate_run(recipe(**other), strokes_model, strokes, tmp_path / "r")
    run = evaluate_run(recipe(**other), strokes_model, strokes, tmp_path / "r", overwrite=True)
    assert len(run.rows) == 9


def test_an_attempt_that_came_to_nothing_is_not_in_the_way(
    strokes: Dataset, strokes_model: BaseModel, tmp_path: Path
) -> None:
    wild = recipe("lcwof", **SHORT, **{"method.phase2.lr_head": 1e38})
    with pytest.raises(Diverged):
        evaluate_run(wild, strokes_model, strokes, tmp_path / "r")
    assert (tmp_path / "r.partial" / "run.json").exists()
    assert len(evaluate_run(recipe("pn"), strokes_model, strokes, tmp_path / "r").rows) == 9
    assert not (tmp_path / "r.partial").exists()


@pytest.mark.parametrize(("episodes", "at_once"), [(9, 1), (3, 4), (12, 5)])
def test_a_run_goes_on_with_another_number_of_episodes_in_all_or_at_once(
    strokes: Dataset, strokes_model: BaseModel, tmp_path: Path, episodes: int, at_once: int
) -> None:
    whole = evaluate_run(recipe(episodes=12), strokes_model, strokes, tmp_path / "whole")

    def stop(done: int, total: int) -> None:
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        evaluate_run(recipe(), strokes_model, strokes, tmp_path / "r", progress=stop)
    changed = dataclasses.replace(recipe(episodes=episodes), at_once=at_once)
    assert evaluate_run(changed, strokes_model, strokes, tmp_path / "r").rows == whole.rows[:episodes]


def test_a_folder_of_runs_is_found_without_the_unfinished(
    strokes: Dataset, strokes_model: BaseModel, tmp_path: Path
) -> None:
    evaluate_run(recipe(), strokes_model, strokes, tmp_path / "a")
    shutil.copytree(tmp_path / "a", tmp_path / "b.partial")
    empty = tmp_path / "empty"
    empty.mkdir()
    assert find_runs(tmp_path) == [tmp_path / "a"]
    with pytest.raises(LcwofError, match="is unfinished"):
        Run.read(tmp_path / "b.partial")
    with pytest.raises(LcwofError, match="holds none"):
        find_runs(empty)


def test_a_finished_run_is_not_replaced_unasked(strokes: Dataset, strokes_model: BaseModel, tmp_path: Path) -> None:
    said: list[str] = []
    run = evaluate_run(recipe(), strokes_model, strokes, tmp_path / "r", notice=said.append)
    again = evaluate_run(recipe(), strokes_model, strokes, tmp_path / "r", notice=said.append)
    assert again.rows == run.rows and again.about == run.about, "read, not run"
    assert said == [f"{tmp_path / 'r'} is there already: nothing is left to do."]
    for other, why in (
        (recipe(episodes=5), "It has 9 episodes or streams, 5 are asked for"),
        (recipe(**{"evaluate.curves": 2}), "a run of other settings: recipe.evaluate.curves"),
    ):
        with pytest.raises(LcwofError, match="exists: choose another --out.*" + why):
            evaluate_run(other, strokes_model, strokes, tmp_path / "r")
    (tmp_path / "precious").mkdir()
    for overwrite in (True, False):
        with pytest.raises(LcwofError, match="is not a run folder: choose another"):
            evaluate_run(recipe(), strokes_model, strokes, tmp_path / "precious", overwrite)


def test_more_episodes_are_added_to_a_finished_run(strokes: Dataset, strokes_model: BaseModel, tmp_path: Path) -> None:
    out, begun = tmp_path / "r", []
    whole = evaluate_run(recipe(), strokes_model, strokes, tmp_path / "whole")
    evaluate_run(recipe(episodes=4), strokes_model, strokes, out)
    run = evaluate_run(recipe(), strokes_model, strokes, out, progress=lambda done, total: begun.append(done))
    assert begun[0] == 4, "those that are there are kept"
    assert run.rows == whole.rows and run.about["recipe"]["evaluate"]["episodes"] == 9
    assert "phase1" not in run.about["recipe"], "defaults; what made the base model, the model tells"
    assert run.answers is not None and run.answers.episodes == tuple(range(9))
    assert whole.answers is not None and torch.equal(run.answers.given.answered, whole.answers.given.answered)
    for other in (recipe(episodes=5), recipe(episodes=20, **{"evaluate.seed": 1}), recipe("iw", episodes=20)):
        with pytest.raises(LcwofError, match="exists: choose another --out"):
            evaluate_run(other, strokes_model, strokes, out)
    assert Run.read(out).rows == whole.rows
    mirrored = dataclasses.replace(strokes_model, mirror=True)
    with pytest.raises(LcwofError, match="exists: choose another --out"):
        evaluate_run(recipe(episodes=20), mirrored, strokes, out)


def test_a_finished_run_stays_until_more_is_done(strokes: Dataset, strokes_model: BaseModel, tmp_path: Path) -> None:
    out = tmp_path / "r"
    few = evaluate_run(recipe(episodes=4), strokes_model, strokes, out)
    described = json.loads((out / "run.json").read_text())
    (out / "run.json").write_text(json.dumps({**described, "hardware": "another machine"}))

    def stop(done: int, total: int) -> None:
        if done == 8:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        evaluate_run(recipe(), strokes_model, strokes, out, progress=stop)
    assert Run.read(out).rows == few.rows
    with pytest.raises(LcwofError, match="exists: choose another --out"):
        evaluate_run(recipe(episodes=2), strokes_model, strokes, out)
    begun: list[int] = []
    run = evaluate_run(recipe(), strokes_model, strokes, out, progress=lambda done, total: begun.append(done))
    assert begun[0] == 8 and len(run.rows) == 9 and run.rows[:4] == few.rows
    assert [each["hardware"] for each in run.about["before"]] == ["another machine"]
    assert not (tmp_path / "r.partial").exists()


def test_a_full_disk_loses_nothing_finished(strokes: Dataset, strokes_model: BaseModel, tmp_path: Path) -> None:
    """The limit on file size stands in for a disk that fills up after the first episodes."""
    out = tmp_path / "r"
    resource = pytest.importorskip("resource", reason="file-size limits are a Unix thing")
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill(done: int, total: int) -> None:
        if done == 4:
            written = (tmp_path / "r.partial" / "rows.jsonl").stat().st_size
            resource.setrlimit(resource.RLIMIT_FSIZE, (written + 10, limit[1]))

    try:
        with pytest.raises(LcwofError, match=r"could not write the run folder .*\.partial: File too large"):
            evaluate_run(recipe(), strokes_model, strokes, out, progress=fill)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert not out.exists()
    run = evaluate_run(recipe(), strokes_model, strokes, out)
    assert run.rows == evaluate_run(recipe(), strokes_model, strokes, tmp_path / "fresh").rows


def test_other_folders_are_not_runs(tmp_path: Path) -> None:
    with pytest.raises(LcwofError, match=r"not a run folder: it has no run\.json"):
        Run.read(tmp_path)


def test_a_model_of_other_classes_is_refused(digits_model: BaseModel, strokes: Dataset, tmp_path: Path) -> None:
    with pytest.raises(
        LcwofError, match="trained on 6 other base classes, of digits/base-6, than the 12 of strokes/base-12"
    ):
        evaluate_run(recipe(), digits_model, strokes, tmp_path / "r")
    assert not list(tmp_path.iterdir())


def test_devices_are_checked() -> None:
    assert pick_device("cpu").type == "cpu"
    with pytest.raises(LcwofError, match="--device warp: not usable here"):
        pick_device("warp")


def test_a_damaged_run_is_not_read(strokes: Dataset, strokes_model: BaseModel, tmp_path: Path) -> None:
    run = evaluate_run(recipe(), strokes_model, strokes, tmp_path / "r")
    rows, about = run.path / "rows.jsonl", run.path / "run.json"
    lines, story = rows.read_text().splitlines(keepends=True), about.read_text()
    shorter = json.dumps({"episode": 8, "hm": 50.0}) + "\n"
    no_number = json.dumps({**json.loads(lines[-1]), "hm": float("nan")}) + "\n"
    for damaged in (lines[:5], lines * 2, [*lines[:-1], lines[0]], [*lines[:-1], shorter], [*lines[:-1], no_number]):
        rows.write_text("".join(damaged))
        with pytest.raises(LcwofError, match=r"rows\.jsonl is damaged"):
            Run.read(run.path)
    rows.write_text("".join([*lines[:2], "{oh", *lines[2:]]))
    with pytest.raises(LcwofError, match=r"rows.jsonl, line 3: damaged"):
        Run.read(run.path)
    rows.write_bytes(b"\xff\xfe")
    with pytest.raises(LcwofError, match=r"rows.jsonl, line 1: damaged"):
        Run.read(run.path)
    for line in (b"\xff\xfe\n", b'"hm"\n'):
        rows.write_bytes(line + "".join(lines).encode())
        with pytest.raises(LcwofError, match=r"rows.jsonl, line 1: damaged"):
            Run.read(run.path)
    rows.write_text("".join(lines))
    assert Run.read(run.path).rows == run.rows
    for text in ("{bad", "{}", "[]", story[:40]):
        about.write_text(text)
        with pytest.raises(LcwofError, match=r"run\.json is damaged"):
            Run.read(run.path)


def test_two_processes_do_not_work_in_one_folder(
    strokes: Dataset, strokes_model: BaseModel, tmp_path: Path, held_by_another: Callable[[Path], Any]
) -> None:
    whole = evaluate_run(recipe(), strokes_model, strokes, tmp_path / "whole")
    (tmp_path / "r.partial").mkdir()
    shutil.copy(whole.path / "run.json", tmp_path / "r.partial")
    with held_by_another(tmp_path / "r.partial" / "held"):
        for overwrite in (False, True):
            with pytest.raises(LcwofError, match=r"another process is at work in .*r\.partial: wait for it"):
                evaluate_run(recipe(), strokes_model, strokes, tmp_path / "r", overwrite)
            assert (tmp_path / "r.partial" / "run.json").exists(), "what the other does is left alone"
    run = evaluate_run(recipe(), strokes_model, strokes, tmp_path / "r")
    assert run.rows == whole.rows and not (run.path / "held").exists()


def test_episodes_of_other_queries_are_not_added(strokes: Dataset, strokes_model: BaseModel, tmp_path: Path) -> None:
    evaluate_run(recipe(episodes=2), strokes_model, strokes, tmp_path / "r")
    with pytest.raises(LcwofError, match="exists: choose another --out"):
        evaluate_run(recipe(episodes=4, **{"evaluate.queries": 5}), strokes_model, strokes, tmp_path / "r")


def test_episodes_of_another_precision_are_not_added(
    strokes: Dataset, strokes_model: BaseModel, tmp_path: Path
) -> None:
    """Where the precision is left to the machine, another one may take another."""
    evaluate_run(recipe(episodes=2), strokes_model, strokes, tmp_path / "r")
    file = tmp_path / "r" / "run.json"
    about = json.loads(file.read_text())
    there, other = about["compute"].split(",")[0], {"float32": "bfloat16", "bfloat16": "float32"}
    named = evaluate_run(recipe(episodes=3, precision=there), strokes_model, strokes, tmp_path / "r")
    assert len(named.rows) == 3, "the same one, asked for by its name"
    file.write_text(json.dumps({**about, "compute": other[there]}))
    with pytest.raises(LcwofError, match="exists: choose another --out"):
        evaluate_run(recipe(episodes=4), strokes_model, strokes, tmp_path / "r")


def test_the_seconds_are_those_of_all_attempts(strokes: Dataset, strokes_model: BaseModel, tmp_path: Path) -> None:
    out = tmp_path / "r"
    evaluate_run(recipe(episodes=4), strokes_model, strokes, out)
    about = json.loads((out / "run.json").read_text())
    (out / "run.json").write_text(json.dumps({**about, "seconds": 1000.0}))
    assert evaluate_run(recipe(), strokes_model, strokes, out).about["seconds"] >= 1000.0


def test_a_folder_that_cannot_be_made_is_said_to_be_that(
    strokes: Dataset, strokes_model: BaseModel, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(LcwofError, match=r"could not make the run folder .*r\.partial: Not a directory\.$"):
        evaluate_run(recipe(), strokes_model, strokes, tmp_path / "file" / "r")
