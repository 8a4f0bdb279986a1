"""Files that say what to run: how they are read, what is refused."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lcwof.cli.main import app
from lcwof.config import build
from lcwof.errors import LcwofError
from lcwof.learning import Descent
from lcwof.methods import BEST, get_method
from lcwof.report.reproduction import (
    Place,
    base_recipe,
    read_reproduction,
    reproductions,
    way_and_shot,
)

KNOWN = reproductions()


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
    with pytest.raises(
        LcwofError, match=r"like = 'nothing', but there is none beside it, and the package has alternate"
    ):
        read_reproduction(file)
    with pytest.raises(LcwofError, match="is not a setting such as 5w1s"):
        way_and_shot("5-way")
    with pytest.raises(LcwofError, match="no base model for conv4"):
        KNOWN["mini-ifsl"].base("conv4")
    assert build(type(KNOWN["mini-ifsl"]), {"data": "x", "bases": {}, "minutes": 1}, "x").rows == ()


STUDY = """
table = "batch-norm"
data = "strokes"
bases = { conv4 = { recipe = "fast.toml" } }
"""


PN = '[[rows]]\nname = "a"\nrun = "pn"\nmethod = { name = "pn" }\n'


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        (PN + PN.replace('"a"', '"b"').replace("}", ", novel_bias = 5.0 }"), "'a' and 'b' have one run, pn, and other"),
        (PN + PN.replace('"pn"\n', '"pn-2"\n'), "two rows are named 'a'"),
        (PN + 'backbone = "resnet-12"\n', "'a' is for resnet-12; there are conv4, resnet12"),
        ('reference = "none"\n' + PN, "reference = 'none' is none of its runs, pn"),
        ('reference = "pn"\nfigure = "overview"\n' + PN, "name a table or a figure"),
    ],
)
def test_studies_that_would_show_one_run_for_two_or_leave_rows_out_are_refused(
    tmp_path: Path, rows: str, why: str
) -> None:
    (tmp_path / "own.toml").write_text(STUDY + rows)
    with pytest.raises(LcwofError, match=why):
        read_reproduction(tmp_path / "own.toml")


def test_a_row_may_name_the_backbone_of_the_paper_or_the_one_that_stands_in_for_it(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    for backbone in ("resnet12", "conv4"):
        file.write_text(STUDY + PN + f'backbone = "{backbone}"\n')
        assert [(place, row.run) for place, _, row in read_reproduction(file).wanted()] == [(Place("conv4"), "pn")]


def test_the_figure_along_lambda_wants_one_in_every_row(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    file.write_text('like = "lambda-after-phase2"\n' + PN)
    with pytest.raises(LcwofError, match="row 'a' has no weight_constraint"):
        read_reproduction(file)


def test_a_file_may_be_like_one_that_is_like_another_but_not_like_itself(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    file.write_text('like = "mini-ifsl-last"\nstreams = 3\n')
    assert dataclasses.replace(read_reproduction(file), streams=10, key="mini-ifsl-last") == KNOWN["mini-ifsl-last"]
    (tmp_path / "other.toml").write_text('like = "own"\n')
    file.write_text('like = "other"\n')
    with pytest.raises(LcwofError, match=r"like goes round in a circle, by way of own\.toml"):
        read_reproduction(file)


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


def test_dropped_blocks_are_all_that_their_benchmark_changes() -> None:
    both = read_reproduction(Path(__file__).parents[2] / "benchmarks" / "drop-block.toml")
    without, dropped = both.rows
    known = {row.run: row for row in KNOWN["batch-norm"].rows}[both.reference]
    assert (without.run, without.method, without.grid) == (known.run, known.method, known.grid)
    blocks = {"phase2.drop_blocks": True, "phase3.drop_blocks": True}
    assert dropped.method == {**without.method, **blocks} and dropped.grid == without.grid
    assert not Descent(epochs=1).drop_blocks, "as in the released code, whose ramp begins anew with every episode"


def test_views_are_all_that_their_benchmark_changes() -> None:
    study = read_reproduction(Path(__file__).parents[2] / "benchmarks" / "views.toml")
    shared, *others = study.rows
    known = {row.run: row for row in KNOWN["batch-norm"].rows}[study.reference]
    assert (shared.run, shared.method, shared.grid) == (known.run, known.method, known.grid)
    for row, views in zip(others, (0, 8), strict=True):
        assert row.method == {**shared.method, "phase2.views": views, "phase3.views": views} and row.grid == shared.grid


def test_crops_are_all_that_their_benchmark_changes() -> None:
    study = read_reproduction(Path(__file__).parents[2] / "benchmarks" / "crops.toml")
    shared, other = study.rows
    known = {row.run: row for row in KNOWN["batch-norm"].rows}[study.reference]
    assert (shared.run, shared.method, shared.grid) == (known.run, known.method, known.grid)
    least = min(base_recipe(study.base("resnet12"), "resnet12").phase1.crop or ())
    crops = {"phase2.least_crop": least, "phase3.least_crop": least}
    assert other.method == {**shared.method, **crops} and other.grid == shared.grid, "those of phase 1"


def test_rows_without_a_bias_differ_in_nothing_else() -> None:
    biased = read_reproduction(Path(__file__).parents[2] / "benchmarks" / "no-bias.toml")
    assert len(biased.rows) == 4
    for row in biased.rows:
        grid = dict(get_method(row.method["name"]).grid)
        assert grid.pop("novel_bias") == (BEST,)
        if row.method["name"] == "pn":  # the shared base model as it is
            assert row.grid == {} and get_method("pn").Config().meta_steps == 0
        else:
            assert {key: tuple(values) for key, values in row.grid.items()} == grid


def test_settings_of_streams_need_classes_to_be_chosen_on(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    file.write_text('like = "mini-ifsl-hm"\npseudo = 0\n')
    with pytest.raises(LcwofError, match="set pseudo, the base classes to choose settings on, or tuned = false"):
        read_reproduction(file)


def test_a_study_without_rows_is_no_success(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    file.write_text(STUDY)
    result = CliRunner().invoke(app, ["reproduce", str(file), "-o", str(tmp_path / "out")])
    assert isinstance(result.exception, LcwofError) and str(result.exception) == "own has no rows to run."
