"""Incremental runs compared: the numbers of the tables, the pairing of streams, what the figures show."""

from __future__ import annotations

import dataclasses
import json
import re
from math import isnan
from pathlib import Path

import plotly.graph_objects as go
import pytest
from runs_by_hand import four_answers_twice, make_run
from streams_by_hand import make_stream, unequal

from lcwof.evaluation import MEASURES
from lcwof.report import compared_markdown, write_report
from lcwof.report.stream_compare import (
    alike,
    outcome,
    reference_words,
    same_streams,
    stream_label,
    stream_to_reference,
    streams_json,
)
from lcwof.report.stream_figures import matrix_figure, runs_figures, session_classes
from lcwof.report.streams import class_outcomes, streams_markdown


def test_runs_are_grouped_by_setting_and_named_by_what_tells_them_apart() -> None:
    runs = [make_stream("pn", [40.0]), make_stream("lcwof", [50.0]), make_stream("pn", [60.0], "again", carry=True)]
    (group,) = alike(runs).values()
    assert [stream_label(run, group) for run in group] == ["pn, calibrated model carried on", "lcwof", "pn"]
    group = [make_stream("pn", [40.0]), make_stream("pn", [41.0], "again")]
    assert [stream_label(run, group) for run in group] == ["pn (pn)", "pn (again)"]
    other = make_stream("pn", [70.0], shuffle=True)
    assert [len(group) for group in alike([*runs, other]).values()] == [3, 1]


def test_differences_are_over_the_same_streams_and_say_what_may_be_chance() -> None:
    pn, lcwof, iw = (make_stream(*run) for run in (("pn", [52.0, 62.0]), ("lcwof", [50.0, 60.0]), ("iw", [49.0, 62.0])))
    group = [pn, iw, lcwof]
    assert [reference_words(run, group) for run in group] == ["+2.00 ± 0.00", "+0.50 ± 2.94, may be chance", "–"]
    assert [reference_words(run, [pn, iw]) for run in (pn, iw)] == ["–", "−1.50 ± 2.94, may be chance"], "to the first"
    more = make_stream("iw", [50.0, 60.0, 99.0])
    paired = stream_to_reference(more, [more, lcwof])
    assert paired is not None and (paired.mean, paired.episodes) == (0.0, 2), "the third has no partner"


@pytest.mark.parametrize("how", [{"seed": 1}, {"queries": 50}, {"shuffle": True}])
def test_other_streams_are_not_paired(how: dict[str, int]) -> None:
    group = [make_stream("lcwof", [50.0, 60.0]), make_stream("pn", [52.0, 62.0], **how)]
    assert not same_streams(*group) and reference_words(group[1], group) == "–"


def test_other_sessions_are_not_paired_and_what_learns_does_not_matter() -> None:
    lcwof, pn = make_stream("lcwof", [50.0]), make_stream("pn", [52.0], carry=True)
    assert same_streams(lcwof, pn)
    pn.about["ways"] = [2, 1]
    assert not same_streams(lcwof, pn)


def test_streams_that_repeat_each_other_count_once() -> None:
    always, twin = make_stream("pn", [40.0] * 3), make_stream("iw", [44.0] * 3)
    random = make_stream("lcwof", [40.0, 44.0, 45.0])
    assert len(always.distinct) == 3, "drawn streams are others, even if they come to the same"
    for run in (always, twin, random):
        run.about["listed"] = True
    assert len(always.distinct) == 1 and len(random.distinct) == 3
    mean, interval = always.summary()[1]["hm"]
    assert mean == 40 and isnan(interval) and isnan(always.totals()["drop"][1])
    paired = stream_to_reference(always, [random, always])
    assert paired is not None and paired.episodes == 3 and paired.interval > 0, "the other run's chance is in it"
    alone = stream_to_reference(always, [twin, always])
    assert alone is not None and alone.episodes == 1
    assert "| pn | 1 | 40.00 |" in compared_markdown([random, always])
    always.about["recipe"]["stream"]["shuffle"] = True
    assert len(always.distinct) == 3


