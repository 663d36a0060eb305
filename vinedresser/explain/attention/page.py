"""The attention page: one self-contained HTML file.

Shape legend: H heads, L queries, S keys.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vinedresser.errors import ConfigError
from vinedresser.explain.attention.cells import MASKED
from vinedresser.explain.attention.grid import MOST_CELLS, matrix_grid, statistic_grid
from vinedresser.explain.attention.statistics import HeadStatistics, head_statistics
from vinedresser.explain.attention.weights import Attention, LayerAttention
from vinedresser.explain.charts.figure import Figure
from vinedresser.explain.charts.palette import ZERO, colour, colour_bar
from vinedresser.explain.charts.svg import Svg, chart, element
from vinedresser.explain.formatting import count, number, shortened
from vinedresser.explain.reports.templating import write_page

# Layers and heads of the page, and tokens of a head view. 24 layers of 16 heads give about 4 MB.
_MOST_LAYERS, _MOST_HEADS = 24, 16
_MOST_TOKENS = 32
_WIDE, _NARROW = 950.0, 460.0
_SCALE_WIDTH = 260.0

# By field of `HeadStatistics`: the title and the unit.
_STATISTICS = {
    "entropy": ("Entropy", "nats"),
    "relative_entropy": ("Relative entropy", "share of the maximum"),
    "distance": ("Distance", "tokens"),
    "confidence": ("Confidence", "largest weight"),
    "self": ("To itself", "weight"),
    "first": ("To the first token", "weight"),
    "separator": ("To separators", "weight"),
    "masked": ("Masked queries", "share"),
}
# Lines of a query: its largest weights, from this weight on.
_MOST_KEYS, _LEAST_WEIGHT = 4, 0.05
# Lines are drawn in classes of weights, each in one path, which keeps the page small.
_EDGES = (_LEAST_WEIGHT, 0.15, 0.35, 0.65, 1.0 + 1e-9)
# The head view: height of a line and width of a character in pixels, and characters of a token.
_LINE, _CHARACTER, _LONGEST = 13.0, 6.1, 14
_SPAN = 90.0

# Separators of common tokenizers: BERT, RoBERTa and T5, GPT.
_SEPARATORS = ("[SEP]", "</s>", "<|endoftext|>")

# Returns the tokens of the ids of one example.
_Tokenizer = Callable[[Sequence[int]], Sequence[str]]


def _key_tokens(
    attention: Attention,
    tokens: Sequence[str] | Sequence[Sequence[str]] | None,
    tokenizer: _Tokenizer | None,
    example: int,
) -> dict[int, list[str]]:
    """Return the tokens of the keys by example; {} if neither they nor ids are known.

    They belong to the layers with as many keys: cross-attention has others.

    Args:
        attention: the attention; its ids are used if there are no tokens.
        tokens: tokens of all examples, or of the drawn one; None: from the ids.
        tokenizer: returns the tokens of ids, such as ``convert_ids_to_tokens`` of a tokenizer;
            None: the ids themselves.
        example: number of the drawn example.

    Raises:
        ConfigError: no layer has as many keys as there are tokens, or there is a tokenizer and no
            ids were captured.
    """
    if tokens is not None:
        single = all(isinstance(token, str) for token in tokens)
        named = {example: tokens} if single else dict(enumerate(tokens))
        found = {place: [str(one) for one in each] for place, each in named.items()}
    elif attention.ids is not None:
        rows: list[list[int]] = attention.ids.tolist()
        found = {
            place: [str(one) for one in (tokenizer(row) if tokenizer else row)]
            for place, row in enumerate(rows)
        }
    elif tokenizer is not None:
        raise ConfigError(
            "a tokenizer needs the token ids: capture the inputs of the model at the same steps "
            "([capture.model_inputs])"
        )
    else:
        return {}
    keys = sorted({layer.weights.shape[-1] for layer in attention.layers})
    for each in found.values():
        if len(each) not in keys:
            known = " or ".join(map(str, keys))
            raise ConfigError(f"{len(each)} tokens are given for {known} keys; give one for each")
    return found


def _separator_places(
    tokens: Mapping[int, Sequence[str]], separators: Collection[str], examples: int
) -> list[tuple[int, int]]:
    """Return the example and key of each separator.

    Args:
        separators: tokens that separate.
        examples: number of examples with attention; tokens of others are ignored.
    """
    return [
        (example, place)
        for example, words in tokens.items()
        if example < examples
        for place, word in enumerate(words)
        if word in separators
    ]


@dataclass(frozen=True)
class _Layer:
    """A layer of the page.

    Attributes:
        heads: head views.
    """

    name: str
    heads: Sequence[Figure]


@dataclass(frozen=True)
class _Page:
    """Contents of the page.

    Attributes:
        origin: where the attention comes from.
        facts: names and values of the tiles.
        notes: what is averaged or left out.
        grid: matrices of all heads.
        statistics: charts of the statistics.
        columns: headings of the table of statistics.
        rows: cells of that table as text, a row per head.
        window: the tokens of the head views.
        layers: the head views.
    """

    origin: str
    facts: Sequence[tuple[str, str]]
    notes: Sequence[str]
    grid: Svg
    statistics: Sequence[Figure]
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    window: str
    layers: Sequence[_Layer]


def write_attention(
    attention: Attention,
    destination: str | os.PathLike[str],
    *,
    tokens: Sequence[str] | Sequence[Sequence[str]] | None = None,
    tokenizer: _Tokenizer | None = None,
    separators: Collection[str] = _SEPARATORS,
    example: int = 0,
    start: int = 0,
) -> Path:
    """Write the attention of all layers and heads: one HTML file without scripts.

    The matrices are those of one example; the statistics are means over all examples. Matrices of
    more than 48 tokens are drawn with averaged cells, and the head views show 32 tokens; of more
    than 24 layers or 16 heads, some are left out. The page says so.

    Args:
        attention: the attention weights.
        destination: file to write; replaced atomically, its directory is created.
        tokens: tokens of the keys of the drawn example, or a list of tokens for every example.
        tokenizer: makes tokens of the captured ids, if ``tokens`` is None.
        separators: tokens that count as separators.
        example: number of the example to draw.
        start: first token of the head views.

    Raises:
        ConfigError: there is no such example or token, or the tokens do not fit.
        StoreError: the file cannot be written.
    """
    if not 0 <= example < attention.examples:
        last = attention.examples - 1
        raise ConfigError(f"example = {example}: must be between 0 and {last}")
    words = _key_tokens(attention, tokens, tokenizer, example)
    places = _separator_places(words, separators, attention.examples)
    page = _page(attention, words.get(example), places, example, start)
    return write_page(
        destination,
        "attention.html.j2",
        page=page,
        scale=colour_bar(_SCALE_WIDTH, [(22.0, "0"), (_SCALE_WIDTH - 22.0, "1")]),
        colours={"zero": colour(ZERO), "masked": colour(MASKED)},
    )


def _page(
    attention: Attention,
    tokens: Sequence[str] | None,
    separators: Collection[tuple[int, int]],
    example: int,
    start: int,
) -> _Page:
    layers = _chosen(attention.layers)
    names = [layer.name for layer in layers]
    matrices = [layer.weights[example, :_MOST_HEADS] for layer in layers]
    keys = matrices[0].shape[-1]
    if not 0 <= start < keys:
        raise ConfigError(f"start = {start}: must be between 0 and {keys - 1}")
    named = len(tokens) if tokens is not None else -1
    statistics = [
        head_statistics(one, separators if one.weights.shape[-1] == named else ()) for one in layers
    ]
    values = {key: np.concatenate(_heads(statistics, key)) for key in _STATISTICS}
    shown = {
        key: (title, f"{unit}, up to {number(float(np.nanmax(values[key])), 3)}")
        for key, (title, unit) in _STATISTICS.items()
        if not np.isnan(values[key]).all() and (key != "masked" or values[key].any())
    }
    facts = [
        ("Layers", str(len(attention.layers))),
        ("Heads", str(max(layer.weights.shape[1] for layer in attention.layers))),
        ("Tokens", f"{keys:,}"),
        ("Example", f"{example} of {attention.examples}"),
    ]
    end = min(start + _MOST_TOKENS, max(one.shape[-1] for one in matrices))
    return _Page(
        origin=attention.origin,
        facts=facts,
        notes=_notes(attention, matrices),
        grid=matrix_grid(names, matrices, _WIDE),
        statistics=[
            Figure(title, unit, statistic_grid(names, _heads(statistics, key), title, _NARROW))
            for key, (title, unit) in shown.items()
        ],
        columns=[title for title, _ in shown.values()],
        rows=_rows(names, statistics, shown),
        window=f"tokens {start} to {end - 1}" if end - start < keys else "",
        layers=[
            _Layer(name, _views(name, matrix, tokens, start))
            for name, matrix in zip(names, matrices, strict=True)
        ],
    )


def _chosen(layers: Sequence[LayerAttention]) -> list[LayerAttention]:
    """Return evenly strided layers if there are too many."""
    places = np.linspace(0, len(layers) - 1, min(len(layers), _MOST_LAYERS)).round().astype(int)
    return [layers[place] for place in places]


def _heads(statistics: Sequence[HeadStatistics], key: str) -> list[NDArray[np.float64]]:
    """Return one statistic of the shown heads of each layer, float64 [H]."""
    return [getattr(statistic, key)[:_MOST_HEADS] for statistic in statistics]


def _rows(
    names: Sequence[str], statistics: Sequence[HeadStatistics], shown: Collection[str]
) -> list[list[str]]:
    rows = []
    for name, one in zip(names, statistics, strict=True):
        for head in range(len(one.entropy[:_MOST_HEADS])):
            values = [number(float(getattr(one, key)[head]), 3) for key in shown]
            rows.append([name, str(head), *values])
    return rows


def _views(
    name: str, matrix: NDArray[np.float64], tokens: Sequence[str] | None, start: int
) -> list[Figure]:
    """Return the head views of a layer, float64 [H, L, S]; none if it has no tokens there."""
    window = slice(start, start + _MOST_TOKENS)
    _, length, keys = matrix.shape
    if start >= min(length, keys):
        return []
    named = tokens if tokens is not None and len(tokens) == keys else None
    columns = list(named or map(str, range(keys)))[window]
    rows = list(named if named and length == keys else map(str, range(length)))[window]
    return [
        Figure(
            f"head {head}",
            "",
            _head_view(one[window, window], rows, columns, f"{name}, head {head}"),
        )
        for head, one in enumerate(matrix)
    ]


def _notes(attention: Attention, matrices: Sequence[NDArray[np.float64]]) -> list[str]:
    """Return what is averaged or left out."""
    notes = []
    longest = max(max(matrix.shape[1:]) for matrix in matrices)
    if longest > MOST_CELLS:
        notes.append(
            f"matrices of {longest:,} tokens are drawn in {MOST_CELLS} x {MOST_CELLS} cells, each "
            "the weight of its keys together, averaged over its queries"
        )
    if len(attention.layers) > len(matrices):
        notes.append(f"{len(matrices)} of {count(len(attention.layers), 'layer')}")
    heads = max(layer.weights.shape[1] for layer in attention.layers)
    if heads > _MOST_HEADS:
        notes.append(f"the first {_MOST_HEADS} of {heads} heads")
    return notes


def _head_view(
    weights: NDArray[np.float64], queries: Sequence[str], keys: Sequence[str], label: str
) -> Svg:
    """Return a chart with queries on the left and keys on the right.

    Args:
        weights: attention of one head, float64 [L, S]; NaN for masked queries, whose token is
            struck through and has no lines.
        queries: tokens of the queries, L strings.
        keys: tokens of the keys, S strings.
        label: accessible name of the chart.
    """
    left = 8.0 + _CHARACTER * min(_LONGEST, max(map(len, queries)))
    right = left + _SPAN
    width = right + 8.0 + _CHARACTER * min(_LONGEST, max(map(len, keys)))
    masked = np.isnan(weights[:, 0])
    words = [
        element(
            "text",
            shortened(token, _LONGEST),
            x=left - 5,
            y=_LINE * (place + 0.8),
            class_="y masked" if masked[place] else "y",
        )
        for place, token in enumerate(queries)
    ]
    words += [
        element("text", shortened(token, _LONGEST), x=right + 5, y=_LINE * (place + 0.8))
        for place, token in enumerate(keys)
    ]
    lines = [
        element("path", d=drawn, class_="w", stroke_opacity=low**0.5)
        for low, high in pairwise(_EDGES)
        if (drawn := _lines(weights, low, high, left, right))
    ]
    height = _LINE * max(len(queries), len(keys)) + 4
    style = f"max-width:{width:.0f}px"
    return chart(label, width, height, *lines, *words, kind="head", style=style)


def _lines(weights: NDArray[np.float64], low: float, high: float, left: float, right: float) -> str:
    """Return the path of the lines with weights in [low, high)."""
    found = []
    for query, row in enumerate(np.nan_to_num(weights)):
        for key in np.argsort(-row, kind="stable")[:_MOST_KEYS].tolist():
            if low <= row[key] < high:
                start, end = _LINE * (query + 0.5), _LINE * (key + 0.5)
                found.append(f"M{left:.0f} {start:g}L{right:.0f} {end:g}")
    return "".join(found)
