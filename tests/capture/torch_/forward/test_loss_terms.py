"""Terms of the loss's decomposition, against FullGrad and torch's own backward hooks in float64."""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (its usual name)
from torch.nn.utils import parametrizations
from torch.utils.checkpoint import checkpoint

from vinedresser.capture import Hook, SaveConfig, open_run
from vinedresser.explain.saliency import saliency
from vinedresser.store.reading.reader import Run

ALWAYS = SaveConfig(every=1)
LABELS = torch.arange(6) % 3
Terms = dict[str, NDArray[np.float64]]


class Residual(nn.Module):
    """A block with one norm for both convolutions, and activations in place or as functions."""

    def __init__(self, *, inplace: bool = True) -> None:
        super().__init__()
        self.first = nn.Conv2d(4, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.second = nn.Conv2d(4, 4, 3, padding=1, bias=False)
        self.act = nn.SiLU(inplace=inplace)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.norm(self.second(self.act(self.norm(self.first(x))))) + x)


class Convolutions(nn.Module):
    """A block that is called twice."""

    def __init__(self, *, inplace: bool = True) -> None:
        super().__init__()
        self.stem = nn.Conv2d(2, 4, 3)
        self.block = Residual(inplace=inplace)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.pool(self.block(self.block(self.stem(x)))).flatten(1))
        return out


class Transformer(nn.Module):
    """Token ids in; with or without places."""

    def __init__(self, *, places: bool = False) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 8)
        self.places = nn.Parameter(torch.randn(5, 8)) if places else None
        self.norm = nn.LayerNorm(8)
        self.attend = nn.MultiheadAttention(8, 2, batch_first=True)
        self.mlp = nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))
        self.head = nn.Linear(8, 3)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids)
        if self.places is not None:
            x = x + self.places
        seen = self.norm(x)
        x = x + self.attend(seen, seen, seen, need_weights=False)[0]
        out: Tensor = self.head((x + self.mlp(x)).mean(1))
        return out


def drawn(model: nn.Module, dtype: torch.dtype = torch.float64) -> nn.Module:
    torch.manual_seed(0)
    for parameter in model.parameters():
        nn.init.normal_(parameter, 0, 0.4)
    return model.to(dtype)


