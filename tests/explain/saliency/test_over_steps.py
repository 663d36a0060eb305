"""Saliency over the steps is that of the model as it was at each step."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from tests.explain.reports.pages import Page
from vinedresser.capture import Hook, SaveConfig, open_run
from vinedresser.errors import ConfigError, UnknownStep
from vinedresser.explain.saliency import saliency
from vinedresser.explain.saliency.over_steps import saliency_over_steps, write_saliency_steps
from vinedresser.store.reading.reader import Run

ALWAYS = SaveConfig(every=1)
WEIGHTS = ("weights", "biases", "buffers", "model_inputs")


def convolutions() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.SiLU(), nn.Flatten(), nn.Linear(144, 3)
    )


class Tied(nn.Module):
    """Token ids in, with an embedding that is also the output's."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(7, 5)
        self.out = nn.Linear(5, 7, bias=False)
        self.out.weight = self.embed.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.out(torch.tanh(self.embed(ids)).mean(1))
        return out


def trained(
    path: Path, model: nn.Module, x: torch.Tensor, names: tuple[str, ...] = WEIGHTS
) -> tuple[Run, list[nn.Module]]:
    """Train for three steps; return the run, and the model before each step."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    before = []
    with Hook(path, collections=dict.fromkeys(names, ALWAYS)) as hook:
        hook.watch(model, optimizer=optimizer)
        for _ in range(3):
            before.append(copy.deepcopy(model))
            optimizer.zero_grad()
            model(x).logsumexp(1).mean().backward()
            optimizer.step()
    return open_run(path), before


def test_maps_of_images(tmp_path: Path) -> None:
    x = torch.rand(8, 1, 8, 8)
    run, before = trained(tmp_path / "run", convolutions(), x)
    found = saliency_over_steps(run, convolutions())
    assert (found.steps, found.origin) == ([0, 1, 2], "train step 2")
    np.testing.assert_array_equal(found.inputs, x[:6].numpy())
    targets = saliency(before[2], x[:6]).targets.tolist()
    for model, result in zip(before, found.results, strict=True):
        expected = saliency(model, x[:6], targets)
        assert expected.map is not None
        assert result.map is not None
        np.testing.assert_allclose(result.map, expected.map, rtol=1e-4, atol=1e-4)

    page = Page(write_saliency_steps(run, found, tmp_path / "page.html"))
    assert page.html.count("data:image/png") == 6 * 4
    assert page.text.count("complete (relative error") == 3
    write_saliency_steps(run, found, tmp_path / "maps.png")
    with Image.open(tmp_path / "maps.png") as picture:
        assert picture.size == (4 * 8 + 3, 6 * 8 + 5)


def test_tokens_and_tied_weights(tmp_path: Path) -> None:
    ids = torch.tensor([[1, 2, 3], [4, 5, 6]])
    run, before = trained(tmp_path / "run", Tied(), ids)
    found = saliency_over_steps(run, Tied())
    expected = saliency(before[2], ids)
    assert expected.attributions is not None
    last = found.results[2].attributions
    assert last is not None
    np.testing.assert_allclose(last, expected.attributions, atol=1e-6)
    text = Page(write_saliency_steps(run, found, tmp_path / "page.html")).text
    assert f"example 0: output {expected.targets[0]}" in text
    assert "0: 1" in text
    with pytest.raises(ConfigError, match=r"the inputs are not images; use \.html"):
        write_saliency_steps(run, found, tmp_path / "maps.png")


@pytest.mark.parametrize(
    ("model", "names", "error", "problem"),
    [
        (nn.Linear(3, 5), WEIGHTS, ConfigError, r"shape \[2, 3\], and the model has \[5, 3\]"),
        (nn.Bilinear(3, 3, 2), ("weights", "model_inputs"), UnknownStep, "bias of the model was"),
        (nn.Linear(3, 2), ("weights", "biases"), ConfigError, "no inputs of the model"),
        ("text", WEIGHTS, ConfigError, "returned str; return a torch.nn.Module"),
    ],
)
def test_what_does_not_fit(
    tmp_path: Path, model: Any, names: tuple[str, ...], error: type[Exception], problem: str
) -> None:
    run, _ = trained(tmp_path / "run", nn.Linear(3, 2), torch.rand(4, 3), names)
    with pytest.raises(error, match=problem):
        saliency_over_steps(run, model)
