"""Windows of a standing query: what closes them, what they hold, what is dropped and refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.queries.offering import event
from vinedresser.queries.answer import Answer
from vinedresser.queries.observables import Observables
from vinedresser.queries.query import Query
from vinedresser.queries.standing import StandingQuery


def standing(text: str, **settings: Any) -> StandingQuery:
    settings.setdefault("rate", None)
    return StandingQuery(Query.parse(text), **settings)


def answers(query: StandingQuery, events: list[Observables]) -> list[Answer]:
    found = [answer for one in events for answer in query.observe(one)]
    last = query.flush()
    return found if last is None else [*found, last]


def steps(first: int, last: int, **settings: Any) -> list[Observables]:
    return [event({"loss": float(step)}, step, **settings) for step in range(first, last)]


def windows(found: list[Answer]) -> list[tuple[int, int, int, float]]:
    return [(one.since, one.step, one.events, one.value) for one in found]


def test_windows_of_steps_follow_the_numbers_of_the_steps() -> None:
    found = answers(standing("loss every 4 steps"), steps(2, 10))
    assert windows(found) == [(2, 3, 2, 2.5), (4, 7, 4, 5.5), (8, 9, 2, 8.5)]
    assert [one.window for one in found] == [0, 1, 2]


def test_a_window_without_its_last_step_is_closed_by_a_later_one() -> None:
    some = [event({"loss": float(step)}, step) for step in (0, 1, 8, 9)]
    assert windows(answers(standing("loss every 4 steps"), some)) == [(0, 1, 2, 0.5),
                                                                      (8, 9, 2, 8.5)]  # fmt: skip


def test_windows_of_time_end_with_the_first_event_after_it() -> None:
    found = answers(standing("loss every 2.5 seconds"), steps(0, 8))
    assert windows(found) == [(0, 3, 4, 1.5), (4, 7, 4, 5.5)]


def test_epochs_are_closed_by_their_event_or_their_number() -> None:
    end = event({"loss": 99.0}, 2, kind="epoch")
    by_event = [*steps(0, 3), end, *steps(3, 5)]
    expected = [(0, 2, 3, 1), (3, 4, 2, 3.5)]
    assert windows(answers(standing("loss every epoch"), by_event)) == expected
    by_number = [event({"loss": float(step), "epoch": step // 3}, step) for step in range(5)]
    assert windows(answers(standing("loss every epoch"), by_number)) == expected


def test_evaluations_hold_their_batches_or_their_own_values() -> None:
    batches = steps(7, 8, kind="batch", mode="eval") + steps(9, 10, kind="batch", mode="eval")
    end = event({"loss": 50.0}, 9, kind="evaluation", mode="eval")
    found = answers(standing("loss every evaluation"), [*steps(0, 5), *batches, end, end])
    assert windows(found) == [(7, 9, 2, 8), (9, 9, 1, 50)]
    assert {one.mode for one in found} == {"eval"}


def test_the_users_event_closes_windows_and_offers_values() -> None:
    rollout = [event({"reward": float(step)}, step, kind="rollout") for step in (3, 6)]
    found = answers(standing("reward every rollout"), [*steps(0, 3), rollout[0], *steps(4, 6),
                                                       rollout[1]])  # fmt: skip
    assert windows(found) == [(3, 3, 1, 3), (6, 6, 1, 6)]


def test_the_client_closes_windows() -> None:
    query = standing("loss every flush")
    for step in steps(0, 3):
        assert query.observe(step) == []
    first = query.flush()
    assert first is not None
    assert windows([first]) == [(0, 2, 3, 1)]
    assert query.flush() is None


def test_windows_beyond_the_rate_are_dropped_completely_and_counted() -> None:
    now = 0.0
    query = standing("loss every 2 steps", rate=1, clock=lambda: now)
    found = []
    for step in steps(0, 12):
        now = step.step / 4
        found += query.observe(step)
    assert windows(found) == [(0, 1, 2, 0.5), (6, 7, 2, 6.5)]
    assert [one.dropped for one in found] == [0, 2]


def test_nothing_is_computed_for_a_dropped_window() -> None:
    read = 0

    def loss() -> float:
        nonlocal read
        read += 1
        return 1.0

    query = standing("loss", rate=1, clock=lambda: 0.0)
    for step in range(5):
        query.observe(event({"loss": loss}, step))
    assert read == 1


def test_only_what_a_query_needs_is_computed() -> None:
    def never() -> None:
        raise AssertionError("read")

    tensor = np.ones((2, 2))
    query = standing("norm(gradients)")
    [found] = query.observe(event({"gradients/a": tensor, "weights/a": never, "loss": never}))
    assert found.value == 2


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("gradients", "reduce it, for example mean(gradients)"),
        ("mean(gradients + labels)", "do not fit"),
        ("note + 1", "text"),
        ("mean(note)", "text"),
        ("confusion(labels, gradients)", "neither class numbers nor"),
        ("norm(gradients) by layer reduce histogram(3, 0, 1)", ""),
        ("histogram(gradients) reduce max", "not a number"),
        ("mean(outer * 2)", "MiB at once"),
        ("mean(loss_per_sample) where gradients > 0", "condition"),
    ],
)
def test_a_query_that_cannot_be_answered_ends_with_the_reason(text: str, says: str) -> None:
    values = {
        "gradients/a": np.ones((3, 2)),
        "labels": np.arange(4),
        "note": "warm-up",
        "outer": np.broadcast_to(np.float64(1), (10_000, 1_000)),
        "loss_per_sample": np.ones(4),
    }
    query = standing(text)
    [found] = query.observe(event(values))
    if says:
        assert found.ended
        assert found.error is not None
        assert says in found.error
        assert found.kind == "none"
        assert query.ended == found.error
        assert query.observe(event(values, 1)) == []
    else:
        assert found.error is None


def test_a_result_that_is_too_large_ends_the_query() -> None:
    query = standing("max(x) by tensor")
    name = "y" * 200
    [found] = query.observe(event({f"x/{name}{i}": np.ones(1) for i in range(900)}))
    assert found.ended
    assert "64 KiB" in str(found.error)


def test_an_unknown_name_is_explained() -> None:
    query = standing("norm(gradiants) by layer")
    one = event({"gradients/a": np.ones(2)})
    assert query.observe(one) == []
    explained = query.explain(one)
    assert explained is not None
    assert "did you mean gradients" in str(explained.error)
    division = standing("loss/lr").explain(event({"loss": 1.0, "lr": 2.0}))
    assert division is not None
    assert "loss / lr" in str(division.error)
