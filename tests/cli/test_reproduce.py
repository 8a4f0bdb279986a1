"""`lcwof reproduce` run for a try: on small data, few epochs, few episodes."""

from __future__ import annotations

import dataclasses
import json
import re
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import plotly.graph_objects
import pytest
from PIL import Image
from typer.testing import CliRunner

from lcwof.cli import reproduce as cli
from lcwof.cli.main import app
from lcwof.config import flat
from lcwof.data.datasets import is_present
from lcwof.engine import Recipe, Run, Study
from lcwof.engine.recipe import Data, Tune
from lcwof.errors import LcwofError
from lcwof.methods import get_method
from lcwof.models import BaseModel
from lcwof.report.cells import Runs
from lcwof.report.panels import panel_spec, panels_figure
from lcwof.report.paper_plots import plot_panels
from lcwof.report.reproduction import (
    OurRow,
    Reproduction,
    read_reproduction,
    reproductions,
)

KNOWN = reproductions()


def test_a_study_of_one_s_own_runs_and_goes_on(tmp_path: Path) -> None:
    file, out = tmp_path / "own.toml", tmp_path / "out"
    file.write_text("""
table = "batch-norm"
data = "strokes"
episodes = 4
minutes = 1
[bases]
mlp = { recipe = "video.toml", set = { epochs = 2 } }
[[rows]]
name = "yes"
run = "lcwof"
method = { name = "lcwof", "phase2.epochs" = 4, "phase3.epochs" = 2 }
tuned = false
[[rows]]
name = "prototypes"
run = "pn"
method = { name = "pn" }
tuned = false
""")
    runner = CliRunner()

    def run(*more: str) -> str:
        result = runner.invoke(app, ["reproduce", str(file), "-o", str(out), *more], catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result.output

    assert "own.md" in run("--only", "mlp/pn-5w1s")
    rows = json.loads((out / "own.json").read_text())["cells"]
    assert {c["row"] for c in rows if c["mean"] is not None} == {"prototypes"}
    assert "own.md" in run()
    cells = json.loads((out / "own.json").read_text())["cells"]
    ran = {(c["row"], c["over"]) for c in cells if c["mean"] is not None}
    assert ran == {("yes", 4), ("prototypes", 4)}
    assert all(cell["printed"] is None for cell in cells), "numbers of other data are no comparison"
    assert "With strokes in place of mini-imagenet." in (out / "own.md").read_text()
    assert (out / "strokes" / "base-mlp.safetensors").exists() and "<table>" in (out / "own.html").read_text()
    made = (out / "strokes" / "mlp" / "pn-5w1s" / "run.json").stat().st_mtime_ns
    run()
    run("--show")
    assert (out / "strokes" / "mlp" / "pn-5w1s" / "run.json").stat().st_mtime_ns == made
    run("--episodes", "2")
    assert json.loads((out / "try-2" / "own.json").read_text())["cells"][0]["over"] in (0, 2)
    run()  # what was tried is not in its way
    assert (out / "strokes" / "mlp" / "pn-5w1s" / "run.json").stat().st_mtime_ns == made
    listed = run("--list")
    assert "mini-gfsl" in listed and "(framework)" in listed and "table 13" in listed

    def refused(old: str, new: str, *more: str) -> str:
        other = tmp_path / "other.toml"
        other.write_text(file.read_text().replace(old, new))
        with pytest.raises(LcwofError) as error:
            runner.invoke(app, ["reproduce", str(other), "-o", str(out), *more], catch_exceptions=False)
        return str(error.value)

    assert "base-mlp.safetensors was made otherwise (epochs)" in refused("epochs = 2 }", "epochs = 3 }")
    assert "unknown key method.novl" in refused('"pn" }', '"pn", novl = 1.0 }', "-o", str(tmp_path / "new"))
    assert not (tmp_path / "new").exists(), "before any work"
    assert "no base model for resnet12" in refused(
        "[bases]", '[bases]\nconv4 = { recipe = "fast.toml" }', "-o", str(tmp_path / "new")
    )
    assert "--base strokes/mlpp: the base models asked for are strokes/mlp." in refused(
        "", "", "--base", "strokes/mlpp=f"
    )
    assert "--base strokes/mlp=absent: there is no such file." in refused("", "", "--base", "strokes/mlp=absent")
    assert "the method of row 'prototypes' has no name" in refused('{ name = "pn" }', "{ novel_bias = 1.0 }")
    edited = tmp_path / "edited.toml"
    edited.write_text(file.read_text().replace('"pn" }', '"pn", novel_bias = 5.0 }'))
    result = runner.invoke(app, ["reproduce", str(edited), "-o", str(out), "--show"])
    assert "pn-5w1s is left out: a run of other settings (method)." in result.output
    ran = {c["row"] for c in json.loads((out / "edited.json").read_text())["cells"] if c["mean"] is not None}
    assert ran == {"yes"}


def test_a_study_like_one_of_the_package_needs_no_copy_of_it(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    file.write_text('like = "mini-gfsl"\nepisodes = 7\n')
    assert read_reproduction(file) == dataclasses.replace(KNOWN["mini-gfsl"], episodes=7, key="own")
    (tmp_path / "mini-gfsl.toml").write_text('table = "batch-norm"\ndata = "strokes"\nbases = {}\n')
    assert read_reproduction(file).data == "strokes", "one beside it comes first"
    about = KNOWN["mini-gfsl"].remarks
    assert "The paper, RGFSL, 5w5s: The printed N/J and B/J give hm 57.77." in about, "which cell it is about"
    assert any(remark.startswith("Here: Phase 3 replays one image a base class") for remark in about)
    file.write_text('like = "early-stop"\ndata = "strokes"\n')
    assert KNOWN["early-stop"].notes and not read_reproduction(file).remarks, "of other data neither holds"
    file.write_text('like = "early-stop"\ndata = "strokes"\nnotes = ["Drawn."]\n')
    assert read_reproduction(file).remarks == ["Here: Drawn."]


def shrunk(what: Reproduction) -> Reproduction:
    """The same with a handful of epochs and episodes."""
    few = {"phase2.epochs": 2, "phase3.epochs": 1, "descent.epochs": 1, "meta_steps": 2, "base_steps": 2, "steps": 2}

    def short(row: OurRow) -> OurRow:
        config = get_method(row.method["name"]).Config
        known = {key for key in flat(dataclasses.asdict(config())) if key in few}
        method = {**{key: few[key] for key in known}, **row.method}
        method |= {key: few[key] for key in known if method[key]}  # no epochs at all stay none
        if "distillation.unlabelled" in method:
            method["distillation.unlabelled"] = 20
        return dataclasses.replace(row, method=method, episodes=None)

    rows = {row.run: short(row) for _, _, row in what.wanted()}
    rows |= {row.run + row.name: short(row) for row in what.rows}
    return dataclasses.replace(what, rows=tuple(rows.values()), baselines=False, episodes=2, streams=1)


def test_all_goes_on_after_one_that_cannot_be_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = {"mlp": {"recipe": "video.toml", "set": {"epochs": 1}}}
    row = OurRow("yes", "pn", {"name": "pn"}, tuned=False)
    good = Reproduction("strokes", base, 1, (row,), "batch-norm", episodes=1, key="good")
    bad = dataclasses.replace(good, bases={"mlp": {"recipe": "nothing.toml"}}, key="bad")
    monkeypatch.setattr(cli, "reproductions", lambda: {"bad": bad, "good": good})
    result = CliRunner().invoke(app, ["reproduce", "all", "-o", str(tmp_path)])
    assert isinstance(result.exception, LcwofError) and "not all could be run: bad" in str(result.exception)
    assert {file.suffix for file in tmp_path.glob("good.*")} == {".md", ".html", ".tex", ".csv", ".json"}


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"phase2.lr_head": 1e38}, "lcwof-5w1s is left out: phase 2, epoch 2"),
        (
            {"distillation.weight": 1.0, "distillation.unlabelled": 9999},
            "mlp/lcwof-5w1s: method.distillation.unlabelled",
        ),
    ],
)
def test_a_table_goes_on_after_a_row_that_diverges_or_cannot_be_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, float], why: str
) -> None:
    base = {"mlp": {"recipe": "video.toml", "set": {"epochs": 1}}}
    wild = {"name": "lcwof", "phase2.epochs": 2, "phase3.epochs": 0, **settings}
    rows = (OurRow("no", "lcwof", wild, tuned=False), OurRow("yes", "pn", {"name": "pn"}, tuned=False))
    what = Reproduction("strokes", base, 1, rows, "batch-norm", episodes=2, key="one")
    monkeypatch.setattr(cli, "reproductions", lambda: {"one": what})
    result = CliRunner().invoke(app, ["reproduce", "one", "-o", str(tmp_path), "--only", "lcwof-5w1s,pn-5w1s"])
    assert str(result.exception) == "not all could be run: mlp/lcwof-5w1s."
    assert why in result.output and "one: 2 runs.\n" in result.output
    cells = json.loads((tmp_path / "one.json").read_text())["cells"]
    assert {cell["row"] for cell in cells if cell["mean"] is not None} == {"yes"}
    again = CliRunner().invoke(app, ["reproduce", "one", "-o", str(tmp_path), "--only", "lcwof-5w1s,pn-5w1s"])
    assert "one: 2 runs, 1 of them there.\n" in again.output


