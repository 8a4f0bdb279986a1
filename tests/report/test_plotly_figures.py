"""Figures are valid for plotly, and show the numbers they are given."""

from __future__ import annotations

import dataclasses
import json

import plotly.graph_objects as go
import pytest
from runs_by_hand import four_answers_twice, lcwof_with_curves, make_run

from lcwof.engine.overview import Points
from lcwof.report import Swept, calibration, class_accuracies, learning_curves, tradeoff
from lcwof.report.confusion import ClassAccuracy
from lcwof.report.markup import figure
from lcwof.report.panels import Line, Panel, panel_markdown, panel_spec, panels_figure
from lcwof.report.plotly_figures import (
    Spec,
    balance_figure,
    classes_figure,
    curves_figure,
    reliability_figure,
    tradeoff_figure,
)
from lcwof.report.points import points_figure, points_spec


def named(spec: Spec) -> dict[str, Spec]:
    """The traces with a name, having been found valid."""
    go.Figure(spec)
    json.dumps(spec, allow_nan=False)
    return {trace["name"]: trace for trace in spec["data"] if "name" in trace}


def test_the_curves_are_the_means_along_all_phases() -> None:
    curves = learning_curves(lcwof_with_curves())
    assert curves is not None
    spec = curves_figure(curves)
    traces = named(spec)
    assert list(traces) == ["N/J", "B/J", "N/N", "B/B", "hm"]
    assert traces["N/J"]["x"] == (0, 5, 10, 10, 14) and traces["N/J"]["y"] == [0.5, 50.5, 79.5, 79.5, 70.5]
    assert [note["text"] for note in spec["layout"]["annotations"]] == ["phase 2", "phase 3"]
    low, high = spec["data"][:2]
    assert [high["y"][0], low["y"][0]] == pytest.approx([0.5 + 0.98, 0.5 - 0.98])


def test_each_run_is_a_point_with_its_intervals_and_lcwof_is_black() -> None:
    group = [make_run("iw", [52.0, 56.0]), make_run("lcwof", [50.0, 50.0]), make_run("pn", [40.0])]
    traces = named(balance_figure(group))
    assert list(traces) == ["iw", "lcwof", "pn"]
    assert (traces["iw"]["x"], traces["iw"]["y"]) == ([54.0], [54.0])
    assert traces["iw"]["error_x"]["array"] == [3.92] and traces["pn"]["error_x"]["array"] == [0.0]
    assert traces["lcwof"]["marker"]["color"] == "#1c1c1e"
    assert len({trace["marker"]["color"] for trace in traces.values()}) == 3


def test_many_runs_have_a_legend_of_two_columns_and_the_room_for_it() -> None:
    group = [make_run(f"method-{i:012d}", [50.0 + i, 52.0]) for i in range(5)]
    few, many = balance_figure(group[:4]), balance_figure(group)
    assert many["layout"]["height"] == few["layout"]["height"] + 2 * 20
    assert many["layout"]["legend"]["entrywidth"] == 0.5 and "entrywidth" not in few["layout"]["legend"]
    assert list(named(many)) == [f"…000{i}" for i in range(5)], "cut to what tells them apart"


def test_lines_of_equal_hm_reach_as_high_as_the_axes() -> None:
    group = [make_run("pn", [40.0])]
    traces = tradeoff_figure(group, [None], [None])["data"]
    lines = [trace for trace in traces if trace["line"].get("dash") != "dot"]
    assert len(lines) == 9
    for trace in lines:
        assert trace["y"][0] > 99 and trace["x"][-1] > 99
        assert trace["x"][0] == pytest.approx(trace["y"][-1], abs=1), "the same seen from either axis"


def test_the_trade_off_ends_in_a_large_mark() -> None:
    group = [lcwof_with_curves(), make_run("pn", [40.0])]
    curve = Swept((0.0, 50.0, 100.0), (80.0, 70.0, 0.0), {0: 55.0})
    spec = tradeoff_figure(group, [None, curve], [tradeoff(run) for run in group])
    path, end, line, alone = [trace for trace in spec["data"] if "legendgroup" in trace]
    assert path["text"] == ["phase 3, epoch 0", "phase 3, epoch 4"] and path["name"] == "lcwof"
    assert (end["x"], end["y"], end["marker"]["size"]) == ([69.5], [69.5], 11)
    assert (line["y"], line["name"], alone["x"]) == ((80.0, 70.0, 0.0), "pn", [40.0])


