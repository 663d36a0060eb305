"""Retrying: how often, how long, and which errors."""

from __future__ import annotations

import itertools
import threading
import time

import pytest

from vinedresser.objects.retrying import attempts, backoff, retry


class Flaky:
    """Fails a number of times, then returns the number of its calls."""

    def __init__(self, failures: int, error: Exception) -> None:
        self.calls = 0
        self._failures = failures
        self._error = error

    def __call__(self) -> int:
        self.calls += 1
        if self.calls <= self._failures:
            raise self._error
        return self.calls


def test_pauses_double_up_to_the_longest() -> None:
    assert [*itertools.islice(backoff(0.25, 5.0), 7)] == [0.25, 0.5, 1.0, 2.0, 4.0, 5.0, 5.0]


def test_there_is_one_more_attempt_than_pauses() -> None:
    assert [*attempts((0.0, 0.0))] == [1, 2, 3]
    assert [*attempts(())] == [1]


def test_no_attempt_begins_after_the_timeout() -> None:
    began = time.monotonic()
    numbers = [*attempts(itertools.repeat(0.04), timeout=0.1)]
    assert time.monotonic() - began >= 0.1
    # On a busy machine a pause takes longer.
    assert numbers == [1, 2, 3, 4][: len(numbers)]
    assert len(numbers) > 1
    assert [*attempts(itertools.repeat(60.0), timeout=0.0)] == [1]


def test_a_stop_event_ends_the_pause() -> None:
    stop = threading.Event()
    threading.Timer(0.05, stop.set).start()
    assert [*attempts((60.0, 60.0), stop=stop)] == [1]


def test_the_result_of_the_first_success_is_returned() -> None:
    action = Flaky(2, OSError("away"))
    failures: list[OSError] = []
    assert retry(action, OSError, (0.0, 0.0, 0.0), on_failure=failures.append) == 3
    assert [str(error) for error in failures] == ["away", "away"]


def test_the_last_error_is_raised() -> None:
    action = Flaky(9, OSError("away"))
    with pytest.raises(OSError, match="away"):
        retry(action, OSError, (0.0, 0.0))
    assert action.calls == 3


def test_other_errors_are_raised_at_once() -> None:
    action = Flaky(1, ValueError("wrong"))
    with pytest.raises(ValueError, match="wrong"):
        retry(action, (OSError, KeyError), (60.0,))
    chosen = Flaky(1, OSError("refused"))
    with pytest.raises(OSError, match="refused"):
        retry(chosen, OSError, (60.0,), when=lambda error: str(error) == "away")
    assert action.calls == chosen.calls == 1
