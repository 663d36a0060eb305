"""Answers wait for their client in a bounded queue."""

from __future__ import annotations

from vinedresser.capture.live.server import Outbox
from vinedresser.queries.answer import Answer


def test_a_stalled_client_loses_answers_and_is_told() -> None:
    box = Outbox(most=10)
    answer = Answer("q", "q", "step", 0, 0, 0, "train", 0, 0.0, 1, "scalar", 1.0, thinned=2)
    for _ in range(25):
        box.put(answer)
    taken = box.take()
    assert len(taken) == 10
    assert taken[0].dropped == 15
    assert sum(one.thinned for one in taken) == 25 * 2
    assert sum(one.dropped + 1 for one in taken) == 25
    assert box.take() == []
