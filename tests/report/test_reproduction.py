"""Tables of the paper with ours beside them: what is run, and what stands in which cell."""

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
from lcwof.config import build, flat
from lcwof.data.datasets import is_present
from lcwof.engine import Recipe, Run, StreamRun, Study
from lcwof.engine.recipe import Data, Tune
from lcwof.errors import LcwofError
from lcwof.evaluation import MEASURES
from lcwof.methods import get_method
from lcwof.models import BaseModel
from lcwof.report import paper_figures, paper_tables
from lcwof.report.beside import beside_csv, beside_html, beside_json, beside_latex, beside_markdown
from lcwof.report.panels import Line, Panel, panel_markdown, panel_spec, panels_figure
from lcwof.report.paper_plots import plot_panels
from lcwof.report.reproduction import (
    OurRow,
    Place,
    Reproduction,
    Runs,
    base_recipe,
    compared,
    read_reproduction,
    reproductions,
    way_and_shot,
)

KNOWN = reproductions()
DRAWINGS = {"framework", "measures"}


def test_every_table_and_plot_of_the_paper_can_be_run() -> None:
    named = {table.key for table in paper_tables()} | {figure.key for figure in paper_figures()}
    assert set(KNOWN) == named - DRAWINGS


@pytest.mark.parametrize("key", sorted(KNOWN))
def test_what_is_run_is_complete_and_sound(key: str) -> None:
    """Every printed row has a run, or is of a kind that cannot have one; settings and grids are the method's own."""
    what = KNOWN[key]
    for place, setting, row in what.wanted():
        entry = what.entry(place, setting, row, Recipe(), "base.safetensors", "pseudo.safetensors")
        entry.recipe.grid()
        assert entry.recipe.phase1 == Recipe().phase1
        assert base_recipe(what.base(place.backbone), place.backbone).phase1.backbone == place.backbone
        if what.protocol == "gfsl":
            how = entry.recipe.evaluate
            assert (how.way, how.shot) == way_and_shot(setting)
    if what.paper:
        for part in what.paper.parts:
            ours = {row.name for row in what.rows_of(part)}
            assert {row.name for row in part.rows} <= ours, "a row of the paper has no run"


def test_runs_of_the_same_name_are_the_same_in_every_table() -> None:
    seen: dict[tuple[str, Place, str, str], object] = {}
    for what in KNOWN.values():
        for place, setting, row in what.wanted():
            entry = what.entry(place, setting, row, Recipe(), "base", "pseudo")
            key = (what.data, place, setting, row.run)
            assert seen.setdefault(key, entry) == entry, f"{key} in {what.key}"


def test_every_file_starts_with_its_command() -> None:
    for key in KNOWN:
        file = Path(read_reproduction.__code__.co_filename).parent.parent / "recipes" / "reproduce" / f"{key}.toml"
        assert file.read_text().startswith(f"# lcwof reproduce {key} --root DATA\n")


def episodes_run(hm: list[float]) -> Run:
    about = {"recipe": {"method": {"name": "lcwof"}}, "model": {}, "hardware": "", "compute": ""}
    return Run(Path("run"), about, [{"episode": i, **dict.fromkeys(MEASURES, x)} for i, x in enumerate(hm)])


def test_cells_hold_ours_and_theirs() -> None:
    what = KNOWN["batch-norm"]
    parts = compared(what, {(Place("resnet12"), "5w1s", "bn-adapting"): episodes_run([50.0, 60.0])})
    (part,) = parts
    adapting, frozen = part.rows
    assert adapting.name == "no" and [c.printed for c in adapting.cells] == [54.39, 59.13, 56.66]
    cell = adapting.cells[2]
    assert cell.mean == 55.0 and cell.over == 2 and cell.interval == pytest.approx(9.8)  # 1.96 * 7.07 / sqrt 2
    assert cell.difference == pytest.approx(-1.66)
    assert all(c.mean is None and c.difference is None for c in frozen.cells)
    text = beside_markdown(what, parts, ["A note."])
    assert "| no | 55.00 ± 9.80<br>54.39 (+0.61) |" in text and "| yes | –<br>53.28 |" in text and "- A note." in text
    cells = beside_json(what, parts, [])["cells"]
    assert cells[0] == {
        "backbone": "resnet12",
        "row": "no",
        "setting": "5w1s",
        "measure": "N/J",
        "session": None,
        "mean": 55.0,
        "interval": 9.8,
        "over": 2,
        "printed": 54.39,
        "difference": 0.61,
    }