def images(dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.rand(6, 2, 9, 9, dtype=dtype, generator=torch.Generator().manual_seed(0))


def ids() -> Tensor:
    return torch.randint(11, (6, 5), generator=torch.Generator().manual_seed(0))


def captured(
    path: Path,
    model: nn.Module,
    x: Tensor,
    *,
    save: SaveConfig = ALWAYS,
    backward: Callable[[Tensor], None] | None = None,
    problems: tuple[str, ...] = (),
    **more: SaveConfig,
) -> Run:
    """Train for a step; return its run."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Hook(path, collections={"loss_terms": save, **more}) as hook:
        hook.watch(model, optimizer=optimizer)
        y = model(x)
        if backward is None:
            F.cross_entropy(y, LABELS[: len(y)]).backward()
        else:
            backward(y)
        optimizer.step()
    assert tuple(hook.problems) == problems
    return open_run(path)


def read(run: Run, step: int = 0) -> Terms:
    """Return what was captured at a step, without the kind."""
    names = run.tensor_names(collection="loss_terms")
    return {name.partition("/")[2]: run.tensor(name).value(step) for name in names}


def sums(values: NDArray[Any]) -> NDArray[np.float64]:
    found: NDArray[np.float64] = values.reshape(len(values), -1).sum(1, dtype=np.float64)
    return found


def parts(found: Terms) -> Terms:
    """Return the sum of each term by example, without what is no term."""
    about = ("[total]", "[rows]", "[example]", "[outputs]", "[rest]")
    return {name: sums(one) for name, one in found.items() if not name.endswith(about)}


def error(found: Terms) -> float:
    """Return the largest completeness error of a capture."""
    (total,) = (one for name, one in found.items() if name.endswith("[total]"))
    stacked = np.stack(list(parts(found).values()))
    return float((np.abs(stacked.sum(0) - total) / np.abs(stacked).sum(0)).max())


class Weighted(nn.Module):
    """A model's outputs times constants, as one output."""

    def __init__(self, model: nn.Module, weights: Tensor) -> None:
        super().__init__()
        self.model = model
        self.weights = weights

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = (self.model(x) * self.weights).sum(1, keepdim=True)
        return out


def explained(model: nn.Module, x: Tensor) -> Any:
    """Return FullGrad of <g, y>, where g is the gradient of the loss."""
    y = model(x)
    (gradient,) = torch.autograd.grad(F.cross_entropy(y, LABELS), y)
    return saliency(Weighted(model, gradient), x, postprocess="none")


@pytest.mark.parametrize(("dtype", "limit"), [(torch.float64, 1e-12), (torch.float32, 1e-6)])
@pytest.mark.parametrize("kind", [Convolutions, Transformer])
def test_terms_are_those_of_fullgrad(
    tmp_path: Path, kind: Callable[[], nn.Module], dtype: torch.dtype, limit: float
) -> None:
    model = drawn(kind(), dtype).eval()
    x = images(dtype) if kind is Convolutions else ids()
    result = explained(copy.deepcopy(model), x)
    found = read(captured(tmp_path / "run", model, x))
    assert error(found) <= limit
    expected: dict[str, Any] = defaultdict(float)
    for term in result.bias_terms.values():
        expected[term.layer.removeprefix("model").removeprefix(".")] += term.sums
    terms = parts(found)
    scale = np.abs(np.stack([sums(result.input_term), *expected.values()])).sum(0)
    by_layer: dict[str, Any] = defaultdict(float)
    for name, one in terms.items():
        layer = name.partition("#")[0].removesuffix(".relu()")
        by_layer[layer] += one
    inputs = by_layer.pop("stem[input]" if kind is Convolutions else "embed[input]")
    assert (np.abs(inputs - sums(result.input_term)) <= limit * scale).all()
    # FullGrad has the biases of attention under the modules and functions inside.
    assert by_layer.keys() >= {one for one in expected if one and "attend" not in one}
    for layer, one in by_layer.items():
        if layer:
            assert (np.abs(one - expected[layer]) <= limit * scale).all(), layer
    name = "stem[input]" if kind is Convolutions else "embed[input]"
    axes = 1 if kind is Convolutions else 2
    np.testing.assert_allclose(
        found[name], result.input_term.sum(axes), rtol=0, atol=limit * float(scale.max())
    )


def by_torch(model: nn.Module, x: Tensor) -> dict[str, list[Tensor]]:
    """Return <y, g_y> - <x, g_x> of each layer by torch's full backward hooks, as they are made."""
    found: dict[str, list[Tensor]] = defaultdict(list)
    values: dict[str, list[tuple[Tensor, Tensor]]] = defaultdict(list)

    def watch(name: str, layer: nn.Module) -> None:
        def after(_: Any, args: Any, out: Tensor) -> None:
            values[name].append((args[0].detach().clone(), out.detach().clone()))

        def backward(_: Any, read: Any, written: Any) -> None:
            given, out = values[name].pop()
            of_input = given * read[0] if read[0] is not None else given.new_zeros(())
            term = (out * written[0]).flatten(1).sum(1)
            found[name].insert(0, term - of_input.sum_to_size(of_input.shape).flatten(1).sum(1))

        layer.register_forward_hook(after)
        layer.register_full_backward_hook(backward)

    for name, layer in model.named_modules():
        if not list(layer.children()) and name != "stem":
            watch(name, layer)
    F.cross_entropy(model(x), LABELS).backward()
    return found


def test_batch_norm_with_the_statistics_of_the_batch(tmp_path: Path) -> None:
    model = drawn(Convolutions()).train()
    # Torch's hooks do not allow activations in place.
    apart = Convolutions(inplace=False).double()
    apart.load_state_dict(model.state_dict())
    expected = by_torch(apart, images())
    found = read(captured(tmp_path / "run", model, images()))
    assert error(found) <= 1e-12
    terms = parts(found)
    scale = float(np.abs(np.stack(list(terms.values()))).sum(0).max())
    assert set(expected) == {
        *("block.first", "block.norm", "block.second", "block.act", "pool", "head")
    }
    for layer, calls in expected.items():
        for number, one in enumerate(calls):
            name = f"{layer}#{number}" if number else layer
            np.testing.assert_allclose(terms[name], one.numpy(), rtol=0, atol=1e-12 * scale)
    assert [len(expected[one]) for one in ("block.first", "block.norm")] == [2, 4]


def test_what_no_layer_accounts_for_is_left_to_its_module(tmp_path: Path) -> None:
    found = read(captured(tmp_path / "run", drawn(Transformer(places=True)), ids()))
    assert error(found) > 1e-3
    rests = {name: np.abs(one).max() for name, one in found.items() if name.endswith("[rest]")}
    assert rests["Transformer[rest]"] > 1e-3
    assert rests["mlp[rest]"] < 1e-12
    total = sum(parts(found).values()) + found["Transformer[rest]"]
    np.testing.assert_allclose(total, found["Transformer[total]"], atol=1e-12)


def test_examples_are_among_those_of_the_labels(tmp_path: Path) -> None:
    model = drawn(nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 3)))
    x = torch.rand(100, 3, dtype=torch.float64)
    loss = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    collections = {
        "loss_terms": SaveConfig(every=1, rows=3),
        "labels": SaveConfig(every=1, rows=7),
    }
    with Hook(tmp_path / "run", collections=collections) as hook:
        hook.watch(model, loss, optimizer)
        loss(model(x), torch.arange(100) % 3).backward()
        optimizer.step()
    found = read(open_run(tmp_path / "run"))
    # 0, 16, 33, 50, 66, 82, 99 are kept of the labels.
    assert found["Sequential[rows]"].tolist() == [[0, 100], [50, 100], [99, 100]]
    np.testing.assert_array_equal(found["Sequential[example]"], x[[0, 50, 99]])
    assert found["0[input]"].shape == (3, 3)
    assert found["Sequential[outputs]"].shape == (3, 3)


