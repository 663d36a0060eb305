"""The page that explains an alert, and its pictures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vinedresser.explain.alerts.files import PAGE, SHEET
from vinedresser.explain.alerts.map_shift import MapShift, mean_map
from vinedresser.explain.charts.svg import Svg
from vinedresser.explain.examples.cells import Cell
from vinedresser.explain.examples.explained import Explained
from vinedresser.explain.examples.pictures import cell_sheet, contact_rows
from vinedresser.explain.formatting import number
from vinedresser.explain.reports.templating import write_page
from vinedresser.explain.saliency import SheetRow, Tile, sheet, sheet_png
from vinedresser.explain.saliency.overlays import overlay
from vinedresser.objects import LocalStorage

__all__ = ["ExplanationPage", "FeatureLine", "write_explanation"]

_MOST_FEATURES = 20


@dataclass(frozen=True)
class FeatureLine:
    """What a feature contributes to the outputs, of rows without maps.

    Attributes:
        now: mean magnitude in the requests, as a share of all features.
        before: the same in the baseline.
    """

    name: str
    now: float
    before: float


@dataclass(frozen=True, eq=False)
class ExplanationPage:
    """Contents of the page.

    Attributes:
        name: name of the monitor and of the window.
        text: what has drifted, or why that cannot be told.
        tone: "bad" of an alert; of another window "doubtful" if something cannot be told of it,
            else "good".
        features: the features that have drifted, in words.
        shift: whether the model looks elsewhere; None if that is not known.
        now: requests of the window; None if they could not be explained.
        before: examples of the baseline.
        groups: wrong or least confident predictions of the requests.
        problems: what could not be done.
        feature_names: names of the features of rows.
    """

    name: str
    text: str
    tone: str
    features: Sequence[str]
    shift: MapShift | None
    now: Explained | None
    before: Explained | None
    groups: Sequence[Cell]
    problems: Sequence[str]
    feature_names: Sequence[str] = ()

    @property
    def finding(self) -> str:
        """What was found, one sentence."""
        if self.now is None:
            return "could not be explained"
        return self.shift.text if self.shift is not None else "too few examples to compare"

    @property
    def completeness(self) -> str:
        """Whether the saliency accounts for the whole output."""
        return "" if self.now is None else str(self.now.result)

    @property
    def means(self) -> Svg | None:
        """Mean map of the requests beside that of the baseline; None of rows."""
        if self.now is None or self.before is None or self.now.result.map is None:
            return None
        drawn = [
            Tile(_mean(one), (text,))
            for one, text in ((self.now, "requests"), (self.before, "baseline"))
        ]
        return sheet("Mean saliency, over the mean image", [SheetRow("", drawn)])

    @property
    def contacts(self) -> Svg | None:
        """Requests above examples of the baseline, each with its map; None of rows."""
        rows = self.contact_rows()
        return sheet("Requests and baseline", rows) if rows else None

    @property
    def cells(self) -> list[tuple[str, Svg]]:
        """Groups of predictions with their title; [] of rows."""
        if self.now is None or self.now.result.map is None:
            return []
        return [(group.title, cell_sheet(self.now, group)) for group in self.groups]

    @property
    def lines(self) -> list[FeatureLine]:
        """What features contribute, those that changed most first; [] of images."""
        if self.now is None or self.before is None or self.now.result.map is not None:
            return []
        now, before = mean_map(self.now.looks).ravel(), mean_map(self.before.looks).ravel()
        order = np.argsort(-np.abs(now - before), kind="stable")[:_MOST_FEATURES]
        return [
            FeatureLine(self._feature(place), float(now[place]), float(before[place]))
            for place in order.tolist()
        ]

    def contact_rows(self) -> list[SheetRow]:
        """Return rows of images and maps: of the requests, then of the baseline."""
        if self.now is None or self.now.result.map is None:
            return []
        both = [("request", self.now)]
        if self.before is not None:
            both.append(("baseline", self.before))
        return [row for name, one in both for row in contact_rows(name, one)]

    def _feature(self, place: int) -> str:
        known = place < len(self.feature_names)
        return self.feature_names[place] if known else f"x{place}"


def write_explanation(page: ExplanationPage, folder: Path) -> None:
    """Write the page and, of images, the sheet of pictures as PNG.

    Args:
        page: contents of the page.
        folder: folder to write to, created if missing.

    Raises:
        StoreError: a file cannot be written.
    """
    write_page(folder / PAGE, "explanation.html.j2", page=page, number=number)
    rows = page.contact_rows()
    if rows:
        LocalStorage(folder).put(SHEET, [sheet_png(rows)])


def _mean(one: Explained) -> NDArray[np.uint8]:
    """Return the mean map over the mean image, uint8 [H, W, 3]."""
    image = one.inputs.astype(np.float64).mean(0)
    drawn = mean_map(one.looks).astype(np.float32)
    return overlay(image, drawn, channels_last=one.channels_last)
