"""Reports are checked on runs written by hand, so that every expected number can be worked out on paper."""

from __future__ import annotations

import dataclasses
import json
import re
from html.parser import HTMLParser
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from plotly.offline import get_plotlyjs
from rich.console import Console
from runs_by_hand import four_answers_twice, lcwof_with_curves, make_curves, make_run

from lcwof.errors import LcwofError
from lcwof.report import (
    as_json,
    label,
    learning_curves,
    markdown_table,
    paired_difference,
    results_table,
    what_happened,
    write_report,
)


def body_rows(markdown: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in markdown.splitlines()[2:]]


def test_tables_show_mean_and_interval_to_the_digit() -> None:
    run = make_run("iw", [50.0, 54.0])  # s = 2.8284, so 1.96 s / sqrt(2) = 3.92
    row = body_rows(markdown_table([run]))[0]
    assert row[:4] == ["digits", "5w1s", "iw", "2"]
    assert row[4:6] == ["80.00 ± 0.00", "90.00 ± 0.00"]
    assert row[6:] == ["52.00 ± 3.92", "52.00 ± 3.92", "**52.00 ± 3.92**", "52.00 ± 3.92"]
    found = as_json([run])[0]
    assert found["measures"]["hm"] == {"mean": 52.0, "interval": 3.92}
    assert found["episodes"] == 2


def test_wide_intervals_still_fit_into_80_columns() -> None:
    runs = [make_run("protogan", [0.0, 100.0, 90.0]), make_run("lcwof", [100.0, 10.0, 80.0])]
    printed = StringIO()
    Console(file=printed, width=80).print(results_table(runs))
    lines = printed.getvalue().splitlines()
    assert max(map(len, lines)) <= 80 and all(f" {name}" in lines[1] for name in ("hm", "to lcwof"))
    assert "+0.00±107.95?" in printed.getvalue() and "? where that may be chance" in lines[-2]
    for run in runs:
        mean, interval = run.summary()["hm"]
        assert interval > 10 and sum(f"{mean:.1f}±{interval:.1f}" in line for line in lines) == 1


def test_rows_are_grouped_by_setting_and_sorted_by_hm() -> None:
    runs = [
        make_run("pn", [40.0, 41.0], shot=5),
        make_run("ft", [30.0, 31.0]),
        make_run("lcwof", [50.0, 51.0]),
        make_run("iw", [60.0, 61.0], shot=5),
        make_run("iw", [70.0, 71.0], data="cub"),
    ]
    order = [(row[0], row[1], row[2]) for row in body_rows(markdown_table(runs))]
    assert order == [
        ("cub", "5w1s", "iw"),
        ("digits", "5w1s", "lcwof"),
        ("digits", "5w1s", "ft"),
        ("digits", "5w5s", "iw"),
        ("digits", "5w5s", "pn"),
    ]
    assert [row["method"] for row in as_json(runs)] == ["iw", "lcwof", "ft", "iw", "pn"]


@pytest.mark.parametrize("width", [80, 140])
def test_the_terminal_table_loses_nothing_in_a_narrow_window(width: int) -> None:
    console = Console(width=width, record=True, file=StringIO())
    console.print(results_table([make_run("[red]", [50.0, 54.0]), make_run("lcwof", [20.0, 21.0])]))
    text = console.export_text()
    assert "[red]" in text  # a name is not markup
    assert text.count("52.00") == 3 and "+31.50±2.94" in text
    assert max(map(len, text.splitlines())) <= width


def test_a_single_episode_has_no_interval() -> None:
    run = make_run("iw", [50.0])
    assert body_rows(markdown_table([run]))[0][8] == "**50.00**"
    assert json.loads(json.dumps(as_json([run]), allow_nan=False))[0]["measures"]["hm"]["interval"] is None


def test_the_difference_is_paired_by_episode() -> None:
    iw, lcwof = make_run("iw", [32.0, 62.0, 90.0]), make_run("lcwof", [30.0, 60.0])
    paired = paired_difference(iw, lcwof)
    assert paired is not None
    assert (paired.mean, paired.interval, paired.episodes) == (2.0, 0.0, 2)
    assert paired.clear


def test_tables_say_how_far_from_lcwof_and_whether_that_may_be_chance() -> None:
    runs = [make_run("iw", [52.0, 62.0]), make_run("lcwof", [50.0, 60.0]), make_run("ft", [48.0, 61.0])]
    assert [row[-1] for row in body_rows(markdown_table(runs))] == ["+2.00 ± 0.00", "–", "−0.50 ± 2.94, may be chance"]
    assert {row["compared with"] for row in as_json(runs)} == {"lcwof"}
    assert [row["difference"] for row in as_json(runs)] == [
        {"hm": 2.0, "interval": 0.0, "clear": True, "episodes": 2},
        None,
        {"hm": -0.5, "interval": 2.94, "clear": False, "episodes": 2},
    ]
    elsewhere = [runs[1], make_run("pn", [40.0, 41.0], seed=1)]
    assert [row[-1] for row in body_rows(markdown_table(elsewhere))] == ["–", "other episodes"]
    assert " to " not in markdown_table([runs[0]])
    others = markdown_table([runs[0], runs[2]])
    mixed = markdown_table(
        [runs[0], runs[2], make_run("lcwof", [9.0, 8.0], shot=5), make_run("pn", [9.0, 9.0], shot=5)]
    )
    assert "| hm to lcwof or the best |" in mixed
    assert "| hm to the best |" in others, "without lcwof the first is what others are compared with"
    assert [row[-1] for row in body_rows(others)] == ["–", "−2.50 ± 2.94, may be chance"]


