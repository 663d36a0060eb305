"""What a query may cost: its time includes the end of an evaluation, and its folds are bounded."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from tests.queries.offering import event
from vinedresser.errors import QueryError
from vinedresser.queries.folds import window
from vinedresser.queries.language.budget import Budget, Limits
from vinedresser.queries.query import Query
from vinedresser.queries.standing import StandingQuery


def limits(seconds: float, first: float | None = None) -> Limits:
    return Limits(seconds, 64 << 20, seconds if first is None else first)


def test_the_time_of_the_fold_counts() -> None:
    query = StandingQuery(Query.parse("samples reduce top(100)"), rate=None, limits=limits(0.004))
    [answer] = query.observe(event({"samples": np.arange(65_536.0)}))
    assert answer.ended
    assert "took" in str(answer.error)


def test_the_first_evaluation_may_load_libraries() -> None:
    query = StandingQuery(Query.parse("loss"), rate=None, limits=limits(0.0, first=9.0))
    [first] = query.observe(event({"loss": 1.0}, 0))
    [second] = query.observe(event({"loss": 1.0}, 1))
    assert first.error is None
    assert second.ended


def test_a_full_collection_of_garbage_is_not_the_fault_of_the_query() -> None:
    now = 0.0
    budget = Budget(limits(1.0), clock=lambda: now)
    # Quick, since it looks at no object.
    gc.freeze()
    gc.collect()
    gc.unfreeze()
    now = 2.0
    budget.check()
    now = 2.9
    budget.check()
    now = 3.5
    with pytest.raises(QueryError, match="took 1,500 ms, and at most 1,000 ms are allowed"):
        budget.check()


def test_the_time_between_pause_and_resume_does_not_count() -> None:
    now = 0.0
    budget = Budget(limits(1.0), clock=lambda: now)
    now = 0.6
    budget.pause()
    now = 50.0
    budget.resume()
    now = 50.3
    budget.check()
    now = 50.5
    with pytest.raises(QueryError, match="took 1,100 ms"):
        budget.check()


def test_memory_that_is_released_is_free_again() -> None:
    budget = Budget()
    budget.charge(40 << 20)
    held = budget.held
    for _ in range(9):
        budget.charge(20 << 20)
        budget.release(held)
    with pytest.raises(QueryError, match="would allocate 70 MiB"):
        budget.charge(30 << 20)


def test_quantiles_of_many_labels_end_with_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window, "MOST_KEPT", 1_000)
    query = StandingQuery(
        Query.parse("norm(x) by tensor reduce quantile(0.5) every flush"), rate=None
    )
    values = {f"x/{place}": np.ones(1) for place in range(100)}
    answers = [one for step in range(20) for one in query.observe(event(values, step))]
    assert [answer.step for answer in answers] == [10]
    assert "keeps 1,100 numbers of 100 labels" in str(query.ended)


def test_labels_that_are_always_new_end_with_a_reason() -> None:
    query = StandingQuery(Query.parse("max(x) by tensor every flush"), rate=None)
    for step in range(20):
        query.observe(event({f"x/{step}-{place}": np.ones(1) for place in range(100)}, step))
    assert "more than 1,000 labels within a window" in str(query.ended)


@pytest.mark.thorough
@pytest.mark.parametrize("text", ["norm", "mean", "std", "min", "share", "nonfinite", "size"])
def test_half_precision_is_converted_in_slices(text: str) -> None:
    # Converted as a whole, it would need 80 MiB.
    half = np.resize(np.array([1, -2, 0, 3], np.float16), (4_500, 4_500))
    query = StandingQuery(Query.parse(f"{text}(x)"), rate=None, limits=Limits(60.0, 64 << 20, 60.0))
    [answer] = query.observe(event({"x/a": half}))
    size = half.size
    expected = {
        "norm": np.sqrt(14 / 4 * size),
        "mean": 0.5,
        "std": np.sqrt(14 / 4 - 0.25),
        "min": -2,
        "share": 0.75,
        "nonfinite": 0,
        "size": size,
    }
    assert answer.error is None
    assert answer.value == pytest.approx(expected[text], rel=1e-9)


def test_a_quantile_of_half_precision_converts_its_sample_only() -> None:
    half = np.full((4_500, 4_500), 0.5, np.float16)
    query = StandingQuery(Query.parse("quantile(x, 0.5) by tensor"), rate=None)
    [answer] = query.observe(event({"x/a": half}))
    assert answer.value == {"a": 0.5}


def test_a_layer_with_several_tensors_is_one_label() -> None:
    values = {f"weights/l{place}.{kind}": np.ones(2) for place in range(600) for kind in "ab"}
    query = StandingQuery(Query.parse("norm(weights) by layer"), rate=None)
    [answer] = query.observe(event(values))
    assert answer.error is None
    assert len(answer.value) == 600
