"""The explanation of a run: its wrong predictions, with saliency."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.explain.reports.pages import Page
from vinedresser.capture import Hook, SaveConfig, open_run
from vinedresser.errors import ConfigError, UnknownStep
from vinedresser.explain.runs import explain_captured, explain_model, write_run_explanation
from vinedresser.explain.saliency import saliency
from vinedresser.store.reading.reader import Run

ALWAYS = SaveConfig(every=1)
WEIGHTS = ("weights", "biases", "buffers")
SEEN = ("model_inputs", "labels", "predictions")
TERMS = {"loss_terms": SaveConfig(every=1, rows=8), "labels": ALWAYS}


def convolutions() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.SiLU(), nn.Flatten(), nn.Linear(144, 3)
    )


def rows() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3))


def trained(
    path: Path,
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    collections: dict[str, Any],
    *,
    loss: nn.Module | None = None,
    shift: int = 0,
) -> Run:
    """Train for two steps, and evaluate after them, perhaps with other labels; return the run."""
    loss = nn.CrossEntropyLoss() if loss is None else loss
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Hook(path, collections=collections) as hook:
        hook.watch(model, loss, optimizer)
        for _ in range(2):
            optimizer.zero_grad()
            loss(model(x), y).backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            loss(model(x), y.roll(shift))
    assert hook.problems == []
    return open_run(path)


def batch(*shape: int) -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(0)
    return torch.rand(12, *shape, generator=random), torch.randint(3, (12,), generator=random)


def test_wrong_predictions_by_the_model(tmp_path: Path) -> None:
    x, y = batch(1, 8, 8)
    model = convolutions()
    collections = dict.fromkeys((*WEIGHTS, *SEEN), ALWAYS)
    run = trained(tmp_path / "run", model, x, y, collections, shift=1)
    found = explain_model(run, convolutions())
    made, y = found.examples, y.roll(1)
    # It is left in evaluation mode, with the weights that were captured last.
    outputs = model(x)
    guesses = outputs.argmax(1)
    wrong = int((guesses != y).sum())
    assert 0 < wrong < 12
    assert [made.true[place] != made.classes[place] for place in range(12)] == (
        [True] * wrong + [False] * (12 - wrong)
    )
    assert sum(len(group.places) for group in found.groups) == wrong
    assert set(made.for_true) == set(range(wrong))
    for place in range(12):
        [number] = [one for one in range(12) if np.array_equal(x[one].numpy(), made.inputs[place])]
        assert made.classes[place] == str(int(guesses[number]))
        assert made.true[place] == str(int(y[number]))
        expected = saliency(model, x[number : number + 1], int(guesses[number]))
        assert expected.map is not None
        assert made.result.map is not None
        np.testing.assert_allclose(made.result.map[place], expected.map[0], rtol=1e-3, atol=1e-3)
        share = float(outputs[number].detach().softmax(0).max())
        assert made.confidence[place] == pytest.approx(share, rel=1e-4)
    page = Page(write_run_explanation(found, tmp_path / "page.html"))
    assert f"{made.true[0]} taken for {made.classes[0]}" in page.text
    assert "for the true class complete, error" in " ".join(page.text.split())
    assert "with the weights of eval step 2" in page.text


def test_the_loss_by_captured_terms(tmp_path: Path) -> None:
    x, y = batch(1, 8, 8)
    run = trained(tmp_path / "run", convolutions(), x, y, TERMS)
    found = explain_captured(run)
    assert len(found.examples.classes) == 8
    places = np.linspace(0, 11, 8).round().astype(int)
    assert found.examples.true == [str(one) for one in y.numpy()[places].tolist()]
    pairs = zip(found.examples.classes, found.examples.true, strict=True)
    wrong = sum(guess != truth for guess, truth in pairs)
    assert sum(len(group.places) for group in found.groups) == wrong > 0
    text = Page(write_run_explanation(found, tmp_path / "page.html")).text
    assert "FullGrad of the loss" in text
    assert "those of train step 1" in text


def test_right_predictions_are_the_least_confident(tmp_path: Path) -> None:
    x, _ = batch(5)
    model = rows()
    with torch.no_grad():
        y = model(x).argmax(1)
    run = trained(tmp_path / "run", model, x, y, dict.fromkeys((*WEIGHTS, *SEEN), ALWAYS))
    found = explain_model(run, rows())
    assert all(group.true is None for group in found.groups)
    sure = found.examples.confidence
    assert list(sure) == sorted(sure)
    text = Page(write_run_explanation(found, tmp_path / "page.html")).text
    assert f"{sure[0]:.0%}" in text
    assert "largest contributions" in text


def test_numbers_that_are_no_classes(tmp_path: Path) -> None:
    x, _ = batch(5)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 1))
    collections = dict.fromkeys((*WEIGHTS, *SEEN, "loss_terms"), ALWAYS)
    run = trained(tmp_path / "run", model, x, x[:, :1], collections, loss=nn.MSELoss())
    for found in (explain_model(run, nn.Sequential(nn.Linear(5, 1))), explain_captured(run)):
        assert list(found.groups) == []
        assert found.examples.result.complete
        write_run_explanation(found, tmp_path / "page.html")


def test_examples_without_labels(tmp_path: Path) -> None:
    x, y = batch(5)
    names = (*WEIGHTS, "model_inputs")
    run = trained(tmp_path / "run", rows(), x, y, dict.fromkeys(names, ALWAYS))
    found = explain_model(run, rows())
    assert len(found.examples.inputs) == 6
    assert list(found.groups) == []
    write_run_explanation(found, tmp_path / "page.html")


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    x, y = batch(5)
    run = trained(tmp_path / "run", rows(), x, y, dict.fromkeys(WEIGHTS, ALWAYS))
    with pytest.raises(UnknownStep, match=r"set \[capture\.loss_terms\].* or give --model"):
        explain_captured(run)
    with pytest.raises(ConfigError, match="no inputs of the model were captured"):
        explain_model(run, rows())
    with pytest.raises(ConfigError, match=r"return a torch\.nn\.Module"):
        explain_model(run, "text")
    with pytest.raises(UnknownStep, match="was not captured"):
        explain_model(run, nn.Bilinear(5, 5, 3))
