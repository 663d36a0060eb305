"""Alerts are explained from recorded requests, for images and for rows of features."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from vinedresser.explain.alerts import baseline as baseline_process
from vinedresser.explain.alerts import process
from vinedresser.explain.alerts.baseline import read_sample
from vinedresser.serving import Limits, RequestRecorder, RequestStore, watch

pytestmark = pytest.mark.thorough

_MODULE = "tests.explain.alerts.test_process"


def images() -> tuple[torch.Tensor, torch.Tensor]:
    """Return images [200, 1, 6, 6] and labels."""
    random = torch.Generator().manual_seed(0)
    return torch.rand(200, 1, 6, 6, generator=random), torch.randint(3, (200,), generator=random)


def rows() -> torch.Tensor:
    """Return rows [200, 4]."""
    return torch.randn(200, 4, generator=torch.Generator().manual_seed(0))


def of_images() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.GELU(), nn.Flatten(), nn.Linear(64, 3))


def of_rows() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))


def table(build: str) -> dict[str, Any]:
    """Return the table ``[model]`` of a monitor."""
    return {
        "build": f"{_MODULE}:{build}",
        "weights": None,
        "features": None,
        "layer": None,
        "classify": None,
        "classes": ["a", "b", "c"],
    }


def answered(
    folder: Path, model: nn.Module, inputs: torch.Tensor
) -> tuple[RequestStore, list[str]]:
    """Have a service answer requests and hand over their inputs."""
    recorder = RequestRecorder(
        folder, "service", limits=Limits(flush_seconds=0.02, rate=1e9, cost=1.0)
    )
    watched = watch(model.eval(), recorder)
    with torch.no_grad():
        model(inputs)
    assert recorder.flush()
    store = RequestStore(folder / "service")
    ids = [*store.after(None)[0].ids]
    store.ask_for_inputs("alert", ids, 0, time.time() + 60)
    deadline = time.monotonic() + 60
    while len(store.inputs_of(ids)) < len(ids):
        assert time.monotonic() < deadline
        threading.Event().wait(0.05)
    watched.close()
    recorder.close()
    return store, ids


def explain(folder: Path, build: str, data: str, ids: list[str]) -> dict[str, Any]:
    """Make a baseline and explain requests; return the figures."""
    baseline_process.main(
        model=table(build),
        data=f"{_MODULE}:{data}",
        rows=150,
        in_time_order=True,
        period=None,
        times=None,
        examples=8,
        destination=str(folder / "baseline"),
    )
    alert = {
        "name": "small, window 3",
        "text": "drift <b>",
        "tone": "bad",
        "features": ["x0: moved"],
        "ids": ids,
    }
    process.main(
        model=table(build),
        requests=str(folder / "service"),
        alert=alert,
        explain={"examples": 8, "method": "fullgrad"},
        baseline=str(folder / "baseline"),
        destination=str(folder / "explanation"),
    )
    found: dict[str, Any] = json.loads((folder / "explanation" / "figures.json").read_text())
    return found


def test_images_get_maps_for_the_predicted_and_the_true_class(tmp_path: Path) -> None:
    model = of_images()
    inputs = images()[0][:24] + 0.5
    store, ids = answered(tmp_path, model, inputs)
    with torch.no_grad():
        predictions = model(inputs).argmax(1).tolist()
    # All wrong but one, which has no label.
    store.add_labels(ids[1:], [(prediction + 1) % 3 for prediction in predictions[1:]])
    figures = explain(tmp_path, "of_images", "images", [*ids, "unknown"])
    assert figures["complete"]
    assert figures["requests"] == 24
    assert figures["problems"] == ["the service had the inputs of 24 of 25 requests"]
    assert 0 < figures["shift"]["p_value"] <= 1
    page = (tmp_path / "explanation" / "explain.html").read_text()
    assert "drift &lt;b&gt;" in page
    assert "x0: moved" in page
    assert "for the true class" in page
    assert "taken for" in page
    assert (tmp_path / "explanation" / "sheet.png").read_bytes().startswith(b"\x89PNG")
    sample = read_sample(tmp_path / "baseline")
    assert sample is not None
    assert sample.inputs.shape == (64, 1, 6, 6)
    assert np.isin(sample.inputs, images()[0].numpy()[50:]).all()


def test_rows_get_the_share_of_each_feature(tmp_path: Path) -> None:
    inputs = rows()[:20].clone()
    inputs[:, 2] += 5
    _, ids = answered(tmp_path, of_rows(), inputs)
    figures = explain(tmp_path, "of_rows", "rows", ids)
    assert figures["problems"] == []
    page = (tmp_path / "explanation" / "explain.html").read_text()
    # The feature that moved contributes most differently.
    assert page.index("<td>x2") < min(page.index(f"<td>x{one}") for one in (0, 1, 3))
    assert not (tmp_path / "explanation" / "sheet.png").exists()


def test_requests_whose_inputs_are_gone_say_so(tmp_path: Path) -> None:
    answered(tmp_path, of_rows(), rows()[:4])
    figures = explain(tmp_path, "of_rows", "rows", ["1", "2"])
    assert figures["shift"] is None
    assert "none after a restart" in figures["problems"][1]


def test_a_model_that_does_not_take_the_inputs_is_named(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="input of size"):
        explain(tmp_path, "of_images", "rows", [])
