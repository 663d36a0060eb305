"""Queries over torch tensors give the answers of numpy arrays, and leave the training as it is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tests.queries.offering import event
from vinedresser.capture.torch_.numeric import TorchNumeric
from vinedresser.queries.answer import Answer
from vinedresser.queries.numpy_numeric import NumpyNumeric
from vinedresser.queries.query import Query
from vinedresser.queries.standing import StandingQuery

QUERIES = [
    "norm(gradients)",
    "norm(gradients) by layer",
    "std(gradients/conv.weight) by unit",
    "mean(abs(outputs/relu)) by channel",
    "share(outputs/relu == 0)",
    "quantile(weights, 0.1, 0.9)",
    "histogram(outputs/relu, 7, 0, 1)",
    "top(loss per sample, 3)",
    "top(norm(gradients), 1) by layer",
    "accuracy(labels, predictions)",
    "confusion(labels, predictions)",
    "mean(loss per sample) by class",
    "max(loss per sample) where labels == 1",
    "cosine(gradients, weights) by layer",
    "sum(where(weights > 0.1, weights, -1) ** 2 // 0.25 % 3)",
    "min(sign(weights) * sqrt(abs(weights)) + log(exp(weights)))",
    "count(isfinite(odd)) - count(isnan(odd))",
    "nonfinite(odd) + zero_share(labels)",
    "mean(not (weights > 0 and weights < 0.5 or weights < -1))",
    "mean(odd)",
    "var(half)",
    "norm(empty) + sum(empty)",
    "loss * 2",
    "sum(labels - 5)",
]


def values() -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    weights = {f"weights/{name}.weight": torch.randn(4, 3, 3, 3) for name in ("conv", "fc")}
    gradients = {f"gradients/{name}.weight": torch.randn(4, 3, 3, 3) for name in ("conv", "fc")}
    return {
        **weights,
        **gradients,
        "outputs/relu": torch.relu(torch.randn(8, 5, 6)),
        "labels": torch.arange(8) % 3,
        "predictions": torch.randn(8, 3, requires_grad=True),
        "loss_per_sample": torch.rand(8),
        "loss": torch.tensor(0.5),
        "odd": torch.tensor([1.0, float("nan"), float("inf"), -2.0]),
        "half": torch.randn(300).half(),
        "empty": torch.empty(0, 3),
    }


def ask(text: str, offered: dict[str, Any], numeric: Any) -> Answer:
    query = StandingQuery(Query.parse(text), rate=None)
    [answer] = query.observe(event(offered, numeric=numeric))
    assert answer.error is None
    return answer


def numbers(value: Any) -> Any:
    """Return the numbers of an answer in order, and the rest as text."""
    if isinstance(value, dict):
        return [number for entry in value.values() for number in numbers(entry)]
    if isinstance(value, list):
        return [number for entry in value for number in numbers(entry)]
    return [float(value)] if not isinstance(value, str) else []


@pytest.mark.parametrize("text", QUERIES)
def test_torch_answers_as_numpy_does(text: str) -> None:
    tensors = values()
    arrays = {name: one.detach().numpy() for name, one in tensors.items()}
    found, expected = ask(text, tensors, TorchNumeric()), ask(text, arrays, NumpyNumeric())
    assert found.kind == expected.kind
    np.testing.assert_allclose(numbers(found.value), numbers(expected.value), rtol=2e-5, atol=1e-7)


@pytest.mark.parametrize("text", QUERIES)
def test_a_query_changes_neither_values_nor_random_numbers_nor_the_graph(text: str) -> None:
    tensors = values()
    copies = {name: one.detach().clone() for name, one in tensors.items()}
    state = torch.get_rng_state()
    ask(text, tensors, TorchNumeric())
    assert torch.equal(torch.get_rng_state(), state)
    for name, copy in copies.items():
        torch.testing.assert_close(tensors[name].detach(), copy, rtol=0, atol=0, equal_nan=True)
        assert tensors[name].grad_fn is None


@pytest.mark.parametrize("name", ["l2", "mean", "variance", "nonfinite"])
def test_statistics_of_several_tensors_at_once_are_those_of_each(name: str) -> None:
    torch.manual_seed(1)
    tensors = [
        torch.randn(7, 5),
        torch.randn(7, 5).t(),
        torch.randn(300_000),
        torch.tensor(3.0),
        torch.empty(0, 4),
        torch.full((9,), 1e-25),
        torch.full((9,), 1e25),
        torch.zeros(4),
        torch.tensor([1.0, float("nan")]),
        torch.tensor([1.0, float("inf")]),
        torch.randn(6, dtype=torch.float64) * 1e200,
        torch.randn(5, requires_grad=True),
    ]
    found = TorchNumeric().statistic_of_each(name, tensors)
    arrays = [tensor.detach().numpy() for tensor in tensors]
    expected = NumpyNumeric().statistic_of_each(name, arrays)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-7 if name == "mean" else 0)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("text", QUERIES)
def test_tensors_on_a_gpu_give_the_same_answers(text: str) -> None:
    tensors = values()
    away = {name: one.cuda() for name, one in tensors.items()}
    found, expected = ask(text, away, TorchNumeric()), ask(text, tensors, TorchNumeric())
    np.testing.assert_allclose(numbers(found.value), numbers(expected.value), rtol=2e-5, atol=1e-7)
