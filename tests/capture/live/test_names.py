"""Names mean the same live and later, and can be listed."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tests.capture.live.live_training import Client, LiveTraining
from vinedresser.errors import QueryError
from vinedresser.queries.asking import ask
from vinedresser.queries.listing import names_to_ask
from vinedresser.store.reading.reader import open_run


@pytest.mark.thorough
def test_epochs_that_the_script_saves_count_live_as_they_do_later(tmp_path: Path) -> None:
    path = tmp_path / "run"
    training = LiveTraining(path)
    clients = [Client(path, "epoch"), Client(path, "norm(gradients)", "epoch")]

    def between() -> None:
        training.hook.metric("epoch", 10 + training.steps // 7)
        if training.steps % 7 == 0:
            training.hook.event("epoch")

    training.hook.metric("epoch", 10)
    training.until(lambda: all(client.done() for client in clients), between)
    training.hook.close()
    stored = {one.step: one.value for one in ask(path, "epoch", live=False)}
    for answer in clients[0].answers:
        assert answer.value == stored[answer.step]
    # Later windows are whole; the first began when the client came.
    for answer in clients[1].answers[1:]:
        assert stored[answer.since] == stored[answer.step]
        assert answer.since % 7 == 0
        assert answer.events == 7


def test_what_can_be_asked_is_listed(tmp_path: Path) -> None:
    path = tmp_path / "run"
    training = LiveTraining(path)
    training.hook.event("validated", scores=1.0)
    client = Client(path, "norm(gradients)")
    training.until(client.done)
    found = names_to_ask(open_run(path), live=True)
    training.hook.close()
    assert found.live
    assert {"epoch", "evaluation", "validated"} <= set(found.events)
    assert found.names["gradients/0.weight"] == "float32 [16, 8]"
    assert {"outputs/1", "biases/2.bias", "loss", "step"} <= set(found.names)


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("norm(gradiants)", "gradiants: no such name; did you mean gradients"),
        ("weights", r"weights is 2 tensors: reduce it, for example mean\(weights\)"),
    ],
)
def test_a_query_that_the_training_cannot_answer_raises(
    tmp_path: Path, query: str, says: str
) -> None:
    training = LiveTraining(tmp_path / "run")
    over = threading.Event()

    def train() -> None:
        while not over.is_set():
            training.step()

    thread = threading.Thread(target=train)
    thread.start()
    try:
        with pytest.raises(QueryError, match=says):
            list(ask(tmp_path / "run", query))
    finally:
        over.set()
        thread.join()
        training.hook.close()
