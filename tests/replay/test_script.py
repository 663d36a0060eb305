"""A broken step runs again in the script that trained, which needs no factory."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

import pytest

from tests.paths import ROOT
from tests.warm_python import TORCH
from vinedresser.store.reading.reader import open_run

# The images and labels of a step, and a model with batch normalization and dropout.
HEAD = """
import sys
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset
from vinedresser.capture import Hook, SnapshotSettings

def batch(step):
    made = torch.Generator().manual_seed(step)
    return torch.randn(16, 6, generator=made), torch.randint(0, 3, (16,), generator=made)

def loader():
    images, labels = map(torch.cat, zip(*map(batch, range(8))))
    return DataLoader(TensorDataset(images, labels), batch_size=16, shuffle=True)

def network():
    return nn.Sequential(
        nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 3)
    )

torch.manual_seed(int(sys.argv[1]))
"""

# A plain loop without a loader, with a loss module and a hook.
PLAIN = (
    HEAD
    + """
class Distance(nn.Module):
    def forward(self, found, wanted):
        return (found - wanted).square().sum(1).sqrt().mean()

model, loss_fn = network(), Distance()
optimizer = torch.optim.Adam(model.parameters())
hook = Hook("runs/run", guard="nonfinite", snapshots=SnapshotSettings(every=3))
hook.watch(model, loss=loss_fn, optimizer=optimizer)
for step in range(6):
    images, labels = batch(step)
    wanted = F.one_hot(labels, 3).float()
    if step == 4:
        wanted[5] = 3e38
    optimizer.zero_grad()
    loss = loss_fn(model(images), wanted)
    loss.backward()
    optimizer.step()
    open("steps.txt", "a").write(f"{step}\\n")
hook.close()
"""
)

# An unchanged script with a functional loss, and an evaluation before the first update.
UNCHANGED = (
    HEAD
    + """
model = network()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
model.eval()
with torch.no_grad():
    for images, labels in loader():
        model(images)
model.train()
for images, labels in loader():
    optimizer.zero_grad()
    loss = F.cross_entropy(model(images.clamp(-1, 1)), labels)
    loss.backward()
    optimizer.step()
"""
)

# The model computes its loss; each update has two batches, of which the gradients are clipped.
INSIDE = (
    HEAD
    + """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = network()

    def forward(self, images, labels=None):
        return {"loss": F.cross_entropy(self.net(images), labels)}

model = Model()
optimizer = torch.optim.AdamW(model.parameters())
hook = Hook("runs/run", snapshots=SnapshotSettings(every=3)).watch(model, optimizer=optimizer)
for step in range(5):
    for part in range(2):
        images, labels = batch(2 * step + part)
        loss = model(images, labels=labels)["loss"] / 2
        loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    optimizer.step()
    optimizer.zero_grad()
hook.close()
"""
)

# A sample that the first of two batches of a step breaks.
BROKEN = """
        if (step, part) == (2, 0):
            images[7] = float("inf")
"""

# Nothing passes the targets to the hook.
UNKNOWN = (
    HEAD
    + """
model = network()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
hook = Hook("runs/run", snapshots=SnapshotSettings(every=3))
hook.watch(model, optimizer=optimizer)
for step in range(5):
    images, labels = batch(step)
    optimizer.zero_grad()
    (model(images)[torch.arange(16), labels]).square().mean().backward()
    optimizer.step()
hook.close()
"""
)

# The discriminator has two calls for an update; the generator is called for it, too.
ADVERSARIES = (
    HEAD
    + """
generator = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.2), nn.Linear(8, 6))
judge = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1))
optimizers = [torch.optim.Adam(one.parameters()) for one in (generator, judge)]
hook = Hook("runs/run", guard="nonfinite")
hook.watch(generator, optimizer=optimizers[0], name="generator")
hook.watch(judge, optimizer=optimizers[1], name="judge")
for step in range(6):
    images, noise = batch(step)[0], torch.randn(16, 4)
    if step == BAD:
        WHAT[3] = float("nan")
    optimizers[1].zero_grad()
    fake = generator(torch.randn(16, 4)).detach()
    (F.softplus(-judge(images)) + F.softplus(judge(fake))).mean().backward()
    optimizers[1].step()
    optimizers[0].zero_grad()
    F.softplus(-judge(generator(noise))).mean().backward()
    optimizers[0].step()
