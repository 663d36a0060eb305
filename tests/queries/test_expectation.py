"""The language of expectations."""

from __future__ import annotations

import pytest

from vinedresser.errors import ConfigError
from vinedresser.queries.expectation import Expectation, Point


def test_a_line_says_what_when_and_how_severe() -> None:
    line = Expectation.parse("eval/accuracy >= 0.9 by  epoch 3, else stop")
    (one,) = line.comparisons
    assert (one.left.text, one.operator, one.right.text) == ("eval/accuracy", ">=", "0.9")
    assert (line.by, line.since, line.severity) == (Point("epoch", 3), None, "stop")


def test_comparisons_are_joined() -> None:
    line = Expectation.parse("0 <= mean(inputs) <= 1 and loss < 3 from step 10")
    said = [
        (comparison.left.text, comparison.operator, comparison.right.text)
        for comparison in line.comparisons
    ]
    assert said == [("0", "<=", "mean(inputs)"), ("mean(inputs)", "<=", "1"), ("loss", "<", "3")]
    assert (line.by, line.since, line.severity) == (None, Point("step", 10), "warning")


@pytest.mark.parametrize(
    ("text", "claim", "subject", "by"),
    [
        ("loss falls", "falls", "loss", Point("end")),
        ("return rises by step 500", "rises", "return", Point("step", 500)),
        ("encoder.*.bias is frozen", "frozen", "encoder.*.bias", None),
        ("head trained else info", "trained", "head", Point("end")),
    ],
)
def test_courses_and_parameters(text: str, claim: str, subject: str, by: Point | None) -> None:
    line = Expectation.parse(text)
    assert (line.claim, line.subject, line.by) == (claim, subject, by)


def test_a_comparison_with_nan_does_not_hold() -> None:
    for operator in ("<", "<=", ">", ">=", "=="):
        (one,) = Expectation.parse(f"loss {operator} 1").comparisons
        assert not one.holds(float("nan"), 1.0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("accuracy", "is not a comparison"),
        ("accuracy > 0.9 until 3", "near 'until'"),
        ("accuracy > 0.9 by epoch 0", "counted from 1"),
        ("a > 3 or b > 2", "is not a comparison"),
        ("1 < 2", "names no value"),
        ("loss falls from step 3", "does not go with it"),
        ("encoder frozen by step 3", "does not go with it"),
        ("acuracy(labels, predictions) > 3", "did you mean accuracy"),
        ("__import__('os') > 3", "not part of the language"),
        ("loss > 3, else explode", "unexpected|not part|near"),
    ],
)
def test_a_line_that_is_none_is_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        Expectation.parse(text)
    assert "write a comparison such as 'accuracy > 0.9'" in str(caught.value)