def test_other_seeds_are_other_episodes() -> None:
    runs = [make_run("iw", [50.0, 52.0], seed=1), make_run("lcwof", [40.0, 42.0])]
    assert paired_difference(*runs) is None
    assert "did not run the same episodes" in what_happened(runs)[0].lead


def test_the_ranking_names_whoever_is_first() -> None:
    high, low = [52.0, 62.0, 72.5], [50.0, 60.0, 70.0]
    ours = what_happened([make_run("lcwof", high), make_run("iw", low)])[0].lead
    theirs = what_happened([make_run("lcwof", low), make_run("iw", high)])[0].lead
    assert ours.startswith("lcwof came first with hm 62.17")
    assert theirs.startswith("iw came first with hm 62.17")
    assert "lcwof, the next, has hm 60.00" in theirs
    difference = "a difference of +2.17 ± 0.33 over the same 3 episodes, more than its 95% interval."
    assert ours.endswith(difference)
    assert theirs.endswith(difference)


def test_the_ranking_says_when_the_order_may_be_chance() -> None:
    lead = what_happened([make_run("lcwof", [50.0, 60.0]), make_run("iw", [56.0, 55.0])])[0].lead
    assert "within its 95% interval: the order may be chance" in lead


def test_a_lower_placed_lcwof_is_compared_with_the_first() -> None:
    runs = [make_run("lcwof", [50.0, 51.0]), make_run("iw", [60.0, 61.0]), make_run("pn", [58.0, 59.5])]
    lead = what_happened(runs)[0].lead
    assert lead.startswith("iw came first")
    assert "lcwof, in place 3 of 3, has hm 50.50" in lead


def test_the_account_says_what_each_phase_did() -> None:
    sentence = what_happened([lcwof_with_curves()])[0].further[0]
    assert "after phase 2: leaning to the novel classes, N/J 79.5, B/J 20.0; B/B kept at 89.5" in sentence
    assert "After phase 3: balanced, N/J 70.5, B/J 68.0; B/B kept at 89.5; hm rose from 32.0 to 69.2." in sentence


def test_other_base_models_are_pointed_out() -> None:
    runs = [make_run("lcwof", [50.0, 51.0]), make_run("iw", [60.0, 61.0], model={"data": "another"})]
    assert any("same base model" in sentence for sentence in what_happened(runs)[0].further)


def test_phase_3_continues_where_phase_2_ended() -> None:
    curves = learning_curves(lcwof_with_curves())
    assert curves is not None
    assert curves.epochs == (0, 5, 10, 10, 14)
    assert [(p.name, p.start, p.end) for p in curves.phases] == [("phase 2", 0, 10), ("phase 3", 10, 14)]
    assert set(curves.mean) == {"N/N", "B/B", "N/J", "B/J", "hm"}
    assert curves.mean["N/J"] == [0.5, 50.5, 79.5, 79.5, 70.5]
    assert curves.interval["N/J"] == pytest.approx([0.98] * 5)


def test_phase_3_starts_after_all_of_phase_2_even_if_its_end_was_not_measured() -> None:
    run = lcwof_with_curves()
    run.about["recipe"]["method"]["phase2"]["epochs"] = 12
    curves = learning_curves(run)
    assert curves is not None
    assert curves.epochs == (0, 5, 10, 12, 16)


def test_a_method_of_one_phase_has_a_curve_and_a_closed_form_has_none() -> None:
    ft = make_run("ft", [40.0, 41.0], curves=make_curves([("fine-tuning", e, e, 90 - e, 90.0) for e in (0, 20, 40)]))
    curves = learning_curves(ft)
    assert curves is not None and curves.phases[0].name == "fine-tuning" and curves.epochs == (0, 20, 40)
    pn = make_run("pn", [40.0, 41.0], curves=make_curves([("prototypes", 1, 40.0, 40.0, 90.0)]))
    assert learning_curves(pn) is None


def test_curves_measured_at_different_epochs_are_refused() -> None:
    run = lcwof_with_curves()
    run.curves[1]["epoch"] = [0, 6, 10, 0, 4]
    with pytest.raises(LcwofError, match="different epochs"):
        learning_curves(run)


def test_runs_of_one_method_are_told_apart_by_their_folders() -> None:
    first, second = make_run("lcwof", [50.0, 51.0]), make_run("lcwof", [60.0, 61.0])
    second.path = Path("runs/longer")
    assert label(second, [first, second]) == "lcwof (longer)"
    assert label(second, [second]) == "lcwof"


