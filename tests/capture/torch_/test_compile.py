"""Compiled trainings: saved steps run eagerly, and losses of data are reported."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from vinedresser.capture import Hook, SaveConfig, open_run
from vinedresser.store.reading.reader import Run

pytestmark = [
    pytest.mark.usefixtures("fresh_compiler"),
    # Used by the compiler itself.
    pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated"),
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf"),
]

SAVED = dict.fromkeys(("inputs", "outputs", "gradients", "weights"), SaveConfig(every=2, start=1))
STEPS = 5


class Net(nn.Module):
    """A perceptron with a part in place and a buffer."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.first = nn.Linear(6, 8)
        self.norm = nn.BatchNorm1d(8)
        self.relu = nn.ReLU(inplace=True)
        self.last = nn.Linear(8, 1)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.last(self.relu(self.norm(self.first(x))))
        return out


class Counting:
    """A backend that runs graphs as they are, and counts how many it was given."""

    def __init__(self) -> None:
        self.graphs = 0

    def __call__(self, graph: torch.fx.GraphModule, inputs: list[Tensor]) -> torch.fx.GraphModule:
        self.graphs += 1
        return graph


def fit(
    called: nn.Module, hook: Hook | None, watched: nn.Module | None = None, *, steps: int = STEPS
) -> list[float]:
    """Train the called model; the hook watches it, or another."""
    loss, optimizer = nn.MSELoss(), torch.optim.SGD(called.parameters(), lr=0.05)
    if hook is not None:
        hook.watch(called if watched is None else watched, loss, optimizer)
    generator = torch.Generator().manual_seed(1)
    values = []
    for _ in range(steps):
        x, y = (torch.randn(8, size, generator=generator) for size in (6, 1))
        optimizer.zero_grad()
        value = loss(called(x), y)
        value.backward()
        optimizer.step()
        values.append(value.item())
    return values


def compare(run: Run, eager: Run, *, exact: bool) -> None:
    """Check that the run of a compiled training equals that of the eager training."""
    assert set(run.tensor_names()) == set(eager.tensor_names())
    for name in eager.tensor_names():
        one, other = eager.tensor(name), run.tensor(name)
        assert other.steps().tolist() == one.steps().tolist() == [1, 3], name
        for step in (1, 3):
            tolerance = 0.0 if exact else 2e-4
            np.testing.assert_allclose(
                other.value(step), one.value(step), rtol=tolerance, atol=tolerance, err_msg=name
            )


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("backend", "way"),
    [
        ("eager", "function"),
        ("eager", "method"),
        ("aot_eager", "function"),
        ("aot_eager", "method"),
        pytest.param("inductor", "function", marks=pytest.mark.slow),
    ],
)
def test_all_is_captured_on_saved_steps_and_losses_on_all(
    backend: str, way: str, tmp_path: Path
) -> None:
    plain = Net()
    with Hook(tmp_path / "eager", collections=SAVED) as hook:
        fit(plain, hook)
    model = Net()
    compiled: nn.Module = model
    if way == "function":
        compiled = torch.compile(model, backend=backend)  # type: ignore[assignment]
    else:
        model.compile(backend=backend)
    with Hook(tmp_path / "run", collections=SAVED) as hook:
        values = fit(compiled, hook)
    assert hook.problems == []
    run = open_run(tmp_path / "run")
    exact = backend != "inductor"
    compare(run, open_run(tmp_path / "eager"), exact=exact)
    losses = run.scalars("losses")["losses/MSELoss"]
    assert losses.steps.tolist() == list(range(STEPS))
    assert losses.values.tolist() == pytest.approx(values, rel=1e-7)
    for one, other in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=0 if exact else 1e-3, atol=0 if exact else 1e-4)


def test_saved_steps_keep_the_compiled_code(tmp_path: Path) -> None:
    model, backend = Net(), Counting()
    compiled = torch.compile(model, backend=backend, fullgraph=True)
    assert isinstance(compiled, nn.Module)
    with Hook(tmp_path / "run", collections=SAVED) as hook:
        fit(compiled, hook)
    assert backend.graphs == 1
    assert hook.problems == []


def test_a_model_compiled_by_its_method_gets_its_code_back(
    tmp_path: Path,
) -> None:
    model, backend = Net(), Counting()
    model.compile(backend=backend, fullgraph=True)
    code = model._compiled_call_impl
    with Hook(tmp_path / "run", collections=SAVED) as hook:
        fit(model, hook)
    assert backend.graphs == 1
    assert model._compiled_call_impl is code
    assert hook.problems == []


