"""Attention probabilities are those that the model uses."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (as everybody calls it)
from torch.nn.attention.bias import causal_lower_right
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

from vinedresser.capture import Collection, Hook, SaveConfig, open_run
from vinedresser.store.reading.reader import Run

ALWAYS = SaveConfig(every=1)
SLOW = pytest.mark.filterwarnings("ignore:Support for mismatched key_padding_mask and attn_mask")


class Calls(nn.Module):
    """Calls a function with its own attention."""

    def __init__(self, call: Callable[[], Any], *parts: nn.Module) -> None:
        super().__init__()
        self.attn = parts[0] if parts else nn.Identity()
        self._call = call
        self.one = nn.Parameter(torch.ones(1))

    def forward(self) -> Tensor:
        found = self._call()
        attended = found[0] if isinstance(found, tuple) else found
        out: Tensor = attended.detach().float().sum() * self.one
        return out


def step_on(model: nn.Module, path: Path) -> tuple[Run, list[str]]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Hook(path, collections={"attention": ALWAYS}) as hook:
        hook.watch(model, optimizer=optimizer)
        model().backward()
        optimizer.step()
    return open_run(path), hook.problems


def softmax_in_float64(
    query: Tensor, key: Tensor, scale: float, added: NDArray[np.float64] | None = None
) -> NDArray[np.float64]:
    """Return the probabilities of [L, D] and [S, D], row by row."""
    rows = []
    for number, q in enumerate(query.double().numpy()):
        scores = np.array([scale * sum(q * k) for k in key.double().numpy()])
        if added is not None:
            scores = scores + added[number]
        weights = np.exp(scores - scores.max())
        rows.append(weights / weights.sum())
    return np.array(rows)


def reference(query: Tensor, key: Tensor, **options: Any) -> NDArray[np.float64]:
    """Return [N, H, L, S] by loops."""
    batch, heads, length, size = query.shape
    groups, keys = key.shape[1], key.shape[2]
    added = np.zeros((batch, heads, length, keys))
    if options.get("is_causal"):
        added[:, :, np.arange(keys)[None] > np.arange(length)[:, None]] = -np.inf
    mask = options.get("attn_mask")
    if mask is not None:
        whole = mask.expand(added.shape)
        seen = whole.dtype == torch.bool
        added += np.where(whole, 0.0, -np.inf) if seen else whole.double().numpy()
    scale = options.get("scale") or 1 / math.sqrt(size)
    return np.array(
        [
            [
                softmax_in_float64(query[n, h], key[n, h * groups // heads], scale, added[n, h])
                for h in range(heads)
            ]
            for n in range(batch)
        ]
    )


MASK = torch.rand(3, 5, generator=torch.Generator().manual_seed(2)) > 0.4
MASK[:, 0] = True
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "causal": {"is_causal": True},
    "scale": {"scale": 0.3},
    "boolean": {"attn_mask": MASK},
    "added": {"attn_mask": torch.linspace(-2, 2, 15).reshape(3, 5)},
    "by_head": {"attn_mask": MASK.expand(2, 4, 3, 5)},
    "broadcast": {"attn_mask": MASK[:1, :].expand(1, 5)},
    "dropped": {"dropout_p": 0.5},
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("option", OPTIONS)
def test_scaled_dot_product(option: str, dtype: torch.dtype, tmp_path: Path) -> None:
    options = dict(OPTIONS[option])
    torch.manual_seed(1)
    query, key, value = (torch.randn(2, 4, size, 6).to(dtype) for size in (3, 5, 5))
    if dtype != torch.float32 and options.get("attn_mask", MASK).dtype != torch.bool:
        options["attn_mask"] = options["attn_mask"].to(dtype)
    model = Calls(lambda: F.scaled_dot_product_attention(query, key, value, **options))
    run, problems = step_on(model, tmp_path / "run")
    assert problems == []
    found = run.tensor("attention/Calls").value(0)
    assert found.dtype == np.float32
    expected = reference(query, key, **options)
    np.testing.assert_allclose(found, expected, rtol=2e-6 if dtype != torch.float64 else 1e-7)


def test_grouped_queries(tmp_path: Path) -> None:
    query, key, value = (torch.randn(2, heads, 3, 6) for heads in (4, 2, 2))
    model = Calls(lambda: F.scaled_dot_product_attention(query, key, value, enable_gqa=True))
    run, problems = step_on(model, tmp_path / "run")
    assert problems == []
    found = run.tensor("attention/Calls").value(0)
    np.testing.assert_allclose(found, reference(query, key), rtol=2e-6)


@pytest.mark.parametrize("shape", [(3, 6), (2, 3, 6), (2, 4, 3, 6), (5, 2, 4, 3, 6)])
def test_there_are_always_batch_heads_queries_and_keys(
    shape: tuple[int, ...], tmp_path: Path
) -> None:
    x = torch.randn(shape)
    # With the values as unit vectors, attention returns its own weights.
    model = Calls(
        lambda: F.scaled_dot_product_attention(x, x, torch.eye(3).expand(*shape[:-2], 3, 3))
    )
    run, problems = step_on(model, tmp_path / "run")
    assert problems == []
    found = run.tensor("attention/Calls").value(0)
    expected = F.scaled_dot_product_attention(x, x, torch.eye(3).expand(*shape[:-2], 3, 3))
    four = {2: (1, 1, 3, 3), 3: (2, 1, 3, 3), 4: (2, 4, 3, 3), 5: (10, 4, 3, 3)}[len(shape)]
    np.testing.assert_allclose(found, expected.reshape(four), rtol=1e-5)


def test_a_query_without_keys_has_zeros_as_in_torch(tmp_path: Path) -> None:
    x, nothing = torch.randn(1, 2, 3, 3), torch.ones(3, 3, dtype=torch.bool).triu(1)
    model = Calls(lambda: F.scaled_dot_product_attention(x, x, torch.eye(3), nothing))
    run, _ = step_on(model, tmp_path / "run")
    expected = F.scaled_dot_product_attention(x, x, torch.eye(3), nothing)
    assert (expected[:, :, -1] == 0).all()
    np.testing.assert_allclose(run.tensor("attention/Calls").value(0), expected, rtol=1e-6)


def padding(shape: tuple[int, ...]) -> Tensor:
    mask = torch.zeros(shape, dtype=torch.bool)
    mask[..., -2:] = True
    return mask


CAUSAL = nn.Transformer.generate_square_subsequent_mask(4)
HEADS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "plain": ({}, {}),
    "batch_first": ({"batch_first": True}, {}),
    "no_bias": ({"bias": False}, {}),
    "other_sizes": ({"kdim": 3, "vdim": 5}, {}),
    "further_keys": ({"add_bias_kv": True, "add_zero_attn": True}, {}),
    "zero_key": ({"add_zero_attn": True}, {"attn_mask": CAUSAL}),
    "causal": ({}, {"attn_mask": CAUSAL, "is_causal": True}),
    "causal_and_padded": (
        {"add_bias_kv": True},
        {"attn_mask": CAUSAL, "is_causal": True, "key_padding_mask": padding((2, 4))},
    ),
    "boolean": ({}, {"attn_mask": torch.ones(4, 4, dtype=torch.bool).triu(1)}),
    "by_head": ({}, {"attn_mask": torch.linspace(-1, 1, 96).reshape(6, 4, 4)}),
    "padded": ({}, {"key_padding_mask": padding((2, 4))}),
    "dropout": ({"dropout": 0.5}, {}),
}


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("case", HEADS)
@SLOW
def test_multi_head_attention(case: str, need_weights: bool, tmp_path: Path) -> None:
    made, called = HEADS[case]
    torch.manual_seed(5)
    attention = nn.MultiheadAttention(6, 3, **made)
    for parameter in attention.parameters():
        nn.init.normal_(parameter)
    query = torch.randn(4, 2, 6)
    key, value = torch.randn(4, 2, made.get("kdim", 6)), torch.randn(4, 2, made.get("vdim", 6))
    given = [query, key, value]
    if made.get("batch_first"):
        given = [one.transpose(0, 1) for one in given]
    model = Calls(lambda: attention(*given, need_weights=need_weights, **called), attention)
    run, problems = step_on(model, tmp_path / "run")
    assert problems == []
    # What torch itself returns, without dropout; the model's step has changed nothing of it.
    attention.dropout = 0.0
    _, expected = attention(*given, average_attn_weights=False, **called)
    found = run.tensor("attention/attn").value(0)
    np.testing.assert_allclose(found, expected.detach(), rtol=1e-5, atol=1e-8)


def test_without_a_batch(tmp_path: Path) -> None:
    attention, x = nn.MultiheadAttention(6, 3), torch.randn(4, 6)
    mask = padding((4,))
    with torch.no_grad():
        _, expected = attention(x, x, x, key_padding_mask=mask, average_attn_weights=False)
    model = Calls(lambda: attention(x, x, x, key_padding_mask=mask), attention)
    run, problems = step_on(model, tmp_path / "run")
    assert problems == []
    found = run.tensor("attention/attn").value(0)
    np.testing.assert_allclose(found, expected[None], rtol=1e-5)


def test_under_autocast_they_are_in_float32(tmp_path: Path) -> None:
    attention, x = nn.MultiheadAttention(8, 2), torch.randn(4, 2, 8)

    def call() -> Any:
        with torch.autocast("cpu", torch.bfloat16):
            return attention(x, x, x, need_weights=False)

    with torch.no_grad():
        _, expected = attention(x, x, x, average_attn_weights=False)
    run, problems = step_on(Calls(call, attention), tmp_path / "run")
    assert problems == []
    found = run.tensor("attention/attn").value(0)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


class Decoder(nn.Module):
    """Two layers of torch and a custom one."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerDecoderLayer(8, 2, 16, dropout=0.1)
        self.decoder = nn.TransformerDecoder(layer, 2)
        self.mine = Mine()

    def forward(self, x: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(len(x))
        y: Tensor = self.decoder(x, x, tgt_mask=mask)
        out: Tensor = self.mine(self.mine(y)) + y
        return out


class Mine(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(8, 24)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            one.unflatten(-1, (2, 4)).permute(1, 2, 0, 3) for one in self.qkv(x).chunk(3, -1)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=0.2)
        return y.permute(2, 0, 1, 3).flatten(2)


def train(path: Path | None, **collections: Any) -> list[Tensor]:
    torch.manual_seed(6)
    model = Decoder()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    hook = None if path is None else Hook(path, collections=collections)
    if hook is not None:
        hook.watch(model, optimizer=optimizer)
    for _ in range(4):
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            value = model(torch.randn(5, 3, 8))
        value.float().square().mean().backward()
        optimizer.step()
    if hook is not None:
        hook.close()
        assert hook.problems == []
    return [torch.get_rng_state(), *(parameter.detach() for parameter in model.parameters())]


def test_the_training_is_bit_identical_and_names_are_those_of_modules(tmp_path: Path) -> None:
    plain = train(None)
    hooked = train(
        tmp_path / "run",
        attention=SaveConfig(every=2, reductions=("max", "histogram"), tensor=True),
    )
    assert all(torch.equal(one, other) for one, other in zip(plain, hooked, strict=True))
    run = open_run(tmp_path / "run")
    layers = [f"decoder.layers.{n}.{part}_attn" for n in (0, 1) for part in ("self", "multihead")]
    assert set(run.tensor_names()) == {
        *(f"attention/{layer}" for layer in layers), "attention/mine", "attention/mine#1",
    }  # fmt: skip
    for name in run.tensor_names():
        view = run.tensor(name)
        assert view.steps().tolist() == [0, 2]
        found = view.value(2)
        assert found.shape == (3, 2, 5, 5)
        np.testing.assert_allclose(found.sum(-1), 1.0, rtol=1e-5)
        seen = (found > 0).any((0, 1))
        causal = "multihead" not in name
        assert (seen == (np.tri(5) > 0)).all() if causal else seen.all()
        assert view.reduction("max").values[1] == pytest.approx(found.max())


class Saving(nn.Module):
    """Computes again in its backward, but for operations whose results are saved in order."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(8)
        self.weight = nn.Parameter(torch.randn(2, 4, 4))

    def forward(self) -> Tensor:
        def contexts() -> Any:
            return create_selective_checkpoint_contexts(lambda *_, **__: CheckpointPolicy.MUST_SAVE)

        def inner(weight: Tensor) -> Tensor:
            x = weight[:, None]
            y = F.scaled_dot_product_attention(x, x, x)[:, 0]
            return torch.bmm(y, weight).sigmoid().bmm(y).square().mean()

        out: Tensor = checkpoint(inner, self.weight, use_reentrant=False, context_fn=contexts)
        return out


def test_with_selective_checkpointing(tmp_path: Path) -> None:
    plain = Saving()
    plain().backward()
    model = Saving()
    run, problems = step_on(model, tmp_path / "run")
    assert problems == []
    assert run.tensor("attention/Saving").shape == (2, 1, 4, 4)
    assert plain.weight.grad is not None
    torch.testing.assert_close(model.weight.grad, plain.weight.grad, rtol=0, atol=0)


def test_attention_of_one_module_only(tmp_path: Path) -> None:
    mine = Collection(types=("Mine",), kinds=("attention",), save=ALWAYS)
    train(tmp_path / "run", mine=mine)
    assert set(open_run(tmp_path / "run").tensor_names()) == {"attention/mine", "attention/mine#1"}


def test_an_unsupported_mask_is_reported(tmp_path: Path) -> None:
    x = torch.randn(1, 2, 3, 4)
    model = Calls(lambda: F.scaled_dot_product_attention(x, x, x, causal_lower_right(3, 3)))
    run, problems = step_on(model, tmp_path / "run")
    (problem,) = problems
    assert "attention in Calls" in problem
    assert "CausalBias" in problem
    assert run.tensor_names() == []
