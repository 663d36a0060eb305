"""Saliency maps laid over images, and sheets of them."""

from __future__ import annotations

import base64
import io
import xml.etree.ElementTree as ET
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import nn

from tests.explain.saliency.models import classifier, drawn
from vinedresser.explain.saliency import (
    Saliency,
    SaliencyError,
    SheetRow,
    Tile,
    overlay,
    saliency,
    sheet,
    sheet_html,
    sheet_png,
    tiles,
)


def decoded(png: bytes) -> NDArray[np.uint8]:
    with Image.open(io.BytesIO(png)) as picture:
        return np.array(picture)


def explained() -> tuple[NDArray[np.float64], Saliency]:
    model = drawn(nn.Sequential(nn.Conv2d(3, 4, 3), nn.SiLU(), classifier(4)))
    images = torch.randn(2, 3, 8, 12, dtype=torch.float64)
    return images.numpy(), saliency(model, images, [1, 3])


def test_where_the_map_is_zero_the_image_shows_in_grey() -> None:
    image = np.zeros((3, 2, 2))
    image[:, 1, 1] = 1
    image[0, 0, 1] = 1
    saliency_map = np.array([[0.0, 0.0], [4.0, -4.0]])
    drawn_over = overlay(image, saliency_map)
    assert drawn_over[0].tolist() == [[0, 0, 0], [85, 85, 85]]
    # 85 % of the colour on black, and on white.
    assert drawn_over[1].tolist() == [[217, 91, 0], [38, 114, 255]]


def test_the_least_value_of_a_map_without_signs_has_no_colour() -> None:
    image = np.linspace(0, 1, 4).reshape(2, 2)
    grey = overlay(image, np.zeros((2, 2)))
    assert overlay(image, np.full((2, 2), 7.0)).tolist() == grey.tolist()
    higher = overlay(image, np.array([[3.0, 4.0], [5.0, 9.0]]))
    lower = overlay(image, np.array([[0.0, 1.0], [2.0, 6.0]]))
    assert higher.tolist() == lower.tolist()


def test_the_order_of_channels_does_not_matter() -> None:
    image, saliency_map = np.random.default_rng(0).random((3, 4, 5)), np.eye(4, 5)
    last = overlay(np.moveaxis(image, 0, -1), saliency_map, channels_last=True)
    assert np.array_equal(overlay(image, saliency_map), last)


def test_each_map_has_its_completeness_error() -> None:
    images, result = explained()
    (first, drawn_first), (second, drawn_second) = tiles(images, result, classes=["a", "b"])
    assert first.lines == (f"b: {result.outputs[0]:.4g}",)
    assert second.lines == (f"output 3: {result.outputs[1]:.4g}",)
    for tile, error in zip((drawn_first, drawn_second), result.completeness_error, strict=True):
        assert tile.lines == (f"complete, error {error:.1g}",)
        assert tile.pixels.shape == (8, 12, 3)


def test_a_sheet_contains_all_pictures_and_texts() -> None:
    images, result = explained()
    rows = [SheetRow(f"request <{i}>", row) for i, row in enumerate(tiles(images, result))]
    svg = sheet("Alert", rows)
    root = ET.fromstring(svg)
    found = list(root.iter("{http://www.w3.org/2000/svg}image"))
    urls = [one.get("href", "") for one in found]
    expected = [tile.pixels for row in rows for tile in row.tiles]
    for url, pixels in zip(urls, expected, strict=True):
        assert np.array_equal(decoded(base64.b64decode(url.partition(",")[2])), pixels)
    texts = {one.text for one in root.iter("{http://www.w3.org/2000/svg}text")}
    lines = {line for row in rows for tile in row.tiles for line in tile.lines}
    assert texts == {"Alert", "request <0>", "request <1>", *lines}
    # Wide pictures keep their shape.
    width, height = float(found[0].get("width", "")), float(found[0].get("height", ""))
    assert width / height == pytest.approx(12 / 8, rel=1e-3)
    assert svg in sheet_html("Alert", rows)

    png = decoded(sheet_png(rows))
    assert np.array_equal(png[:8, :12], expected[0])
    assert np.array_equal(png[-8:, -12:], expected[3])


IMAGE = np.zeros((3, 4, 4))


@pytest.mark.parametrize(
    ("work", "message"),
    [
        (lambda: overlay(IMAGE, np.zeros((4, 5))), r"shape \[4, 5\]; it must be .*\[4, 4\]"),
        (lambda: overlay(np.zeros(3), np.zeros(3)), r"shape \[3\] is not an image"),
        (lambda: tiles(IMAGE[None], explained()[1]), "1 images, but 2 saliency maps"),
        (lambda: sheet("", []), "rows of one to 8 tiles"),
        (lambda: sheet("", [SheetRow("", [])]), "rows of one to 8 tiles"),
        (lambda: sheet("", [SheetRow("", [Tile(IMAGE.astype(np.uint8))] * 9)]), "one to 8 tiles"),
    ],
)
def test_bad_input_is_named(work: Any, message: str) -> None:
    with pytest.raises(SaliencyError, match=message):
        work()


def test_an_explanation_of_rows_has_no_picture() -> None:
    result = saliency(nn.Linear(4, 3), torch.ones(2, 4))
    with pytest.raises(SaliencyError, match="has no maps"):
        tiles(np.ones((2, 4)), result)
