"""Queries that stand: computed once, for as long as somebody receives them."""

from __future__ import annotations

import numpy as np
import pytest

from tests.queries.offering import event
from vinedresser.errors import ConfigError
from vinedresser.queries.answer import Answer
from vinedresser.queries.query import Query
from vinedresser.queries.table import MOST_STREAMS, StreamTable


def test_equal_queries_are_computed_once_and_end_with_their_last_receiver() -> None:
    table = StreamTable()
    first: list[Answer] = []
    second: list[Answer] = []
    one = table.subscribe(Query.parse("loss+1"), first.append, rate=None)
    other = table.subscribe(Query.parse(" (loss + 1)"), second.append, rate=None)
    assert len(table) == 1
    table.observe(event({"loss": 1.0}))
    assert [answer.value for answer in first] == [answer.value for answer in second] == [2.0]
    one.close()
    table.observe(event({"loss": 2.0}, 1))
    assert (len(first), len(second)) == (1, 2)
    other.close()
    other.close()
    assert (len(table), table.needs) == (0, frozenset())


def test_a_flush_closes_the_window_before_the_next_event() -> None:
    table = StreamTable()
    found: list[Answer] = []
    subscription = table.subscribe(Query.parse("loss every flush"), found.append, rate=None)
    for step in range(3):
        table.observe(event({"loss": float(step)}, step))
    subscription.flush()
    assert found == []
    table.observe(event({"loss": 100.0}, 3))
    assert [(one.since, one.step, one.value) for one in found] == [(0, 2, 1.0)]
    table.finish()
    assert [(one.value, one.ended) for one in found[1:]] == [(100.0, True)]


def test_an_unknown_name_is_told_once() -> None:
    table = StreamTable()
    found: list[Answer] = []
    table.subscribe(Query.parse("losss"), found.append)
    for step in range(3):
        table.observe(event({"loss": 1.0}, step))
    [told] = found
    assert "did you mean loss" in str(told.error)


@pytest.mark.parametrize(("text", "told"), [("norm(outputs/relu)", 1), ("max(saved/z)", 0)])
def test_a_known_name_that_is_never_offered_is_told_once(text: str, told: int) -> None:
    table = StreamTable(known=lambda: ["outputs/relu", "saved/z"])
    found: list[Answer] = []
    table.subscribe(Query.parse(text), found.append, rate=None)
    for step in range(500):
        table.observe(event({"loss": 1.0}, step))
    assert len(found) == told
    for answer in found:
        assert answer.error == "outputs/relu: known, but not offered at any of 100 events"
        assert answer.step == 99


def test_the_others_go_on_when_one_query_ends() -> None:
    table = StreamTable()
    found: list[Answer] = []
    bad: list[Answer] = []
    table.subscribe(Query.parse("labels"), bad.append, rate=None)
    table.subscribe(Query.parse("loss"), found.append, rate=None)
    for step in range(2):
        table.observe(event({"loss": 1.0, "labels": np.ones((2, 2))}, step))
    assert len(found) == 2
    assert [answer.ended for answer in bad] == [True]
    assert table.needs == {"loss"}


def test_the_number_of_queries_is_bounded() -> None:
    table = StreamTable()
    for number in range(MOST_STREAMS):
        table.subscribe(Query.parse(f"loss + {number}"), print)
    with pytest.raises(ConfigError, match="end one first"):
        table.subscribe(Query.parse("loss"), print)