def test_sessions_of_streams_stand_in_their_columns() -> None:
    what = KNOWN["mini-ifsl"]

    def row(stream: int, session: int) -> dict[str, object]:
        hm = None if session == 1 else 40.0 + session + stream
        return {"stream": stream, "session": session, **dict.fromkeys(MEASURES, 1.0), "hm": hm}

    rows = [row(stream, session) for stream in (0, 1) for session in range(1, 10)]
    run = StreamRun(Path("run"), {}, rows)
    place = Place("resnet12")
    first, *_ = compared(what, {(place, "5w5s", "lcwof"): run})
    assert first.printed_backbone == "resnet18" and first.place == place, "the only base model stands in"
    ours = {found.name: found.cells for found in first.rows}["LCwoF lim"]
    assert [cell.mean for cell in ours] == [42.5, 43.5, 44.5, 45.5, 46.5, 47.5, 48.5, 49.5]
    assert ours[0].printed == 41.24 and ours[0].over == 2


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
    listed = run("--list")
    assert "mini-gfsl" in listed and "(framework)" in listed and "table 13" in listed


def test_what_is_wrong_is_said(tmp_path: Path) -> None:
    runner = CliRunner()
    for words, why in (
        (["reproduce", "mini"], "nothing to reproduce is named 'mini'"),
        (["reproduce", "mini-gfsl", "--base", "x"], "write DATA/BACKBONE=FILE"),
        (["reproduce", "early-stop", "--only", "x"], "--only x: the runs of early-stop are early-1e4"),
    ):
        result = runner.invoke(app, words)
        assert isinstance(result.exception, LcwofError) and why in str(result.exception)
    file = tmp_path / "own.toml"
    file.write_text('data = "digits"\nminutes = 1\nbases = {}\n')
    with pytest.raises(LcwofError, match="name a table or a figure"):
        read_reproduction(file)
    file.write_text('table = "batch-norm"\nsettings = ["2w1s"]\ndata = "digits"\nminutes = 1\nbases = {}\n')
    with pytest.raises(LcwofError, match="settings are for figures; a table has its own, 5w1s"):
        read_reproduction(file)
    file.write_text('like = "nothing"\ntable = "batch-norm"\n')
    with pytest.raises(LcwofError, match=r"nothing\.toml"):
        read_reproduction(file)
    with pytest.raises(LcwofError, match="is not a setting such as 5w1s"):
        way_and_shot("5-way")
    with pytest.raises(LcwofError, match="no base model for conv4"):
        KNOWN["mini-ifsl"].base("conv4")
    assert build(type(KNOWN["mini-ifsl"]), {"data": "x", "bases": {}, "minutes": 1}, "x").rows == ()


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


def test_every_printed_row_stands_in_the_table() -> None:
    for what in KNOWN.values():
        if what.paper:
            shown = [[row.name for row in part.rows] for part in compared(what, {})]
            printed = [[row.name for row in part.rows] for part in what.paper.parts]
            assert [names[: len(theirs)] for names, theirs in zip(shown, printed, strict=True)] == printed, what.key


def test_rows_of_a_table_are_over_the_same_episodes() -> None:
    what, place = dataclasses.replace(KNOWN["batch-norm"], episodes=2), Place("resnet12")
    recipe = {"method": {"name": "lcwof"}, "evaluate": {"way": 5, "shot": 1, "seed": 0}}

    def run(hm: list[float]) -> Run:
        return dataclasses.replace(episodes_run(hm), about={"recipe": recipe, "data": "mini-imagenet"})

    runs: Runs = {
        (place, "5w1s", "bn-adapting"): run([50.0, 60.0]),
        (place, "5w1s", "lcwof"): run([52.0, 61.0, 90.0, 90.0]),
    }
    (part,) = compared(what, runs)
    adapting, frozen = part.rows
    assert frozen.cells[2].mean == 56.5 and frozen.cells[2].over == 2, "episodes that only one row has do not count"
    assert adapting.apart["5w1s"].mean == -1.5 and adapting.apart["5w1s"].episodes == 2 and not frozen.apart
    text = beside_markdown(what, [part], [])
    assert "| 5w1s hm to LCwoF |" in text and "| −1.50 ± 0.98 | 2 |" in text
    (apart,) = beside_json(what, [part], [])["to lcwof"]
    assert (apart["row"], apart["hm"], apart["clear"]) == ("no", -1.5, True)
    assert "−1.50 ± 0.98" in beside_html(what, [part], [])


