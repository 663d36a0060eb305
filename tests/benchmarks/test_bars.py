"""Pictures of the figures that users read first."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest

from benchmarks.bars import DOCUMENT, Chart, charts, svg

CHARTS = charts(DOCUMENT.read_text(encoding="utf-8"))


def test_the_document_has_five_charts() -> None:
    assert len(CHARTS) == 5


@pytest.mark.parametrize("chart", CHARTS, ids=lambda one: one.place)
def test_a_picture_shows_the_figures_of_its_table(chart: Chart) -> None:
    drawn = (DOCUMENT.parent / chart.place).read_text(encoding="utf-8")
    assert drawn == svg(chart), "run: python -m benchmarks.bars"
    tree = ET.fromstring(drawn)
    texts = [one.text or "" for one in tree.iter("{http://www.w3.org/2000/svg}text")]
    assert texts[0] == chart.unit
    assert texts[1::2] == [bar.label for bar in chart.bars]
    assert [float(text) for text in texts[2::2]] == [bar.value for bar in chart.bars]
