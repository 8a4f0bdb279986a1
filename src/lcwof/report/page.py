"""The frame of an HTML page: one file, nothing fetched."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from lcwof import __version__
from lcwof.report.style import CSS


def html_page(title: str, body: str) -> str:
    """A whole page around a body, readable on a phone."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{CSS}</style></head>\n"
        f"<body><main>{body}<footer>Made by lcwof {escape(__version__)} from run folders alone.</footer></main>"
        "</body></html>\n"
    )


def plotly_body(figures: Sequence[Any]) -> str:
    """Interactive figures one below the other, with the one copy of plotly that they share."""
    from plotly.io import to_html
    from plotly.offline import get_plotlyjs

    shown = [
        to_html(figure, include_plotlyjs=False, full_html=False, config={"responsive": True, "displaylogo": False})
        for figure in figures
    ]
    return f"<script>{get_plotlyjs()}</script>" + "".join(f'<div class="card">{each}</div>' for each in shown)