def test_what_the_data_cannot_give_is_said_before_a_base_model_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = {"mlp": {"recipe": "video.toml", "set": {"epochs": 1}}}
    row = OurRow("yes", "pn", {"name": "pn"}, tuned=False)
    what = Reproduction("digits", base, 1, (row,), "batch-norm", episodes=2, key="one")  # which has two novel classes
    monkeypatch.setattr(cli, "reproductions", lambda: {"one": what})
    result = CliRunner().invoke(app, ["reproduce", "one", "-o", str(tmp_path)])
    assert "not all could be run: mlp/pn-5w1s" in str(result.exception)
    assert "mlp/pn-5w1s: 5-way: digits/base-6 has 2 novel classes, so 1 to 2." in result.output
    assert not list(tmp_path.rglob("*.safetensors"))


def test_named_runs_are_done_in_the_order_of_their_names() -> None:
    def order(only: str) -> list[str]:
        done = cli._to_do(KNOWN["mini-gfsl"], cli._only(only, [KNOWN["mini-gfsl"]]))
        return [f"{place}/{row.run}-{setting}" for place, setting, row in done]

    assert order("resnet12/topic-5w5s,resnet12/ft-5w1s") == ["resnet12/topic-5w5s", "resnet12/ft-5w1s"]
    assert order("resnet12/pn-5w5s,resnet12/pn") == ["resnet12/pn-5w5s", "resnet12/pn-5w1s"]
    assert order("sdc-5w5s") == ["conv4-wide/sdc-5w5s", "resnet12/sdc-5w5s"], "one name, in the table's order"


