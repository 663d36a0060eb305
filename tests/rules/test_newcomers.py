"""A live judge learns of models that join the training later."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from vinedresser.objects import LocalStorage
from vinedresser.rules.judge import Newcomers, judge
from vinedresser.rules.optimisation.untrained_parameters import UntrainedParameters
from vinedresser.rules.trees.memorised_labels import MemorisedLabels
from vinedresser.store.finding import Finding
from vinedresser.store.reading.reader import open_run
from vinedresser.store.reading.step import Step
from vinedresser.store.records import write_record
from vinedresser.store.step_record import StepRecord
from vinedresser.store.writing.writer import RunWriter
from vinedresser.testing.runs import end_run, make_run, start_run, step_record

# The steps at which the statistics of the weights are captured.
EVERY = 20
ENCODER = {"encoder": ["Linear", "", "model"]}
WHOLE = {"whole": ["Whole", "", "model"], "whole.encoder": ["Linear", ""], "whole.head": ["Linear"]}


def statistics(step: int, trained: str, *still: str) -> StepRecord:
    """Return the record of a step that trains one weight beside others."""
    weights = {name: {"l2": 2.0, "std": 0.5, "mean": 0.0} for name in still}
    weights[trained] = {"l2": 2.0 + step, "std": 0.5, "mean": 0.0}
    steps = {f"{kind}/{trained}": {"l2": 0.1} for kind in ("updates", "gradients")}
    named = {f"weights/{name}": values for name, values in weights.items()}
    return step_record(step, scalars={"losses/loss": 1.0}, reductions=named | steps)


def test_a_frozen_encoder_in_a_second_model_is_not_reported_live(tmp_path: Path) -> None:
    record = start_run(tmp_path, modules=ENCODER, optimizers=[{"type": "Adam"}])
    storage = LocalStorage(tmp_path)
    writer = RunWriter(storage, 0)
    judged = threading.Event()
    found: list[Finding] = []

    def live() -> None:
        judge(
            open_run(tmp_path),
            [UntrainedParameters(EVERY)],
            live=True,
            on_finding=found.append,
            poll=0.01,
            on_step=lambda step, _engine: judged.set() if step.step == 4 * EVERY else None,
        )

    thread = threading.Thread(target=live)
    thread.start()
    for step in range(0, 5 * EVERY, EVERY):
        writer.add(statistics(step, "encoder.weight"))
    assert judged.wait(30)
    write_record(
        storage,
        replace(
            record,
            modules=ENCODER | WHOLE,
            optimizers=[{"type": "Adam"}, {"type": "Adam"}],
            frozen=["weights/whole.encoder.weight"],
        ),
    )
    for step in range(5 * EVERY, 10 * EVERY, EVERY):
        writer.add(statistics(step, "whole.head.weight", "whole.encoder.weight"))
    writer.close()
    end_run(tmp_path)
    thread.join(30)
    assert found == judge(open_run(tmp_path), [UntrainedParameters(EVERY)]) == []


def test_what_the_record_lacks_before_the_first_train_step_is_known_live(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The evaluation of the first round of boosting is committed before the record is complete."""
    record = start_run(tmp_path, framework="xgboost")
    storage = LocalStorage(tmp_path)
    writer = RunWriter(storage, 0)
    found: list[Finding] = []
    run, taken = open_run(tmp_path), threading.Event()
    follow = run.follow

    def followed(*args: Any, **kwargs: Any) -> Iterator[Step]:
        for step in follow(*args, **kwargs):
            yield step
            taken.set()

    monkeypatch.setattr(run, "follow", followed)
    rules, options = [MemorisedLabels()], {"live": True, "on_finding": found.append, "poll": 0.01}
    thread = threading.Thread(target=judge, args=(run, rules), kwargs=options)
    thread.start()
    for at in range(12):
        writer.add(step_record(at, mode="eval", scalars={"losses/test-logloss": 0.71 + 0.01 * at}))
        if at == 0:
            assert taken.wait(30)
            booster = {"type": "gbtree", "settings": {"lr": 0.3}}
            write_record(storage, replace(record, optimizers=[booster]))
        writer.add(step_record(at, scalars={"losses/train-logloss": 0.69 * 0.9**at}))
    writer.close()
    end_run(tmp_path)
    thread.join(30)
    assert [one.rule for one in found] == ["memorised_labels"]
    assert found == judge(open_run(tmp_path), [MemorisedLabels()])


def test_only_new_weights_of_train_steps_are_newcomers(tmp_path: Path) -> None:
    run = make_run(
        tmp_path,
        [
            statistics(0, "a"),
            statistics(1, "a"),
            step_record(1, mode="eval", reductions={"weights/b": {"l2": 1.0}}),
            step_record(2, reductions={"gradients/b": {"l2": 1.0}}),
            statistics(3, "b", "a"),
            statistics(4, "a"),
        ],
    )
    newcomers = Newcomers()
    come = [newcomers.have_joined(step) for step in run.follow()]
    assert come == [True, False, False, False, True, False]
