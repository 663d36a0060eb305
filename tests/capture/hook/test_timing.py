"""`timing/`: how long steps take, and how long the training waits for data."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
import xgboost
from torch import Tensor, nn

from vinedresser.capture import Hook, SaveConfig, open_run
from vinedresser.capture.recording.timing import StepTiming

ALWAYS = SaveConfig(every=1)


def spin(seconds: float) -> None:
    """Busy-wait for some seconds, like a slow data loader."""
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass


def batches(count: int, seconds: float) -> Iterator[Tensor]:
    for _ in range(count):
        spin(seconds)
        yield torch.randn(4, 3)


def scalars(path: Path, name: str) -> dict[int, float]:
    column = open_run(path).scalars("timing", mode="train").get(f"timing/{name}")
    return {} if column is None else dict(zip(column.steps.tolist(), column.values, strict=True))


def test_steps_and_waiting(tmp_path: Path) -> None:
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    ends = []
    with Hook(tmp_path / "run", collections={"timing": SaveConfig(every=2)}) as hook:
        hook.watch(model, optimizer=optimizer)
        for x in batches(7, 0.02):
            value = model(x).sum()
            spin(0.03)
            value.backward()
            optimizer.step()
            ends.append(time.perf_counter())
    assert hook.problems == []
    steps, waits = scalars(tmp_path / "run", "step"), scalars(tmp_path / "run", "wait")
    # The start of the first step is unknown.
    assert list(steps) == list(waits) == [2, 4, 6]
    assert scalars(tmp_path / "run", "evaluation") == {}
    for step in (2, 4, 6):
        assert abs(steps[step] - (ends[step] - ends[step - 1])) < 0.015
        assert 0.02 <= waits[step] <= steps[step] - 0.03


def test_an_evaluation_is_neither_waiting_nor_part_of_a_step(tmp_path: Path) -> None:
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Hook(tmp_path / "run", collections={"timing": ALWAYS}) as hook:
        hook.watch(model, optimizer=optimizer)
        for step, x in enumerate(batches(4, 0.01)):
            model.train()
            model(x).sum().backward()
            optimizer.step()
            model.eval()
            if step == 0:
                with hook.mode("eval"), torch.no_grad():
                    spin(0.1)
                    model(x)
            if step == 1:
                with torch.no_grad():
                    model(x)
                    spin(0.1)
    took = scalars(tmp_path / "run", "evaluation")
    assert list(took) == [1, 2]
    assert all(0.1 <= one < 0.3 for one in took.values())
    steps, waits = scalars(tmp_path / "run", "step"), scalars(tmp_path / "run", "wait")
    # Without a block, the evaluation includes fetching the next batch.
    assert min(waits[1], waits[3]) >= 0.01
    assert steps[1] >= waits[1]
    assert StepTiming().times() == {}


def test_the_time_of_an_evaluation_is_subtracted_from_its_step() -> None:
    timing = StepTiming()
    begin = time.perf_counter()
    timing.step_ended()
    timing.evaluation_begins()
    spin(0.05)
    timing.evaluation_begins()
    timing.evaluation_ended()
    timing.evaluation_ended()
    timing.forward_begins()
    figures = timing.times()
    total = time.perf_counter() - begin
    assert figures["timing/evaluation"] >= 0.05
    assert figures["timing/step"] <= total - 0.05
    assert figures["timing/wait"] <= figures["timing/step"]
    timing.step_ended()
    assert set(timing.times()) == {"timing/step"}


def test_waiting_between_micro_batches_counts(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Hook(tmp_path / "run", collections={"timing": ALWAYS}) as hook:
        hook.watch(model, optimizer=optimizer)
        for _ in range(3):
            for x in batches(3, 0.02):
                value = model(x).sum()
                spin(0.02)
                value.backward()
            optimizer.step()
    assert hook.problems == []
    steps, waits = scalars(tmp_path / "run", "step"), scalars(tmp_path / "run", "wait")
    for step in (1, 2):
        assert 0.06 <= waits[step] <= steps[step] - 0.06
    assert not list(model.get_parameter("1.bias")._post_accumulate_grad_hooks or ())


def test_custom_loops_and_boosting_rounds_have_step_times(tmp_path: Path) -> None:
    with Hook(tmp_path / "loop", collections={"timing": ALWAYS}) as hook:
        for _ in range(3):
            spin(0.02)
            hook.step(loss=1.0)
    assert list(scalars(tmp_path / "loop", "step")) == [1, 2]
    assert min(scalars(tmp_path / "loop", "step").values()) >= 0.02
    assert scalars(tmp_path / "loop", "wait") == {}
    data = xgboost.DMatrix(np.ones((20, 2)), np.arange(20) % 2)
    with Hook(tmp_path / "trees", collections={"timing": ALWAYS}) as hook:
        xgboost.train({}, data, 3, callbacks=[hook.xgboost()])
    assert list(scalars(tmp_path / "trees", "step")) == [1, 2]


def test_a_pattern_without_times_measures_none(tmp_path: Path) -> None:
    with Hook(tmp_path / "run") as hook:
        assert hook._session.recorder.timing is None
