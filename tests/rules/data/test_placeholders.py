"""Numbers that stand for missing targets."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from vinedresser.capture import Hook, open_run
from vinedresser.rules.base import capture_for
from vinedresser.rules.data.corrupt_labels import CorruptLabels
from vinedresser.rules.data.placeholders import Placeholders
from vinedresser.rules.judge import judge
from vinedresser.store.finding import Finding


def found(values: Tensor) -> bool:
    """Return whether targets, [rows], seen in ten batches, have a placeholder."""
    seen = Placeholders()
    for batch in values.chunk(10):
        seen.add(batch.double().numpy())
    return seen.symptom("labels/loss") is not None


@pytest.mark.parametrize(
    ("number", "share", "expected"),
    [
        (-999.0, 0.2, True),
        (99.0, 0.02, True),
        # Nothing was bought; a censored value is near the others; an outlier is not repeated.
        (0.0, 0.5, False),
        (103.5, 0.3, False),
        (1e6, 0.0015, False),
    ],
)
def test_a_number_far_from_all_others(number: float, share: float, *, expected: bool) -> None:
    source = np.random.default_rng(0)
    values = 101 + source.random(2000)
    values[: round(share * len(values))] = number
    assert found(torch.tensor(source.permutation(values))) is expected


def test_two_classes_and_grades_are_no_placeholders() -> None:
    source = torch.Generator().manual_seed(0)
    assert not found(torch.randint(2, (2000,), generator=source).float() * 100)
    assert not found(torch.randint(5, (2000,), generator=source).float() ** 4)


def learned(directory: Path, *, masked: bool) -> list[Finding]:
    """Learn numbers of which some are missing, and judge."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model, rule = nn.Linear(6, 1), CorruptLabels()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    x = torch.randn(500, 6)
    y = x @ torch.randn(6, 1)
    y[torch.rand(500, 1) < 0.2] = -999.0

    def error(predicted: Tensor, wanted: Tensor) -> Tensor:
        there = wanted != -999.0 if masked else torch.ones_like(wanted, dtype=torch.bool)
        return ((predicted - wanted) ** 2)[there].mean()

    hook = Hook(directory, collections=capture_for([rule]).collections, total_steps=300)
    with hook:
        hook.watch(model, optimizer=optimizer)
        for _ in range(300):
            rows = torch.randint(500, (64,))
            optimizer.zero_grad()
            hook.loss(error)(model(x[rows]), y[rows]).backward()
            optimizer.step()
    return judge(open_run(directory), [rule])


@pytest.mark.thorough
def test_placeholders_are_learned_unless_a_mask_leaves_them_out(tmp_path: Path) -> None:
    (finding,) = learned(tmp_path / "learned", masked=False)
    assert (finding.fault, finding.severity) == ("corrupt_labels", "warning")
    assert "-999" in finding.seen
    assert learned(tmp_path / "masked", masked=True) == []
