"""Functions that modules call are captured under their own names."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (as everybody calls it)

from tests.capture.torch_.forward.functional_calls import ALWAYS, Calls, step_on
from vinedresser.capture import Collection, Hook, SaveConfig, open_run


@pytest.fixture(autouse=True)
def modes_are_left_as_they_were() -> Iterator[None]:
    assert torch._C._len_torch_function_stack() == 0
    yield
    assert torch._C._len_torch_function_stack() == 0


# By the name under which it is captured: spellings of the function.
SPELLINGS: dict[str, list[Callable[[Tensor], Tensor]]] = {
    "relu": [torch.relu, F.relu, Tensor.relu, Tensor.relu_, lambda y: F.relu(y, inplace=True)],
    "gelu": [F.gelu, lambda y: F.gelu(y, approximate="tanh")],
    "silu": [F.silu, lambda y: F.silu(input=y, inplace=True)],
    "sigmoid": [torch.sigmoid, F.sigmoid, Tensor.sigmoid, torch.special.expit],
    "tanh": [torch.tanh, F.tanh, Tensor.tanh],
    "softmax": [lambda y: y.softmax(-1), lambda y: F.softmax(y, 1), lambda y: torch.softmax(y, 1)],
    "log_softmax": [lambda y: F.log_softmax(y, dim=1)],
    "leaky_relu": [F.leaky_relu, lambda y: F.leaky_relu(y, 0.2, True)],
    "elu": [F.elu, lambda y: F.elu(y, inplace=True)],
    "glu": [F.glu],
    "hardtanh": [F.hardtanh],
    "mish": [F.mish],
    "softplus": [F.softplus],
    "relu6": [F.relu6],
    "hardswish": [F.hardswish],
    "tanhshrink": [F.tanhshrink],
}


@pytest.mark.parametrize(
    ("name", "which"),
    [(name, which) for name, ways in SPELLINGS.items() for which in range(len(ways))],
)
def test_every_spelling(name: str, which: int, tmp_path: Path) -> None:
    function, x = SPELLINGS[name][which], torch.randn(5, 3)
    plain = Calls(function)
    hidden = plain.linear(x)
    given = hidden.detach().clone()
    result = function(hidden)
    result.sum().backward()
    model = Calls(function)
    run, problems = step_on(model, tmp_path / "run", x)
    assert problems == []
    for call, expected in (
        (f"inputs/Calls.{name}()", given),
        (f"outputs/Calls.{name}()", result),
    ):
        np.testing.assert_array_equal(run.tensor(call).value(0), expected.detach())
    assert plain.linear.weight.grad is not None
    torch.testing.assert_close(model.linear.weight.grad, plain.linear.weight.grad, rtol=0, atol=0)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.act = nn.Linear(3, 3), nn.GELU()

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.linear(x))
        return torch.sigmoid(F.relu(self.act(y) - 0.2))


def test_calls_are_numbered_and_belong_to_the_innermost_module(tmp_path: Path) -> None:
    block = Block()
    run, problems = step_on(nn.Sequential(block, block), tmp_path / "run", torch.randn(2, 3))
    assert problems == []
    calls = {name for name in run.tensor_names(collection="outputs") if "()" in name}
    # The block twice, and nothing of the function inside nn.GELU.
    assert calls == {f"outputs/0.relu(){n}" for n in ("", "#1", "#2", "#3")} | {
        "outputs/0.sigmoid()",
        "outputs/0.sigmoid()#1",
    }


def test_activations_are_those_of_modules_and_of_functions(tmp_path: Path) -> None:
    model = nn.Sequential(Block(), nn.ReLU(), nn.Linear(3, 2), nn.Softmax(-1))
    run, problems = step_on(model, tmp_path / "run", torch.randn(2, 3), {"activations": ALWAYS})
    assert problems == []
    assert set(run.tensor_names()) == {
        "outputs/0.act", "outputs/0.relu()", "outputs/0.relu()#1", "outputs/0.sigmoid()",
        "outputs/1", "outputs/3",
    }  # fmt: skip


def test_a_function_is_selected_by_its_name(tmp_path: Path) -> None:
    mine = Collection(modules=("0.relu()",), kinds=("inputs",), save=ALWAYS)
    collections = {"mine": mine}
    run, problems = step_on(
        nn.Sequential(Block()), tmp_path / "run", torch.randn(2, 3), collections
    )
    assert problems == []
    assert set(run.tensor_names()) == {"inputs/0.relu()", "inputs/0.relu()#1"}


def test_functions_inside_modules_of_torch(tmp_path: Path) -> None:
    model = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, activation=F.gelu)
    run, problems = step_on(model, tmp_path / "run", torch.randn(3, 2, 4))
    assert problems == []
    hidden = run.tensor("outputs/linear1").value(0)
    np.testing.assert_array_equal(
        run.tensor("inputs/TransformerEncoderLayer.gelu()").value(0), hidden
    )


# Dynamo looks at attributes of tensors.
NO_LEAF = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")


@NO_LEAF
@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize("first", [0, 2], ids=["compiled_when_saved", "compiled_before"])
def test_a_compiled_function_stays_compiled(first: int, tmp_path: Path) -> None:
    graphs = []

    def backend(graph: torch.fx.GraphModule, _: list[Tensor]) -> torch.fx.GraphModule:
        graphs.append(graph)
        return graph

    @torch.compile(backend=backend, fullgraph=True)
    def fused(y: Tensor) -> Tensor:
        return torch.relu(y) * 2

    model = Calls(lambda y: torch.sigmoid(fused(torch.tanh(y))))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    save = SaveConfig(every=1, start=first)
    with Hook(tmp_path / "run", collections={"outputs": save, "inputs": save}) as hook:
        hook.watch(model, optimizer=optimizer)
        for _ in range(8):
            model(torch.ones(2, 3)).sum().backward()
            optimizer.step()
    (problem,) = hook.problems
    assert "calls a compiled function" in problem
    # Once for the first time, and once more at most where it meets the mode.
    assert len(graphs) <= (2 if first else 1)
    run = open_run(tmp_path / "run")
    # From then on only modules.
    assert run.tensor("outputs/Calls.tanh()").steps().tolist() == [first]
    assert run.tensor("outputs/linear").steps().tolist() == list(range(first, 8))


@pytest.mark.usefixtures("fresh_compiler")
def test_functions_of_a_compiled_model(tmp_path: Path) -> None:
    model = Calls(lambda y: F.relu(y).sigmoid())
    compiled = torch.compile(model, backend="eager")
    assert isinstance(compiled, nn.Module)
    run, problems = step_on(compiled, tmp_path / "run", torch.ones(2, 3))
    assert problems == []
    assert {"outputs/Calls.relu()", "outputs/Calls.sigmoid()"} <= set(run.tensor_names())
