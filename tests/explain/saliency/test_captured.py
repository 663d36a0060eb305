"""Captured saliency is FullGrad of the loss, without the model."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (its usual name)

from tests.explain.reports.pages import Page
from tests.explain.saliency.models import Computed
from vinedresser.capture import Hook, SaveConfig, open_run
from vinedresser.errors import ConfigError, UnknownStep
from vinedresser.explain.saliency import saliency
from vinedresser.explain.saliency.captured import (
    captured_over_steps,
    captured_saliency,
    saliency_steps,
    write_captured_saliency,
)
from vinedresser.store.reading.reader import Run

SIX = SaveConfig(every=1, rows=6)
TERMS = {"loss_terms": SIX, "labels": SaveConfig(every=1, rows=9)}


def trained(
    path: Path,
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    collections: dict[str, SaveConfig] | None = None,
) -> Run:
    """Train for two steps; return the run."""
    loss = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Hook(path, collections=TERMS if collections is None else collections) as hook:
        hook.watch(model, loss, optimizer)
        for _ in range(2):
            optimizer.zero_grad()
            loss(model(x), y).backward()
            optimizer.step()
    assert hook.problems == []
    return open_run(path)


def convolutions() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.SiLU(inplace=True), nn.MaxPool2d(2),
        nn.Conv2d(4, 4, 2), nn.GELU(), nn.Flatten(), nn.Linear(16, 3),
    )  # fmt: skip


def batch() -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(0)
    x = torch.rand(20, 1, 8, 8, generator=random)
    return x, torch.randint(3, (20,), generator=random)


def test_maps_are_those_of_the_model(tmp_path: Path) -> None:
    x, y = batch()
    model = convolutions().eval()
    before = copy.deepcopy(model)
    run = trained(tmp_path / "run", model, x, y)
    found = captured_saliency(run, 0)
    outputs = before(x)
    (gradient,) = torch.autograd.grad(F.cross_entropy(outputs, y), outputs)
    # Six of the nine labels, of which each is evenly taken from the batch.
    rows = np.linspace(0, 19, 9).round().astype(int)[np.linspace(0, 8, 6).round().astype(int)]
    np.testing.assert_array_equal(found.inputs, x.numpy()[rows])
    assert found.true is not None
    assert found.predicted is not None
    np.testing.assert_array_equal(found.true, y.numpy()[rows])
    np.testing.assert_array_equal(found.predicted, outputs.argmax(1).numpy()[rows])
    largest = outputs.softmax(1).amax(1).detach().numpy()
    np.testing.assert_allclose(found.confidence, largest[rows], rtol=1e-5)

    weighted = Computed(lambda x, model: (model(x) * gradient[rows]).sum(1), before)
    expected = saliency(weighted, x[rows], postprocess="none")
    assert found.result.map is not None
    assert expected.map is not None
    scale = float(np.abs(expected.map).max())
    np.testing.assert_allclose(found.result.map, expected.map, rtol=0, atol=1e-5 * scale)
    np.testing.assert_allclose(found.result.outputs, expected.outputs, atol=1e-6)
    np.testing.assert_allclose(found.result.input_term, expected.input_term[:, 0], atol=1e-6)
    assert found.result.complete, str(found.result)
    operators = [
        (term.layer, term.operator, term.in_map) for term in found.result.bias_terms.values()
    ]
    assert ("1", "BatchNorm2d", True) in operators
    assert ("7", "Linear", False) in operators


def test_the_page_and_the_pictures(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", convolutions(), *batch())
    assert saliency_steps(run).tolist() == [0, 1]
    found = captured_over_steps(run)
    page = Page(write_captured_saliency(run, found, tmp_path / "page.html"))
    assert page.html.count("data:image/png") == 2 * 3 * 2
    assert page.text.count("complete (relative error") == 2
    assert page.text.count("complete, error") == 2 * 3
    assert "what raises the loss (orange)" in page.text
    write_captured_saliency(run, found, tmp_path / "maps.png")
    with Image.open(tmp_path / "maps.png") as picture:
        assert picture.size == (6 * 8 + 5, 2 * 8 + 1)


def test_tokens_and_what_is_not_covered(tmp_path: Path) -> None:
    torch.manual_seed(0)

    def forward(ids: Tensor, embed: nn.Module, places: nn.Module, head: nn.Module) -> Tensor:
        out: Tensor = head((embed(ids) + places(torch.arange(4))).mean(1))
        return out

    model = Computed(forward, nn.Embedding(9, 5), nn.Embedding(4, 5), nn.Linear(5, 3))
    ids = torch.randint(9, (20, 4))
    run = trained(tmp_path / "run", model, ids, batch()[1])
    found = captured_over_steps(run)
    last = found[-1].result
    assert last.map is not None
    assert last.map.shape == (6, 4)
    assert not last.complete
    assert any("functions that Computed calls" in one for one in last.uncovered)
    text = Page(write_captured_saliency(run, found, tmp_path / "page.html")).text
    token = int(ids[0, 0])
    assert f"0: {token}: " in text
    assert "incomplete (relative error" in text
    with pytest.raises(ConfigError, match=r"the inputs are not images; use \.html"):
        write_captured_saliency(run, found, tmp_path / "maps.png")


def test_rows_of_features(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3))
    run = trained(tmp_path / "run", model, torch.rand(20, 5), batch()[1])
    last = captured_over_steps(run)[-1]
    assert last.result.map is None
    assert last.result.attributions is not None
    total = last.result.attributions.sum(1) + last.result.unattributed
    np.testing.assert_allclose(total, last.result.outputs, atol=1e-7)
    assert last.result.complete


def test_half_precision_is_complete_within_its_own(tmp_path: Path) -> None:
    x, y = batch()
    model = convolutions()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Hook(tmp_path / "run", collections=TERMS) as hook:
        hook.watch(model, optimizer=optimizer)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
    result = captured_saliency(open_run(tmp_path / "run"), 0).result
    assert result.complete, str(result)
    assert result.completeness_error.max() > 1e-5


def test_a_training_that_has_diverged(tmp_path: Path) -> None:
    model = convolutions()
    nn.init.constant_(next(model[4].parameters()), torch.nan)
    run = trained(tmp_path / "run", model, *batch())
    found = captured_over_steps(run)
    assert "not covered: terms that are not finite" in str(found[0].result)
    page = Page(write_captured_saliency(run, found, tmp_path / "page.html"))
    assert "incomplete, error nan" in page.text
    write_captured_saliency(run, found, tmp_path / "maps.png")
    with Image.open(tmp_path / "maps.png") as picture:
        red, green, _ = np.asarray(picture.convert("RGB"))[0, 8 + 1].tolist()
    assert red > 2 * green


def test_labels_that_do_not_fit_the_examples_are_left_out(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 3))
    collections = {"loss_terms": SIX, "labels": SIX}
    run = trained(tmp_path / "run", model, torch.rand(20, 5), batch()[1][:20], collections)
    assert captured_saliency(run, 0).true is not None
    collections = {"loss_terms": SIX}
    run = trained(tmp_path / "other", model, torch.rand(20, 5), batch()[1], collections)
    found = captured_saliency(run, 0)
    assert found.true is None
    assert found.predicted is not None
    np.testing.assert_array_equal(found.result.targets, found.predicted)


def test_a_run_without_terms_says_what_to_capture(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", convolutions(), *batch(), collections={"labels": SIX})
    with pytest.raises(UnknownStep, match=r"no terms of the loss .* \[capture\.loss_terms\]"):
        captured_over_steps(run)
