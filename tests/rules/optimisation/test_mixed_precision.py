"""The rule about the loss scalers of mixed precision, with real scalers."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn
from torch.amp import GradScaler

from tests.rules.inside_trainings import found
from tests.rules.trainings import batches, digits
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
    clip: float = 0.0,
    unscaled: bool = False,
) -> list[Finding]:
    """Train with autocast and a scaler on the CPU; return the findings.

    Args:
        directory: directory of the run.
        dtype: dtype of autocast; no scaler unless it is float16.
        overflows: number of batches between overflows of the loss; 0 for none.
        scale: initial scale.
        growth: steps after which the scaler doubles the scale.
        factor: factor of the loss.
        clip: maximum norm of the gradients; 0 for any.
        unscaled: whether they are clipped after they were unscaled.
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
            if unscaled:
                scaler.unscale_(optimizer)
            if clip:
                nn.utils.clip_grad_norm_(model.parameters(), clip)
            scaler.step(optimizer)
            scaler.update()
    assert hook.problems == []
    return found(open_run(directory), rule)


def test_repeatedly_skipped_steps(tmp_path: Path) -> None:
    (finding,) = judged(tmp_path / "run", overflows=4)
    assert (finding.severity, finding.fault) == ("warning", "mixed_precision")
    assert (finding.tensor, finding.statistic) == ("state/grad_scale", "skipped")
    assert finding.value == pytest.approx(0.25, abs=0.02)
    assert finding.step <= 140
    assert "bfloat16" in finding.remedy


def test_a_scale_of_one(tmp_path: Path) -> None:
    # A loss of 2.3 overflows float16 from 28,500 on; gradients of it sooner.
    (finding,) = judged(tmp_path / "run", scale=16.0, overflows=15, growth=10_000)
    assert finding.statistic == "scale"
    assert finding.value <= 1


@pytest.mark.thorough
@pytest.mark.parametrize(
    "case", [{}, {"dtype": torch.bfloat16}, {"overflows": 100}, {"growth": 25}, {"scale": 1.0}]
)
def test_occasional_overflows_are_ignored(case: dict[str, float], tmp_path: Path) -> None:
    assert judged(tmp_path / "run", **case) == []  # type: ignore[arg-type]


def test_a_decreasing_scale_in_keras(tmp_path: Path) -> None:
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


def test_a_decreasing_counter_of_skipped_steps(tmp_path: Path) -> None:
    """A resumed training counts from 0 again; here as far as the steps of the look go forward."""
    scalars = [{"state/grad_scale": 8.0, "state/skipped_steps": skipped} for skipped in (20.0, 0.0)]
    records = [
        step_record(100 + 20 * place, scalars={"losses/loss": 1.0, **one})
        for place, one in enumerate(scalars)
    ]
    assert found(make_run(tmp_path / "run", records), MixedPrecision(patience=1)) == []


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("clip", "scale", "growth"), [(1.0, 65536.0, 2000), (0.5, 1024.0, 25), (5.0, 512.0, 2000)]
)
def test_gradients_clipped_before_they_are_unscaled(
    clip: float, scale: float, growth: int, tmp_path: Path
) -> None:
    (finding,) = judged(tmp_path / "run", clip=clip, scale=scale, growth=growth)
    assert (finding.rule, finding.statistic) == ("mixed_precision", "l2")
    assert finding.step <= 40
    assert finding.threshold == clip
    assert finding.value == pytest.approx(clip / finding.evidence["scales"][-1], rel=1e-3)
    assert "unscale_" in finding.remedy


@pytest.mark.thorough
@pytest.mark.parametrize("clip", [1.0, 0.125, 0.01, 1e-4])
@pytest.mark.parametrize("scale", [65536.0, 1024.0])
def test_gradients_clipped_after_they_were_unscaled(
    clip: float, scale: float, tmp_path: Path
) -> None:
    assert judged(tmp_path / "run", clip=clip, scale=scale, unscaled=True) == []