hook.close()
"""
)

# Another loss, and no update.
OTHERS = {
    "another": (UNCHANGED.replace("nn.Linear(8, 3)", "nn.Linear(8, 4)"), "no model with the param"),
    "no update": (UNCHANGED.replace("optimizer.step()", "pass"), "a Sequential, was called, but"),
    "fails": (
        UNCHANGED.replace("loss.backward()", "raise OSError('no')"),
        "; it says: OSError: no",
    ),
}


def call(folder: Path, *arguments: str, code: int = 0) -> str:
    """Run Python with arguments in a folder; return what it prints."""
    done = TORCH.run(arguments, folder, {**os.environ, "PYTHONPATH": str(ROOT)})
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def again(folder: Path, step: int, *options: str, code: int = 0) -> str:
    """Run the step of a snapshot again in the script, which has another seed."""
    command = ["-m", "vinedresser", "replay", f"runs/run/snapshots/step-{step}"]
    return call(folder, *command, "--script", "train.py", *options, "--", "5", code=code)


def trained(folder: Path, script: str) -> Path:
    """Run a script with a hook."""
    folder.joinpath("train.py").write_text(script, encoding="utf-8")
    call(folder, "train.py", "0")
    return folder


def files(folder: Path) -> dict[Path, int]:
    """Return the time of the last change of each file."""
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*")}


@pytest.mark.slow
def test_a_plain_loop_whose_targets_go_to_a_loss_module(tmp_path: Path) -> None:
    folder = trained(tmp_path, PLAIN)
    before = files(folder)
    told = again(folder, 3)
    assert re.search(r"step 3 +loss [\d.]+: the same   gradients: 6 of 6 the same", told), told
    # The process ends before the update: it writes no run, and nothing of its own.
    assert files(folder) == before


@pytest.mark.slow
def test_the_operation_and_the_sample_are_found(tmp_path: Path) -> None:
    # Batch normalization refuses a single sample.
    script = PLAIN.replace("nn.BatchNorm1d(8), ", "")
    told = again(trained(tmp_path, script), 4, "--locate", "--bisect")
    assert "loss inf: the same   gradients: 4 of 4 the same" in told
    assert re.search(r"sample 5 of 16\b.*\(\d runs\)", told)
    assert "aten.mul in the backward (PowBackward0): float32 [16, 3] is -inf at [5, 0]" in told
    assert "return (found - wanted).square().sum(1).sqrt().mean()" in told


@pytest.mark.slow
def test_the_command_of_the_finding_works_as_it_stands(tmp_path: Path) -> None:
    folder = trained(tmp_path, PLAIN.replace("nn.BatchNorm1d(8), ", ""))
    remedy = next(iter(open_run(folder / "runs/run").findings())).remedy
    command = remedy.partition("vinedresser ")[2].partition("; it names")[0]
    assert command.endswith("step-4 --script train.py --locate --bisect -- 0")
    told = call(folder, "-m", "vinedresser", *shlex.split(command))
    assert "operation: aten.mul in the backward (PowBackward0)" in told


@pytest.mark.slow
def test_an_unchanged_script_with_a_functional_loss(tmp_path: Path) -> None:
    tmp_path.joinpath("train.py").write_text(UNCHANGED, encoding="utf-8")
    options = ("--name", "run", "--guard", "nonfinite", "--snapshot-every", "3")
    call(tmp_path, "-m", "vinedresser", "run", *options, "train.py", "0")
    told = again(tmp_path, 3)
    assert re.search(r"loss [\d.]+: the same   gradients: 6 of 6 the same", told), told


@pytest.mark.slow
def test_a_loss_inside_of_the_model_and_two_batches(tmp_path: Path) -> None:
    told = again(trained(tmp_path, INSIDE), 3)
    assert "gradients: 6 of 6 the same" in told


@pytest.mark.slow
@pytest.mark.parametrize("what", ["images", "noise"])
def test_one_of_two_models_that_train_each_other(tmp_path: Path, what: str) -> None:
    script = ADVERSARIES.replace("WHAT", what).replace("BAD", "4")
    folder = trained(tmp_path, script)
    finding = next(iter(open_run(folder / "runs/run").findings()))
    told = again(folder, finding.step, "--dtype", "float64")
    count = {"images": 6, "noise": 4}[what]
    assert f"gradients: {count} of {count} the same" in told
    assert "not finite: " in told
    assert re.search("in float64: loss nan, .*precision is not the cause", told)


@pytest.mark.slow
def test_the_real_image_that_breaks_one_of_two_models_is_found(tmp_path: Path) -> None:
    # Batch normalization would spread it over all samples.
    script = ADVERSARIES.replace("WHAT", "images").replace("BAD", "4")
    folder = trained(tmp_path, script.replace("nn.BatchNorm1d(8), ", ""))
    finding = next(iter(open_run(folder / "runs/run").findings()))
    told = again(folder, finding.step, "--bisect")
    assert re.search(r"sample 3 of 16\b.*\(5 runs\)", told)


@pytest.mark.slow
def test_the_batch_of_an_accumulation_that_breaks_is_found(tmp_path: Path) -> None:
    script = INSIDE.replace("nn.BatchNorm1d(8), ", "")
    script = script.replace('Hook("runs/run", ', 'Hook("runs/run", guard="nonfinite", ')
    script = script.replace("        loss = model", BROKEN + "        loss = model")
    told = again(trained(tmp_path, script), 2, "--bisect", "--locate")
    assert re.search(r"sample 7 of batch 0 of 32\b.*\(5 runs\)", told)
    # Not the addition to the gradients of another batch.
    assert "operation: aten.addmm in the forward" in told


@pytest.mark.slow
def test_targets_that_were_not_recorded_are_told(tmp_path: Path) -> None:
    told = again(trained(tmp_path, UNKNOWN), 3, code=1)
    assert "different" in told
    assert "inexact: the targets of the loss were not recorded" in told


@pytest.mark.slow
def test_a_loss_that_depends_on_the_step_is_inexact(tmp_path: Path) -> None:
    loop = "for step in range(5):\n    images, labels = batch(step)\n"
    script = UNKNOWN.replace(loop, "for step, (images, labels) in enumerate(loader()):\n")
    script = script.replace(".mean().backward()", ".mean().mul(1 + step).backward()")
    told = again(trained(tmp_path, script), 3, code=1)
    assert re.search("inexact: .*another loss", told)


@pytest.mark.slow
def test_a_script_that_does_not_come_to_the_step_is_told(tmp_path: Path) -> None:
    trained(tmp_path, PLAIN)
    for script, why in OTHERS.values():
        tmp_path.joinpath("train.py").write_text(script, encoding="utf-8")
        assert why in again(tmp_path, 3, code=2)


@pytest.mark.thorough
def test_options_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    trained(tmp_path, PLAIN)
    both = again(tmp_path, 3, "--factory", "train:network", code=2)
    assert "--script: not with --factory" in both
    tmp_path.joinpath("train.py").unlink()
    assert "train.py" in again(tmp_path, 3, code=2)
