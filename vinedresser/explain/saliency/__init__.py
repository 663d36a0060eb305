"""Saliency maps that account for the whole output of a model (FullGrad)."""

from __future__ import annotations

from vinedresser.errors import SaliencyError
from vinedresser.explain.saliency.explanation import saliency
from vinedresser.explain.saliency.overlays import overlay
from vinedresser.explain.saliency.result import BiasTerm, Saliency
from vinedresser.explain.saliency.sheets import SheetRow, Tile, sheet, sheet_html, sheet_png, tiles

__all__ = [
    "BiasTerm",
    "Saliency",
    "SaliencyError",
    "SheetRow",
    "Tile",
    "overlay",
    "saliency",
    "sheet",
    "sheet_html",
    "sheet_png",
    "tiles",
]
