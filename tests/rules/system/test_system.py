"""Rules about the progress of a training: waiting for data, slow steps, silence."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from vinedresser.capture import Hook, open_run
from vinedresser.errors import ConfigError
from vinedresser.rules.base import Rule, capture_for
from vinedresser.rules.judge import judge
from vinedresser.rules.system.slow_input import SlowInput
from vinedresser.rules.system.stalled_training import StalledTraining
from vinedresser.rules.system.step_outlier import StepOutlier
from vinedresser.store.finding import Finding
from vinedresser.store.step_record import StepRecord
from vinedresser.testing.runs import make_run, step_record


def spin(seconds: float) -> None:
    """Compute for some time, like data loading."""
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass


def train(
    path: Path,
    rules: list[Rule],
    steps: int,
    *,
    before: Callable[[int], None] = lambda step: None,
    after: Callable[[int], None] = lambda step: None,
    **parameters: int,
) -> Path:
    """Train a small model; ``before`` runs before each step, outside the forward pass."""
    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    loss, optimizer = nn.CrossEntropyLoss(), torch.optim.SGD(model.parameters(), lr=0.1)
    collections = capture_for(rules).collections
    with Hook(path, collections=collections, parameters=parameters) as hook:
        hook.watch(model, loss, optimizer)
        x, y = torch.randn(8, 4), torch.randint(0, 3, (8,))
        for step in range(steps):
            before(step)
            optimizer.zero_grad()
            output = model(x)
            loss(output, y).backward()
            after(step)
            optimizer.step()
    return path


def timed(path: Path, seconds: Iterator[float], waits: float = 0.0) -> Path:
    """Create a run with steps of these durations."""
    records = [
        step_record(step, scalars={"timing/step": took, "timing/wait": waits * took})
        for step, took in enumerate(seconds)
    ]
    make_run(path, records)
    return path


@pytest.mark.thorough
def test_waiting_for_data_is_found(tmp_path: Path) -> None:
    rules: list[Rule] = [SlowInput()]
    path = train(tmp_path / "run", rules, 175, before=lambda _: spin(0.008), num_workers=0)
    (finding,) = judge(open_run(path), rules)
    assert (finding.fault, finding.severity) == ("slow_input", "info")
    assert finding.since == 21
    assert finding.value > 0.4
    assert finding.evidence["seconds_waiting"] >= 0.008
    assert "num_workers from 0" in finding.remedy
    assert "pin_memory" in finding.remedy


def test_short_waits_are_ignored(tmp_path: Path) -> None:
    short = timed(tmp_path / "short", iter([0.001] * 175), waits=0.5)
    assert judge(open_run(short), [SlowInput()]) == []
    # As long a wait as one that is found, but a smaller share.
    found = timed(tmp_path / "found", iter([0.012] * 175), waits=0.5)
    assert len(judge(open_run(found), [SlowInput()])) == 1
    small = timed(tmp_path / "small", iter([0.02] * 175), waits=0.3)
    assert judge(open_run(small), [SlowInput()]) == []


def test_share_is_computed_from_sums(tmp_path: Path) -> None:
    path = timed(tmp_path / "run", iter([0.02] * 175), waits=0.5)
    (finding,) = judge(open_run(path), [SlowInput(share=0.49)])
    assert finding.value == pytest.approx(0.5)
    assert "2.0 times as fast" in finding.remedy
    assert judge(open_run(path), [SlowInput(share=0.51)]) == []
    assert judge(open_run(path), [SlowInput(seconds=0.011)]) == []


@pytest.mark.thorough
def test_periodic_slow_steps_are_found(tmp_path: Path) -> None:
    rules: list[Rule] = [StepOutlier()]
    slow = 25
    path = train(
        tmp_path / "run", rules, 325, after=lambda step: spin(0.08 if step % slow == 0 else 0.0)
    )
    (finding,) = judge(open_run(path), rules)
    assert finding.severity == "info"
    assert finding.value >= 0.08
    assert finding.evidence["steps"][0] == 25
    assert f"every {slow} steps" in finding.seen


def noisy(steps: int) -> np.ndarray[Any, Any]:
    """Return step times of 0.1 s with a tenth of noise."""
    return np.random.default_rng(0).normal(0.1, 0.01, steps)


def test_noise_rare_outliers_and_pace_changes_are_ignored(tmp_path: Path) -> None:
    rules: list[Rule] = [StepOutlier()]
    assert judge(open_run(timed(tmp_path / "noise", iter(noisy(700)))), rules) == []
    rare = noisy(700)
    rare[100::100] = 2.0
    assert judge(open_run(timed(tmp_path / "rare", iter(rare))), rules) == []
    pace = noisy(700)
    pace[250:] *= 10
    assert judge(open_run(timed(tmp_path / "pace", iter(pace))), rules) == []


def test_cost_of_slow_steps(tmp_path: Path) -> None:
    times = np.full(320, 0.1)
    times[20::10] = 1.1
    (finding,) = judge(open_run(timed(tmp_path / "run", iter(times))), [StepOutlier()])
    # Ten of 100 steps take 1 s longer: 10 s of 20.
    assert "50% of the time" in finding.seen
    assert "every 10 steps" in finding.seen
    assert finding.step == 319


def test_ends_of_epochs_with_an_evaluation_are_no_outliers(tmp_path: Path) -> None:
    def judged(name: str, period: int) -> list[Finding]:
        records = []
        for step in range(320):
            long = step and step % 20 == 0
            if step % period == 0:
                records.append(step_record(step - 1, mode="eval", scalars={"losses/loss": 1.0}))
            records.append(step_record(step, scalars={"timing/step": 1.1 if long else 0.1}))
        return judge(make_run(tmp_path / name, records), [StepOutlier()])

    assert judged("epochs", 20) == []
    # Evaluations elsewhere do not excuse them, nor those of each step, as of a booster.
    assert len(judged("elsewhere", 30)) == 1
    assert len(judged("each", 1)) == 1


def paused(*times: float, **fields: Any) -> list[StepRecord]:
    """Return records of steps that ended at these times."""
    return [step_record(step, at=1e9 + at, **fields) for step, at in enumerate(times)]


def test_silence_is_found_by_step_times(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", paused(0, 1, 2, 3, 2000, 2001))
    finding, *more = judge(run, [StalledTraining()])
    assert not more
    assert (finding.step, finding.fault, finding.severity) == (3, "stalled", "warning")
    assert "more than 1800 s after train step 3 (longest previous pause: 1 s)" in (finding.seen)


def test_usual_pauses_and_the_end_are_no_silence(tmp_path: Path) -> None:
    now = time.time() - 1e9
    # One hour for each evaluation, and one after the last step but one.
    usual = make_run(tmp_path / "usual", paused(now - 10790, now - 9000, now - 5400, now - 1))
    assert judge(usual, [StalledTraining()]) == []
    done = make_run(tmp_path / "done", paused(now - 9001, now - 9000), total_steps=2)
    assert judge(done, [StalledTraining()]) == []
    open_end = make_run(tmp_path / "open", paused(now - 9001, now - 9000), total_steps=3)
    assert [one.step for one in judge(open_end, [StalledTraining()])] == [1]


@pytest.mark.thorough
def test_silence_is_found_live_and_later(tmp_path: Path) -> None:
    rules: list[Rule] = [StalledTraining(seconds=0.5, times=1.0)]
    silent = threading.Event()
    live: list[Finding] = []

    def take(finding: Finding) -> None:
        live.append(finding)
        silent.set()

    def hang(step: int) -> None:
        if step == 0:
            watcher.start()
        if step == 5:
            # It continues when the rule has fired.
            assert silent.wait(60)

    def watch() -> None:
        deadline = time.monotonic() + 60
        while not (tmp_path / "run" / "run.json").exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        judge(open_run(tmp_path / "run"), rules, live=True, on_finding=take)

    watcher = threading.Thread(target=watch)
    train(tmp_path / "run", rules, 10, before=hang)
    watcher.join()
    assert [finding.rule for finding in live] == ["stalled_training"]
    assert judge(open_run(tmp_path / "run"), rules) == live


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SlowInput(share=1.0), "share = 1: must lie between 0 and 1"),
        (lambda: StepOutlier(deviations=0), "deviations = 0: must be greater than 0"),
        (lambda: StalledTraining(seconds=0), "seconds = 0: must be greater than 0"),
        (lambda: StalledTraining(times=0.5), r"times = 0\.5: must be at least 1"),
    ],
)
def test_invalid_parameters_raise(make: Callable[[], Rule], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()
