"""What is run for the tables and figures of the paper."""

from __future__ import annotations

from pathlib import Path

import pytest
from runs_by_hand import lcwof_with_curves, make_run

from lcwof.engine import Recipe
from lcwof.errors import LcwofError
from lcwof.methods import get_method, method_names, own_code
from lcwof.report import paper_figures, paper_tables
from lcwof.report.figures import BASE, HM, NOVEL
from lcwof.report.panels import Line, Panel, panel_markdown
from lcwof.report.paper_plots import plot_panels
from lcwof.report.reproduction import (
    Place,
    base_recipe,
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


def test_curves_that_are_gone_are_not_taken_for_a_method_without_any() -> None:
    run = make_run("lcwof", [50.0])
    where = (Place("resnet12"), "5w1s", "curves-both")
    with pytest.raises(LcwofError, match="learns in one step, or the study lacks"):
        plot_panels(KNOWN["overview"], {where: run})
    run.about["recipe"]["evaluate"]["curves"] = 20
    with pytest.raises(LcwofError, match=r"curves\.jsonl is gone or empty"):
        plot_panels(KNOWN["overview"], {where: run})


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


def test_accuracies_against_lambda_have_their_own_intervals() -> None:
    what = KNOWN["lambda-after-phase2"]
    one = next(setting for _, setting, _ in what.wanted())
    runs = {(p, s, row.run): make_run("lcwof", [50.0, 54.0]) for p, s, row in what.wanted() if s == one}
    (panel,) = plot_panels(what, runs)  # type: ignore[arg-type]
    novel = next(line for line in panel.lines if line.name == "N/J")
    assert novel.x == (1e1, 1e2, 5e2, 1e3, 5e3, 1e4, 5e4, 1e5) and set(novel.y) == {52.0}
    assert novel.interval == pytest.approx([3.92] * 8)  # s = 2.8284, so 1.96 s / sqrt(2)