def test_a_model_that_is_compiled_after_it_was_watched(tmp_path: Path) -> None:
    model, backend = Net(), Counting()
    hook = Hook(tmp_path / "run", collections=SAVED)
    compiled = torch.compile(model, backend=backend, fullgraph=True)
    assert isinstance(compiled, nn.Module)
    values = fit(compiled, hook, watched=model)
    hook.close()
    assert backend.graphs == 1
    # Its forward cannot be captured, which is reported; everything else is captured.
    (problem,) = hook.problems
    assert "watch the object that the training calls" in problem
    run = open_run(tmp_path / "run")
    assert not run.tensor_names(collection="outputs")
    assert run.tensor("gradients/first.weight").steps().tolist() == [1, 3]
    assert run.tensor("weights/first.weight").steps().tolist() == [1, 3]
    assert run.scalars("losses")["losses/MSELoss"].values.tolist() == pytest.approx(values)


@pytest.mark.parametrize("way", ["function", "method"])
def test_a_compiled_submodule(way: str, tmp_path: Path) -> None:
    with Hook(tmp_path / "eager", collections=SAVED) as hook:
        fit(nn.Sequential(Net(), nn.Tanh()), hook)
    part: nn.Module = Net()
    backend = Counting()
    if way == "function":
        part = torch.compile(part, backend=backend)  # type: ignore[assignment]
    else:
        part.compile(backend=backend)
    with Hook(tmp_path / "run", collections=SAVED) as hook:
        fit(nn.Sequential(part, nn.Tanh()), hook)
    assert hook.problems == []
    assert backend.graphs == 1
    compare(open_run(tmp_path / "run"), open_run(tmp_path / "eager"), exact=True)


def test_unsaved_steps_run_compiled(tmp_path: Path) -> None:
    calls: list[bool] = []

    class Noting(Net):
        def forward(self, x: Tensor) -> Tensor:
            # Runs as written where it is not compiled.
            if not torch.compiler.is_compiling():
                calls.append(True)
            return super().forward(x)

    model = Noting()
    compiled = torch.compile(model, backend="eager")
    assert isinstance(compiled, nn.Module)
    with Hook(tmp_path / "run", collections=SAVED) as hook:
        fit(compiled, hook)
    assert len(calls) == 2


def whole_step(backend: str) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[Tensor], Tensor]]:
    """Return a train step that is compiled as a whole, with its model and optimizer."""
    model, loss = Net(), nn.MSELoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    @torch.compile(backend=backend)
    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        value: Tensor = loss(model(x), torch.zeros(8, 1))
        value.backward()
        optimizer.step()
        return value

    return model, optimizer, step


@pytest.mark.thorough
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_fully_compiled_step_is_reported_once(backend: str, tmp_path: Path) -> None:
    _, _, plain = whole_step(backend)
    x = torch.randn(8, 6)
    expected = [plain(x).item() for _ in range(6)]
    torch._dynamo.reset()
    model, optimizer, step = whole_step(backend)
    with Hook(tmp_path / "run", collections=SAVED) as hook:
        hook.watch(model, nn.MSELoss(), optimizer)
        assert [step(x).item() for _ in range(6)] == expected
    (problem,) = hook.problems
    if len(open_run(tmp_path / "run").steps("train")):
        # Torch has not compiled the optimizer, as with Python 3.13.
        assert "no call of the watched Net was seen" in problem
        return
    assert "no optimizer step is seen" in problem
    assert "call optimizer.step() outside" in problem


@pytest.mark.thorough
def test_a_compiled_optimizer_alone(tmp_path: Path) -> None:
    model, loss = Net(), nn.MSELoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    hook = Hook(tmp_path / "run", collections=SAVED).watch(model, loss, optimizer)
    update = torch.compile(optimizer.step, backend="eager")
    for _ in range(6):
        optimizer.zero_grad()
        loss(model(torch.randn(8, 6)), torch.zeros(8, 1)).backward()
        update()
    hook.close()
    if len(open_run(tmp_path / "run").steps("train")) == 6:
        # Torch has not compiled the optimizer, as with Python 3.13.
        assert not hook.problems
        return
    (problem,) = hook.problems
    assert "no optimizer step is seen" in problem


def test_inputs_of_a_compiled_model_are_captured_without_eager_execution(
    tmp_path: Path,
) -> None:
    runs: list[int] = []

    def backend(graph: torch.fx.GraphModule, _: list[Tensor]) -> Callable[..., object]:
        def run(*arguments: Tensor) -> object:
            runs.append(1)
            return graph(*arguments)

        return run

    model = Net()
    save = SaveConfig(every=1, rows=4)
    kinds = ("model_inputs", "labels", "predictions")
    with Hook(tmp_path / "run", collections=dict.fromkeys(kinds, save)) as hook:
        fit(torch.compile(model, backend=backend), hook)  # type: ignore[arg-type]
    assert len(runs) == STEPS
    run = open_run(tmp_path / "run")
    assert run.tensor("inputs/Net").steps().tolist() == list(range(STEPS))
    assert set(run.tensor_names()) == {"inputs/Net", "labels/MSELoss", "predictions/MSELoss"}
