"""Random queries: only the documented errors, and the answers of a slow second implementation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.property_tests import examples
from tests.queries.offering import event
from vinedresser.errors import ConfigError
from vinedresser.queries.query import Query
from vinedresser.queries.standing import StandingQuery

_Arrays = list[NDArray[np.float64]]


class Tensor(NamedTuple):
    """Text of an expression about tensors, and what it is of each tensor of the collections."""

    text: str
    of: Callable[[dict[str, _Arrays]], _Arrays]


class Result(NamedTuple):
    """Text of an expression about numbers, and its value."""

    text: str
    of: Callable[[dict[str, _Arrays]], float]


VALUES = st.sampled_from([0.0, -0.0, 1.0, -1.0, 2.0, 0.5, -3.0, 7.25, np.nan, np.inf, -np.inf])
SHAPES = ((2, 3), (4,))
UNARY: dict[str, Any] = {
    "abs": np.abs,
    "log": np.log,
    "exp": np.exp,
    "sqrt": np.sqrt,
    "sign": np.sign,
    "isnan": np.isnan,
    "isfinite": np.isfinite,
    "-": np.negative,
    "not ": np.logical_not,
}
BINARY: dict[str, Any] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": np.divide,
    "//": np.floor_divide,
    "%": np.mod,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    "==": np.equal,
    "!=": np.not_equal,
    "and": np.logical_and,
    "or": np.logical_or,
}
STATISTICS: dict[str, Callable[[NDArray[np.float64]], float]] = {
    "norm": lambda x: float(np.sqrt((x * x).sum())),
    "sum": lambda x: float(x.sum()),
    "mean": lambda x: float(x.mean()),
    "min": lambda x: float(x.min()),
    "max": lambda x: float(x.max()),
    "std": lambda x: float(x.std()),
    "var": lambda x: float(x.var()),
    "share": lambda x: float((x != 0).mean()),
    "zero_share": lambda x: float((x == 0).mean()),
    "count": lambda x: float((x != 0).sum()),
    "nonfinite": lambda x: float((~np.isfinite(x)).sum()),
    "size": lambda x: float(x.size),
    "quantile": lambda x: float(np.quantile(x, 0.25)),
}


def number(value: float) -> Tensor:
    return Tensor(repr(value), lambda given: [np.array(value) for _ in SHAPES])


def name(text: str) -> Tensor:
    return Tensor(text, lambda given: given[text])


def unary(word: str, one: Tensor) -> Tensor:
    apart = not word[0].isalpha() or word == "not "
    text = f"({word}{one.text})" if apart else f"{word}({one.text})"
    return Tensor(text, lambda given: [wide(UNARY[word](x)) for x in one.of(given)])


def binary(word: str, left: Tensor, right: Tensor) -> Tensor:
    def of(given: dict[str, _Arrays]) -> _Arrays:
        pairs = zip(left.of(given), right.of(given), strict=True)
        return [wide(BINARY[word](x, y)) for x, y in pairs]

    return Tensor(f"({left.text} {word} {right.text})", of)


def power(one: Tensor, exponent: int) -> Tensor:
    return Tensor(f"({one.text} ** {exponent})", lambda given: [x**exponent for x in one.of(given)])


def wide(array: Any) -> NDArray[np.float64]:
    return np.asarray(array, np.float64)


def statistic(word: str, one: Tensor) -> Result:
    def of(given: dict[str, _Arrays]) -> float:
        return STATISTICS[word](np.concatenate([x.reshape(-1) for x in one.of(given)]))

    extra = ", 0.25" if word == "quantile" else ""
    return Result(f"{word}({one.text}{extra})", of)


def combined(word: str, left: Result, right: Result) -> Result:
    return Result(
        f"({left.text} {word} {right.text})",
        lambda given: float(BINARY[word](left.of(given), right.of(given))),
    )


NAMES = st.sampled_from([name("gradients"), name("weights")])
TENSORS = st.recursive(
    NAMES,
    lambda inner: st.one_of(
        st.builds(unary, st.sampled_from([*UNARY]), inner),
        st.builds(binary, st.sampled_from([*BINARY]), inner, inner),
        st.builds(
            binary, st.sampled_from([*BINARY]), inner, st.sampled_from([number(2.0), number(0.0)])
        ),
        st.builds(power, inner, st.integers(0, 3)),
    ),
    max_leaves=5,
)
RESULTS = st.recursive(
    st.builds(statistic, st.sampled_from([*STATISTICS]), TENSORS),
    lambda inner: st.builds(combined, st.sampled_from([*BINARY]), inner, inner),
    max_leaves=3,
)
OFFERED = st.fixed_dictionaries(
    {
        kind: st.tuples(*(st.lists(VALUES, min_size=6, max_size=6) for _ in SHAPES))
        for kind in ("gradients", "weights")
    }
)


def tensors(lists: dict[str, Any]) -> dict[str, _Arrays]:
    return {
        kind: [
            np.array(values[: int(np.prod(shape))]).reshape(shape)
            for values, shape in zip(both, SHAPES, strict=True)
        ]
        for kind, both in lists.items()
    }


@pytest.mark.thorough
@given(RESULTS, OFFERED)
@examples(100)
def test_random_expressions_equal_numpy(expression: Result, lists: dict[str, Any]) -> None:
    given_tensors = tensors(lists)
    with np.errstate(all="ignore"):
        expected = expression.of(given_tensors)
    # Where float64 itself overflows, sums of squares depend on their order.
    assume(not 1e100 < abs(expected) < np.inf)
    try:
        query = StandingQuery(Query.parse(expression.text), rate=None)
    except ConfigError as error:
        assert "more than 200" in str(error) or "at most 2,000" in str(error)  # noqa: PT017
        return
    offered = {
        f"{kind}/{place}.x": array
        for kind, arrays in given_tensors.items()
        for place, array in enumerate(arrays)
    }
    [answer] = query.observe(event(offered))
    assert answer.error is None
    np.testing.assert_allclose(answer.value, expected, rtol=1e-6, atol=1e-6)


WORDS = st.sampled_from(
    [
        *UNARY,
        *BINARY,
        *STATISTICS,
        *("(", ")", "(", ")", ",", "**", "2", "0.5", "1e9", "9"),
        *("loss", "gradients", "labels", "predictions", "gradients/*", "text", "nothing", "`odd`"),
        *("histogram", "top", "cosine", "accuracy", "confusion", "argmax", "correct", "where"),
        *("by layer", "by class", "by unit", "where", "reduce max", "reduce quantile(0.5)"),
        *("reduce top(3)", "every 2 steps", "every flush", "every epoch", "per sample"),
    ]
)
VALUES_OF_ALL_KINDS = {
    "loss": 1.5,
    "text": "words",
    "labels": np.arange(6) % 3,
    "predictions": np.linspace(-1, 1, 18).reshape(6, 3),
    "gradients/a.x": np.ones((3, 4), np.float32),
    "gradients/b.x": np.ones(5, np.float16),
    "loss_per_sample": np.ones(6),
    "odd": np.ones((0, 3)),
}


def observed(text: str) -> None:
    """Ask a text; fail on anything but a documented error."""
    try:
        query = StandingQuery(Query.parse(text), rate=None)
    except ConfigError:
        return
    for step in range(3):
        for answer in query.observe(event(VALUES_OF_ALL_KINDS, step)):
            assert (answer.error is None) == (answer.kind != "none")
            answer.to_json()
    query.flush()


@pytest.mark.thorough
@given(st.lists(WORDS, min_size=1, max_size=14))
@examples(200)
def test_random_words_cause_only_documented_errors(words: list[str]) -> None:
    observed(" ".join(words))


@pytest.mark.thorough
@given(st.sampled_from(["mean", "top", "cosine", "where", "accuracy", "quantile", "argmax"]),
       st.lists(WORDS, min_size=1, max_size=6), WORDS)  # fmt: skip
@examples(200)
def test_random_arguments_cause_only_documented_errors(
    function: str, words: list[str], last: str
) -> None:
    observed(f"{function}({', '.join(words)}) {last}")


@pytest.mark.thorough
@given(st.text(max_size=60))
@examples(50)
def test_random_texts_cause_only_documented_errors(text: str) -> None:
    observed(text)
