"""NaN and infinity are found at the first occurrence; large finite values are ignored."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import nn

from vinedresser.capture.hook.hook import Hook
from vinedresser.rules.base import capture_for
from vinedresser.rules.judge import judge
from vinedresser.rules.tensors.nonfinite import Nonfinite
from vinedresser.store.finding import Finding
from vinedresser.store.reading.reader import open_run
from vinedresser.store.step_record import StepRecord
from vinedresser.testing.runs import make_run, step_record

LOSS = "losses/MSELoss"


def record(step: int, loss: float, *, bad: tuple[str, ...] = (), norm: float = 1.0) -> StepRecord:
    """Return a step with a loss, two layers, and some tensors with three bad entries."""
    names = [f"{kind}/{layer}.weight" for kind in ("gradients", "weights") for layer in (0, 1)]
    return step_record(
        step,
        scalars={LOSS: loss},
        reductions={
            name: {
                "nonfinite": 3.0 if name in bad else 0.0,
                "l2": math.nan if name in bad else norm,
            }
            for name in names
        },
    )


def findings(directory: Path, *records: StepRecord, **parameters: float) -> list[Finding]:
    run = make_run(directory, records, parameters=parameters)
    return judge(run, [Nonfinite(every=1)])


def test_fires_once_at_the_first_occurrence(tmp_path: Path) -> None:
    losses = [1.0, 0.9, math.nan, math.nan]
    (finding,) = findings(tmp_path, *(record(step, loss) for step, loss in enumerate(losses)))
    assert (finding.step, finding.tensor, finding.value) == (2, LOSS, 1.0)
    assert "is nan at step 2; before it: MSELoss 1, 0.9" in finding.seen


@pytest.mark.parametrize(
    ("loss", "bad", "first"),
    [
        (math.inf, ("gradients/0.weight", "gradients/1.weight"), LOSS),
        (1.0, ("gradients/0.weight", "gradients/1.weight"), "gradients/1.weight"),
        (1.0, ("gradients/0.weight",), "gradients/0.weight"),
        (math.nan, ("weights/1.weight", "gradients/0.weight"), "weights/1.weight"),
    ],
)
def test_reports_the_first_tensor_in_causal_order(
    tmp_path: Path, loss: float, bad: tuple[str, ...], first: str
) -> None:
    (finding,) = findings(tmp_path, record(0, 1.0), record(1, loss, bad=bad))
    assert finding.tensor == first
    assert set(finding.evidence["all"]) == {*bad, *([] if math.isfinite(loss) else [LOSS])}


def test_growth_since_the_start_is_found_after_many_large_losses(tmp_path: Path) -> None:
    # The last fifty losses say nothing about it any more.
    losses = [2.0] * 10 + [float(2 + step) for step in range(60)] + [300.0, 250.0] * 40 + [math.nan]
    (finding,) = findings(tmp_path, *(record(step, loss) for step, loss in enumerate(losses)))
    assert finding.fault == "learning_rate_too_high"
    # The first loss from which on all are ten times the start.
    assert finding.since == losses.index(20.0)
    assert f"since step {finding.since}" in finding.cause
    assert finding.step == len(losses) - 1


def test_a_jump_at_the_first_step_is_growth(tmp_path: Path) -> None:
    losses = [3.2, 107.0, 345.0, 237.0, 348.0] + [200.0 + 20 * step for step in range(30)]
    steps = [record(step, loss) for step, loss in enumerate([*losses, math.nan])]
    (finding,) = findings(tmp_path / "thrown", *steps)
    assert finding.fault == "learning_rate_too_high"
    assert finding.since == 1
    # A second loss near the first: it was usual, and the first was not.
    steps = [record(step, loss) for step, loss in enumerate([3.2, 12.0, *losses[2:], math.nan])]
    (finding,) = findings(tmp_path / "steady", *steps)
    assert finding.cause.startswith("sudden, without previous growth")


def test_a_loss_that_falls_below_any_bound_has_no_minimum(tmp_path: Path) -> None:
    """Steps that are too long make a loss rise; this one falls as it is meant to."""
    losses = [-0.07, -0.6, -3.8e9, math.nan]
    steps = [record(step, loss) for step, loss in enumerate(losses)]
    (finding,) = findings(tmp_path, *steps, lr=0.5)
    assert (finding.fault, finding.correction) == ("unbounded_loss", {})
    assert "sign" in finding.cause


def test_growth_is_distinguished_from_a_sudden_fault(tmp_path: Path) -> None:
    rising = [2.0, 1.9, 2.1, 50.0, 4e4, math.inf]
    grown = findings(tmp_path / "a", *(record(*pair) for pair in enumerate(rising)), lr=0.5)[0]
    assert "overflow after growth (MSELoss rose" in grown.cause
    assert "lr 0.005 instead of 0.5" in grown.remedy
    assert grown.correction == {"lr": 0.005}
    norms = [1.0, 1.2, 1.1, 500.0]
    steps = [record(step, 2.0, norm=norm) for step, norm in enumerate(norms)]
    last = record(4, math.nan, bad=("gradients/0.weight", "gradients/1.weight"))
    steep = findings(tmp_path / "b", *steps, last)[0]
    assert "the gradient norm rose" in steep.cause
    sudden = findings(tmp_path / "c", record(0, 2.0), record(1, 1.9), record(2, math.nan))[0]
    assert sudden.cause.startswith("sudden, without previous growth")
    outset = findings(tmp_path / "d", record(0, math.nan))[0]
    assert outset.cause.startswith("not finite from the first step on")
    derived = findings(tmp_path / "e", record(0, 1.0), record(1, 1.0, bad=("gradients/1.weight",)))
    assert derived[0].cause.startswith("the loss is finite but its derivative is not")


def test_large_finite_values_are_ignored(tmp_path: Path) -> None:
    steps = [record(step, 1e300, norm=math.inf) for step in range(5)]
    assert findings(tmp_path, *steps) == []


def test_a_torch_gradient_with_an_overflowing_norm_is_ignored(tmp_path: Path) -> None:
    rule = Nonfinite(every=1)
    model = nn.Linear(4, 4, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-38)
    hook = Hook(tmp_path, collections=capture_for([rule]).collections)
    hook.watch(model, optimizer=optimizer)
    total = hook.loss(torch.sum, name="sum")
    for _ in range(3):
        optimizer.zero_grad()
        # Each entry of the gradient is 1e25, whose square does not fit into float32.
        total(model(torch.full((1, 4), 1e25))).backward()
        optimizer.step()
    hook.close()
    run = open_run(tmp_path)
    assert run.tensor("gradients/weight").reduction("nonfinite").values.tolist() == [0, 0, 0]
    assert judge(run, [rule]) == []


def test_every_rank_is_checked(tmp_path: Path) -> None:
    sound = [record(step, 1.0) for step in range(4)]
    ill = [record(0, 1.0), record(1, 1.0), record(2, math.inf), record(3, 1.0)]
    run = make_run(tmp_path, sound, ill)
    (finding,) = judge(run, [Nonfinite(every=1)])
    assert (finding.rank, finding.step) == (1, 2)


def test_a_nan_evaluation_counts(tmp_path: Path) -> None:
    steps = [record(0, 1.0), step_record(1, mode="eval", scalars={LOSS: math.nan})]
    (finding,) = findings(tmp_path, *steps)
    assert (finding.mode, finding.step) == ("eval", 1)


@pytest.mark.parametrize("masked", [True, False])
def test_a_loss_that_ignores_all_labels(masked: bool, tmp_path: Path) -> None:
    rule = Nonfinite()
    model, loss = nn.Linear(4, 3), nn.CrossEntropyLoss(ignore_index=2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Hook(tmp_path, collections=capture_for([rule]).collections) as hook:
        hook.watch(model, loss=loss, optimizer=optimizer)
        for step in range(6):
            optimizer.zero_grad()
            last = step == 5
            # The inputs of the other run are at fault.
            x = torch.full((8, 4), math.nan) if last and not masked else torch.randn(8, 4)
            y = torch.full((8,), 2) if last and masked else torch.arange(8) % 3
            loss(model(x), y).backward()
            optimizer.step()
    (finding,) = judge(open_run(tmp_path), [rule])
    assert (finding.step, finding.tensor) == (5, "losses/CrossEntropyLoss")
    assert ("ignores all labels" in finding.cause) is masked
