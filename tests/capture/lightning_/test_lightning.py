"""A hook as a callback of Lightning's trainer."""

from __future__ import annotations

import copy
import io
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lightning.pytorch import Callback, LightningModule
from safetensors.torch import load_file
from torch import Tensor

from tests.capture.lightning_.trainings import BATCHES, Adversaries, Classifier, loader, trainer
from tests.capture.torch_.parallel.ranks import ROOT
from tests.capture.torch_.zoo import EVERYTHING
from vinedresser.capture import Hook, SaveConfig, open_run
from vinedresser.store.reading.reader import Run

pytestmark = [
    # Lightning's advice on loaders without workers, and its calls of torch.
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),
    pytest.mark.filterwarnings("ignore:.*number of training batches"),
    pytest.mark.filterwarnings("ignore:You .* Skipping val loop"),
    pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec.` is deprecated"),
]


def bits(module: LightningModule) -> dict[str, bytes]:
    return {name: value.numpy().tobytes() for name, value in module.state_dict().items()}


def make_hook(tmp_path: Path) -> Hook:
    return Hook(tmp_path / "run", collections=EVERYTHING)


def fit(
    tmp_path: Path, module: LightningModule, hook: Hook | None = None, **arguments: Any
) -> None:
    callbacks = [hook.lightning()] if hook else []
    torch.manual_seed(11)
    trainer(tmp_path, *callbacks, **arguments).fit(module, loader(1), loader(2))


def fitted(tmp_path: Path, module: LightningModule, **arguments: Any) -> Run:
    with make_hook(tmp_path) as hook:
        fit(tmp_path, module, hook, **arguments)
    assert hook.problems == []
    return open_run(tmp_path / "run")


def check_gradients(run: Run, expected: list[dict[str, Tensor]]) -> None:
    assert run.steps("train").tolist() == list(range(len(expected)))
    for step, gradients in enumerate(expected):
        for name, gradient in gradients.items():
            captured = run.tensor(f"gradients/{name}").value(step)
            np.testing.assert_array_equal(captured, gradient.numpy(), err_msg=f"{name} {step}")


ARGUMENTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "clipped": {"gradient_clip_val": 0.05},
    "accumulated": {"accumulate_grad_batches": 2},
    "bf16": {"precision": "bf16-mixed"},
    "between": {"val_check_interval": 2, "max_epochs": 2},
}


@pytest.mark.thorough
@pytest.mark.parametrize("way", ARGUMENTS)
def test_the_training_is_bit_identical_and_gradients_are_those_consumed(
    way: str, tmp_path: Path
) -> None:
    plain, hooked = Classifier(), Classifier()
    fit(tmp_path, plain, **ARGUMENTS[way])
    expected = torch.get_rng_state()
    run = fitted(tmp_path, hooked, **ARGUMENTS[way])
    assert torch.equal(torch.get_rng_state(), expected)
    assert bits(hooked) == bits(plain)
    check_gradients(run, hooked.gradients)


def test_losses_and_metrics_of_a_step(tmp_path: Path) -> None:
    module = Classifier()
    run = fitted(tmp_path, module)
    losses = run.scalars("losses", mode="train")["losses/loss"]
    assert losses.steps.tolist() == list(range(BATCHES))
    assert losses.values.tolist() == pytest.approx(module.losses, rel=1e-7)
    metrics = run.scalars("metrics", mode="train")
    assert set(metrics) == {"metrics/accuracy", "metrics/batch", "metrics/twice"}
    assert metrics["metrics/batch"].values.tolist() == [0.0, 1.0, 2.0, 3.0]
    assert metrics["metrics/twice"].values.tolist() == pytest.approx(
        [2 * loss for loss in module.losses], rel=1e-6
    )


def test_the_loss_is_the_mean_over_micro_batches(tmp_path: Path) -> None:
    module = Classifier()
    run = fitted(tmp_path, module, accumulate_grad_batches=2)
    losses = run.scalars("losses", mode="train")["losses/loss"]
    expected = [(one + other) / 2 for one, other in zip(*[iter(module.losses)] * 2, strict=True)]
    assert losses.values.tolist() == pytest.approx(expected, rel=1e-6)
    # The first micro-batch's outputs.
    outputs = run.tensor("outputs/net.0").value(0)
    x = next(iter(loader(1)))[0]
    first = torch.tensor(run.tensor("weights/net.0.weight").value(0))
    bias = torch.tensor(run.tensor("biases/net.0.bias").value(0))
    np.testing.assert_allclose(outputs, (x @ first.T + bias).numpy(), rtol=1e-4, atol=1e-6)


def test_weights_and_outputs_are_those_of_the_step(tmp_path: Path) -> None:
    run = fitted(tmp_path, Classifier())
    for step, (x, _) in enumerate(loader(1)):
        weight = torch.tensor(run.tensor("weights/net.0.weight").value(step))
        bias = torch.tensor(run.tensor("biases/net.0.bias").value(step))
        captured = run.tensor("outputs/net.0").value(step)
        np.testing.assert_allclose(captured, (x @ weight.T + bias).numpy(), rtol=1e-4, atol=1e-6)
    assert not [name for name in run.tensor_names() if "module" in name]


def test_a_validation_is_one_record_and_the_sanity_check_is_not_recorded(tmp_path: Path) -> None:
    module = Classifier()
    seen = {}

    class Results(Callback):
        def on_validation_end(self, trainer: Any, pl_module: LightningModule) -> None:
            if not trainer.sanity_checking:
                seen.update({name: float(v) for name, v in trainer.callback_metrics.items()})

    with make_hook(tmp_path) as hook:
        torch.manual_seed(0)
        lightning = trainer(tmp_path, Results(), hook.lightning(), num_sanity_val_steps=2)
        lightning.fit(module, loader(1), loader(2))
    run = open_run(tmp_path / "run")
    assert run.steps("eval").tolist() == [BATCHES]
    metrics = run.scalars("metrics", mode="eval")
    assert set(metrics) == {"metrics/val_loss", "metrics/val_mean"}
    assert metrics["metrics/val_loss"].values.tolist() == [pytest.approx(seen["val_loss"])]
    assert metrics["metrics/val_mean"].values.tolist() == [1.5]
    losses = run.scalars("losses", mode="eval")["losses/loss"]
    assert losses.values.tolist() == [pytest.approx(seen["val_loss"])]
    weights = run.tensor("weights/net.0.weight").value(BATCHES, mode="eval")
    np.testing.assert_array_equal(weights, next(module.net.parameters()).detach().numpy())


def test_validate_test_and_predict_alone(tmp_path: Path) -> None:
    module = Classifier()
    with make_hook(tmp_path) as hook:
        lightning = trainer(tmp_path, hook.lightning())
        (validated,) = lightning.validate(module, loader(2), verbose=False)
        (tested,) = lightning.test(module, loader(3), verbose=False)
        predicted = lightning.predict(module, loader(4))
    assert hook.problems == []
    run = open_run(tmp_path / "run")
    evaluated = run.scalars("metrics", mode="eval")["metrics/val_loss"].values.tolist()
    assert evaluated == pytest.approx([validated["val_loss"], tested["val_loss"]])
    assert run.steps("predict").tolist() == [0]
    assert predicted is not None
    logits = run.tensor("outputs/net.4").value(0, mode="predict")
    np.testing.assert_array_equal(logits.argmax(1), predicted[0])


def test_manual_optimization_with_two_optimizers(tmp_path: Path) -> None:
    plain, hooked = Adversaries(), Adversaries()
    fit(tmp_path, plain)
    run = fitted(tmp_path, hooked)
    assert bits(hooked) == bits(plain)
    # A batch is one step with the gradients that each optimizer consumed.
    check_gradients(run, hooked.seen)
    losses = run.scalars("losses")
    both = [losses[name].values.tolist() for name in ("losses/loss", "losses/loss#1")]
    assert both == [pytest.approx(list(one)) for one in zip(*hooked.losses, strict=True)]
    # Logged after both optimizers, but in the same step.
    assert run.scalars("metrics")["metrics/late"].steps.tolist() == list(range(BATCHES))
    assert run.scalars("metrics")["metrics/late"].values.tolist() == [0.0, 1.0, 2.0, 3.0]


@pytest.mark.thorough
def test_a_second_fit_continues_the_step_count(tmp_path: Path) -> None:
    module = Classifier()
    with make_hook(tmp_path) as hook:
        callback = hook.lightning()
        for _ in range(2):
            trainer(tmp_path, callback).fit(module, loader(1))
    assert hook.problems == []
    run = open_run(tmp_path / "run")
    check_gradients(run, module.gradients)
    assert run.steps("train").tolist() == list(range(2 * BATCHES))
    assert run.status.state == "finished"


def test_the_module_is_left_unchanged(tmp_path: Path) -> None:
    module = Classifier()
    fitted(tmp_path, module)
    assert not [name for name in vars(module) if name.endswith("_step") or name == "log"]
    for one in module.modules():
        assert not one._forward_hooks
        assert not one._forward_pre_hooks


def test_a_module_is_copied_and_pickled_in_mid_training(tmp_path: Path) -> None:
    copies: list[Any] = []

    class Copying(Callback):
        def on_train_batch_start(self, trainer: Any, pl_module: Any, *_: Any) -> None:
            attached, pl_module._trainer = pl_module._trainer, None
            copies.append(copy.deepcopy(pl_module))
            file = io.BytesIO()
            torch.save(pl_module, file)
            file.seek(0)
            copies.append(torch.load(file, weights_only=False))
            pl_module._trainer = attached

    module = Classifier()
    with make_hook(tmp_path) as hook:
        trainer(tmp_path, hook.lightning(), Copying(), max_steps=1).fit(module, loader(1))
    for one in copies:
        # The methods of a copy are not watched.
        assert one.predict_step.__self__ is one
        assert one.log.__self__ is one
    assert open_run(tmp_path / "run").steps("train").tolist() == [0]


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated")
def test_a_compiled_module_runs_eagerly_in_saved_steps_only(tmp_path: Path) -> None:
    calls: list[int] = []

    class Plain(LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = torch.nn.Linear(6, 3)

        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            if not torch.compiler.is_compiling():
                calls.append(batch_idx)
            return torch.nn.functional.cross_entropy(self.net(batch[0]), batch[1])

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    torch._dynamo.reset()
    collections = dict.fromkeys(("outputs", "gradients"), SaveConfig(every=2, start=1))
    with Hook(tmp_path / "run", collections=collections) as hook:
        compiled: Any = torch.compile(Plain(), backend="eager")
        trainer(tmp_path, hook.lightning()).fit(compiled, loader(1))
    assert hook.problems == []
    assert calls == [1, 3]
    run = open_run(tmp_path / "run")
    for name in ("outputs/net", "gradients/net.weight"):
        assert run.tensor(name).steps().tolist() == [1, 3]
    assert run.scalars("losses")["losses/loss"].steps.tolist() == list(range(BATCHES))


def test_an_error_in_the_training_is_a_crash(tmp_path: Path) -> None:
    class Broken(Classifier):
        def validation_step(self, batch: Any, batch_idx: int) -> Tensor:
            raise ValueError("no such label")

    hook = make_hook(tmp_path)
    with pytest.raises(ValueError, match="no such label"):
        fit(tmp_path, Broken(), hook, num_sanity_val_steps=0)
    hook.close()
    assert hook.problems == []
    status = open_run(tmp_path / "run").status
    assert (status.state, status.reason) == ("crashed", "ValueError: no such label")
    assert open_run(tmp_path / "run").steps("train").tolist() == list(range(BATCHES))


def test_a_callback_without_a_trainer_does_no_harm(tmp_path: Path) -> None:
    hook = Hook(tmp_path / "run", collections={"weights": SaveConfig(every=1)})
    callback = hook.lightning()
    hook.close()
    module = Classifier()
    trainer(tmp_path, callback).fit(module, loader(1))
    assert not open_run(tmp_path / "run").tensor_names()
    assert "training_step" not in vars(module)


STOPPED = """
import sys
from pathlib import Path
import torch
from lightning.pytorch import Callback
from tests.capture.lightning_.trainings import Classifier, loader, trainer
from vinedresser.capture import Hook, SaveConfig

class Ready(Callback):
    def on_train_batch_end(self, *_):
        print("ready", flush=True)

folder = Path(sys.argv[1])
hook = Hook(folder / "run", collections={"weights": SaveConfig(every=1)})
try:
    trainer(folder, hook.lightning(), Ready(), max_epochs=-1).fit(Classifier(), loader(1))
finally:
    print("finally", flush=True)
"""


@pytest.mark.thorough
def test_a_stop_saves_the_weights(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", STOPPED, tmp_path],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        output, errors = process.communicate(timeout=60)
    # The hook's exit, or Lightning's if it handles the signal first.
    assert process.returncode in (128 + signal.SIGTERM, 0), errors
    assert output.endswith("finally\n")
    run = open_run(tmp_path / "run")
    last = int(run.steps("train")[-1])
    (saved,) = (tmp_path / "run" / "checkpoints").iterdir()
    assert saved.name == f"step-{last + 1}.safetensors"
    assert set(load_file(saved)) == set(Classifier().state_dict())
    assert run.status.state == "killed"


PARALLEL = """
import sys
from pathlib import Path
from tests.capture.lightning_.trainings import Classifier, loader, trainer
from tests.capture.torch_.zoo import EVERYTHING
from vinedresser.capture import Hook

folder = Path(sys.argv[1])
with Hook(folder / "run", collections=EVERYTHING) as hook:
    trainer(folder, hook.lightning(), strategy="ddp", devices=2).fit(
        Classifier(), loader(1), loader(2)
    )
    assert hook.problems == [], hook.problems
"""


@pytest.mark.slow
def test_two_ranks_started_by_the_trainer(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(PARALLEL)
    done = subprocess.run(
        [sys.executable, script, tmp_path],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        check=False,
        capture_output=True,
        text=True,
        timeout=170,
    )
    assert done.returncode == 0, done.stderr
    run = open_run(tmp_path / "run")
    assert run.ranks == (0, 1)
    assert run.info.world_size == 2
    for rank in run.ranks:
        assert run.steps("train", rank=rank).tolist() == [0, 1]
    one, other = (run.tensor("gradients/net.0.weight").value(1, rank=rank) for rank in run.ranks)
    np.testing.assert_array_equal(one, other)
    one, other = (run.tensor("outputs/net.0").value(1, rank=rank) for rank in run.ranks)
    assert not np.array_equal(one, other)
