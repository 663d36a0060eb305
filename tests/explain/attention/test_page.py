"""The attention page: what it shows of each head, and its size."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.explain.reports.pages import Page
from vinedresser.errors import ConfigError
from vinedresser.explain.attention import Attention, write_attention
from vinedresser.explain.attention.cells import MASKED
from vinedresser.explain.charts.palette import FIRST_LEVEL, LEVELS, NONE, ZERO

WORDS = ["[CLS]", "the", "dog", "[SEP]"]


def diagonal() -> Any:
    """Return two heads of four tokens: to itself, and to the last; the second query is masked."""
    weights = np.stack([np.eye(4), np.tile([0.0, 0, 0, 1], (4, 1))])
    weights[:, 1] = np.nan
    return weights


def page(path: Path, attention: Attention, **options: Any) -> Page:
    return Page(write_attention(attention, path / "page.html", **options))


def test_every_weight_is_a_cell_of_the_grid(tmp_path: Path) -> None:
    found = page(tmp_path, Attention.of({"encoder.0": diagonal(), "encoder.1": diagonal()}))
    grid = found.all_figures("chart heat")[0]
    found.figures = [grid]
    cells = found.cells()
    top = FIRST_LEVEL + LEVELS - 1
    assert cells.shape == (9, 9)
    assert (cells[4] == NONE).all()
    assert (cells[:, 4] == NONE).all()
    first = np.full((4, 4), ZERO)
    np.fill_diagonal(first, top)
    first[1] = MASKED
    np.testing.assert_array_equal(cells[:4, :4], first)
    np.testing.assert_array_equal(cells[5:, 5:][:, 3], [top, MASKED, top, top])
    titles = [one.text for one in grid.iter("title")]
    assert titles[2] == "encoder.1, head 0"


def test_the_statistics_have_numbers(tmp_path: Path) -> None:
    found = page(tmp_path, Attention.of({"block": diagonal()}), tokens=WORDS)
    assert "block 1 0 0 1.33 1 0.333 0 1 0.25" in found.text
    assert "Masked queries share, up to 0.25" in found.text


def test_lines_lead_to_the_keys_of_a_query(tmp_path: Path) -> None:
    found = page(tmp_path, Attention.of({"block": diagonal()}), tokens=WORDS)
    first, second = found.all_figures("chart head")
    assert [one.text for one in first.iter("text")] == WORDS + WORDS
    struck = [one.text for one in first.iter("text") if "masked" in one.get("class", "")]
    assert struck == ["the"]

    def ends(figure: Any) -> list[tuple[str, str]]:
        (lines,) = figure.iter("path")
        parts = lines.get("d").replace("M", "L").split("L")[1:]
        heights = [float(part.split()[1]) for part in parts]
        words = [WORDS[int(height // 13)] for height in heights]
        return list(zip(words[::2], words[1::2], strict=True))

    assert ends(first) == [("[CLS]", "[CLS]"), ("dog", "dog"), ("[SEP]", "[SEP]")]
    assert ends(second) == [("[CLS]", "[SEP]"), ("dog", "[SEP]"), ("[SEP]", "[SEP]")]


def test_ids_become_tokens(tmp_path: Path) -> None:
    attention = Attention(
        Attention.of({"block": diagonal()[None]}).layers, "", np.array([[7, 8, 9, 3]])
    )
    names = {7: "seven", 8: "eight", 9: "<b>nine</b>", 3: "</s>"}
    found = page(tmp_path, attention, tokenizer=lambda ids: [names[one] for one in ids])
    assert "<b>nine" not in found.html
    assert "<b>nine</b>" in [text.text for text in found.figure_texts("chart head")]
    assert "To separators" in found.text
    plain = page(tmp_path, attention)
    assert {"7", "8", "9", "3"} <= {text.text for text in plain.figure_texts("chart head")}


@pytest.mark.thorough
def test_long_sequences_and_many_heads_are_bounded_and_said(tmp_path: Path) -> None:
    weights = np.random.default_rng(0).dirichlet(np.ones(150), size=(17, 150))
    layers = {f"layer{place}": weights.astype(np.float32) for place in range(25)}
    found = page(tmp_path, Attention.of(layers), start=100)
    assert len(found.html) < 4_000_000
    assert "matrices of 150 tokens are drawn in 48 x 48 cells" in found.text
    assert "24 of 25 layers" in found.text
    assert "the first 16 of 17 heads" in found.text
    assert "tokens 100 to 131" in found.text
    shown = [text.text for text in found.figure_texts("chart head")][:32]
    assert shown == [str(place) for place in range(100, 132)]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"tokens": ["a"]}, "1 tokens are given for 4 keys"),
        ({"tokenizer": str}, "needs the token ids"),
        ({"example": 1}, "example = 1: must be between 0 and 0"),
        ({"start": 4}, "start = 4: must be between 0 and 3"),
    ],
)
def test_what_does_not_fit(tmp_path: Path, options: Any, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        page(tmp_path, Attention.of({"block": diagonal()}), **options)
