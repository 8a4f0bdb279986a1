"""Finished runs turned into something to read: tables for the terminal, Markdown and JSON, figures, one HTML page.
Everything is made from run folders, and no method is favoured: all are compared over the same episodes. Beside them
stand the numbers that the paper prints (`paper_tables`).
"""

from lcwof.report.calibration import Calibration, Reliability, calibration, expected_calibration_error, reliability
from lcwof.report.compare import Paired, Setting, by_setting, label, paired_difference, same_episodes
from lcwof.report.confusion import Confusion, Mistakes, class_accuracies, confusion, mistakes
from lcwof.report.curves import Curves, learning_curves
from lcwof.report.export import csv_streams, csv_table, latex_streams, latex_table
from lcwof.report.html import write_report
from lcwof.report.paper import PaperFigure, PaperTable, paper_figures, paper_table, paper_tables
from lcwof.report.stream_compare import compared_markdown, streams_json
from lcwof.report.streams import sessions_table, stream_table, streams_markdown
from lcwof.report.table import as_json, markdown_table, results_table
from lcwof.report.tradeoff import Swept, Tradeoff, area_under_tradeoff, swept, tradeoff
from lcwof.report.words import what_happened

__all__ = [
    "Calibration",
    "Confusion",
    "Curves",
    "Mistakes",
    "Paired",
    "PaperFigure",
    "PaperTable",
    "Reliability",
    "Setting",
    "Swept",
    "Tradeoff",
    "area_under_tradeoff",
    "as_json",
    "by_setting",
    "calibration",
    "class_accuracies",
    "compared_markdown",
    "confusion",
    "csv_streams",
    "csv_table",
    "expected_calibration_error",
    "label",
    "latex_streams",
    "latex_table",
    "learning_curves",
    "markdown_table",
    "mistakes",
    "paired_difference",
    "paper_figures",
    "paper_table",
    "paper_tables",
    "reliability",
    "results_table",
    "same_episodes",
    "sessions_table",
    "stream_table",
    "streams_json",
    "streams_markdown",
    "swept",
    "tradeoff",
    "what_happened",
    "write_report",
]
