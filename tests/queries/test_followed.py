"""A query that is looked at now and then has the answers of one that is asked once."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from tests.capture.live.live_training import LiveTraining
from tests.waiting import until
from vinedresser.errors import UnknownTensor
from vinedresser.objects import open_storage
from vinedresser.queries.answer import Answer
from vinedresser.queries.asking import ask
from vinedresser.queries.followed import FollowedQuery
from vinedresser.queries.query import Query
from vinedresser.store.reading.reader import open_run
from vinedresser.store.writing.writer import RunWriter
from vinedresser.testing.runs import make_run, start_run, step_record


def followed(path: Path, text: str) -> FollowedQuery:
    return FollowedQuery(open_run(path), Query.parse(text))


def values(answers: list[Answer]) -> list[tuple[int, int, float]]:
    return [(answer.since, answer.step, answer.value) for answer in answers]


def test_a_finished_run_is_read_to_its_end(tmp_path: Path) -> None:
    records = [step_record(step, scalars={"losses/loss": float(step)}) for step in range(25)]
    make_run(tmp_path / "run", records)
    query = followed(tmp_path / "run", "loss every 10 steps")
    until(lambda: query.look() and query.over, "the end of the run")
    right = [*ask(tmp_path / "run", "loss every 10 steps")]
    assert values([*query.look()]) == values(right) == [(0, 9, 4.5), (10, 19, 14.5), (20, 24, 22.0)]
    assert not query.live


@pytest.mark.thorough
def test_a_run_that_is_written_is_followed(tmp_path: Path) -> None:
    start_run(tmp_path / "run")
    query = followed(tmp_path / "run", "loss")
    assert not query.look()
    with closing(RunWriter(open_storage(tmp_path / "run"), 0)) as writer:
        for step in range(3):
            writer.add(step_record(step, scalars={"losses/loss": float(step)}))
            until(lambda: len(query.look()) == step + 1, "a step")  # noqa: B023
    assert values([*query.look()]) == [(0, 0, 0.0), (1, 1, 1.0), (2, 2, 2.0)]
    assert not query.over


def test_a_name_that_does_not_exist_is_said_at_every_look(tmp_path: Path) -> None:
    make_run(tmp_path / "run", [step_record(0, scalars={"losses/loss": 1.0})])
    query = followed(tmp_path / "run", "losse / step")
    for _ in range(2):
        with pytest.raises(UnknownTensor, match="losse: no such name; did you mean losses"):
            query.look()


def test_of_many_answers_every_second_old_one_is_dropped(tmp_path: Path) -> None:
    records = [step_record(step, scalars={"losses/loss": float(step)}) for step in range(2_500)]
    make_run(tmp_path / "run", records)
    query = followed(tmp_path / "run", "loss")
    until(lambda: query.look() and query.over, "the end of the run")
    steps = [one.step for one in query.look()]
    assert len(steps) <= 2_000
    assert steps == sorted(steps)
    assert steps[-200:] == [*range(2_300, 2_500)]
    assert steps[0] <= 1


@pytest.mark.thorough
def test_a_running_training_is_asked(tmp_path: Path) -> None:
    training = LiveTraining(tmp_path / "run")
    query = followed(tmp_path / "run", "norm(gradients/0.weight)")
    training.until(lambda: len(query.look()) >= 2)
    assert query.live
    # Nothing of it was stored.
    assert "gradients/0.weight" not in open_run(tmp_path / "run").tensor_names()
    training.hook.close()
    until(lambda: query.look() and query.over, "the end of the training")