class _Tags(HTMLParser):
    """Which elements and attributes a page has, and whether every element opened is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.found: set[str] = set()
        self.attributes: set[str] = set()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


EVIL = "<script>alert(1)</script>\"'$x$&"


def test_the_page_stands_alone_and_escapes_everything(tmp_path: Path) -> None:
    tuning = {"why": f"best of 3 {EVIL}", "settings": {EVIL: EVIL}}
    evil = make_run(EVIL, [40.0, 44.0], data=EVIL, tuning=tuning, hardware=EVIL, versions={EVIL: EVIL})
    evil.curves = make_curves([(EVIL, 0, 10.0, 90.0, 90.0), (EVIL, 9, 40.0, 50.0, 90.0)])
    evil.answers = dataclasses.replace(four_answers_twice(), base=(EVIL, "b"))
    path = write_report([evil, lcwof_with_curves(), make_run("iw", [60.0, 61.0])], tmp_path / "r.html", EVIL)
    page = path.read_text()
    assert page.count(get_plotlyjs()) == 1
    page = page.replace(get_plotlyjs(), "")
    tags = _Tags()
    tags.feed(page)
    assert tags.open == []
    assert not tags.found & {"link", "img", "iframe"}
    assert not {name for name in tags.attributes if name.startswith("on") or name == "src"}
    assert page.count("<script") == page.count("</script>") == page.count('class="plot"') + 2
    addresses = set(re.findall(r"https?://[^\s\"'<>)]*", page))
    assert all(address.startswith("http://www.w3.org/") for address in addresses)
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert 'name="viewport"' in page
    assert "prefers-color-scheme: dark" in page
    for kind in ("svg", "png"):
        assert page.count(f'data-format="{kind}"') == page.count("<figure>"), "each can be saved"
    assert page.count("<figure>") == 2 + 2 * 2 + 2  # curves of two runs, two figures a setting, answers of one run


def test_the_page_shows_the_numbers_and_the_difference_to_lcwof(tmp_path: Path) -> None:
    runs = [make_run("lcwof", [50.0, 60.0]), make_run("iw", [48.0, 58.0])]
    page = write_report(runs, tmp_path / "r.html", "demo").read_text()
    assert "<b>55.00</b><i>± 9.80</i>" in page
    assert '<td class="clear">−2.00<i>± 0.00</i></td>' in page
    assert '<td class="close">–</td>' in page
    assert page.index('<tr class="first"><th scope="row">lcwof') < page.index('<tr><th scope="row">iw')
    runs = [make_run("lcwof", [50.0, 60.0]), make_run("ft", [48.0, 61.0])]
    page = write_report(runs, tmp_path / "r.html", "demo").read_text()
    assert '<td class="close">−0.50<i>± 2.94</i><small>may be chance</small></td>' in page


def test_a_report_of_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LcwofError, match="no runs"):
        write_report([], tmp_path / "r.html", "demo")
    with pytest.raises(LcwofError, match="no episodes"):
        write_report([make_run("iw", [])], tmp_path / "r.html", "demo")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "other", [{"queries": {"novel": 15, "base": 5}}, {"classes": {"base": 5, "val": 1, "novel": 4}}]
)
def test_other_queries_or_classes_are_other_episodes(other: dict[str, Any]) -> None:
    lcwof = make_run("lcwof", [40.0, 42.0])
    assert paired_difference(make_run("iw", [50.0, 52.0]), lcwof) is not None
    assert paired_difference(make_run("iw", [50.0, 52.0], **other), lcwof) is None


def test_another_split_of_the_data_is_other_episodes() -> None:
    lcwof, iw = make_run("lcwof", [40.0, 42.0]), make_run("iw", [50.0, 52.0])
    iw.about["recipe"]["data"]["options"] = {"split": "original"}
    assert paired_difference(iw, lcwof) is None


def test_methods_that_were_not_tuned_are_named() -> None:
    runs = [make_run("lcwof", [50.0, 51.0], tuning={"why": "x", "settings": {}}), make_run("iw", [60.0, 61.0])]
    assert any(sentence.endswith("not so: iw.") for sentence in what_happened(runs)[0].further)
    assert not any("not so" in sentence for sentence in what_happened(runs[:1])[0].further)
    as_they_are = "No settings were chosen on validation classes: the ranking is that of the settings as they are."
    assert as_they_are in what_happened([make_run("lcwof", [50.0, 51.0]), runs[1]])[0].further
    assert as_they_are not in what_happened(runs)[0].further + what_happened(runs[1:])[0].further


def test_phases_in_turns_take_no_more_room_than_was_measured() -> None:
    run = lcwof_with_curves()
    run.about["recipe"]["method"] |= {"alternate": 5, "phase2": {"epochs": 150}}
    curves = learning_curves(run)
    assert curves is not None and [(p.start, p.end) for p in curves.phases] == [(0, 10), (10, 14)]


def test_the_highest_hm_alone_is_bold() -> None:
    rows = markdown_table([make_run("pn", [40.0, 41.0]), make_run("lcwof", [50.0, 51.0])]).splitlines()[2:]
    assert [(row.split("|")[3].strip(), row.count("**")) for row in rows] == [("lcwof", 2), ("pn", 0)]
