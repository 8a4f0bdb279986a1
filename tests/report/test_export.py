"""Tables for papers and spreadsheets, to the digit."""

from __future__ import annotations

import csv
from io import StringIO

from rich.console import Console
from runs_by_hand import make_run
from streams_by_hand import make_stream, unequal

from lcwof.evaluation import MEASURES
from lcwof.report import csv_streams, csv_table, latex_streams, latex_table, results_table


def test_latex_is_a_booktabs_tabular_with_the_best_hm_in_bold() -> None:
    runs = [make_run("lcwof", [50.0, 54.0]), make_run("my_method", [49.0, 53.0]), make_run("pn", [40.0], shot=5)]
    lines = latex_table(runs).splitlines()
    assert lines[2:6] == [
        r"\begin{tabular}{lrrrrrrr}",
        r"\toprule",
        r"method & N/N & B/B & N/J & B/J & hm & am & hm to lcwof \\",
        r"\midrule",
    ]
    assert lines[6] == r"\multicolumn{8}{l}{digits, 5-way 1-shot, 2 episodes} \\"
    own, joint = r"$80.00 \pm 0.00$ & $90.00 \pm 0.00$", r"$52.00 \pm 3.92$"
    assert lines[7] == rf"lcwof & {own} & {joint} & {joint} & $\mathbf{{52.00 \pm 3.92}}$ & {joint} & -- \\"
    assert lines[8].startswith(r"my\_method & ") and lines[8].endswith(r"$-1.00 \pm 0.00^{*}$ \\")
    assert lines[9] == r"\midrule"
    assert r"$\mathbf{40.00}$" in lines[11], "a single episode has no interval"
    assert lines[-2:] == [r"\bottomrule", r"\end{tabular}"]


def test_where_runs_have_other_numbers_of_episodes_each_row_says_its_own() -> None:
    runs = [make_run("lcwof", [50.0, 54.0]), make_run("pn", [40.0, 41.0, 42.0]), make_run("iw", [40.0], shot=5)]
    latex = latex_table(runs)
    assert "digits, 5-way 1-shot, 2--3 episodes" in latex
    assert "\nlcwof, 2 episodes & " in latex and "\npn, 3 episodes & " in latex and "\niw & " in latex
    console = Console(width=80, record=True, file=StringIO())
    console.print(results_table(runs))
    assert "pn, 3" in console.export_text(clear=False) and "iw, 1" not in console.export_text()


def test_a_long_name_stands_in_one_line_of_a_terminal() -> None:
    for name, last in (("CosineNCM", "hm"), ("pn", "am")):
        console = Console(width=80, record=True, file=StringIO())
        console.print(results_table([make_run(name, [50.0, 54.0])]))
        text = console.export_text()
        assert f"{name} " in text and text.splitlines()[1].split()[-1] == last, text


def test_names_print_as_they_are_in_latex() -> None:
    text = latex_table([make_run("m", [50.0, 54.0], data="a_b%{c}\\d~e\nf")])
    assert r"a\_b\%\{c\}\textbackslash{}d\textasciitilde{}e f, 5-way" in text
    assert "lcwof" not in text


def test_csv_has_a_row_a_run_with_mean_and_interval() -> None:
    runs = [make_run("lcwof", [50.0, 60.0]), make_run("ft", [48.0, 61.0]), make_run('a,"b', [40.0], shot=5)]
    rows = list(csv.DictReader(StringIO(csv_table(runs))))
    assert [(row["method"], row["way"], row["shot"], row["episodes"]) for row in rows] == [
        ("lcwof", "5", "1", "2"),
        ("ft", "5", "1", "2"),
        ('a,"b', "5", "5", "1"),
    ]
    first, second, third = rows
    assert (first["hm"], first["hm interval"], first["hm difference"]) == ("55.0000", "9.8000", "")
    paired = [second["compared with"], *(second[f"hm difference{which}"] for which in ("", " interval", " clear"))]
    assert paired == ["lcwof", "-0.5000", "2.9400", "no"]
    assert (third["N/J"], third["N/J interval"]) == ("40.0000", "")


def test_streams_in_latex_have_a_column_a_session() -> None:
    lines = latex_streams([make_stream("pn", [50.0, 54.0]), make_stream("lcwof", [59.0, 61.0])]).splitlines()
    assert lines[2:5] == [r"\begin{tabular}{lr}", r"\toprule", r"hm, session & 2 \\"]
    assert lines[6:8] == [r"lcwof & $\mathbf{60.00 \pm 1.96}$ \\", r"pn & $52.00 \pm 3.92$ \\"]
    joint = lines.index(r"J/J, session & 1 & 2 \\")
    assert lines[joint + 3] == r"pn & $\mathbf{80.00 \pm 0.00}$ & $52.00 \pm 3.92$ \\"
    assert [line for line in lines if line.startswith("% a_b")], "the setting, in a comment"


def test_streams_in_csv_have_a_row_a_session() -> None:
    first, second = csv.DictReader(StringIO(csv_streams([make_stream("pn", [50.0, 54.0])])))
    assert (first["session"], first["J/J"], first["hm"], first["images kept"]) == ("1", "80.0000", "", "10")
    assert (second["streams"], second["classes"], second["hm"], second["hm interval"]) == (
        "2",
        "6",
        "52.0000",
        "3.9200",
    )
    assert first["forgetting"] == "" and second["drop"] == "28.0000"


def test_streams_in_latex_end_with_what_the_runs_come_to() -> None:
    text = latex_streams([make_stream("my_method", [50.0, 54.0]), make_stream("lcwof", [59.0, 61.0])])
    lines = text[text.rindex(r"\begin{tabular}") :].splitlines()
    assert lines[2] == r"method & hm & hm to lcwof & J/J & B/J & N/J & drop & average & forgetting & images kept \\"
    last, ends = r"$60.00 \pm 1.96$", r"$20.00 \pm 1.96$ & $70.00 \pm 0.98$ & $10.00 \pm 0.00$ & 20 \\"
    assert lines[4] == rf"lcwof & $\mathbf{{60.00 \pm 1.96}}$ & -- & {last} & {last} & {last} & {ends}"
    assert lines[5].startswith(r"my\_method & $52.00 \pm 3.92$ & $-8.00 \pm 1.96^{*}$ & ")


def test_streams_in_csv_say_in_the_last_session_how_they_differ() -> None:
    runs = [make_stream("pn", [50.0, 54.0]), make_stream("lcwof", [51.0, 51.0])]
    rows = list(csv.DictReader(StringIO(csv_streams(runs))))
    names = ["compared with", *(f"hm difference{which}" for which in ("", " interval", " clear"))]
    assert [row["method"] for row in rows] == ["pn", "pn", "lcwof", "lcwof"]
    found = [[row[name] for name in names] for row in rows]
    assert found == [[""] * 4, ["lcwof", "1.0000", "3.9200", "no"], [""] * 4, [""] * 4]


def test_every_measure_stands_in_its_own_column() -> None:
    run, expected = make_run("pn", [50.0, 50.0]), {name: 10.0 * (at + 1) for at, name in enumerate(MEASURES)}
    for row in run.rows:
        row |= expected
    (found,) = csv.DictReader(StringIO(csv_table([run])))
    *_, last = csv.DictReader(StringIO(csv_streams([unequal(make_stream("pn", [50.0, 50.0]))])))
    for each in (found, last):
        assert {name: float(each[name]) for name in MEASURES} == expected
