"""Steps that all queries leave out are counted later, with the same answers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.property_tests import examples
from tests.queries.offering import event
from vinedresser.queries.answer import Answer
from vinedresser.queries.observables import Observables
from vinedresser.queries.passed_steps import PassedSteps
from vinedresser.queries.query import Query
from vinedresser.queries.table import StreamTable, Subscription

START = 1e9
EVERY = ["step", "3 steps", "0.4 seconds", "epoch", "evaluation", "flush", "saved"]
QUERIES = st.lists(
    st.tuples(
        st.sampled_from(["metrics/a", "sum(metrics/b)", "count(metrics/a)", "1 / metrics/zero"]),
        st.sampled_from(EVERY),
        st.sampled_from([2.0, 5.0, 20.0]),
    ),
    min_size=1,
    max_size=3,
)
HAPPENINGS = st.lists(
    st.sampled_from(["step"] * 12 + ["evaluation", "epoch", "saved", "flush", "subscribe"]),
    max_size=400,
)


class Training:
    """A training with a clock of its own, whose steps take a tenth of a second.

    Args:
        queries: text, windows and rate of each query.
        passes: steps that all queries leave out are passed over, and the others offer only what is
            needed, as in a hook; otherwise the queries see every event.
    """

    def __init__(self, queries: list[tuple[str, str, float]], *, passes: bool) -> None:
        self.now = 0.0
        self.table = StreamTable(lambda: self.now)
        self.passed = PassedSteps(self.table, 0, lambda: self.now, lambda: START + self.now)
        self.passes = passes
        self.answers: list[Answer] = []
        self.subscriptions: list[Subscription] = []
        self.read = 0
        for text, every, rate in queries:
            self.subscribe(text, every, rate)

    def subscribe(self, text: str, every: str, rate: float) -> None:
        query = Query.parse(text, every)
        self.subscriptions.append(self.table.subscribe(query, self.answers.append, rate=rate))

    def step(self, number: int) -> None:
        self.now = number / 10
        if not self.passes:
            self.table.observe(self._event(number))
        elif not self.passed.goes_on():
            self.passed.settle()
            armed = self.table.arm("train")
            if armed.passed_over:
                self.passed.begin(armed)
            else:
                self.table.observe(self._event(number), armed)
        self.passed.step_ended(number)

    def happens(self, kind: str, number: int) -> None:
        self.passed.settle()
        mode = "eval" if kind == "evaluation" else "train"
        self.table.observe(self._event(number, kind, mode))

    def _event(self, number: int, kind: str = "step", mode: str = "train") -> Observables:
        values: dict[str, Any] = {
            "metrics/a": number,
            "metrics/b": self._look,
            "metrics/zero": 0.0,
            "epoch": number // 50,
        }
        return event(values, number, kind=kind, mode=mode, time=START + self.now)

    def _look(self) -> float:
        self.read += 1
        return 1.0


@pytest.mark.thorough
@given(QUERIES, HAPPENINGS)
@example([("sum(metrics/b)", "step", 2.0)], ["step"] * 600)
@examples(60)
def test_the_answers_are_those_of_queries_that_see_every_step(
    queries: list[tuple[str, str, float]], happenings: list[str]
) -> None:
    both = [Training(queries, passes=passes) for passes in (True, False)]
    for number, happening in enumerate(happenings):
        for one in both:
            if happening == "step":
                one.step(number)
            elif happening == "flush":
                one.subscriptions[0].flush()
            elif happening == "subscribe":
                one.subscribe(f"metrics/a + {number}", "step", 5.0)
            else:
                one.happens(happening, number)
    for one in both:
        one.passed.settle()
        one.table.finish()
    assert [answer.to_json() for answer in both[0].answers] == [
        answer.to_json() for answer in both[1].answers
    ]
    assert both[0].read == both[1].read


def test_queries_pass_over_steps_until_their_time_has_come_or_somebody_asks() -> None:
    training = Training([("metrics/a", "step", 2.0)], passes=True)
    passed = []
    for number in range(15):
        training.now = number / 10
        passed.append(training.passed.goes_on())
        if number == 12:
            training.subscribe("metrics/b", "step", 2.0)
        training.step(number)
    # An answer at 0, 0.5 and 1.0 s; the step after an answer is the first to be looked at.
    assert [number for number, one in enumerate(passed) if not one] == [0, 1, 5, 6, 10, 11, 13]
    assert [answer.step for answer in training.answers if answer.query == "metrics/a"] == [0, 5, 10]
    assert [answer.dropped for answer in training.answers if answer.query == "metrics/a"] == [
        0,
        4,
        4,
    ]
    assert [answer.step for answer in training.answers if answer.query == "metrics/b"] == [12]
