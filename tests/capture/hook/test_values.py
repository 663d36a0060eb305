"""Captured values are those that the training computed and used."""

from __future__ import annotations

import copy
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tests.capture.hook.trainings import EVERYTHING, STEPS, TRAININGS, Residual, train
from vinedresser.capture import Hook, Run, SaveConfig, open_run

NUMPY: dict[str, Callable[[NDArray[np.float64]], float]] = {
    "l2": lambda x: float(np.sqrt(np.sum(x**2))),
    "std": lambda x: float(np.std(x)),
    "min": lambda x: float(np.min(x)),
    "zero_share": lambda x: float(np.mean(x == 0)),
}


@pytest.fixture(params=sorted(TRAININGS))
def training(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def bits(tensor: Tensor) -> bytes:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


@pytest.mark.thorough
def test_training_is_bit_identical_with_everything_captured(training: str, tmp_path: Path) -> None:
    plain = train(training)
    hooked = train(training, lambda: Hook(tmp_path / "run", collections=EVERYTHING))
    assert hooked.losses == plain.losses
    assert {name: bits(value) for name, value in hooked.final.items()} == {
        name: bits(value) for name, value in plain.final.items()
    }
    assert open_run(tmp_path / "run").steps("train").tolist() == list(range(STEPS))


@pytest.mark.thorough
def test_weights_gradients_and_losses_are_those_of_the_step(training: str, tmp_path: Path) -> None:
    notes = train(training, lambda: Hook(tmp_path / "run", collections=EVERYTHING))
    run = open_run(tmp_path / "run")
    losses = run.scalars("losses", mode="train")["losses/CrossEntropyLoss"]
    assert losses.values.tolist() == pytest.approx(notes.losses, rel=1e-12)
    for step in range(STEPS):
        for name, weight in notes.weights[step].items():
            kind = "biases" if "bias" in name else "weights"
            captured = run.tensor(f"{kind}/{name}").value(step)
            assert captured.tobytes() == bits(weight), (name, step)
        for name, gradient in notes.gradients[step].items():
            captured = run.tensor(f"gradients/{name}").value(step)
            assert captured.tobytes() == bits(gradient), (name, step)


def test_gradients_equal_those_derived_in_float64(tmp_path: Path) -> None:
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    loss = nn.CrossEntropyLoss()
    hook = Hook(tmp_path / "run", collections=EVERYTHING).watch(model, loss, optimizer)
    expected = []
    for _ in range(3):
        x, y = torch.randn(8, 6), torch.randint(0, 3, (8,))
        twin = copy.deepcopy(model).double()
        value = nn.functional.cross_entropy(twin(x.double()), y)
        expected.append(torch.autograd.grad(value, list(twin.parameters())))
        optimizer.zero_grad()
        loss(model(x), y).backward()
        optimizer.step()
    hook.close()
    run = open_run(tmp_path / "run")
    for step, gradients in enumerate(expected):
        for (name, _), gradient in zip(model.named_parameters(), gradients, strict=True):
            captured = run.tensor(f"gradients/{name}").value(step)
            np.testing.assert_allclose(captured, gradient.numpy(), rtol=1e-4, atol=1e-7)


def test_outputs_are_taken_before_they_are_written_to(tmp_path: Path) -> None:
    torch.manual_seed(4)
    model = nn.Sequential(nn.Conv2d(2, 4, 3), Residual(4))
    x = torch.randn(3, 2, 8, 8)
    first, block = copy.deepcopy(model)
    assert isinstance(block, Residual)
    with torch.no_grad():
        stem = first(x)
        conv = block.conv(stem)
        bn = block.bn(conv)
        relu = bn.relu()
        conv2 = block.conv2(relu)
        last = (conv2 + stem).relu()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    hook = Hook(tmp_path / "run", collections=EVERYTHING).watch(model, optimizer=optimizer)
    model(x).sum().backward()
    optimizer.step()
    hook.close()
    run = open_run(tmp_path / "run")
    expected = {
        "0": stem,
        "1.conv": conv,
        "1.bn": bn,
        "1.relu": relu,
        "1.conv2": conv2,
        "1.relu#1": last,
        "1": last,
        "Sequential": last,
    }
    assert run.tensor_names(collection="outputs") == [f"outputs/{name}" for name in expected]
    for name, output in expected.items():
        captured = run.tensor(f"outputs/{name}").value(0)
        np.testing.assert_array_equal(captured, output.numpy(), err_msg=name)


def test_reductions_match_the_saved_tensor(tmp_path: Path) -> None:
    train("conv_in_place", lambda: Hook(tmp_path / "run", collections=EVERYTHING))
    run = open_run(tmp_path / "run")
    for name in run.tensor_names():
        view = run.tensor(name)
        for reduction, compute in NUMPY.items():
            column = view.reduction(reduction, mode="train")
            expected = [compute(view.value(step).astype(np.float64)) for step in column.steps]
            np.testing.assert_allclose(column.values, expected, rtol=1e-5, atol=1e-9)


def test_bf16_is_stored_as_bf16(tmp_path: Path) -> None:
    train("bf16", lambda: Hook(tmp_path / "run", collections=EVERYTHING))
    run = open_run(tmp_path / "run")
    dtypes = {run.tensor(name).dtype.name for name in run.tensor_names()}
    assert dtypes == {"bfloat16"}


def test_the_optimizer_is_found(tmp_path: Path) -> None:
    notes = train(
        "mlp", lambda: Hook(tmp_path / "run", collections=EVERYTHING), with_optimizer=False
    )
    run = open_run(tmp_path / "run")
    assert run.steps("train").tolist() == list(range(STEPS))
    captured = run.tensor("gradients/0.weight").value(STEPS - 1)
    assert captured.tobytes() == bits(notes.gradients[-1]["0.weight"])


def test_outputs_of_micro_batches_are_the_first_batch(tmp_path: Path) -> None:
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    hook = Hook(tmp_path / "run", collections=EVERYTHING).watch(model, optimizer=optimizer)
    with torch.no_grad():
        expected = model(torch.ones(1, 2)).numpy()
    for factor in (1.0, 2.0):
        model(torch.full((1, 2), factor)).sum().backward()
    optimizer.step()
    hook.close()
    run = open_run(tmp_path / "run")
    np.testing.assert_array_equal(run.tensor("outputs/Linear").value(0), expected)


def train_with_overflow(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> Run:
    """Return the run of three scaled steps, of which the second has infinite gradients."""
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    hook = Hook(path, collections=EVERYTHING).watch(model, optimizer=optimizer)
    for value in (1.0, float("inf"), 1.0):
        optimizer.zero_grad()
        scaler.scale((model(torch.ones(1, 2)) * value).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
    hook.close()
    return open_run(path)


def test_a_step_skipped_by_a_scaler_does_not_count(tmp_path: Path) -> None:
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run = train_with_overflow(tmp_path / "run", model, optimizer)
    assert run.steps("train").tolist() == [0, 1]
    assert np.isfinite(run.tensor("gradients/weight").value(1)).all()


def test_gradients_that_a_fused_optimizer_will_skip_are_not_captured(tmp_path: Path) -> None:
    model = nn.Linear(2, 1)
    optimizer = torch.optim.Adam(model.parameters(), fused=True)
    run = train_with_overflow(tmp_path / "run", model, optimizer)
    assert run.steps("train").tolist() == [0, 1, 2]
    assert run.tensor("gradients/weight").steps().tolist() == [0, 2]


def test_nothing_is_captured_if_nothing_is_due(tmp_path: Path) -> None:
    collections = {
        "weights": SaveConfig(every=2, start=1, stop=4),
        "gradients": SaveConfig(every=0, steps=(4,), reductions=("l2",)),
        "losses": SaveConfig(every=3),
    }
    train("mlp", lambda: Hook(tmp_path / "run", collections=collections))
    run = open_run(tmp_path / "run")
    assert run.tensor("weights/0.weight").steps().tolist() == [1, 3]
    assert run.tensor("gradients/0.weight").reduction("l2").steps.tolist() == [4]
    assert run.scalars("losses")["losses/CrossEntropyLoss"].steps.tolist() == [0, 3]
    assert not run.tensor_names(collection="outputs")
    assert not run.tensor_names(collection="biases")


def test_modules_have_hooks_in_saved_forwards_only(tmp_path: Path) -> None:
    seen = []

    class Looking(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(2, 1)

        def forward(self, x: Tensor) -> Tensor:
            seen.append([len(module._forward_hooks) for module in self.modules()])
            out: Tensor = self.linear(x)
            return out

    model = Looking()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    collections = {"outputs": SaveConfig(every=2), "gradients": SaveConfig(every=1)}
    with Hook(tmp_path / "run", collections=collections).watch(model, optimizer=optimizer):
        for _ in range(3):
            model(torch.ones(1, 2)).sum().backward()
            optimizer.step()
    # In the first steps, the model has one more: the loss may be among its outputs.
    assert seen == [[3, 1], [1, 0], [3, 1]]


def test_inference_mode_and_training_share_their_buffers(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Dropout(), nn.Linear(2, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Hook(tmp_path / "run", collections=EVERYTHING) as hook:
        hook.watch(model, optimizer=optimizer)
        for _ in range(3):
            with hook.mode("eval"), torch.inference_mode():
                model.eval()
                expected = model(torch.ones(1, 2)).clone().numpy()
            assert hook.flush(30)
            model.train()
            model(torch.ones(1, 2)).sum().backward()
            optimizer.step()
    assert hook.problems == []
    run = open_run(tmp_path / "run")
    np.testing.assert_array_equal(run.tensor("outputs/2").value(2, mode="eval"), expected)
    assert run.tensor("outputs/2").steps("eval").tolist() == [0, 1, 2]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_trace_of_a_model_contains_no_hooks(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    x = torch.ones(1, 2)
    plain = torch.jit.trace(model, x)
    with Hook(tmp_path / "run", collections=EVERYTHING) as hook:
        hook.watch(model)
        watched = torch.jit.trace(model, x)
    nodes = [[node.kind() for node in one.inlined_graph.nodes()] for one in (plain, watched)]
    assert nodes[0] == nodes[1]


def test_under_data_parallel_training(tmp_path: Path) -> None:
    store = torch.distributed.HashStore()  # type: ignore[attr-defined]
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        inner = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 1))
        model = nn.parallel.DistributedDataParallel(inner)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with Hook(tmp_path / "run", collections=EVERYTHING) as hook:
            hook.watch(model, optimizer=optimizer)
            model(torch.ones(1, 2)).sum().backward()
            expected = model.module[0].weight.grad.clone().numpy()
            optimizer.step()
        assert hook.problems == []
    finally:
        torch.distributed.destroy_process_group()
    run = open_run(tmp_path / "run")
    np.testing.assert_array_equal(run.tensor("gradients/0.weight").value(0), expected)
    assert run.tensor_names(collection="outputs") == [
        "outputs/0", "outputs/1", "outputs/2", "outputs/Sequential",
    ]  # fmt: skip


@pytest.mark.parametrize("told", [True, False], ids=["told", "found"])
def test_a_recreated_optimizer_replaces_the_previous_one(told: bool, tmp_path: Path) -> None:
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Hook(tmp_path / "run", collections=EVERYTHING) as hook:
        hook.watch(model, optimizer=optimizer if told else None)
        for _ in range(3):
            model(torch.ones(1, 2)).sum().backward()
            optimizer.step()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    assert hook.problems == []
    assert open_run(tmp_path / "run").steps("train").tolist() == [0, 1, 2]


def test_gradients_are_captured_after_the_users_hooks(tmp_path: Path) -> None:
    model = nn.Linear(2, 1, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def halve(optimizer: torch.optim.Optimizer, args: object, kwargs: object) -> None:
        assert model.weight.grad is not None
        model.weight.grad /= 2

    optimizer.register_step_pre_hook(halve)
    with Hook(tmp_path / "run", collections=EVERYTHING) as hook:
        hook.watch(model)
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
    captured = open_run(tmp_path / "run").tensor("gradients/weight").value(0)
    np.testing.assert_array_equal(captured, [[0.5, 0.5]])


def test_values_that_are_no_numbers_are_reported_once_for_each_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = {
        "none": None,
        "text": "0.5",
        "bytes": b"1",
        "masked": np.ma.masked,
        "part": np.ma.array([1.0, 2.0], mask=[False, True]),
        "complex": 1j,
        "complex64": np.complex64(1),
        "complex tensor": torch.tensor(1j),
        "nested": {"a": 1},
        "huge": 10**400,
        "object": object(),
        "texts": ["a"],
    }
    good = {
        "half": np.float16(0.5),
        "tensor": torch.tensor(0.25, requires_grad=True),
        "decimal": Decimal("0.5"),
        "fraction": Fraction(1, 4),
        "true": True,
        "numpy true": np.bool_(True),
        "unmasked": np.ma.array(2.5),
        "infinite": -np.inf,
        "integer": np.int8(3),
    }
    with Hook(tmp_path / "run", collections={"saved": SaveConfig(every=1)}) as hook:
        for _ in range(2):
            for name, value in (bad | good).items():
                hook.metric(name, value)
            hook.step(metrics={"reported": None, "other": 1.0})
        hook.save("masked", bad["part"])
        problems = hook.problems
    run = open_run(tmp_path / "run")
    found = {name: list(one.values) for name, one in run.scalars("metrics").items()}
    assert found == {
        f"metrics/{name}": [value] * 2
        for name, value in zip(
            [*good, "other"], [0.5, 0.25, 0.5, 0.25, 1.0, 1.0, 2.5, -np.inf, 3.0, 1.0], strict=True
        )
    }
    assert "saved/masked" not in run.tensor_names()
    names = [f"metrics/{one}" for one in (*bad, "reported")] + ["saved/masked"]
    assert [problem.partition(" is not saved: ")[0] for problem in problems] == names
    told = capsys.readouterr().err
    assert [told.count(f"vinedresser: {one} is not saved") for one in names] == [1] * len(names)
    assert "metrics/text is not saved: a str is not a number" in told
