"""The rule about overflows of mixed precision, with real scalers."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn
from torch.amp import GradScaler

from tests.rules.trainings import batches, digits
from tests.rules.weights.inside_trainings import found
from vinedresser.capture.hook.hook import Hook
from vinedresser.rules.base import capture_for
from vinedresser.rules.optimisation.mixed_precision import MixedPrecision
from vinedresser.store.finding import Finding
from vinedresser.store.reading.reader import open_run
from vinedresser.testing.runs import make_run, step_record


def judged(
    directory: Path,
    *,
    dtype: torch.dtype = torch.float16,
    overflows: int = 0,
    scale: float = 65536.0,
    growth: int = 2000,
    factor: float = 1.0,
) -> list[Finding]:
    """Train with autocast and a scaler on the CPU, and judge.

    Args:
        directory: of the run.
        dtype: of autocast; without a scaler where it is no float16.
        overflows: every so many batches the loss overflows; 0: never.
        scale: at first.
        growth: of the scaler: steps after which it doubles the scale.
        factor: of the loss.
    """
    torch.manual_seed(0)
    torch.set_num_threads(1)
    rule, data, loss = MixedPrecision(), digits(), nn.CrossEntropyLoss()
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    scaler = GradScaler(
        "cpu", init_scale=scale, growth_interval=growth, enabled=dtype == torch.float16
    )
    rows = batches(len(data.x), 64)
    with Hook(directory, collections=capture_for([rule]).collections) as hook:
        hook.watch(model, loss=loss, optimizer=optimizer)
        for batch in range(220):
            chosen = next(rows)
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=dtype):
                value = loss(model(data.x[chosen]), data.y[chosen]) * factor
            if overflows and batch % overflows == 0:
                value = value * float("inf")
            scaler.scale(value).backward()
            scaler.step(optimizer)
            scaler.update()
    assert hook.problems == []
    return found(open_run(directory), rule)


def test_steps_that_are_skipped_again_and_again(tmp_path: Path) -> None:
    (finding,) = judged(tmp_path / "run", overflows=4)
    assert (finding.severity, finding.fault) == ("warning", "mixed_precision")
    assert (finding.tensor, finding.statistic) == ("state/grad_scale", "skipped")
    assert finding.value == pytest.approx(0.25, abs=0.02)
    assert finding.step <= 140
    assert "bfloat16" in finding.remedy


def test_a_scale_that_has_fallen_to_one(tmp_path: Path) -> None:
    # A loss of 2.3 overflows float16 from 28,500 on; gradients of it sooner.
    (finding,) = judged(tmp_path / "run", scale=16.0, overflows=15, growth=10_000)
    assert finding.statistic == "scale"
    assert finding.value <= 1


@pytest.mark.parametrize(
    "case", [{}, {"dtype": torch.bfloat16}, {"overflows": 100}, {"growth": 25}, {"scale": 1.0}]
)
def test_an_overflow_now_and_then_is_as_it_should_be(
    case: dict[str, float], tmp_path: Path
) -> None:
    assert judged(tmp_path / "run", **case) == []  # type: ignore[arg-type]


def test_a_scale_of_keras_that_falls_and_falls(tmp_path: Path) -> None:
    def of(scales: list[float], directory: str) -> list[Finding]:
        records = [
            step_record(20 * place, scalars={"losses/loss": 1.0, "optimizer_state/loss_scale": one})
            for place, one in enumerate(scales)
        ]
        return found(make_run(tmp_path / directory, records), MixedPrecision())

    (finding,) = of([2.0 ** (15 - place) for place in range(12)], "falls")
    assert finding.tensor == "optimizer_state/loss_scale"
    assert finding.step == 120
    assert of([32768.0] * 6 + [65536.0, 32768.0, 16384.0, 16384.0, 32768.0], "moves") == []


def test_a_counter_of_skipped_steps_that_falls(tmp_path: Path) -> None:
    """A resumed training counts from 0 again; here as far as the steps of the look go forward."""
    scalars = [{"state/grad_scale": 8.0, "state/skipped_steps": skipped} for skipped in (20.0, 0.0)]
    records = [
        step_record(100 + 20 * place, scalars={"losses/loss": 1.0, **one})
        for place, one in enumerate(scalars)
    ]
    assert found(make_run(tmp_path / "run", records), MixedPrecision(patience=1)) == []