def test_reliability_shows_bins_with_answers_only() -> None:
    traces = named(reliability_figure(calibration(four_answers_twice())))
    assert list(traces) == ["base samples", "novel samples"]
    assert traces["base samples"]["x"] == pytest.approx([20, 40, 80, 100], abs=0.1)
    assert traces["base samples"]["y"] == [100.0, 0.0, 100.0, 100.0]
    assert traces["base samples"]["text"][0] == "1 of 4 answers"


def test_few_classes_have_names_beside_their_bars_and_many_have_none() -> None:
    base, novel = class_accuracies(four_answers_twice())
    spec = classes_figure(base, novel)
    assert spec["layout"]["yaxis"]["ticktext"] == ["d", "e", "c", "a", "b"]
    assert named(spec)["base classes"]["x"] == [100.0, 50.0] and named(spec)["base classes"]["y"] == [3, 4]
    many = [ClassAccuracy(f"class {i}", 90.0 - i, 15) for i in range(64)]
    spec = classes_figure(many, novel)
    assert named(spec)["base classes"]["y"][:2] == [90.0, 89.0]
    assert not spec["layout"]["xaxis"]["showticklabels"]
    assert named(spec)["base classes"]["hovertext"][1] == "class 1: 89.0% of 15"


def test_names_cannot_leave_the_script_they_stand_in() -> None:
    evil = "</script><b>&amp;"
    spec = classes_figure([ClassAccuracy(evil, 50.0, 2)], [])
    assert spec["data"][1]["hovertext"] == ["&lt;/script&gt;&lt;b&gt;&amp;amp;: 50.0% of 2"], "plotly reads tags"
    inside = figure(evil, "", spec).partition('json">')[2].partition("</script>")[0]
    assert json.loads(inside) == spec and not set(inside) & set("<>&")


def test_the_usable_range_is_shaded_on_the_page_and_in_print() -> None:
    line = Line("N/J", "#000000", (1.0, 10.0, 100.0), (50.0, 60.0, 40.0), (1.0, 1.0, 1.0))
    panel = Panel("5w1s", (line,), "lambda", 100, log=True, shaded=(5.0, 50.0))
    (shape,) = panel_spec(panel)["layout"]["shapes"]
    assert (shape["x0"], shape["x1"]) == (5.0, 50.0)
    plain = dataclasses.replace(panel, shaded=None)
    assert not panel_spec(plain)["layout"]["shapes"]
    patches = [
        [patch.get_bbox().intervalx.tolist() for patch in panels_figure([p], 1).axes[0].patches] for p in (panel, plain)
    ]
    assert patches == [[[5.0, 50.0]], []]


def test_test_samples_are_the_larger_the_surer_the_answer() -> None:
    points = Points(
        "phase 2",
        [0.0, 1.0, 2.0],
        [0.0, 0.0, 0.0],
        [0, 1, 2],
        [False, False, True],
        [0.2, 0.9, 0.5],
        [True, True, False],
    )
    sizes = points_spec(points)["data"][0]["marker"]["size"]
    assert sizes[0] < sizes[2] < sizes[1]
    right, wrong = points_figure([points]).axes[0].collections
    small, large = right.get_sizes()
    assert small < wrong.get_sizes()[0] < large


def test_what_needs_to_be_said_of_a_panel_stands_beside_its_title_and_inside_the_sheet() -> None:
    line = Line("N/J", "#000000", (1.0, 10.0), (50.0, 60.0), (1.0, 1.0))
    panel = Panel("5w1s", (line,), "lambda", 100, remark="shaded: N/J within 1, B/B within 3 of the best")
    sheet = panels_figure([panel, panel], 2)
    sheet.canvas.draw()
    for ax in sheet.axes:
        (said,) = ax.texts
        left, title = said.get_window_extent(), ax.title if ax.title.get_text() else ax._left_title
        assert said.get_text() == panel.remark and left.x0 > title.get_window_extent().x1
        assert left.x1 <= sheet.bbox.x1
    assert panel.remark in panel_markdown(panel)