def test_a_table_goes_into_a_paper_and_into_a_spreadsheet() -> None:
    what = KNOWN["batch-norm"]
    parts = compared(what, {(Place("resnet12"), "5w1s", "bn-adapting"): episodes_run([50.0, 60.0])})
    latex = beside_latex(what, parts).splitlines()
    assert latex[2:5] == [r"\begin{tabular}{lrrr}", r"\toprule", r" & 5w1s N/J & 5w1s B/J & 5w1s hm \\"]
    cell = r"55.00 $\pm$ 9.80"
    assert latex[6] == rf"no & {cell} (54.39) & {cell} (59.13) & {cell} (56.66) \\"
    assert latex[7] == r"yes & -- (53.28) & -- (63.24) & -- (57.83) \\"
    first, *rows = beside_csv(what, parts).splitlines()
    assert first == "backbone,row,setting,measure,session,mean,interval,over,printed,difference"
    assert rows[0] == "resnet12,no,5w1s,N/J,,55.0,9.8,2,54.39,0.61" and len(rows) == 6


def test_all_goes_on_after_one_that_cannot_be_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = {"mlp": {"recipe": "video.toml", "set": {"epochs": 1}}}
    row = OurRow("yes", "pn", {"name": "pn"}, tuned=False)
    good = Reproduction("strokes", base, 1, (row,), "batch-norm", episodes=1, key="good")
    bad = dataclasses.replace(good, bases={"mlp": {"recipe": "nothing.toml"}}, key="bad")
    monkeypatch.setattr(cli, "reproductions", lambda: {"bad": bad, "good": good})
    result = CliRunner().invoke(app, ["reproduce", "all", "-o", str(tmp_path)])
    assert isinstance(result.exception, LcwofError) and "not all could be run: bad" in str(result.exception)
    assert {file.suffix for file in tmp_path.glob("good.*")} == {".md", ".html", ".tex", ".csv", ".json"}


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
    cells = json.loads((tmp_path / f"{key}.json").read_text())["cells"]
    rows = {cell["row"] for cell in cells if cell["mean"] is not None}
    ours = {"LCwoF lim"} if key == "mini-ifsl" else {"LCwoF (balanced hm)", "LCwoF (base biased)"}
    assert {"PN", *ours} <= rows
    assert re.search(r"chosen without test data: .*pseudo-sessions", (tmp_path / f"{key}.md").read_text())


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
    cells = json.loads((out / f"{key}.json").read_text())["cells"]
    printed = [cell for cell in cells if cell["printed"] is not None]
    assert len(printed) > 10
    assert all(cell["mean"] is not None and cell["over"] == 2 for cell in printed), "every printed cell has one of ours"


