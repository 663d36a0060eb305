"""Changes are tried, and precision and parts, in the loop of the script that trained."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from tests.replay.test_script import HEAD, again, trained
from vinedresser.errors import ConfigError
from vinedresser.replay.recorded import RecordedModel, RecordedStep
from vinedresser.replay.script.matching import Matching

# A learning rate that is too high, under a schedule; each epoch of 16 steps ends with a file.
TOO_FAST = (
    HEAD
    + """
rows = torch.randn(256, 6)
labels = (rows[:, 0] > 0).long() + (rows[:, 1] > 0).long()
model = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=8.0, momentum=0.9)
schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.999)
loss_fn = nn.CrossEntropyLoss()
hook = Hook("runs/run", snapshots=SnapshotSettings(every=4, keep=9))
hook.watch(model, loss=loss_fn, optimizer=optimizer)
for epoch in range(2):
    for inputs, wanted in DataLoader(TensorDataset(rows, labels), batch_size=16, shuffle=True):
        optimizer.zero_grad()
        loss_fn(model(inputs), wanted).backward()
        optimizer.step()
        schedule.step()
    if sys.argv[1] == "0":
        break
    torch.save(model.state_dict(), "model.pt")
hook.close()
"""
)

# A fourth power that single precision cannot hold.
LARGE = (
    HEAD
    + """
class Quartic(nn.Module):
    def forward(self, found, wanted):
        return (found - wanted).pow(4).mean()

model, loss_fn = network(), Quartic()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
hook = Hook("runs/run", guard="nonfinite")
hook.watch(model, loss=loss_fn, optimizer=optimizer)
for step in range(4):
    images, labels = batch(step)
    wanted = F.one_hot(labels, 3).float()
    if step == 2:
        wanted[5] = 1e13
    optimizer.zero_grad()
    loss_fn(model(images), wanted).backward()
    optimizer.step()
hook.close()
"""
).replace("nn.BatchNorm1d(8), ", "")

# The same loss of two models.
TWO_LARGE = (
    HEAD
    + """
first, second = nn.Linear(6, 8), nn.Sequential(nn.ReLU(), nn.Linear(8, 3))
optimizers = [torch.optim.SGD(one.parameters(), lr=0.1) for one in (first, second)]
hook = Hook("runs/run", guard="nonfinite")
hook.watch(first, optimizer=optimizers[0], name="first")
hook.watch(second, optimizer=optimizers[1], name="second")
data = TensorDataset(*map(torch.cat, zip(*map(batch, range(4)))))
for step, (images, labels) in enumerate(DataLoader(data, batch_size=16)):
    for one in optimizers:
        one.zero_grad()
    wanted = F.one_hot(labels, 3) * (1e13 if step == 2 else 1.0)
    (second(first(images)) - wanted).pow(4).mean().backward()
    for one in optimizers:
        one.step()
hook.close()
"""
)

# Two models with one loss and a learning rate that is too high, or with a loss for each.
TWO = (
    HEAD
    + """
rows = torch.randn(256, 6)
labels = (rows[:, 0] > 0).long() + (rows[:, 1] > 0).long()
first = nn.Linear(6, 32)
second = nn.Sequential(nn.ReLU(), nn.Linear(32, 3))
optimizers = [torch.optim.SGD(one.parameters(), lr=8.0, momentum=0.9) for one in (first, second)]
hook = Hook("runs/run", snapshots=SnapshotSettings(every=4, keep=9))
hook.watch(first, optimizer=optimizers[0], name="first")
hook.watch(second, optimizer=optimizers[1], name="second")
for inputs, wanted in DataLoader(TensorDataset(rows, labels), batch_size=16, shuffle=True):
    if TURNS:
        optimizers[1].zero_grad()
        F.cross_entropy(second(first(inputs).detach()), wanted).backward()
        optimizers[1].step()
        optimizers[0].zero_grad()
        (-F.cross_entropy(second(first(inputs)), wanted)).backward()
        optimizers[0].step()
    else:
        for one in optimizers:
            one.zero_grad()
        F.cross_entropy(second(first(inputs)), wanted).backward()
        for one in optimizers:
            one.step()
