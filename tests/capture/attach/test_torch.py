"""Capture from torch trainings in unchanged scripts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.capture.attach import scenarios as attach_scenarios
from tests.capture.attach.runs import Both, both, script, split_stderr
from tests.capture.attach.scenarios import SCENARIOS, STEPS, rows
from tests.warm_python import TORCH
from vinedresser.store.reading.reader import Run

pytestmark = pytest.mark.thorough

NAMES = list(SCENARIOS)
# `phases` makes two runs of itself, all others one.
NUMBERS = {
    name: number + (number > NAMES.index("phases") + 1) for number, name in enumerate(NAMES, 1)
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Both:
    """Run all trainings in one process, alone and attached."""
    directory = tmp_path_factory.mktemp("trainings")
    text = Path(attach_scenarios.__file__).read_text(encoding="utf-8")
    path = script(directory, text)
    collections = ("gradients:every=1", "outputs:every=5", "predictions:every=3", "labels:every=3")
    options = [word for collection in collections for word in ("--collection", collection)]
    return both(path.name, *NAMES, cwd=directory, options=tuple(options), loaded=TORCH)


def printed(trained: Both, name: str) -> list[float]:
    """Return the losses printed by a training."""
    line = trained.alone.stdout.splitlines()[NAMES.index(name)]
    return [float(word) for word in line.partition("[")[0].split()[: 2 * STEPS] if "." in word]


def losses(run: Run, name: str, mode: str = "train") -> list[float]:
    column = run.scalars("losses", mode=mode)[f"losses/{name}"]  # type: ignore[arg-type]
    return [float(value) for value in column.values]


def test_attached_trainings_behave_as_alone(trained: Both) -> None:
    assert trained.alone.returncode == trained.attached.returncode == 0, trained.attached.stderr
    # Losses, the digests of the final weights, and the next random number.
    assert trained.attached.stdout == trained.alone.stdout
    known = trained.alone.stderr.splitlines()
    said = [
        line for line in split_stderr(trained.attached.stderr)[0].splitlines() if line not in known
    ]
    # Compiled code does not show the calls of a model.
    expected = ("another training is captured in", "no call of the watched")
    assert [line for line in said if not any(words in line for words in expected)] == []


@pytest.mark.parametrize(
    "name",
    ["functional", "compiled", "compiled_loss", "closure", "tensors", "autograd_backward"],
)
def test_the_loss_is_the_tensor_of_the_backward_pass(trained: Both, name: str) -> None:
    run = trained.open(NUMBERS[name])
    np.testing.assert_allclose(losses(run, "loss"), printed(trained, name), rtol=1e-6)
    assert run.steps("train").tolist() == list(range(STEPS))


@pytest.mark.parametrize("name", ["functional", "autograd_backward", "closure"])
def test_labels_and_predictions_of_a_loss_function_are_captured(trained: Both, name: str) -> None:
    run = trained.open(NUMBERS[name])
    labels, predictions = run.tensor("labels/loss"), run.tensor("predictions/loss")
    # The first of two halves of the batch, and in a step with a closure its first call.
    expected = rows()[1][: 8 if name == "functional" else 16].numpy()
    for step in (0, 3):
        np.testing.assert_array_equal(labels.value(step), expected)
        logarithms = predictions.value(step)
        np.testing.assert_allclose(np.exp(logarithms).sum(1), 1, rtol=1e-5)
    assert labels.steps().tolist() == predictions.steps().tolist() == [0, 3]


def test_evaluations_by_functions_have_the_loss_of_the_training(trained: Both) -> None:
    run, expected = trained.open(NUMBERS["evaluated"]), printed(trained, "evaluated")
    assert losses(run, "loss") == pytest.approx(expected[::2])
    assert losses(run, "loss", "eval") == pytest.approx(expected[1::2])
    labels = run.tensor("labels/loss")
    np.testing.assert_array_equal(labels.value(1, mode="eval"), rows()[1][:4].numpy())
    logarithms = run.tensor("predictions/loss").value(1, mode="eval")
    np.testing.assert_allclose(np.exp(logarithms).sum(1), 1, rtol=1e-5)


def test_the_targets_of_a_regression_are_its_labels(trained: Both) -> None:
    run = trained.open(NUMBERS["parts"])
    np.testing.assert_array_equal(run.tensor("labels/loss").value(3), rows()[0].numpy())
    difference = run.tensor("predictions/loss").value(3) - rows()[0].numpy()
    assert np.square(difference).mean() == pytest.approx(printed(trained, "parts")[3])


def test_a_loop_without_an_optimizer_has_losses_and_gradients(trained: Both) -> None:
    run = trained.open(NUMBERS["manual"])
    line = trained.alone.stdout.splitlines()[NAMES.index("manual")]
    values = [float(word) for word in line.split()[:-1]]
    assert losses(run, "loss") == pytest.approx(values[:STEPS])
    assert losses(run, "loss", "eval") == pytest.approx(values[STEPS : STEPS + 1])
    # Two updates show that it is a training; from then on, gradients are those of the updates.
    weights = run.tensor("gradients/0.weight")
    biases = run.tensor("gradients/0.bias")
    assert weights.steps().tolist() == list(range(2, STEPS))
    squares = [
        float((weights.value(step) ** 2).sum() + (biases.value(step) ** 2).sum())
        for step in range(2, STEPS)
    ]
    assert squares == pytest.approx(values[STEPS + 3 :], rel=1e-5)


def test_a_loss_module_is_recorded_by_name_and_in_evaluations(trained: Both) -> None:
    run, expected = trained.open(NUMBERS["plain"]), printed(trained, "plain")
    assert set(run.scalars("losses")) == {"losses/CrossEntropyLoss"}
    assert losses(run, "CrossEntropyLoss") == pytest.approx(expected[::2])
    assert losses(run, "CrossEntropyLoss", "eval") == pytest.approx(expected[1::2])


@pytest.mark.parametrize("name", ["plain", "functional", "compiled", "renewed"])
def test_tensors_are_captured_from_the_first_step(trained: Both, name: str) -> None:
    run = trained.open(NUMBERS[name])
    assert run.tensor("outputs/0").steps().tolist() == [0, 5]
    assert run.tensor("gradients/3.weight").steps().tolist() == list(range(STEPS))


def test_the_step_that_detects_the_model_is_captured_completely(trained: Both) -> None:
    run = trained.open(NUMBERS["closure"])
    assert run.tensor("gradients/weight").steps().tolist() == list(range(STEPS))


def test_two_models_are_named_after_their_variables(trained: Both) -> None:
    run, expected = trained.open(NUMBERS["adversarial"]), printed(trained, "adversarial")
    assert losses(run, "critic") == pytest.approx(expected[::2])
    assert losses(run, "generator") == pytest.approx(expected[1::2])
    assert run.tensor("gradients/generator.0.weight").shape == (8, 3)
    assert run.tensor("gradients/critic.2.weight").shape == (1, 8)


def test_parts_of_a_model_are_named_by_their_paths(trained: Both) -> None:
    run = trained.open(NUMBERS["parts"])
    assert losses(run, "loss") == pytest.approx(printed(trained, "parts"))
    assert run.tensor("gradients/encoder.weight").shape == (2, 4)
    assert run.tensor("gradients/decoder.weight").shape == (4, 2)


def test_a_second_optimizer_beside_the_first_begins_another_training(trained: Both) -> None:
    expected = printed(trained, "phases")
    first, second = (trained.open(NUMBERS["phases"] + one) for one in (0, 1))
    assert losses(first, "loss") == pytest.approx(expected[:STEPS])
    assert losses(second, "loss") == pytest.approx(expected[STEPS:])
    assert "gradients/0.weight" in second.tensor_names()


def test_a_replacement_of_a_deleted_optimizer_continues_the_run(trained: Both) -> None:
    run = trained.open(NUMBERS["renewed"])
    assert losses(run, "loss") == pytest.approx(printed(trained, "renewed"))


def test_tensors_without_a_module_are_named_after_their_variables(trained: Both) -> None:
    run = trained.open(NUMBERS["tensors"])
    assert run.tensor("gradients/weights").shape == (4,)
    assert run.tensor("gradients/weights").steps().tolist() == list(range(STEPS))


BY_HAND = """
    import torch

    torch.manual_seed(0)
    x = torch.randn(32, 4)
    y = x @ torch.tensor([1.0, -2.0, 0.5, 0.0]) + 3
    w, b = torch.zeros(4, requires_grad=True), torch.zeros(1, requires_grad=True)
    for _ in range(8):
        loss = ((x @ w + b - y) ** 2).mean()
        loss.backward()
        print(loss.item(), *w.grad.tolist(), b.grad.item())
        with torch.no_grad():
            w -= 0.1 * w.grad
            b -= 0.1 * b.grad
            w.grad.zero_()
            b.grad.zero_()
