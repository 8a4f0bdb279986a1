"""The frame of an HTML page: one file, nothing fetched."""

from __future__ import annotations

from html import escape

from lcwof import __version__
from lcwof.report.style import CSS


def html_page(title: str, body: str, script: str = "") -> str:
    """A whole page around a body, readable on a phone; `script` is what draws its figures."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{CSS}</style></head>\n"
        f"<body><main>{body}<footer>Made by lcwof {escape(__version__)} from run folders alone.</footer></main>"
        f"{script}</body></html>\n"
    )