def test_markdown_has_a_row_a_run() -> None:
    text = compared_markdown([make_stream("p|n", [50.0, 54.0]), make_stream("lcwof", [59.0, 61.0])])
    lines = text.splitlines()
    assert lines[2].startswith(
        "| method | streams | hm | hm to lcwof | J/J | B/J | N/J | drop | average | forgetting |"
    )
    same = "60.00 ± 1.96"
    whole = "20.00 ± 1.96 | 70.00 ± 0.98 | 10.00 ± 0.00 | 20"
    assert lines[4] == f"| lcwof | 2 | **{same}** | – | {same} | {same} | {same} | {whole} |"
    assert lines[5].startswith("| p\\|n | 2 | 52.00 ± 3.92 | −8.00 ± 1.96 | ")
    assert lines[7:10] == ["| hm, session | 2 |", "|---|---:|", f"| lcwof | {same} |"]
    assert lines[12:15] == ["| J/J, session | 1 | 2 |", "|---|---:|---:|", f"| lcwof | 80.00 ± 0.00 | {same} |"]
    assert compared_markdown([make_stream("pn", [50.0])]) == "", "nothing to compare"


def test_each_measure_has_a_figure_with_a_line_a_run() -> None:
    found = runs_figures(
        [make_stream("iw", [50.0, 54.0]), make_stream("lcwof", [60.0, 60.0]), make_stream("pn", [7.0])]
    )
    assert list(found) == ["hm", "B/J", "N/J", "J/J"]
    for spec in found.values():
        go.Figure(spec)
        assert [trace["name"] for trace in spec["data"]] == ["iw", "lcwof", "pn"]
    iw, lcwof, pn = found["J/J"]["data"]
    assert (iw["x"], iw["y"]) == ((1, 2), (80.0, 52.0)) and iw["error_y"]["array"] == [0.0, 3.92]
    assert lcwof["line"]["color"] == "#1c1c1e" and pn["error_y"]["array"] == [0.0, 0.0]
    assert found["hm"]["data"][0]["x"] == (2,), "no hm before there are novel classes"


def test_more_runs_than_colours_are_told_apart_by_dashes() -> None:
    runs = [make_stream(f"m{i:02d}", [50.0]) for i in range(10)]
    lines = [tuple(trace["line"].values()) for trace in runs_figures(runs)["hm"]["data"]]
    assert len(set(lines)) == 10


def test_the_matrix_is_empty_where_classes_have_not_come() -> None:
    spec = matrix_figure(make_stream("pn", [40.0, 60.0]))
    go.Figure(spec)
    assert spec["data"][0]["z"] == [[80.0, None], [70.0, pytest.approx(23.33)]]


def test_classes_are_means_over_streams_by_the_session_they_came_in() -> None:
    run = make_stream("pn", [40.0, 60.0])
    base, novel = session_classes(run)
    assert [(c.name, c.accuracy) for c in base] == [
        ("base class 1", 80.0),
        ("base class 2", 70.0),
        ("base class 3", 60),
    ]
    assert [(c.name, c.accuracy) for c in novel] == [("y", 50.0), ("x", 20.0), ("z", 0.0)]
    outcomes = class_outcomes(run)
    assert [(c.session, c.forgotten) for c in outcomes] == [(1, 10.0)] * 3 + [(2, None)] * 3
    named = dataclasses.replace(run, about={**run.about, "base": ["a", "b", "c"]})
    assert [c["name"] for c in streams_json([named])[0]["classes"]] == ["a", "b", "c", "x", "y", "z"]
    run.rows[3]["new"] = ["y", "x", "z"]  # another order in the second stream
    assert [(c.name, c.accuracy) for c in session_classes(run)[1]] == [("x", 40.0), ("y", 30.0), ("z", 0.0)]


def test_the_page_compares_runs_then_shows_each(tmp_path: Path) -> None:
    runs = [make_stream("iw", [49.0, 62.0]), make_stream("<b>", [51.0, 53.0]), make_stream("lcwof", [50.0, 60.0])]
    page = write_report([*runs, make_run("pn", [40.0, 50.0])], tmp_path / "r.html", "both").read_text()
    first = page[page.index("After the last session</b>") :]
    assert '<tr class="first"><th scope="row">iw</th><td class="hm"><b>55.50</b><i>± 12.74</i></td>' in first
    assert '<td class="close">+0.50<i>± 2.94</i><small>may be chance</small></td>' in first
    assert '<th scope="col">hm to lcwof</th>' in first and "interval over 2 streams, %" in first
    assert "<b>hm by session</b>" in first and "<b>J/J by session</b>" in first and "<h2>Run by run</h2>" in first
    assert '<th scope="row">2</th><td>25.2</td><td>–</td><td>y<i>55.5</i></td><td>z<i>0.0</i></td>' in first
    assert "images in the exemplar memory" in first and '<th scope="row">&lt;b&gt;</th>' in first
    specs = re.findall(r'<script type="application/json">(.*?)</script>', page)
    assert len([go.Figure(json.loads(spec)) for spec in specs]) == 1 + 4 + 3 * 3  # of pn; compared; run by run