"""


def test_a_loop_that_updates_and_clears_tensors_has_their_gradients(tmp_path: Path) -> None:
    script(tmp_path, BY_HAND)
    options = ("--collection", "gradients:every=1")
    pair = both("train.py", cwd=tmp_path, options=options, loaded=TORCH)
    assert pair.attached.stdout == pair.alone.stdout
    values = np.array([line.split() for line in pair.alone.stdout.splitlines()], float)
    run = pair.open()
    assert losses(run, "loss") == pytest.approx(values[:, 0])
    for name, columns in (("w", slice(1, 5)), ("b", slice(5, 6))):
        gradients = run.tensor(f"gradients/{name}")
        # Two updates show that it is a training.
        assert gradients.steps().tolist() == list(range(2, 8))
        captured = np.stack([gradients.value(step) for step in range(2, 8)])
        np.testing.assert_allclose(captured, values[2:, columns], rtol=1e-5)


def test_an_optimizer_without_steps_costs_a_few_steps(trained: Both) -> None:
    run = trained.open(NUMBERS["idle"])
    line = trained.alone.stdout.splitlines()[NAMES.index("idle")]
    values = [float(word) for word in line.split()[:-1]]
    # The first seven are one step.
    assert losses(run, "loss")[1:] == pytest.approx(values[7:])


def test_an_optimizer_that_begins_late_ends_steps_from_then_on(trained: Both) -> None:
    run = trained.open(NUMBERS["by_turns"])
    # Steps 6 and 7 of one optimizer, then rounds that end with the steps 8, 10 and 12.
    assert run.steps("train").tolist() == list(range(5))


def test_a_multiple_of_the_value_of_a_loss_module_is_no_other_loss(trained: Both) -> None:
    run = trained.open(NUMBERS["accelerated"])
    assert sorted(run.scalars("losses")) == ["losses/CrossEntropyLoss"]
    assert losses(run, "CrossEntropyLoss") == pytest.approx(printed(trained, "accelerated"))


def test_a_loss_has_one_name_although_its_module_is_made_in_each_forward(trained: Both) -> None:
    run = trained.open(NUMBERS["made_anew"])
    assert sorted(run.scalars("losses")) == ["losses/loss"]
    assert losses(run, "loss") == pytest.approx(printed(trained, "made_anew"))
    labels = run.tensor("labels/loss")
    assert labels.steps().tolist() == [0, 3]
    np.testing.assert_array_equal(labels.value(0), rows()[1][:8].numpy())


def test_a_loss_has_one_name_although_its_module_is_made_in_each_step(trained: Both) -> None:
    run = trained.open(NUMBERS["made_in_steps"])
    assert sorted(run.scalars("losses")) == ["losses/CrossEntropyLoss"]
    assert losses(run, "CrossEntropyLoss") == pytest.approx(printed(trained, "made_in_steps"))
    assert run.tensor_names("labels") == ["labels/CrossEntropyLoss"]
    assert run.tensor("labels/CrossEntropyLoss").steps().tolist() == [0, 3]


def test_a_custom_loss_module_says_which_function_it_applies(trained: Both) -> None:
    (setup,) = trained.open(NUMBERS["focal"]).info.losses.values()
    assert (setup["type"], setup["custom"]) == ("Focal", True)
    assert setup["function"] == "binary_cross_entropy_with_logits"


def test_every_additional_run_is_finished(trained: Both) -> None:
    for number in range(1, max(NUMBERS.values()) + 1):
        status = trained.open(number).status
        assert (number, status.state) == (number, "finished")
    assert not trained.run.with_name(f"run.{max(NUMBERS.values()) + 1}").exists()


# Torch is imported once; each case fails in a forked process, the last one in the script's own.
FAILING = """
    import os, sys, torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(4, 2)

        def forward(self, x):
            if x.shape[0] == 7:
                nn.functional.dropout(x, 2.0)
            return self.fc(x)

    for where in sys.argv[1:]:
        child = 0 if where == sys.argv[-1] else os.fork()
        if child == 0:
            break
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        print(f"== {where} {code}", file=sys.stderr, flush=True)

    torch.manual_seed(0)
    model, criterion = nn.Sequential(Block()), nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(4):
        last = step == 3
        rows = torch.ones(7 if last and where == "function" else 3, 4)
        if last and where == "forward":
            rows = torch.ones(3, 5)
        labels = torch.zeros(2 if last and where == "loss" else 3, dtype=torch.long)
        loss = criterion(model(rows), labels)
        optimizer.zero_grad()
        loss.backward()
        if last and where == "backward":
            try:
                loss.backward()
            except RuntimeError as error:
                raise ValueError("from another") from error
        optimizer.step()
