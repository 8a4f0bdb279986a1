"""Tables of the paper with ours beside them: what is run, and what stands in which cell."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from runs_by_hand import lcwof_with_curves, make_run

from lcwof.engine import Recipe, Run, StreamRun
from lcwof.evaluation import MEASURES
from lcwof.methods import get_method, method_names, own_code
from lcwof.report import beside, paper_figures, paper_tables
from lcwof.report.beside import beside_csv, beside_html, beside_json, beside_latex, beside_markdown
from lcwof.report.figures import BASE, HM, NOVEL
from lcwof.report.panels import Line, Panel, panel_markdown
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


def test_rows_are_compared_with_one_of_their_table() -> None:
    tables = [what for what in reproductions().values() if what.paper and what.reference != "lcwof"]
    assert len(tables) == 7
    for what in tables:
        (row,) = (row for row in what.rows if row.run == what.reference)
        assert row.method == {"name": "lcwof", "phase3.replay_per_class": 1}, "which is LCwoF as it is"
        about_lambda = [each for each in what.rows if each.run.startswith(("early-", "lambda-"))]
        ablated = [each for each in what.rows if each.method["name"] == "lcwof" and each not in about_lambda]
        assert not any("weight_constraint" in each.grid for each in ablated if each.grid), "lambda is all the same"


LIM = {"name": "lcwof", "phase3.replay_per_class": 1}
RATE = {"phase3.lr_head": [1e-3, 1e-2]}
LOSS = {"phase3.loss_weight": [0.1, 0.3]}
INSTEAD = {"distillation.instead": True}
WEIGHT = {"distillation": {"weight": [0.1, 1.0, 3.0]}}
ABLATED = {
    "mini-gfsl": {
        "resnet12/lcwof": ({}, {"weight_constraint": [5e2, 5e3], **RATE}),
        "conv4/lcwof": ({}, {"weight_constraint": [5e2, 5e3], "phase2.lr_head": [1e-2, 3e-2, 1e-1], **RATE}),
        "resnet12/lcwof-unlim": (
            {"phase3.replay": "unlim", "phase3.views": 4},
            {"weight_constraint": [5e2, 5e3], **RATE},
        ),
    },
    "distillation": {
        "lcwof-authors": ({}, {}),
        "kd": (INSTEAD, WEIGHT),
        "kd-plus": ({**INSTEAD, "distillation.unlabelled": 1000}, WEIGHT),
        "l2-kd": ({}, WEIGHT),
        "kd-free": ({**INSTEAD, "distillation.free_phase3": True}, WEIGHT),
    },
    "batch-norm": {"bn-adapting": ({"batch_norm": "adapting"}, {}), "lcwof-authors": ({}, {})},
    "cosine-bias": {
        "cosine": ({"head": "cosine", "centred": False}, {"scale": [10.0, 20.0], **LOSS}),
        "bias": ({"bias": True}, LOSS),
        "lcwof-loss": ({}, LOSS),
    },
    "batch-ratios": {
        **{
            f"ratio-5-{n}": (
                {"phase2.epochs": 0, "phase3.epochs": 20 * n, "phase3.per_batch": n},
                {"phase3.loss_weight": [0.3, 1.0]},
            )
            for n in (1, 2, 3)
        },
        "lcwof-loss": ({}, LOSS),
    },
    "alternate-phases": {
        **{
            f"turns-{n}": ({"alternate": n, "phase3.epochs": 20}, {"phase3.loss_weight": [0.3, 1.0], **RATE})
            for n in (10, 20, 30)
        },
        "lcwof-loss": ({}, LOSS),
    },
    "lambda-after-phase3": {
        **{
            f"lambda-{text}": ({"weight_constraint": value}, {"weight_constraint": [value]})
            for text, value in (("1e1", 1e1), ("1e2", 1e2), ("5e3", 5e3))
        },
        "lcwof-authors": ({}, {}),
    },
    "training-curves": {
        "curves-neither": ({"weight_constraint": 0.0, "phase2.normalised": False}, None),
        "curves-constraint": ({"weight_constraint": 5e2, "phase2.normalised": False}, None),
        "curves-ce-bn": ({"weight_constraint": 0.0}, None),
        "curves-both": ({"weight_constraint": 5e2}, None),
    },
    "no-phase2": {
        "curves-no-phase2": ({"weight_constraint": 5e2, "phase2.epochs": 0}, None),
        "curves-no-phase2-loss": (
            {"weight_constraint": 5e2, "phase2.epochs": 0, "phase3.loss_weight": 1.0},
            None,
        ),
    },
    "length-of-phase2": {
        "curves-both": ({"weight_constraint": 5e2}, None),
        "curves-30": ({"weight_constraint": 5e2, "phase2.epochs": 30}, None),
    },
    "weight-decay": {
        "curves-both": ({"weight_constraint": 5e2}, None),
        "curves-no-decay": (
            {"weight_constraint": 5e2, "phase2.weight_decay": 0.0, "phase3.weight_decay": 0.0},
            None,
        ),
    },
}


@pytest.mark.parametrize("key", sorted(ABLATED))
def test_rows_of_lcwof_differ_in_what_their_table_is_about_and_in_nothing_else(key: str) -> None:
    """By run, and backbone where it is of one: settings beside those of LCwoF with limited replay, and what is chosen
    on validation (None: nothing is). Rows printed in the paper under names that say so have these settings."""
    rows = [row for row in KNOWN[key].rows if row.method["name"] == "lcwof" and row.run != "lcwof-plus"]
    named = {f"{row.backbone}/{row.run}" if row.backbone else row.run: row for row in rows}
    assert len(named) == len(rows)
    assert {run: (row.method, row.grid if row.tuned else None) for run, row in named.items()} == {
        run: ({**LIM, **more}, grid) for run, (more, grid) in ABLATED[key].items()
    }


def test_phase_2_alone_is_stopped_early_or_swept_over_lambda() -> None:
    early = {row.run: (row.name, row.method["weight_constraint"], row.grid) for row in KNOWN["early-stop"].rows[:3]}
    assert early == {
        f"early-{text}": (f"{text[0]}e+{text[-1]}", value, {"weight_constraint": [value]})
        for text, value in (("1e4", 1e4), ("5e4", 5e4), ("1e5", 1e5))
    }
    assert [row.method.get("phase2.epochs") for row in KNOWN["early-stop"].rows[:3]] == [None, 750, 1500]
    swept = {row.name: row.method["weight_constraint"] for row in KNOWN["lambda-after-phase2"].rows}
    assert swept == {text: float(text) for text in ("1e1", "1e2", "5e2", "1e3", "5e3", "1e4", "5e4", "1e5")}
    alone = [*KNOWN["early-stop"].rows[:3], *KNOWN["lambda-after-phase2"].rows]
    assert all(row.method["phase3.epochs"] == 0 for row in alone)


def test_defaults_are_the_authors() -> None:
    config = get_method("lcwof").Config()
    two, three = config.phase2, config.phase3
    assert (two.epochs, two.batch, two.lr_head, two.lr_tail, two.loss_weight) == (150, 16, 1e-2, 1e-3, 1.0)
    assert (three.epochs, three.batch, three.lr_head, three.lr_tail, three.loss_weight) == (200, 16, 1e-3, 1e-4, 0.1)
    for phase in (two, three):
        assert (phase.momentum, phase.weight_decay, phase.clip) == (0.9, 1e-4, 100.0)
    assert config.adapt == 1 and config.batch_norm == "frozen" and two.normalised and not config.bias


def test_every_file_starts_with_its_command() -> None:
    for key in KNOWN:
        file = Path(read_reproduction.__code__.co_filename).parent.parent / "recipes" / "reproduce" / f"{key}.toml"
        assert file.read_text().startswith(f"# lcwof reproduce {key} --root DATA\n")


def episodes_run(hm: list[float]) -> Run:
    about = {"recipe": {"method": {"name": "lcwof"}}, "model": {}, "hardware": "", "compute": ""}
    return Run(Path("run"), about, [{"episode": i, **dict.fromkeys(MEASURES, x)} for i, x in enumerate(hm)])


def test_of_other_data_what_we_do_not_run_is_not_there_and_nothing_twice() -> None:
    rows = (OurRow("PN", "pn", {"name": "pn"}), OurRow("my own", "mine", {"name": "iw"}))
    what = Reproduction("strokes", {"conv4": {"recipe": "fast.toml"}}, 1, rows, "mini-gfsl", key="own")
    (part,) = compared(what, {(Place("conv4"), "5w1s", "pn"): episodes_run([50.0, 60.0])})
    assert [row.name for row in part.rows] == ["PN", "my own"], "the paper has two backbones, and more rows"
    assert beside._title(part) == "conv4"
    two = dataclasses.replace(what, bases={**what.bases, "resnet12": {"recipe": "fast.toml"}})
    assert [part.place.backbone for part in compared(two, {})] == ["conv4", "resnet12"]
    both = compared(dataclasses.replace(what, data="mini-imagenet"), {})
    assert len(both) == 2 and len(both[0].rows) > 3, "what is printed is there, run or not"


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
    page = beside_html(what, parts, ["A <note>."])
    assert '<td><b>55.00</b><i>± 9.80</i><div class="soft">54.39<i>(+0.61)</i></div></td>' in page
    assert '<th scope="row">yes</th><td>–<div class="soft">53.28</div></td>' in page and "A &lt;note&gt;." in page
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
        "of_means": None,
        "difference": 0.61,
    }


def test_a_printed_hm_of_means_is_compared_with_one_of_means() -> None:
    """hm of two episodes 48 and 48, of their means 50."""
    run = episodes_run([0.0, 0.0])
    for row, (novel, base) in zip(run.rows, [(40.0, 60.0), (60.0, 40.0)], strict=True):
        row |= {"N/J": novel, "B/J": base, "hm": 48.0}
    what = KNOWN["batch-norm"]
    parts = compared(what, {(Place("resnet12"), "5w1s", "bn-adapting"): run})
    novel, _, hm = parts[0].rows[0].cells
    assert (hm.mean, hm.of_means, hm.printed) == (48.0, pytest.approx(50.0), 56.66)
    assert hm.difference == pytest.approx(50.0 - 56.66), "like with like"
    assert novel.of_means is None
    text = beside_markdown(what, parts, [])
    assert "| 48.00 ± 0.00 (50.00)<br>56.66 (-6.66) |" in text and "that of the printed N/J and B/J" in text
    html = beside_html(what, parts, [])
    assert '<b>48.00</b><i>± 0.00</i><i>(50.00)</i><div class="soft">56.66<i>(-6.66)</i>' in html
    assert r"48.00 $\pm$ 0.00, 50.00 (56.66)" in beside_latex(what, parts)
    more = KNOWN["distillation-more-ways"]
    parts = compared(more, {(Place("resnet12"), "10w1s", "lcwof"): run})
    cells = {c: cell for c, cell in zip(parts[0].columns, parts[0].rows[0].cells, strict=True) if c.setting == "10w1s"}
    (hm,) = (cell for column, cell in cells.items() if column.measure == "hm")
    assert hm.mean == 48.0 and hm.of_means is None, "the printed one is lower than that of the printed N/J and B/J"
    assert hm.difference == pytest.approx(48.0 - 47.75)
    assert "that of the printed N/J and B/J" not in beside_markdown(more, parts, [])


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
        (place, "5w1s", "lcwof-authors"): run([52.0, 61.0, 90.0, 90.0]),
    }
    (part,) = compared(what, runs)
    adapting, frozen = part.rows
    assert frozen.cells[2].mean == 56.5 and frozen.cells[2].over == 2, "episodes that only one row has do not count"
    assert adapting.apart["5w1s"].mean == -1.5 and adapting.apart["5w1s"].episodes == 2 and not frozen.apart
    text = beside_markdown(what, [part], [])
    assert '| 5w1s hm to "yes" |' in text and "| −1.50 ± 0.98 | 2 |" in text
    (apart,) = beside_json(what, [part], [])["differences"]
    assert (apart["row"], apart["to"], apart["hm"], apart["clear"]) == ("no", "yes", -1.5, True)
    assert '<td class="clear">−1.50<i>± 0.98</i></td>' in beside_html(what, [part], [])


def test_a_table_goes_into_a_paper_and_into_a_spreadsheet() -> None:
    what = KNOWN["batch-norm"]
    parts = compared(what, {(Place("resnet12"), "5w1s", "bn-adapting"): episodes_run([50.0, 60.0])})
    latex = beside_latex(what, parts).splitlines()
    assert latex[3:6] == [r"\begin{tabular}{lrrr}", r"\toprule", r" & 5w1s N/J & 5w1s B/J & 5w1s hm \\"]
    cell = r"55.00 $\pm$ 9.80"
    assert latex[7] == rf"no & {cell} (54.39) & {cell} (59.13) & {cell} (56.66) \\"
    assert latex[8] == r"yes & -- (53.28) & -- (63.24) & -- (57.83) \\"
    first, *rows = beside_csv(what, parts).splitlines()
    assert first == "backbone,row,setting,measure,session,mean,interval,over,printed,of_means,difference"
    assert rows[0] == "resnet12,no,5w1s,N/J,,55.0,9.8,2,54.39,,0.61" and len(rows) == 6


def test_lines_measured_elsewhere_have_a_table_of_their_own() -> None:
    here = Line("a", "red", (0.0, 5.0), (1.0, 2.0), (0.5, float("nan")))
    there = Line("b", "red", (0.0, 5.0, 9.0), (3.0, 4.0, 5.0), (0.5, 0.5, 0.5))
    text = panel_markdown(Panel("t", (here, there), "epochs", 7))
    assert text.splitlines()[0].startswith("**t**, 7 episodes") and text.count("| epochs |") == 2
    assert "| 5 | 2.00 |\n" in text and "| 9 | 5.00 ± 0.50 |\n" in text
    assert panel_markdown(Panel("t", (here, here), "epochs", 7)).count("| epochs |") == 1


@pytest.mark.parametrize("key", ["mini-gfsl", "mini-ifsl-hm"])
def test_every_system_has_a_row_on_every_backbone(key: str) -> None:
    every = {name for name in method_names() if own_code(get_method(name)) is None}
    rows: dict[tuple[Place, str], set[str]] = {}
    for place, setting, row in KNOWN[key].wanted():
        rows.setdefault((place, setting), set()).add(row.method["name"])
    assert len(every) == 16 and rows and all(found == every for found in rows.values())


def test_the_overview_shows_where_each_phase_ends_and_which_line_is_which() -> None:
    what = KNOWN["overview"]
    run = lcwof_with_curves()
    after, along = plot_panels(what, {(Place("resnet12"), "5w1s", "curves-both"): run})
    lines = {line.name: line for line in after.lines}
    assert lines["N/J"].y == (0.5, 79.5, 70.5), "the mean of two episodes, before phase 2 and after either"
    assert lines["B/J"].y == (90.0, 20.0, 68.0) and lines["B/B"].y == (90.0, 89.5, 89.5)
    assert lines["N/J"].x == (1.0, 2.0, 3.0)
    for panel in (after, along):
        looks = {line.name: (line.colour, line.dashed) for line in panel.lines}
        assert looks == {
            "N/J": (NOVEL, False),
            "N/N": (NOVEL, True),
            "B/J": (BASE, False),
            "B/B": (BASE, True),
            "hm": (HM, False),
        }


@pytest.mark.parametrize("key", sorted(KNOWN))
def test_a_run_tries_the_grid_and_aims_at_the_outcome_of_its_row(key: str) -> None:
    what = KNOWN[key]
    for place, setting, row in what.wanted():
        entry = what.entry(place, setting, row, Recipe(), "base.safetensors", "pseudo.safetensors")
        assert (entry.recipe.tune.grid, entry.tuned, entry.outcome) == (row.grid, row.tuned, row.outcome)
        assert entry.pseudo_model == ("pseudo.safetensors" if what.protocol == "ifsl" else None)


def test_a_row_of_one_split_stands_in_its_part_alone() -> None:
    what = KNOWN["ucf-gfsl-full"]
    ours = {
        part.split: {row.name for row in what.rows_of(part) if row.method["name"] == "lcwof"}
        for part in what.paper.parts
    }
    assert ours == {"protogan": {"LCwoF (ours)"}, "original": {"LCwoF (ours) lim", "LCwoF (ours) unlim"}}


def test_streams_that_repeat_each_other_count_once_in_a_cell() -> None:
    rows = [{"stream": s, "session": n, **dict.fromkeys(MEASURES, 40.0)} for s in (0, 1, 2) for n in range(1, 10)]
    about = {"listed": True, "recipe": {"stream": {"shuffle": False}}}
    first, *_ = compared(KNOWN["mini-ifsl"], {(Place("resnet12"), "5w5s", "pn"): StreamRun(Path("pn"), about, rows)})
    cells = {row.name: row.cells for row in first.rows}["PN"]
    assert {(cell.mean, cell.interval, cell.over) for cell in cells} == {(40.0, None, 1)}


def test_accuracies_against_lambda_have_their_own_intervals() -> None:
    what = KNOWN["lambda-after-phase2"]
    one = next(setting for _, setting, _ in what.wanted())
    runs = {(p, s, row.run): make_run("lcwof", [50.0, 54.0]) for p, s, row in what.wanted() if s == one}
    (panel,) = plot_panels(what, runs)  # type: ignore[arg-type]
    novel = next(line for line in panel.lines if line.name == "N/J")
    assert novel.x == (1e1, 1e2, 5e2, 1e3, 5e3, 1e4, 5e4, 1e5) and set(novel.y) == {52.0}
    assert novel.interval == pytest.approx([3.92] * 8)  # s = 2.8284, so 1.96 s / sqrt(2)
