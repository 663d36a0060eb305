"""Metrics in printed lines: which expressions are refused, and what is found in a line."""

from __future__ import annotations

import time

import pytest

from vinedresser.printed_metrics import LONGEST, MetricSearch, check_metrics


@pytest.mark.parametrize(
    ("name", "regex", "fact"),
    [
        ("acc", "acc: (", "missing )"),
        ("acc", "acc: [0-9]+", "no group"),
        ("acc", r"(?=acc)([0-9]+)", "RE2"),
        ("acc", r"(a)\1([0-9]+)", "RE2"),
        ("", "([0-9]+)", "name"),
        ("a\nb", "([0-9]+)", "name"),
    ],
)
def test_what_cannot_find_a_number_is_refused(name: str, regex: str, fact: str) -> None:
    with pytest.raises(ValueError, match=r"regex|name") as raised:
        check_metrics({name: regex})
    assert fact in str(raised.value)


def test_numbers_are_found_by_name() -> None:
    said: list[str] = []
    metrics = {"acc": r"acc: (\S+)", "loss": "loss=([0-9.e+-]+)", "or": "x(1)?"}
    check_metrics(metrics)
    search = MetricSearch(metrics, said.append)
    assert search.values("é: loss=1e-3, val acc: 0.5 (best)") == {"acc": 0.5, "loss": 0.001}
    assert search.values("epoch 1") == {}
    # The group of a match may have taken no part in it.
    assert search.values("x") == {}
    assert str(search.values("acc: nan")["acc"]) == "nan"
    assert search.values("acc: 93% loss=2") == {"loss": 2.0}
    assert search.values("acc: n/a") == {}
    assert len(said) == 1
    assert "93%" in said[0]


def test_no_expression_takes_for_ever() -> None:
    # Python's re would need 2^4000 steps.
    search = MetricSearch({"acc": "(a+)+b", "loss": "(.*)*x(.*)*y([0-9])"}, print)
    began = time.process_time()
    assert search.values("a" * 10**6) == {}
    assert time.process_time() - began < 10
    assert search.values("a" * LONGEST + "b") == {}
