"""Watched models give the same outputs, and every call is recorded once."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from tests.serving.unlimited import UNLIMITED
from vinedresser.errors import ConfigError
from vinedresser.serving import (
    RequestRecorder,
    Requests,
    RequestStore,
    describe_model,
    request_ids,
    watch,
)


def network() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3),
        nn.ReLU(inplace=True),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 5),
    ).eval()


def recorded(recorder: RequestRecorder) -> Requests:
    assert recorder.flush(60)
    assert recorder.problems == []
    return RequestStore(recorder.location).after(None)[0]


def hooks(model: nn.Module) -> int:
    return sum(
        len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules()
    )


def test_a_function_is_recorded_with_the_ids_of_its_requests(tmp_path: Path) -> None:
    recorder = RequestRecorder(tmp_path, "service", limits=UNLIMITED)

    @lambda function: watch(function, recorder)
    def predict(rows: NDArray[Any]) -> Any:
        return np.sum(rows, axis=1)

    with request_ids(["a", "b"]):
        result = predict(np.ones((2, 3)))
    predict(np.zeros((1, 3)))
    found = recorded(recorder)
    assert result.tolist() == [3.0, 3.0]
    assert found.ids[:2] == ("a", "b")
    assert found.columns["prediction"].tolist() == [3.0, 3.0, 0.0]
    assert predict.__name__ == "predict"
    recorder.close()


def test_a_frame_is_recorded_beside_other_arguments(tmp_path: Path) -> None:
    recorder = RequestRecorder(tmp_path, "service", limits=UNLIMITED)

    def predict(frame: pd.DataFrame, params: dict[str, int] | None = None) -> Any:
        return frame["age"] > 40

    frame = pd.DataFrame({"age": [3.0, 50.0], "city": ["x", "y"]})
    result = watch(predict, recorder)(frame, params=None)
    frame.loc[0, "age"] = 99.0
    result.iloc[0] = True
    found = recorded(recorder)
    assert found.columns["age"].tolist() == [3.0, 50.0]
    assert found.columns["prediction"].tolist() == [False, True]
    recorder.close()


def test_coroutines_are_recorded_each_with_its_own_ids(tmp_path: Path) -> None:
    recorder = RequestRecorder(tmp_path, "service", limits=UNLIMITED)

    async def predict(value: float) -> float:
        await asyncio.sleep(0)
        return value

    watched = watch(predict, recorder)

    async def request(number: int) -> None:
        with request_ids(number):
            await watched(float(number))

    async def requests() -> None:
        await asyncio.gather(*map(request, range(10)))

    asyncio.run(requests())
    found = recorded(recorder)
    assert sorted(found.ids) == sorted(map(str, range(10)))
    assert [float(one) for one in found.ids] == found.columns["prediction"].tolist()
    recorder.close()


def test_a_failed_call_is_not_recorded_and_its_error_is_the_models(tmp_path: Path) -> None:
    recorder = RequestRecorder(tmp_path, "service", limits=UNLIMITED)

    def fails(rows: object) -> None:
        raise LookupError("from the model")

    with pytest.raises(LookupError, match="from the model"):
        watch(fails, recorder)(np.zeros((1, 2)))
    model = nn.Linear(2, 2)
    watched = watch(model, recorder)
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        model(torch.zeros(1, 3))
    model(torch.ones(1, 2))
    assert recorded(recorder).columns["x0"].tolist() == [1.0]
    watched.close()
    recorder.close()


def test_the_outputs_of_a_module_are_bit_for_bit_the_same(tmp_path: Path) -> None:
    recorder = RequestRecorder(tmp_path, "service", limits=UNLIMITED)
    model = network()
    images = torch.randn(4, 3, 16, 16)
    with torch.no_grad():
        before = model(images)
        watched = watch(model, recorder, layer="0")
        during = model(images)
        assert torch.equal(watched(images), before)
    watched.close()
    assert torch.equal(during, before)
    assert hooks(model) == 0
    found = recorded(recorder)
    expected = model[0](images).mean((2, 3)).detach().numpy()
    np.testing.assert_array_equal(found.columns["embedding"], np.concatenate([expected] * 2))
    np.testing.assert_array_equal(found.columns["prediction"][:4], before.argmax(1).numpy())
    recorder.close()


def test_gradients_flow_through_a_watched_module(tmp_path: Path) -> None:
    recorder = RequestRecorder(tmp_path, "service", limits=UNLIMITED)
    model = network()
    images = torch.randn(2, 3, 8, 8, requires_grad=True)
    (expected,) = torch.autograd.grad(model(images).sum(), images)
    watched = watch(model, recorder, layer="4")
    (found,) = torch.autograd.grad(model(images).sum(), images)
    assert torch.equal(found, expected)
    watched.close()
    recorder.close()


def test_an_operation_in_place_does_not_reach_the_recorded_inputs(tmp_path: Path) -> None:
    class Doubles(nn.Module):
        def forward(self, rows: torch.Tensor) -> torch.Tensor:
            return rows.mul_(2.0)

    recorder = RequestRecorder(tmp_path, "service", limits=UNLIMITED)
    model = Doubles()
    watched = watch(model, recorder)
    model(torch.ones(1, 3))
    found = recorded(recorder)
    assert found.columns["x0"].tolist() == [1.0]
    watched.close()
    recorder.close()


def test_named_arguments_and_named_outputs_are_parts(tmp_path: Path) -> None:
    class Two(nn.Module):
        def forward(self, tokens: torch.Tensor, *, mask: torch.Tensor, scale: float) -> Any:
            return {"logits": (tokens * mask).float() * scale, "hidden": torch.zeros(2, 3, 4)}

    recorder = RequestRecorder(tmp_path, "service", limits=UNLIMITED)
    model = Two()
    watched = watch(model, recorder)
    model(torch.tensor([[1, 5], [7, 2]]), mask=torch.ones(2, 2, dtype=torch.bool), scale=1.0)
    found = recorded(recorder)
    assert found.columns["prediction"].tolist() == [1, 0]
    assert found.columns["0.1"].tolist() == [5, 2]
    assert found.columns["mask.0"].tolist() == [True, True]
    watched.close()
    recorder.close()


def test_half_precision_is_recorded(tmp_path: Path) -> None:
    recorder = RequestRecorder(tmp_path, "service", limits=UNLIMITED)
    model = nn.Linear(2, 2).bfloat16()
    watched = watch(model, recorder)
    rows = torch.tensor([[1.5, 2.0]], dtype=torch.bfloat16)
    model(rows)
    assert recorded(recorder).columns["x0"].tolist() == [1.5]
    watched.close()
    recorder.close()


def test_a_baseline_has_the_columns_of_the_requests(tmp_path: Path) -> None:
    recorder = RequestRecorder(tmp_path, "service", limits=UNLIMITED)
    model = network().train()
    images = torch.randn(6, 3, 8, 8)
    baseline = describe_model(model, images, layer="3", batch_size=3)
    assert model.training
    assert model[1].training
    assert hooks(model) == 0
    watched = watch(model.eval(), recorder, layer="3")
    with torch.no_grad():
        for first in (0, 3):
            model(images[first : first + 3])
    found = recorded(recorder)
    assert baseline.keys() == found.columns.keys()
    for name, values in baseline.items():
        np.testing.assert_array_equal(values, found.columns[name])
        assert values.dtype == found.columns[name].dtype
    watched.close()
    recorder.close()


def test_what_cannot_be_watched_is_refused(tmp_path: Path) -> None:
    recorder = RequestRecorder(tmp_path, "service", limits=UNLIMITED)
    with pytest.raises(ConfigError, match="no module 'conv'"):
        watch(network(), recorder, layer="conv")
    with pytest.raises(ConfigError, match="only torch modules and Keras models"):
        watch(len, recorder, layer="1")

    class Estimator:
        def predict(self) -> None: ...

    with pytest.raises(ConfigError, match="pass its method predict"):
        watch(Estimator(), recorder)


@pytest.mark.thorough
def test_a_compiled_module_is_recorded(tmp_path: Path, fresh_compiler: None) -> None:
    recorder = RequestRecorder(tmp_path, "service", limits=UNLIMITED)
    model = torch.compile(network(), backend="eager")
    images = torch.randn(4, 3, 16, 16)
    with torch.no_grad():
        before = model(images)
        watched = watch(model, recorder)
        assert torch.equal(model(images), before)
    assert len(recorded(recorder)) == 4
    watched.close()
    recorder.close()
