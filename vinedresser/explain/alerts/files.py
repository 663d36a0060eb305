"""Names of the files of an explanation."""

from __future__ import annotations

__all__ = ["FIGURES", "PAGE", "SHEET"]

PAGE = "explain.html"
SHEET = "sheet.png"
FIGURES = "figures.json"