"""


@pytest.mark.slow
def test_a_traceback_equals_that_of_the_unwatched_model(tmp_path: Path) -> None:
    script(tmp_path, FAILING)
    options = ("--collection", "outputs:every=1")
    cases = ("forward", "function", "loss", "backward")
    pair = both("train.py", *cases, cwd=tmp_path, options=options)
    plain = pair.alone.stderr
    assert [plain.count(f"== {where} 1\n") for where in cases[:-1]] == [1, 1, 1]
    assert plain.count("Traceback") == len(cases) + 1  # "backward" has a cause.
    found = split_stderr(pair.attached.stderr)[0].splitlines(keepends=True)
    notes = [line for line in found if line.startswith("vinedresser: ")]
    assert len(notes) == 3
    assert all(" training is captured in " in line for line in notes)
    assert "".join(line for line in found if line not in notes) == plain
    assert pair.attached.returncode == pair.alone.returncode == 1
    for number in range(1, len(cases) + 1):
        assert len(pair.open(number).steps("train")) == 3


LOOP = """
    import torch
    from torch import nn
    from torch.nn import functional as F

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    x = torch.randn(32, 4)
    y = x.sum(1, keepdim=True)
    for _ in range(30):
        {clear}
        F.mse_loss(model(x), y).backward()
        print(model[0].weight.norm().item())
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.02 * parameter.grad
"""


@pytest.mark.slow
@pytest.mark.parametrize("clear", ["model.zero_grad()", "pass"])
def test_a_loop_without_an_optimizer_tells_whether_it_clears_its_gradients(
    tmp_path: Path, clear: str
) -> None:
    script(tmp_path, LOOP.format(clear=clear))
    options = ("--collection", "weights:every=1,reductions=['l2']", "--collection", "state:every=1")
    pair = both("train.py", cwd=tmp_path, options=options)
    assert pair.attached.stdout == pair.alone.stdout
    run = pair.open()
    kept = run.scalars("state")["state/uncleared"].values
    assert set(kept) == ({0.0} if "zero" in clear else {1.0})
    # Each step's weights are those after its update. Those of the steps that show that it is a
    # training are not known.
    norms = [float(line) for line in pair.alone.stdout.splitlines()]
    captured = run.tensor("weights/0.weight").reduction("l2")
    found = dict(zip(captured.steps.tolist(), captured.values.tolist(), strict=True))
    assert min(found) == 2
    expected = {step: norms[step + 1] for step in found if step < 29}
    assert {step: found[step] for step in expected} == pytest.approx(expected, rel=1e-5)
