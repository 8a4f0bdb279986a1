"""Finished runs turned into something to read: tables for the terminal, Markdown and JSON, figures, one HTML page.
Everything here is made from run folders alone, and no method is favoured: all are compared over the same episodes.
"""

from lcwof.report.compare import Paired, Setting, by_setting, label, paired_difference, same_episodes
from lcwof.report.curves import Curves, learning_curves, learning_curves_png, learning_curves_svg
from lcwof.report.html import write_report
from lcwof.report.scatter import balance_svg
from lcwof.report.streams import stream_table, streams_json, streams_markdown
from lcwof.report.table import as_json, markdown_table, results_table
from lcwof.report.words import what_happened

__all__ = [
    "Curves",
    "Paired",
    "Setting",
    "as_json",
    "balance_svg",
    "by_setting",
    "label",
    "learning_curves",
    "learning_curves_png",
    "learning_curves_svg",
    "markdown_table",
    "paired_difference",
    "results_table",
    "same_episodes",
    "stream_table",
    "streams_json",
    "streams_markdown",
    "what_happened",
    "write_report",
]
