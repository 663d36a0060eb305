"""`target_leakage`: windows of series that end too late."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from vinedresser.capture import Hook
from vinedresser.rules.base import capture_for
from vinedresser.rules.data.leakage.target_leakage import TargetLeakage
from vinedresser.rules.judge import judge
from vinedresser.store.finding import Finding
from vinedresser.store.reading.reader import open_run

TIMES, FEATURES = 12, 3


def _forecast(folder: Path, x: Tensor, y: Tensor) -> list[Finding]:
    """Train on windows [rows, ., .] and return the findings."""
    rules = [TargetLeakage()]
    width = x[0].numel()
    model = nn.Sequential(nn.Flatten(), nn.Linear(width, 16), nn.ReLU())
    model.extend([nn.Linear(16, y[0].numel()), nn.Unflatten(1, y.shape[1:])])
    loss, optimizer = nn.MSELoss(), torch.optim.Adam(model.parameters())
    hook = Hook(folder, collections=capture_for(rules).collections)
    with hook.watch(model, loss, optimizer):
        for _ in range(30):
            rows = torch.randint(len(x), (32,))
            optimizer.zero_grad()
            loss(model(x[rows]), y[rows]).backward()
            optimizer.step()
    return [one for one in judge(open_run(folder), rules) if one.fault]


def _series() -> Tensor:
    """Return noisy waves and their next values, [rows, times + 1, features]."""
    generator = torch.Generator().manual_seed(0)
    time = torch.arange(TIMES + 1)[None, :, None] + 100 * torch.rand(400, 1, 1, generator=generator)
    return torch.sin(time / torch.tensor([2.0, 3.0, 5.0])) + 0.1 * torch.randn(
        400, TIMES + 1, FEATURES, generator=generator
    )


@pytest.mark.parametrize(
    ("wanted", "features"), [(slice(None), [0, 1, 2]), (slice(1, 2), [1])], ids=["all", "one"]
)
@pytest.mark.parametrize("time_last", [False, True])
def test_a_window_that_ends_too_late(
    wanted: slice, features: list[int], time_last: bool, tmp_path: Path
) -> None:
    series = _series()
    x, y = series[:, 1:], series[:, -1, wanted]
    (finding,) = _forecast(tmp_path / "run", x.transpose(1, 2) if time_last else x, y)
    assert finding.evidence["features"] == features
    assert (finding.fault, finding.severity) == ("data_leakage", "warning")


@pytest.mark.parametrize("kind", ["forecast", "autoencoder", "part", "flags", "first"])
def test_other_targets(kind: str, tmp_path: Path) -> None:
    series = _series()
    x, y = series[:, :-1], series[:, -1]
    if kind == "autoencoder":
        y = x
    elif kind == "part":
        # One of the targets is known already.
        y = torch.stack([y[:, 0], x[:, -1, 1]], 1)
    elif kind == "flags":
        # Whether it is day stays the same, mostly; a flag is told by chance.
        x = torch.cat([x, torch.ones(len(x), TIMES, 1)], 2)
        y = torch.ones(len(x), 1)
    elif kind == "first":
        y = x[:, 0]
    assert _forecast(tmp_path / "run", x, y) == []
