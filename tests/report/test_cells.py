"""What stands in which cell of a table with ours beside the paper's, and how it is written."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from streams_by_hand import make_stream

from lcwof.engine import Run, StreamRun
from lcwof.evaluation import MEASURES
from lcwof.report import beside
from lcwof.report.beside import beside_csv, beside_html, beside_json, beside_latex, beside_markdown
from lcwof.report.cells import Runs, compared
from lcwof.report.markup import told
from lcwof.report.reproduction import OurRow, Place, Reproduction, reproductions

KNOWN = reproductions()


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


def test_two_printed_rows_of_a_name_say_whose_numbers_they_are() -> None:
    what = KNOWN["mini-gfsl"]
    ours = {(Place("resnet12"), "5w1s", "aan"): episodes_run([50.0, 60.0])}
    rows = {row.name: row for row in compared(what, ours)[1].rows}
    assert "AAN" not in rows and len(rows) == len(compared(what, ours)[1].rows), "each name once"
    again, original = rows["AAN (code)"].cells[5], rows["AAN (original)"].cells[5]
    assert (again.printed, original.printed) == (54.76, 54.95) and again.mean == original.mean == 55.0
    other = dataclasses.replace(what, data="strokes")
    assert [row.name for part in compared(other, {}) for row in part.rows if "AAN" in row.name] == ["AAN", "AAN"]


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
    page = beside_html(what, parts, told(["A <note>."], ["Computed."]))
    assert '<td><b>55.00</b><i>± 9.80</i><div class="soft">54.39<i>(+0.61)</i></div></td>' in page
    assert (
        '<th scope="row">yes</th><td>–<div class="soft">53.28</div></td>' in page
        and "A &lt;note&gt;." in page.partition("<details>")[0]
    )
    assert "<li>Computed.</li>" in page.partition("<details>")[2], "folded away"
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
    assert "| 48.00 ± 0.00 (50.00)<br>56.66 (−6.66) |" in text and "that of the printed N/J and B/J" in text
    html = beside_html(what, parts, "")
    assert '<b>48.00</b><i>± 0.00</i><i>(50.00)</i><div class="soft">56.66<i>(−6.66)</i>' in html
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
            for shown, part in zip(compared(what, {}), what.paper.parts, strict=True):
                for ours, theirs in zip(shown.rows, part.rows, strict=False):  # ours that are not printed come last
                    assert ours.name in (theirs.name, f"{theirs.name} ({theirs.source})"), what.key
                    assert [cell.printed for cell in ours.cells] == list(theirs.cells)
                assert len(shown.rows) >= len(part.rows)


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
    assert '<td class="clear">−1.50<i>± 0.98</i></td>' in beside_html(what, [part], "")
    assert r"& $-1.50 \pm 0.98^{*}$ & 2 \\" in beside_latex(what, [part])


def test_a_table_goes_into_a_paper_and_into_a_spreadsheet() -> None:
    what = KNOWN["batch-norm"]
    parts = compared(what, {(Place("resnet12"), "5w1s", "bn-adapting"): episodes_run([50.0, 60.0])})
    latex = beside_latex(what, parts).splitlines()
    assert latex[3:6] == [r"\begin{tabular}{lrrrr}", r"\toprule", r" & 5w1s N/J & 5w1s B/J & 5w1s hm & over \\"]
    cell = r"55.00 $\pm$ 9.80"
    assert latex[7] == rf"no & {cell} (54.39) & {cell} (59.13) & {cell} (56.66) & 2 \\"
    assert latex[8] == r"yes & -- (53.28) & -- (63.24) & -- (57.83) & -- \\"
    first, *rows = beside_csv(what, parts).splitlines()
    assert first == "backbone,row,setting,measure,session,mean,interval,over,printed,of_means,difference"
    assert rows[0] == "resnet12,no,5w1s,N/J,,55.0,9.8,2,54.39,,0.61" and len(rows) == 6


def test_streams_that_repeat_each_other_count_once_in_a_cell() -> None:
    rows = [{"stream": s, "session": n, **dict.fromkeys(MEASURES, 40.0)} for s in (0, 1, 2) for n in range(1, 10)]
    about = {"listed": True, "recipe": {"stream": {"shuffle": False}}}
    first, *_ = compared(KNOWN["mini-ifsl"], {(Place("resnet12"), "5w5s", "pn"): StreamRun(Path("pn"), about, rows)})
    cells = {row.name: row.cells for row in first.rows}["PN"]
    assert {(cell.mean, cell.interval, cell.over) for cell in cells} == {(40.0, None, 1)}


def test_what_others_have_printed_since_stands_below() -> None:
    what = KNOWN["mini-ifsl-joint"]
    (part,) = compared(what, {})
    cells = {row.name: [cell.printed for cell in row.cells] for row in part.rows}
    assert cells["NC-FSCIL, since the paper"] == [84.02, *[None] * 7, 58.31] and list(cells)[-4].startswith("CEC")
    assert all(cell.mean is None for cell in part.rows[-1].cells)
    assert "ACASTLE" in " ".join(KNOWN["mini-gfsl"].remarks) and KNOWN["mini-gfsl"].remarks[2].startswith("Since the")
    (other,) = compared(dataclasses.replace(what, data="strokes"), {})
    assert not [row for row in other.rows if "since" in row.name], "printed numbers are of the paper's data"


def test_rows_of_streams_are_paired_in_their_last_session() -> None:
    runs: Runs = {
        (Place("resnet12"), "5w5s", "lcwof"): make_stream("lcwof", [40.0, 44.0]),
        (Place("resnet12"), "5w5s", "pn"): make_stream("pn", [39.0, 42.0]),
    }
    first, *_ = compared(KNOWN["mini-ifsl"], runs)
    apart = {row.name: row.apart for row in first.rows if row.apart}
    assert {name: found["5w5s"].mean for name, found in apart.items()} == {"PN": -1.5}
    assert '| 5w5s hm of the last session to "LCwoF lim" |' in beside_markdown(KNOWN["mini-ifsl"], [first], [])
