"""Numbers and names in the sentences of findings."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.explain.reports.pages import finding
from vinedresser.rules.rule_runner import worded


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("by 5.2e+00 times", "by 5.2 times"),
        ("to 1.35e+05, then", "to 135,000, then"),
        ("2e-04 to 2e-03", "0.0002 to 0.002"),
        ("-1.8e+21", "-1.8e21"),
        ("8.2e-09.", "8.2e-9."),
        ("4.475 and 12", "4.475 and 12"),
        # Names that look like numbers.
        ("layer_1e-05.weight", "layer_1e-05.weight"),
        ("conv.1e+05x", "conv.1e+05x"),
        ("losses/CrossEntropyLoss rose", "CrossEntropyLoss rose"),
        ("first gradients/0.weight; weights/a", "first 0.weight; a"),
        ("the inputs/Net and outputs/1", "the inputs of Net and outputs of 1"),
        ("model/losses/x and /weights/y", "model/losses/x and /weights/y"),
    ],
)
def test_sentences_have_numbers_and_names_as_people_write_them(written: str, read: str) -> None:
    told = worded(replace(finding(), seen=written, cause=written, remedy=written))
    assert (told.seen, told.cause, told.remedy) == (read, read, read)


def test_what_programs_read_stays() -> None:
    given = replace(finding(), tensor="losses/x", correction={"lr": 1e-05}, value=5.2e00)
    told = worded(given)
    assert (told.tensor, told.correction, told.value) == ("losses/x", {"lr": 1e-05}, 5.2)
