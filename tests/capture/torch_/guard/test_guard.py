"""The guard sees gradients that are not finite before the update, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tests.capture.torch_.guard.trainings import BAD_STEP, Distances, batch, train
from vinedresser.capture import Hook, open_run
from vinedresser.capture.recording.stopping import TrainingStopped
from vinedresser.errors import ConfigError
from vinedresser.frameworks.torch_.codec import TorchCodec
from vinedresser.objects import LocalStorage
from vinedresser.snapshots.reading import Snapshot, list_snapshots, open_snapshot
from vinedresser.snapshots.settings import SnapshotSettings
from vinedresser.testing.small_disk import small_disk


def taken(run: Path) -> list[tuple[int, str]]:
    faults: list[str] = []
    found: list[tuple[int, str]] = [
        (snapshot.step, snapshot.reason) for snapshot in list_snapshots(LocalStorage(run), faults)
    ]
    assert faults == []
    return found


def model_of(snapshot: Snapshot, name: str = "") -> dict[str, object]:
    models = snapshot.value(snapshot.record.contents["models"], TorchCodec())
    found: dict[str, object] = models[name]
    return found


def test_the_snapshot_holds_the_state_before_the_bad_step(tmp_path: Path) -> None:
    before, _ = train(None, BAD_STEP)
    train(tmp_path / "run")
    assert taken(tmp_path / "run") == [(BAD_STEP, "nonfinite")]
    snapshot = open_snapshot(tmp_path / "run" / "snapshots" / f"step-{BAD_STEP}")
    found = model_of(snapshot)
    # Parameters before the update; statistics of batch normalization before the forward.
    for kind, named in (
        ("parameters", dict(before.named_parameters())),
        ("buffers", dict(before.named_buffers())),
    ):
        kept = found[kind]
        assert isinstance(kept, dict)
        assert kept.keys() == named.keys()
        assert all(torch.equal(kept[name], value) for name, value in named.items())
    calls = found["calls"]
    assert isinstance(calls, list)
    images, weights = batch(BAD_STEP)
    assert torch.equal(calls[0]["args"][0], images)
    assert torch.equal(calls[0]["losses"][0]["arguments"][1], weights)
    assert snapshot.record.left_out == {}
    assert snapshot.record.inexact == []


def test_the_finding_says_where_and_what_to_do(tmp_path: Path) -> None:
    train(tmp_path / "run")
    (finding,) = open_run(tmp_path / "run").findings()
    assert (finding.rule, finding.severity, finding.step) == (
        "nonfinite_gradient",
        "warning",
        BAD_STEP,
    )
    assert finding.tensor == "gradients/head.bias"
    assert "the loss is finite but its derivative is not" in finding.cause
    assert f"snapshots/step-{BAD_STEP} --factory" in finding.remedy


def test_the_training_is_the_same_with_and_without(tmp_path: Path) -> None:
    plain, losses = train(None)
    guarded, others = train(tmp_path / "run", snapshots=SnapshotSettings(every=2))
    np.testing.assert_array_equal(losses, others)
    for one, other in zip(plain.state_dict().values(), guarded.state_dict().values(), strict=True):
        assert one.numpy().tobytes() == other.numpy().tobytes()


def test_a_stop_comes_before_the_update(tmp_path: Path) -> None:
    with pytest.raises(TrainingStopped):
        train(tmp_path / "run", snapshots=SnapshotSettings(stop=True))
    run = open_run(tmp_path / "run")
    assert run.status.state == "stopped"
    assert "not finite" in run.status.reason
    (checkpoint,) = (tmp_path / "run" / "checkpoints").iterdir()
    from safetensors.torch import load_file

    assert all(torch.isfinite(one).all() for one in load_file(checkpoint).values())


def test_periodic_snapshots(tmp_path: Path) -> None:
    train(tmp_path / "run", guard="off", snapshots=SnapshotSettings(every=3, keep=2))
    assert taken(tmp_path / "run") == [(6, "periodic"), (9, "periodic")]


def test_without_a_guard_there_is_none(tmp_path: Path) -> None:
    train(tmp_path / "run", guard="off")
    assert taken(tmp_path / "run") == []
    assert not (tmp_path / "run" / "snapshots").exists()


def test_an_invalid_setting_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="guard: must be 'nonfinite' or 'off', not 'nan'"):
        Hook(tmp_path / "run", guard="nan")
    with pytest.raises(ConfigError, match=r"snapshots.keep: must be an integer >= 1, not 0"):
        SnapshotSettings(keep=0)


def _linear(run: Path, **settings: object) -> tuple[Hook, nn.Module]:
    torch.manual_seed(0)
    model = nn.Linear(4, 2)
    return Hook(run, guard="nonfinite", snapshots=SnapshotSettings(**settings)), model  # type: ignore[arg-type]


def test_steps_that_a_scaler_skips_are_no_alarm(tmp_path: Path) -> None:
    for fused in (False, True):
        hook, model = _linear(tmp_path / f"run-{fused}", every=1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, fused=fused)
        hook.watch(model, optimizer=optimizer)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**120)
        for _ in range(6):
            optimizer.zero_grad()
            loss = (model(torch.ones(3, 4)) * 1e10).square().sum()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        hook.close()
        kinds = {reason for _, reason in taken(tmp_path / f"run-{fused}")}
        assert "nonfinite" not in kinds


def test_gradients_that_are_only_large_are_no_alarm(tmp_path: Path) -> None:
    hook, model = _linear(tmp_path / "run")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    hook.watch(model, optimizer=optimizer)
    (model(torch.ones(3, 4)) * 1e38).sum().backward()
    optimizer.step()
    hook.close()
    assert taken(tmp_path / "run") == []


def test_all_micro_batches_of_a_step_are_kept(tmp_path: Path) -> None:
    hook, model = _linear(tmp_path / "run")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    hook.watch(model, optimizer=optimizer)
    for step in range(3):
        optimizer.zero_grad()
        for micro in range(4):
            data = torch.full((2, 4), float(10 * step + micro))
            (model(data) * (float("inf") if (step, micro) == (2, 1) else 1.0)).sum().backward()
        optimizer.step()
    hook.close()
    assert taken(tmp_path / "run") == [(2, "nonfinite")]
    calls = model_of(open_snapshot(tmp_path / "run" / "snapshots" / "step-2"))["calls"]
    assert isinstance(calls, list)
    assert [float(call["args"][0][0, 0]) for call in calls] == [20, 21, 22, 23]


def test_all_calls_before_one_backward_are_kept(tmp_path: Path) -> None:
    # As of the discriminator of a GAN. Gradients that were not used are those of an earlier step.
    hook, model = _linear(tmp_path / "run")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    hook.watch(model, optimizer=optimizer)
    for step in range(4):
        optimizer.zero_grad()
        left, right = torch.full((2, 4), 10.0 * step), torch.full((2, 4), 10.0 * step + 1)
        scale = float("inf") if step == 3 else 1.0
        ((model(left) - model(right)) * scale).sum().backward()
        if step != 2:
            optimizer.step()
    hook.close()
    [(number, _)] = taken(tmp_path / "run")
    calls = model_of(open_snapshot(tmp_path / "run" / "snapshots" / f"step-{number}"))["calls"]
    assert isinstance(calls, list)
    assert [float(call["args"][0][0, 0]) for call in calls] == [30, 31]


def test_the_optimizer_that_is_next_is_named(tmp_path: Path) -> None:
    hook, first = _linear(tmp_path / "run")
    second = nn.Linear(4, 2)
    optimizers = [torch.optim.SGD(one.parameters(), lr=0.1) for one in (first, second)]
    hook.watch(first, optimizer=optimizers[0], name="first")
    hook.watch(second, optimizer=optimizers[1], name="second")
    for step in range(2):
        for model, optimizer in zip((first, second), optimizers, strict=True):
            optimizer.zero_grad()
            bad = step == 1 and model is second
            (model(torch.ones(3, 4)) * (float("nan") if bad else 1.0)).sum().backward()
            optimizer.step()
    hook.close()
    [(number, _)] = taken(tmp_path / "run")
    snapshot = open_snapshot(tmp_path / "run" / "snapshots" / f"step-{number}")
    for name, steps_now in (("first", False), ("second", True)):
        kept = model_of(snapshot, name)["optimizers"]
        assert isinstance(kept, list)
        assert [one["steps_now"] for one in kept] == [steps_now]


def test_two_models_with_two_optimizers(tmp_path: Path) -> None:
    hook, first = _linear(tmp_path / "run")
    second = nn.Linear(2, 1)
    optimizers = [torch.optim.SGD(one.parameters(), lr=0.1) for one in (first, second)]
    hook.watch(first, optimizer=optimizers[0], name="first")
    hook.watch(second, optimizer=optimizers[1], name="second")
    for step in range(3):
        loss = second(first(torch.ones(3, 4))).sum()
        for optimizer in optimizers:
            optimizer.zero_grad()
        (loss * (float("nan") if step == 1 else 1.0)).backward()
        for optimizer in optimizers:
            optimizer.step()
    hook.close()
    assert taken(tmp_path / "run") == [(1, "nonfinite")]
    snapshot = open_snapshot(tmp_path / "run" / "snapshots" / "step-1")
    for name, shape in (("first", (2, 4)), ("second", (1, 2))):
        kept = model_of(snapshot, name)
        parameters = kept["parameters"]
        assert isinstance(parameters, dict)
        assert parameters["weight"].shape == shape
        assert torch.isfinite(parameters["weight"]).all()


def test_a_model_that_another_one_spoils_is_no_second_alarm(tmp_path: Path) -> None:
    hook, first = _linear(tmp_path / "run")
    second = nn.Linear(2, 1)
    optimizers = [torch.optim.SGD(one.parameters(), lr=0.1) for one in (first, second)]
    hook.watch(first, optimizer=optimizers[0], name="first")
    hook.watch(second, optimizer=optimizers[1], name="second")
    for step in range(4):
        inputs = first(torch.ones(3, 4))
        # As a discriminator, and then its generator.
        optimizers[1].zero_grad()
        (second(inputs.detach()).sum() * (float("nan") if step == 1 else 1.0)).backward()
        optimizers[1].step()
        optimizers[0].zero_grad()
        second(inputs).sum().backward()
        optimizers[0].step()
    hook.close()
    (finding,) = [
        one for one in open_run(tmp_path / "run").findings() if one.rule == "nonfinite_gradient"
    ]
    assert finding.tensor.startswith("gradients/second.")
    assert len(taken(tmp_path / "run")) == 1


@pytest.mark.thorough
@pytest.mark.parametrize("kind", [torch.optim.LBFGS, torch.optim.Adam])
@pytest.mark.parametrize("keyword", [False, True])
def test_gradients_that_a_closure_computes(
    kind: Any,
    keyword: bool,
    tmp_path: Path,
) -> None:
    bits = []
    for guard in ("off", "nonfinite"):
        hook, model = _linear(tmp_path / guard)
        if guard == "off":
            hook.close()
            hook = Hook(tmp_path / "plain", guard="off")
        optimizer = kind(model.parameters(), lr=0.1)
        hook.watch(model, optimizer=optimizer)
        for step in range(4):
            data = torch.ones(3, 4) * (step + 1)
            lengths = torch.ones(3, 2)
            lengths[1] = float(step != 2)

            def closure(data: torch.Tensor = data, lengths: torch.Tensor = lengths) -> torch.Tensor:
                optimizer.zero_grad()  # noqa: B023
                found = (model(data) * lengths).square().sum(1)  # noqa: B023
                loss: torch.Tensor = found.sqrt().sum()
                loss.backward()
                return loss

            optimizer.step(closure=closure) if keyword else optimizer.step(closure)
        hook.close()
        assert hook.problems == []
        bits.append([parameter.detach().numpy().tobytes() for parameter in model.parameters()])
    assert bits[0] == bits[1]
    assert taken(tmp_path / "nonfinite") == [(2, "nonfinite")]
    snapshot = open_snapshot(tmp_path / "nonfinite" / "snapshots" / "step-2")
    found = model_of(snapshot)
    # One evaluation of the closure, with the weights that it had.
    calls = found["calls"]
    assert isinstance(calls, list)
    assert [call["args"][0].tolist() for call in calls] == [[[3.0] * 4] * 3]
    parameters = found["parameters"]
    assert isinstance(parameters, dict)
    assert all(torch.isfinite(parameter).all() for parameter in parameters.values())


def test_inputs_that_cannot_be_stored_are_named(tmp_path: Path) -> None:
    class Takes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(4, 2)

        def forward(self, data: torch.Tensor, source: object) -> torch.Tensor:
            return torch.as_tensor(self.inner(data))

    model = Takes()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    hook = Hook(tmp_path / "run", guard="nonfinite").watch(model, optimizer=optimizer)
    (model(torch.ones(3, 4), iter([1])) * float("nan")).sum().backward()
    optimizer.step()
    hook.close()
    record = open_snapshot(tmp_path / "run" / "snapshots" / "step-0").record
    assert record.left_out == {
        "models..calls.0.args.1": "a builtins.list_iterator cannot be stored"
    }


def test_an_input_that_is_changed_afterwards_is_named(tmp_path: Path) -> None:
    hook, model = _linear(tmp_path / "run")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    hook.watch(model, optimizer=optimizer)
    data = torch.ones(3, 4)
    loss = model(data).sum() * float("nan")
    loss.backward()
    data.zero_()
    optimizer.step()
    hook.close()
    record = open_snapshot(tmp_path / "run" / "snapshots" / "step-0").record
    assert record.inexact == ["an input was changed in place after the model had read it"]


def test_a_full_disk_costs_one_line_and_nothing_else(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    _, losses = train(None)
    folder = tmp_path / "disk"
    folder.mkdir()
    with small_disk(folder, 16384):
        _, others = train(folder / "run")
        told = [line for line in capfd.readouterr().err.splitlines() if "snapshot" in line]
        assert taken(folder / "run") == []
    assert len(told) == 1
    assert f"no snapshot of step {BAD_STEP}" in told[0]
    np.testing.assert_array_equal(losses, others)


@pytest.mark.thorough
@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize("wrapped", [True, False])
def test_a_compiled_model_is_guarded_and_compiled_once(tmp_path: Path, *, wrapped: bool) -> None:
    torch.manual_seed(0)
    # Torch does not compile a module of its own.
    model = Distances()
    called: nn.Module = model
    if wrapped:
        called = torch.compile(model, backend="aot_eager")  # type: ignore[assignment]
    else:
        model.compile(backend="aot_eager")
    optimizer = torch.optim.Adam(model.parameters())
    hook = Hook(tmp_path / "run", guard="nonfinite").watch(called, optimizer=optimizer)
    for step in range(5):
        optimizer.zero_grad()
        (called(torch.randn(8, 1, 8, 8)).sum() * (float("nan") if step == 3 else 1.0)).backward()
        optimizer.step()
    hook.close()
    assert taken(tmp_path / "run") == [(3, "nonfinite")]
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
    assert hook.problems == []