class Recomputed(nn.Module):
    """Part of it runs again in the backward."""

    def __init__(self, *, reentrant: bool) -> None:
        super().__init__()
        self.stem, self.inner, self.head = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 3)
        self.reentrant = reentrant

    def forward(self, x: Tensor) -> Tensor:
        seen = checkpoint(self.inner, self.stem(x), use_reentrant=self.reentrant)
        out: Tensor = self.head(seen)
        return out


class Sequences(nn.Module):
    """Time before examples, a recurrent layer, and a layer with a parametrized weight."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(4, 4)
        self.head = parametrizations.weight_norm(nn.Linear(4, 3))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.lstm(x.transpose(0, 1))[0][-1])
        return out


ROWS = torch.rand(6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    ("model", "x"),
    [
        (Recomputed(reentrant=False), ROWS),
        (Sequences(), ROWS.repeat(7, 1, 1).transpose(0, 1)),
        (nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 3), nn.Softplus()), ROWS),
        (nn.Sequential(nn.Linear(4, 8), nn.GLU(), nn.Dropout(0.5), nn.Linear(4, 3)), ROWS),
        (nn.Linear(4, 3), ROWS),
        (nn.Linear(4, 3), ROWS[:1]),
    ],
    ids=["recomputed", "sequences", "first is a norm", "dropout", "a layer", "one example"],
)
def test_other_models_are_complete(tmp_path: Path, model: nn.Module, x: Tensor) -> None:
    found = read(captured(tmp_path / "run", drawn(copy.deepcopy(model)), x))
    assert error(found) <= 1e-12


def test_reentrant_checkpoints_are_left_to_the_model(tmp_path: Path) -> None:
    x = ROWS.clone().requires_grad_()
    found = read(captured(tmp_path / "run", drawn(Recomputed(reentrant=True)), x))
    assert "inner" not in found
    assert error(found) > 1e-3
    total = sum(parts(found).values()) + found["Recomputed[rest]"]
    np.testing.assert_allclose(total, found["Recomputed[total]"], atol=1e-12)


def test_an_input_that_requires_a_gradient_is_the_input(tmp_path: Path) -> None:
    x = images().requires_grad_()
    found = read(captured(tmp_path / "run", drawn(Convolutions()), x))
    assert error(found) <= 1e-12
    assert x.grad is not None
    expected = (x * x.grad).sum(1).detach().numpy()
    np.testing.assert_allclose(found["Convolutions[input]"], expected, atol=1e-12)


def test_only_the_first_backward_counts(tmp_path: Path) -> None:
    def twice(y: Tensor) -> None:
        F.cross_entropy(y, LABELS).backward(retain_graph=True)
        y.square().sum().backward()

    once = read(captured(tmp_path / "once", drawn(Convolutions()), images()))
    found = read(captured(tmp_path / "twice", drawn(Convolutions()), images(), backward=twice))
    assert found.keys() == once.keys()
    for name, one in once.items():
        np.testing.assert_array_equal(found[name], one)


def test_without_a_backward_there_are_no_terms(tmp_path: Path) -> None:
    run = captured(
        tmp_path / "run", drawn(Convolutions()), images(), backward=lambda y: None, weights=ALWAYS
    )
    assert run.tensor_names(collection="loss_terms") == []
    assert run.tensor_names(collection="weights")


def test_terms_of_the_steps_that_are_due(tmp_path: Path) -> None:
    model = drawn(Convolutions())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Hook(tmp_path / "run", collections={"loss_terms": SaveConfig(every=2)}) as hook:
        hook.watch(model, optimizer=optimizer)
        for _ in range(3):
            F.cross_entropy(model(images()), LABELS).backward()
            optimizer.step()
    run = open_run(tmp_path / "run")
    assert run.tensor("loss_terms/head").steps().tolist() == [0, 2]
    assert error(read(run, 2)) <= 1e-12


class Fails(nn.Module):
    """Raises an error once."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.head = nn.Linear(4, 4), nn.Linear(4, 3)
        self.failed = False

    def forward(self, x: Tensor) -> Tensor:
        seen = self.stem(x)
        if not self.failed:
            self.failed = True
            raise ValueError("out of memory")
        out: Tensor = self.head(seen)
        return out


def test_a_forward_that_failed_and_is_repeated(tmp_path: Path) -> None:
    model = drawn(Fails())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Hook(tmp_path / "run", collections={"loss_terms": ALWAYS}) as hook:
        hook.watch(model, optimizer=optimizer)
        with pytest.raises(ValueError, match="out of memory"):
            model(ROWS)
        for _ in range(2):
            F.cross_entropy(model(ROWS), LABELS).backward()
            optimizer.step()
    assert not hook.problems
    assert error(read(open_run(tmp_path / "run"), 1)) <= 1e-12