def test_a_single_run_is_not_compared(tmp_path: Path) -> None:
    page = write_report([make_stream("pn", [50.0])], tmp_path / "r.html", "one").read_text()
    assert "After the last session" not in page and "Run by run" not in page
    assert page.count('class="plot"') == 3 and "Plotly.newPlot" in page


def test_the_page_shows_the_answers_after_the_last_session(tmp_path: Path) -> None:
    lcwof, pn = make_stream("lcwof", [50.0, 60.0]), make_stream("pn", [40.0, 50.0])
    assert "taken for whom" not in write_report([lcwof, pn], tmp_path / "r.html", "old").read_text()
    lcwof.answers = dataclasses.replace(four_answers_twice(), base=("<b>", "b"))
    page = write_report([lcwof, pn], tmp_path / "r.html", "new").read_text()
    shown = page[page.index("<h2>Who is taken for whom</h2>") :]
    setting = "a_b, 3 base classes (session 1), 1 session of 3, 5-shot, after the last session"
    assert f"<b>{setting}</b> over all queries, %" in shown
    shares = "".join(f"<td>{share}</td>" for share in ("75.0", "0.0", "25.0", "50.0", "25.0", "25.0"))
    assert f'<tr><th scope="row">lcwof</th>{shares}</tr>' in shown
    assert f"evaluate.answers = false): pn ({setting})." in shown
    assert "<h2>Class by class</h2>" in shown and "best &lt;b&gt; (100.0)" in shown
    assert "<h2>How far confidence can be trusted</h2>" in shown
    assert f"{setting}. Base samples: too modest by 15.0 points" in shown
    specs = re.findall(r'<script type="application/json">(.*?)</script>', shown)
    assert len([go.Figure(json.loads(spec)) for spec in specs]) == 2, "by class, and how sure"


def test_programs_get_the_difference_too() -> None:
    lcwof, iw = streams_json([make_stream("iw", [49.0, 62.0]), make_stream("lcwof", [56.0, 61.0])])
    assert (lcwof["method"], lcwof["compared with"], lcwof["difference"]) == ("lcwof", "lcwof", None)
    assert iw["difference"] == {"hm": -3.0, "interval": 7.84, "clear": False, "episodes": 2}
    assert streams_json([make_stream("iw", [49.0])])[0]["compared with"] is None


def test_lists_have_their_own_queries() -> None:
    runs = [make_stream("pn", [50.0], queries=queries) for queries in (None, 100)]
    assert not same_streams(*runs)
    assert same_streams(*(dataclasses.replace(run, about={**run.about, "listed": True}) for run in runs))


def test_runs_of_two_folders_are_told_apart(tmp_path: Path) -> None:
    runs = [make_stream("pn", [50.0, 51.0], f"{folder}/pn") for folder in ("old", "new")]
    page = write_report(runs, tmp_path / "r.html", "two").read_text()
    for folder in ("old", "new"):
        assert f"<caption><span><b>pn ({folder}/pn)</b>" in page
        assert f"**pn ({folder}/pn)**" in "".join(streams_markdown(run, runs) for run in runs)


def test_streams_of_another_split_or_of_other_classes_are_not_paired() -> None:
    lcwof, split, classes = (make_stream(name, [50.0]) for name in ("lcwof", "pn", "iw"))
    assert same_streams(lcwof, split) and same_streams(lcwof, classes)
    split.about["recipe"]["data"] = {"options": {"split": "original"}}
    classes.about["classes"] = {"base": 3, "val": 2, "novel": 4}
    assert not same_streams(lcwof, split) and not same_streams(lcwof, classes)


def test_every_measure_stands_under_its_own_name() -> None:
    run = unequal(make_stream("pn", [50.0, 50.0]))
    expected = {name: 10.0 * (at + 1) for at, name in enumerate(MEASURES)}
    last = {name: mean for name, (mean, _) in outcome(run).items() if name in MEASURES}
    assert last == {name: expected[name] for name in ("hm", "J/J", "B/J", "N/J")}
    lines = [line.strip("| ").split(" | ") for line in streams_markdown(run).splitlines()[2:]]
    shown = dict(zip(lines[0], lines[-1], strict=True))
    assert {name: shown[name] for name in MEASURES} == {name: f"{x:.2f} ± 0.00" for name, x in expected.items()}
