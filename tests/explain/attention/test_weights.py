"""The attention of a run equals that computed by hand from the projections of its layers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (its usual name)

from tests.explain.attention.heads import by_hand
from vinedresser.capture import Hook, SaveConfig, open_run
from vinedresser.errors import ConfigError, UnknownStep, UnknownTensor
from vinedresser.explain.attention import Attention, read_attention
from vinedresser.store.reading.reader import Run
from vinedresser.testing.runs import make_run, step_record

ALWAYS = SaveConfig(every=1)
HEADS, WIDTH = 4, 16


def heads_of(values: Tensor) -> Any:
    """Return [N, L, E] as heads, [N, H, L, D]."""
    return values.detach().unflatten(-1, (HEADS, -1)).transpose(1, 2).numpy()


class Twice(nn.Module):
    """A module with two kinds of attention, of which the first is called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, WIDTH)
        self.mha = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
        self.project = nn.Linear(WIDTH, 2 * WIDTH)
        self.seen: list[Tensor] = []

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids)
        padding = ids == 0
        self.seen = [x]
        x = x + self.mha(x, x, x, key_padding_mask=padding, need_weights=False)[0]
        self.seen.append(x)
        x = x + self.mha(x, x, x, need_weights=False)[0]
        self.seen.append(x)
        q, k = self.project(x).unflatten(-1, (2 * HEADS, -1)).transpose(1, 2).chunk(2, 1)
        out = F.scaled_dot_product_attention(q, k, k, is_causal=True)
        return out.flatten(1).sum(1)


def trained(path: Path, model: nn.Module, ids: Tensor) -> Run:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    collections = {"attention": ALWAYS, "model_inputs": ALWAYS}
    with Hook(path, collections=collections) as hook:
        hook.watch(model, optimizer=optimizer)
        model(ids).sum().backward()
        optimizer.step()
    return open_run(path)


def test_multihead_and_scaled_dot_product_attention(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Twice()
    ids = torch.tensor([[3, 1, 4, 1, 5], [9, 2, 6, 0, 0]])
    found = read_attention(trained(tmp_path / "run", model, ids))

    assert [layer.name for layer in found.layers] == ["mha", "mha#1", "Twice"]
    assert found.origin == "run, train step 0"
    np.testing.assert_array_equal(found.ids, ids.numpy())
    packed, bias = model.mha.in_proj_weight, model.mha.in_proj_bias
    for layer, x in zip(found.layers, model.seen[:2], strict=False):
        q, k, _ = F.linear(x, packed, bias).chunk(3, -1)
        expected = by_hand(heads_of(q), heads_of(k))
        if layer.name == "mha":
            # The second example has three visible keys.
            expected[1] = 0.0
            expected[1, ..., :3] = by_hand(heads_of(q)[1:], heads_of(k)[1:, :, :3])[0]
        np.testing.assert_allclose(layer.weights, expected, atol=1e-6)
    q, k = model.project(model.seen[2]).chunk(2, -1)
    expected = by_hand(heads_of(q), heads_of(k), causal=True)
    np.testing.assert_allclose(found.layers[2].weights, expected, atol=1e-6)


@pytest.mark.thorough
def test_keras_multi_head_attention(tmp_path: Path) -> None:
    keras = pytest.importorskip("keras")
    keras.utils.set_random_seed(0)
    inputs = keras.Input((6, WIDTH))
    attend = keras.layers.MultiHeadAttention(HEADS, WIDTH // HEADS, name="attend")
    outputs = keras.layers.Dense(1)(attend(inputs, inputs, use_causal_mask=True))
    model = keras.Model(inputs, outputs)
    model.compile("sgd", "mse", run_eagerly=True)
    x = np.random.default_rng(0).normal(size=(3, 6, WIDTH)).astype(np.float32)
    projections = [
        np.asarray(layer(x)).transpose(0, 2, 1, 3)
        for layer in (attend._query_dense, attend._key_dense)
    ]
    with Hook(tmp_path / "run", collections={"attention": ALWAYS}) as hook:
        hook.watch(model)
        model.fit(x, np.zeros((3, 6, 1)), batch_size=3, verbose=0)

    (layer,) = read_attention(open_run(tmp_path / "run"), step=0).layers
    assert layer.name == "attend"
    np.testing.assert_allclose(layer.weights, by_hand(*projections, causal=True), atol=1e-6)


def test_calls_of_a_layer_are_in_their_order(tmp_path: Path) -> None:
    weights = np.full((1, 1, 2, 2), 0.5)
    names = [f"attention/b#{call}" for call in (10, 2, 1)]
    tensors = dict.fromkeys([*names, "attention/b", "attention/a"], weights)
    run = make_run(tmp_path / "run", [step_record(0, tensors=tensors)])
    found = [layer.name for layer in read_attention(run).layers]
    assert found == ["b", "b#1", "b#2", "b#10", "a"]


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    records = [
        step_record(0, tensors={"weights/w": np.ones((2, 2))}),
        step_record(4, tensors={"attention/a": np.full((1, 1, 2, 2), 0.5)}),
    ]
    run = make_run(tmp_path / "run", records)
    assert read_attention(run).origin == "made, train step 4"
    with pytest.raises(UnknownStep, match="train step 3; nearest: 4"):
        read_attention(run, step=3)
    with pytest.raises(UnknownStep, match=r"never captured in full in mode eval .* rows = 4"):
        read_attention(run, mode="eval")
    with pytest.raises(UnknownTensor, match="no tensor attention/b; did you mean attention/a"):
        read_attention(run, "attention/b")
    with pytest.raises(ConfigError, match="w: the weights of a query must be at least 0 and sum"):
        read_attention(run, "weights/w", step=0)
    bare = make_run(tmp_path / "bare", [step_record(0, scalars={"losses/l": 1.0})])
    with pytest.raises(UnknownTensor, match=r"no attention was captured; set \[capture.attention"):
        read_attention(bare)


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        (np.ones(3), r"must be \[examples, heads, queries, keys\], not \[3\]"),
        (np.ones((2, 0)), r"not \[2, 0\]"),
        (np.array([[0.5, 0.6]]), "must be at least 0 and sum to 1"),
        (np.array([[1.5, -0.5]]), "must be at least 0 and sum to 1"),
        (np.array([[0.5, np.nan]]), "must be at least 0 and sum to 1"),
    ],
)
def test_arrays_that_are_no_probabilities(values: Any, problem: str) -> None:
    with pytest.raises(ConfigError, match=f"attention layer: {problem}|attention layer.*{problem}"):
        Attention.of({"layer": values})


def test_no_arrays() -> None:
    with pytest.raises(ConfigError, match="no layers"):
        Attention.of({})