hook.close()
"""
)


@pytest.mark.slow
def test_a_cure_of_two_models_with_one_loss(tmp_path: Path) -> None:
    folder = trained(tmp_path, TWO.replace("TURNS", "False"))
    told = again(folder, 4, "--what-if", "--seconds", "500")
    assert re.search(r"tried: .*learning rate 0.8 instead of 8 cures it", told), told


@pytest.mark.slow
def test_losses_of_models_that_are_updated_in_turns_are_not_judged(tmp_path: Path) -> None:
    folder = trained(tmp_path, TWO.replace("TURNS", "True").replace("lr=8.0", "lr=0.01"))
    # The targets of the second loss of a batch are not recorded.
    told = again(folder, 4, "--what-if", "--seconds", "500", code=1)
    assert "losses of models that are updated in turns say no more: no symptom" in told


@pytest.mark.slow
def test_precision_is_found_to_be_the_cause(tmp_path: Path) -> None:
    folder = trained(tmp_path, LARGE)
    told = again(folder, 2, "--dtype", "float64")
    assert "loss inf: the same" in told
    assert re.search(r"in float64: loss [\d.]+e\+5\d, all gradients are finite: precision", told)


@pytest.mark.slow
def test_precision_of_two_models(tmp_path: Path) -> None:
    folder = trained(tmp_path, TWO_LARGE)
    # The recorded step replaces the first one.
    script = folder / "train.py"
    script.write_text(script.read_text().replace("step == 2", "step == 0"))
    told = again(folder, 2, "--dtype", "float64", code=0)
    assert "not finite: " in told
    assert re.search(r"in float64: loss [\d.]+e\+5\d, all gradients are finite: precision", told)


@pytest.mark.slow
def test_precision_cures_a_step_that_is_not_finite(tmp_path: Path) -> None:
    # The loss must not rise, whatever follows.
    script = LARGE.replace("range(4)", "range(20)").replace("step == 2", "step % 5 == 2")
    told = again(trained(tmp_path, script), 2, "--what-if", "--seconds", "500")
    assert "symptom: not finite at step 0" in told
    assert "  float64 instead of float32" in told


@pytest.mark.slow
def test_parts_that_break_are_named(tmp_path: Path) -> None:
    folder = trained(tmp_path, LARGE.replace("nn.Dropout(0.3), ", ""))
    told = again(folder, 2, "--split", "4")
    assert "4 parts: the loss is the same but for rounding" in told
    assert "not finite with samples 4 to 7: " in told


@pytest.mark.slow
def test_a_cure_is_proved_and_nothing_is_written(tmp_path: Path) -> None:
    folder = trained(tmp_path, TOO_FAST)
    told = again(folder, 4, "--what-if", "--seconds", "500")
    # The epoch ends with a file.
    assert "what if: 16 steps from here, 16 batches" in told
    assert re.search(r"tried: .*learning rate [\d.]+ instead of 7.968 .*cures it", told), told
    assert "labels shuffled" in told
    assert not folder.joinpath("model.pt").exists()


@pytest.mark.slow
def test_what_trials_cannot_compare_is_refused(tmp_path: Path) -> None:
    folder = trained(tmp_path, TOO_FAST)
    script = folder / "train.py"
    script.write_text(TOO_FAST.replace("        schedule.step()\n", "        open('a', 'w')\n"))
    told = again(folder, 4, "--what-if", code=2)
    assert "after 1 steps of a trial, the script writes a, and 10 steps are needed" in told
    assert not folder.joinpath("a").exists()
    drawn = "torch.tensor(np.random.default_rng().normal(size=(256, 6))).float()"
    script.write_text("import numpy as np" + TOO_FAST.replace("torch.randn(256, 6)", drawn))
    told = again(folder, 4, "--what-if", code=2)
    assert "it draws other batches each time that it starts" in told


def test_models_that_cannot_be_told_apart_are_named() -> None:
    def model(shape: tuple[int, ...]) -> RecordedModel:
        return RecordedModel({"weight": torch.zeros(shape)}, {}, [], {}, [])

    def step(**models: RecordedModel) -> RecordedStep:
        return RecordedStep(models, [], [], {}, next(iter(models)), 0)

    with pytest.raises(ConfigError, match="the models first and second have parameters of the sam"):
        Matching(step(first=model((2, 3)), second=model((2, 3))))
    matching = Matching(step(first=model((2, 3)), second=model((3, 2))))
    assert matching.name_of(torch.nn.Linear(2, 3, bias=False)) == "second"
    assert matching.name_of(torch.nn.Linear(3, 2, bias=False).eval()) is None
    assert matching.name_of(torch.nn.Linear(3, 4)) is None