def test_data_are_there_if_all_their_splits_are(tmp_path: Path) -> None:
    (tmp_path / "ucf101.npz").touch()
    (tmp_path / "ucf101-original.npz").touch()
    assert is_present("ucf101", tmp_path) and not cli._present(KNOWN["ucf-gfsl"], str(tmp_path))
    (tmp_path / "ucf101-protogan.npz").touch()
    assert cli._present(KNOWN["ucf-gfsl"], str(tmp_path))


@pytest.mark.parametrize("key", ["mini-ifsl", "mini-ifsl-joint"])
def test_incremental_tables_run_on_drawn_characters(key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    what = shrunk(KNOWN[key])
    tiny = {"mlp": {"recipe": "video.toml", "set": {"epochs": 1}}}
    kept = tuple(row for row in what.rows if row.run in ("lcwof", "lcwof-biased", "plus-no-learning", "pn"))
    small = dataclasses.replace(what, data="strokes", bases=tiny, pseudo=10, rows=kept)
    monkeypatch.setattr(cli, "reproductions", lambda: {key: small})
    words = ["reproduce", key, "-o", str(tmp_path), "--episodes", "1"]
    result = CliRunner().invoke(app, words, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    cells = json.loads((tmp_path / "try-1" / f"{key}.json").read_text())["cells"]
    rows = {cell["row"] for cell in cells if cell["mean"] is not None}
    ours = {"LCwoF lim"} if key == "mini-ifsl" else {"LCwoF (balanced hm)", "LCwoF (base biased)"}
    assert {"PN", *ours} <= rows
    assert re.search(r"chosen without test data: .*pseudo-sessions", (tmp_path / "try-1" / f"{key}.md").read_text())


ABLATIONS = sorted(key for key, what in KNOWN.items() if what.data == "mini-imagenet")


@pytest.mark.parametrize("key", ABLATIONS)
def test_tables_and_figures_of_mini_imagenet_run_on_drawn_characters(
    key: str, strokes_model: BaseModel, tmp_path: Path
) -> None:
    strokes_model.save(tmp_path / "base.safetensors")
    what = shrunk(KNOWN[key])
    runs: Runs = {}
    start = dataclasses.replace(Recipe(tune=Tune(episodes=2)), data=Data(options={"classes": 24, "base": 12, "val": 6}))
    for place, setting, row in what.wanted():
        if place.backbone != "resnet12":  # the same rows again
            continue
        entry = what.entry(place, setting, row, start, str(tmp_path / "base.safetensors"), None)
        way = min(entry.recipe.evaluate.way, 6)
        recipe = dataclasses.replace(
            entry.recipe,
            data=dataclasses.replace(start.data, name="strokes"),
            evaluate=dataclasses.replace(entry.recipe.evaluate, way=way),
        )
        run = Study(tmp_path / str(place)).run_one(dataclasses.replace(entry, recipe=recipe))
        assert isinstance(run, Run) and len(run.rows) == 2
        assert bool(run.curves) == (what.curves > 0)
        runs[place, setting, row.run] = run
    if what.figure:
        panels = plot_panels(what, runs)
        assert {len(panel.lines) for panel in panels} == {{"lambda-after-phase2": 4, "weight-decay": 6}.get(key, 5)}
        assert {panel.episodes for panel in panels} == {2}
        assert len(panels_figure(panels, 2).axes) == len(panels)
        for panel in panels:
            drawn = plotly.graph_objects.Figure(panel_spec(panel))  # which refuses what plotly does not know
            assert [trace.name for trace in drawn.data] == [line.name for line in panel.lines]


@pytest.mark.parametrize(
    ("key", "files"),
    [
        (f"{data}{full}", files)
        for data, files in (
            ("kinetics-gfsl", ["mini-kinetics"]),
            ("ucf-gfsl", ["ucf101-protogan", "ucf101-original"]),
        )
        for full in ("", "-full")
    ],
)
def test_tables_of_videos_run_on_features_of_the_same_layout(
    key: str, files: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = np.random.default_rng(0)
    labels = np.arange(62).repeat(9)
    parts = ["base"] * 6 + ["val"] * 6 + ["novel"] * 50
    arrays = {
        "features": random.normal(size=(62, 12))[labels] + random.normal(size=(len(labels), 12)) / 3,
        "labels": labels,
        "classes": np.array([f"c{i:02d}" for i in range(62)]),
        "parts": np.array(parts),
        "test": np.tile(np.arange(9) >= 6, 62),
    }
    for file in files:
        np.savez(tmp_path / f"{file}.npz", **arrays)
    what = shrunk(KNOWN[key])
    monkeypatch.setattr(cli, "reproductions", lambda: {key: what})
    out = tmp_path / "out"
    words = ["reproduce", key, "--root", str(tmp_path), "-o", str(out), "--episodes", "2"]
    result = CliRunner().invoke(app, words, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    cells = json.loads((out / "try-2" / f"{key}.json").read_text())["cells"]
    printed = [cell for cell in cells if cell["printed"] is not None]
    assert len(printed) > 10
    assert all(cell["mean"] is not None and cell["over"] == 2 for cell in printed), "every printed cell has one of ours"


@pytest.mark.parametrize("key", ["tiered-gfsl", "tiered-gfsl-full"])
def test_tables_of_tiered_imagenet_run_on_images_of_the_same_layout(
    key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = np.random.default_rng(0)
    for i in range(14):
        folder = tmp_path / "tiered-imagenet" / f"n{i:02d}"
        folder.mkdir(parents=True)
        for j in range(8):
            Image.fromarray(random.integers(0, 256, (84, 84, 3), dtype=np.uint8)).save(folder / f"{j}.png")
    lists = tmp_path / "splits" / "tiered-imagenet"
    lists.mkdir(parents=True)
    for part, which in (("train_a", range(4)), ("val", range(4, 9)), ("test", range(9, 14))):
        (lists / f"{part}.csv").write_text("".join(f"n{i:02d},x\n" for i in which))
    tiny = {"conv4": {"recipe": "fast.toml", "set": {"epochs": 1, "batch": 8, "views": [], "small_part": 0.0}}}
    what = dataclasses.replace(shrunk(KNOWN[key]), bases=tiny)
    monkeypatch.setattr(cli, "reproductions", lambda: {key: what})
    out = tmp_path / "out"
    words = ["reproduce", key, "--root", str(tmp_path), "-o", str(out), "--episodes", "1"]
    result = CliRunner().invoke(app, words, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    cells = json.loads((out / "try-1" / f"{key}.json").read_text())["cells"]
    printed = [cell for cell in cells if cell["printed"] is not None]
    assert len(printed) > 10 and all(cell["mean"] is not None for cell in printed), "all that the paper prints"
    told = (out / "try-1" / f"{key}.md").read_text()
    today = datetime.now(UTC).date().isoformat()
    assert re.search(rf"- Computed on .*torch [\d.]+.*, {today}: .*conv4/iw-5w1s, conv4/lcwof-5w1s", told), told
    assert re.search(r"- Seconds for .*: conv4/", told), "runs of two backbones have the same names"


def test_the_overview_is_drawn_from_one_episode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = {"mlp": {"recipe": "video.toml", "set": {"epochs": 3}}}
    what = dataclasses.replace(shrunk(KNOWN["overview"]), data="digits", settings=("2w1s",), bases=tiny)
    monkeypatch.setattr(cli, "reproductions", lambda: {"overview": what})
    words = ["reproduce", "overview", "-o", str(tmp_path), "--episodes", "2"]
    result = CliRunner().invoke(app, words, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert (tmp_path / "digits" / "base-mlp.safetensors").exists(), "a try leaves its base models to the real run"
    tmp_path /= "try-2"
    phases = json.loads((tmp_path / "digits" / "mlp" / "curves-both-2w1s" / "points.json").read_text())
    assert [each["phase"] for each in phases] == ["phase 1", "phase 2", "phase 3"]
    for each in phases:
        assert len(each["x"]) == 6 * 5 + 2 * 15 and sum(each["novel"]) == 30
        assert all(0 < sure <= 1 for sure in each["confidence"])
    assert not any(r for r, novel in zip(phases[0]["right"], phases[0]["novel"], strict=True) if novel)
    page = (tmp_path / "overview.html").read_text()
    assert page.count("<script>/**") == 1 and page.count('class="plot"') == 5
    assert "means over 2 episodes" in page
    text = (tmp_path / "overview.md").read_text()
    assert "**after each phase**, 2 episodes" in text and "\n| 3 |" in text and "- Computed on" in text
    for name in ("overview.svg", "overview.png", "overview-points.svg", "overview-points.png"):
        assert (tmp_path / name).stat().st_size > 1000
    still = OurRow("nothing learned", "still", {"name": "lcwof", "phase2.epochs": 0, "phase3.epochs": 1}, tuned=False)
    both = dataclasses.replace(what, rows=(*what.rows, still))
    monkeypatch.setattr(cli, "reproductions", lambda: {"overview": both})
    assert CliRunner().invoke(app, words, catch_exceptions=False).exit_code == 0
    other = json.loads((tmp_path / "digits" / "mlp" / "still-2w1s" / "points.json").read_text())
    assert other[1]["x"] == other[0]["x"] != phases[1]["x"], "samples of its own, not those that were there"
    page = (tmp_path / "overview.html").read_text()
    assert "episode of mlp/curves-both-2w1s" in page and "episode of mlp/still-2w1s" in page
    assert (tmp_path / "overview-points-mlp-still-2w1s.png").exists()


def test_a_try_of_few_episodes_is_one_for_every_row_and_for_choices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = {"mlp": {"recipe": "video.toml", "set": {"epochs": 1}}}
    row = OurRow("yes", "pn", {"name": "pn"}, grid={"novel_bias": [0.0]}, episodes=7)
    what = Reproduction("strokes", base, 1, (row,), "batch-norm", episodes=5, key="one")
    monkeypatch.setattr(cli, "reproductions", lambda: {"one": what})
    words = ["reproduce", "one", "-o", str(tmp_path), "--only", "pn-5w1s", "--episodes", "2"]
    assert CliRunner().invoke(app, words, catch_exceptions=False).exit_code == 0
    run = Run.read(tmp_path / "try-2" / "strokes" / "mlp" / "pn-5w1s")
    assert len(run.rows) == 2 and "over 2 validation episodes" in run.about["recipe"]["tuning"]["why"]


def test_the_documented_study_runs_under_its_title_without_the_paper(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "experiments.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"```toml\n(title = .*?)```", page, re.DOTALL)
    (tmp_path / "mine.toml").write_text(text.replace("episodes = 20", "episodes = 3"), encoding="utf-8")
    words = ["reproduce", str(tmp_path / "mine.toml"), "-o", str(tmp_path / "out")]
    assert CliRunner().invoke(app, words).exit_code == 0
    shown, latex = ((tmp_path / "out" / f"mine.{ending}").read_text(encoding="utf-8") for ending in ("md", "tex"))
    assert shown.startswith("## How few steps will do?\n\nEach cell: mean ± 95% interval.")
    assert "paper" not in shown + latex and "<br>" not in shown
    assert r"hm to prototypes & over \\" in latex and latex.count(r" & 3 \\") == 2
    (tmp_path / "mine.toml").write_text(text.replace('{ name = "pn" }', '{ name = "pn" }\ngrid = { lr = [1.0] }'))
    error = CliRunner().invoke(app, words).exception
    assert isinstance(error, LcwofError)
    assert "mine, row prototypes: unknown key tune.grid.lr" in str(error)