def test_the_table_of_tiered_imagenet_runs_on_images_of_the_same_layout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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
    what = shrunk(KNOWN["tiered-gfsl"])
    kept = tuple(row for row in what.rows if row.run in ("lcwof", "iw"))
    tiny = {"conv4": {"recipe": "fast.toml", "set": {"epochs": 1, "batch": 8, "views": [], "small_part": 0.0}}}
    small = dataclasses.replace(what, rows=kept, bases=tiny)
    monkeypatch.setattr(cli, "reproductions", lambda: {"tiered-gfsl": small})
    out = tmp_path / "out"
    words = ["reproduce", "tiered-gfsl", "--root", str(tmp_path), "-o", str(out), "--episodes", "1"]
    result = CliRunner().invoke(app, words, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    cells = json.loads((out / "tiered-gfsl.json").read_text())["cells"]
    assert {cell["row"] for cell in cells if cell["mean"] is not None} == {"IW", "LCwoF lim"}
    told = (out / "tiered-gfsl.md").read_text()
    today = datetime.now(UTC).date().isoformat()
    names = "conv4/iw-5w1s, conv4/lcwof-5w1s, conv4/iw-5w5s, conv4/lcwof-5w5s"
    assert re.search(rf"- Computed on .*torch [\d.]+.*, {today}: {names}", told), told
    assert re.search(r"- Seconds for .*: conv4/", told), "runs of two backbones have the same names"


def test_a_run_begun_elsewhere_says_so() -> None:
    there = {
        "date": "2026-01-31",
        "hardware": "a card",
        "compute": "bfloat16",
        "versions": {"lcwof": "1", "numpy": "2"},
    }
    here = {**there, "date": None, "hardware": "cpu", "before": [{**there, "seconds": 3.0}]}
    assert cli._origin(here) == "cpu, bfloat16, lcwof 1; begun on a card, bfloat16, lcwof 1, 2026-01-31"


def test_the_overview_is_drawn_from_one_episode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    what = dataclasses.replace(shrunk(KNOWN["overview"]), data="digits", settings=("2w1s",))
    tiny = {"mlp": {"recipe": "video.toml", "set": {"epochs": 3}}}
    monkeypatch.setattr(cli, "reproductions", lambda: {"overview": dataclasses.replace(what, bases=tiny)})
    words = ["reproduce", "overview", "-o", str(tmp_path), "--episodes", "2"]
    result = CliRunner().invoke(app, words, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    phases = json.loads((tmp_path / "digits" / "overview.json").read_text())
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


def test_lines_measured_elsewhere_have_a_table_of_their_own() -> None:
    here = Line("a", "red", (0.0, 5.0), (1.0, 2.0), (0.5, float("nan")))
    there = Line("b", "red", (0.0, 5.0, 9.0), (3.0, 4.0, 5.0), (0.5, 0.5, 0.5))
    text = panel_markdown(Panel("t", (here, there), "epochs", 7))
    assert text.splitlines()[0].startswith("**t**, 7 episodes") and text.count("| epochs |") == 2
    assert "| 5 | 2.00 |\n" in text and "| 9 | 5.00 ± 0.50 |\n" in text
    assert panel_markdown(Panel("t", (here, here), "epochs", 7)).count("| epochs |") == 1


def test_a_file_may_be_like_another(tmp_path: Path) -> None:
    (tmp_path / "first.toml").write_text('table = "batch-norm"\ndata = "digits"\nminutes = 1\nepisodes = 7\n[bases]\n')
    (tmp_path / "second.toml").write_text('like = "first"\ntable = "early-stop"\nminutes = 2\n')
    found = read_reproduction(tmp_path / "second.toml")
    assert (found.key, found.table, found.minutes, found.episodes) == ("second", "early-stop", 2, 7)
    assert KNOWN["mini-ifsl-last"].rows == KNOWN["mini-ifsl-hm"].rows
    assert KNOWN["mini-ifsl"].rows[0] == dataclasses.replace(KNOWN["mini-ifsl-hm"].rows[0], name="LCwoF lim")


def test_the_documented_file_is_one(tmp_path: Path) -> None:
    text = Path(__file__).parents[2].joinpath("CONTRIBUTING.md").read_text(encoding="utf-8")
    (tmp_path / "mine.toml").write_text(text.split("```toml\n")[1].split("```")[0])
    found = read_reproduction(tmp_path / "mine.toml")
    assert found.paper is not None and found.base("resnet12").set == {"epochs": 100}
    assert found.rows[0].name in {row.name for part in found.paper.parts for row in part.rows}
    parts = read_reproduction(Path(__file__).parents[2] / "benchmarks" / "lcwof-plus-parts.toml")
    plus = {row.run: row for row in KNOWN["mini-gfsl"].rows}["lcwof-plus"]
    shared = {row.run: row for row in parts.rows}["lcwof-plus"]
    assert (shared.method, shared.grid) == (plus.method, plus.grid), "runs of one name are shared"
