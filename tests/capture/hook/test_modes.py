"""The step or evaluation that a value belongs to."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from vinedresser.capture import Collection, Hook, SaveConfig, open_run
from vinedresser.errors import ConfigError

OUTPUTS = {"outputs": SaveConfig(every=1), "weights": SaveConfig(every=1)}


class Fit:
    """A linear model, its optimizer and a hook that captures outputs."""

    def __init__(self, path: Path, **options: object) -> None:
        self.model = nn.Linear(2, 1)
        self.loss = nn.MSELoss()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.hook = Hook(path, collections=OUTPUTS)
        self.hook.watch(self.model, self.loss, self.optimizer)

    def step(self, *batches: Tensor) -> list[float]:
        """Take one optimizer step over micro-batches; return their losses."""
        self.optimizer.zero_grad()
        values = []
        for x in batches or (torch.ones(2, 2),):
            loss = self.loss(self.model(x), torch.zeros(len(x), 1))
            loss.backward()
            values.append(loss.item())
        self.optimizer.step()
        return values

    def evaluate(self, *batches: Tensor) -> list[float]:
        """Evaluate the loss over batches, in eval mode; return the losses."""
        self.model.eval()
        with torch.no_grad():
            values = [self.loss(self.model(x), torch.zeros(len(x), 1)).item() for x in batches]
        self.model.train()
        return values


@pytest.fixture
def fit(tmp_path: Path) -> Fit:
    return Fit(tmp_path / "run")


def test_the_loss_of_micro_batches_is_their_mean(fit: Fit, tmp_path: Path) -> None:
    values = fit.step(torch.ones(2, 2), torch.full((5, 2), 3.0))
    fit.hook.close()
    column = open_run(tmp_path / "run").scalars("losses")["losses/MSELoss"]
    assert column.values.tolist() == pytest.approx([sum(values) / 2])


def test_an_evaluation_is_one_record_weighted_by_batch_size(fit: Fit, tmp_path: Path) -> None:
    fit.step()
    fit.step()
    batches = [torch.randn(7, 2), torch.randn(3, 2)]
    first, second = fit.evaluate(*batches)
    fit.step()
    # Without a `with` block, it ends when training resumes.
    assert fit.hook.flush(30)
    run = open_run(tmp_path / "run")
    assert run.steps("eval").tolist() == [2]
    column = run.scalars("losses", mode="eval")["losses/MSELoss"]
    assert column.values.tolist() == pytest.approx([(7 * first + 3 * second) / 10])
    outputs = run.tensor("outputs/Linear").value(2, mode="eval")
    assert outputs.shape == (7, 1)
    fit.hook.close()
    assert open_run(tmp_path / "run").steps("train").tolist() == [0, 1, 2]


def test_weights_in_an_evaluation_are_those_evaluated(fit: Fit, tmp_path: Path) -> None:
    fit.step()
    weight = fit.model.weight.detach().clone()
    fit.evaluate(torch.ones(1, 2))
    fit.step()
    fit.hook.close()
    view = open_run(tmp_path / "run").tensor("weights/weight")
    np.testing.assert_array_equal(view.value(1, mode="eval"), weight.numpy())
    np.testing.assert_array_equal(view.value(1, mode="train"), weight.numpy())


def test_each_block_is_a_separate_record(fit: Fit, tmp_path: Path) -> None:
    fit.step()
    for size in (2, 3):
        with fit.hook.mode("eval"):
            fit.model(torch.ones(size, 2))
            fit.hook.metric("size", size)
    with fit.hook.mode("predict"):
        fit.model(torch.ones(4, 2))
    fit.hook.close()
    run = open_run(tmp_path / "run")
    column = run.scalars("metrics")["metrics/size"]
    assert (column.mode, column.steps.tolist(), column.values.tolist()) == ("eval", [1, 1], [2, 3])
    assert run.tensor("outputs/Linear").value(1, mode="predict").shape == (4, 1)


def test_a_block_of_train_counts_a_model_in_eval_mode(fit: Fit, tmp_path: Path) -> None:
    fit.model.eval()
    with fit.hook.mode("train"):
        values = fit.step()
    fit.hook.close()
    assert fit.hook.problems == []
    run = open_run(tmp_path / "run")
    assert run.scalars("losses", mode="train")["losses/MSELoss"].values.tolist() == values
    assert not run.steps("eval").size


def test_a_forward_without_gradients_is_not_part_of_a_train_step(fit: Fit, tmp_path: Path) -> None:
    with torch.no_grad():
        fit.model(torch.full((9, 2), 9.0))
    values = fit.step()
    fit.hook.close()
    run = open_run(tmp_path / "run")
    assert run.scalars("losses")["losses/MSELoss"].values.tolist() == values
    assert run.tensor("outputs/Linear").value(0).shape == (2, 1)
    assert not run.steps("eval").size


def test_blocks_do_not_nest(fit: Fit) -> None:
    with fit.hook.mode("eval"), pytest.raises(ConfigError, match="cannot be nested"):
        fit.hook.mode("predict").__enter__()
    with pytest.raises(ConfigError, match="one of train, eval, predict"):
        fit.hook.mode("test")  # type: ignore[arg-type]
    fit.hook.close()


def test_user_values(fit: Fit, tmp_path: Path) -> None:
    latent = torch.randn(3, 4)
    fit.hook.save("latent", latent)
    fit.hook.save("losses/kl", torch.tensor(0.25))
    fit.hook.save("counts", np.arange(3))
    fit.hook.metric("accuracy", 0.5)
    fit.hook.metric("correct", torch.tensor(3))
    latent.zero_()
    fit.step()
    fit.hook.metric("late", 7)
    fit.hook.close()
    run = open_run(tmp_path / "run")
    assert {name: column.values.tolist() for name, column in run.scalars("metrics").items()} == {
        "metrics/accuracy": [0.5], "metrics/correct": [3.0], "metrics/late": [7.0],
    }  # fmt: skip
    assert run.scalars("losses")["losses/kl"].values.tolist() == [0.25]
    assert run.tensor("saved/latent").value(0).any()
    assert run.tensor("saved/counts").value(0).tolist() == [0, 1, 2]
    # Values after the last step have the number of finished steps.
    assert run.scalars("metrics")["metrics/late"].steps.tolist() == [1]
    assert run.status.step == 0


def test_a_value_can_be_saved_in_a_collection(tmp_path: Path) -> None:
    mine = {"mine": Collection(regex="nothing else", save=SaveConfig(every=1))}
    with Hook(tmp_path / "run", collections=mine) as hook:
        hook.save("z", np.ones(2), collection="mine")
        with pytest.raises(ConfigError, match="did you mean mine"):
            hook.save("z", 1.0, collection="mined")
        with pytest.raises(ConfigError, match="must be a word"):
            hook.metric("", 1.0)
        hook.save("other/z", 1.0)
        assert hook.problems == ["other/z is not saved: no collection holds it"]
    assert open_run(tmp_path / "run").tensor_names(collection="mine") == ["mine/z"]


def test_a_loss_function_is_wrapped(tmp_path: Path) -> None:
    model = nn.Linear(2, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    hook = Hook(tmp_path / "run").watch(model, optimizer=optimizer)
    loss = hook.loss(nn.functional.cross_entropy)
    value = loss(model(torch.ones(4, 2)), torch.zeros(4, dtype=torch.long))
    value.backward()
    optimizer.step()
    model.eval()
    with torch.no_grad():
        other = loss(input=model(torch.ones(5, 2)), target=torch.ones(5, dtype=torch.long))
    hook.close()
    run = open_run(tmp_path / "run")
    columns = [run.scalars(mode=mode)["losses/cross_entropy"] for mode in ("train", "eval")]
    assert [column.values.tolist() for column in columns] == [[value.item()], [other.item()]]
    with pytest.raises(ConfigError, match="no name"):
        hook.loss(lambda x: x)


def test_losses_of_several_elements_are_tensors(tmp_path: Path) -> None:
    model, loss = nn.Linear(2, 3), nn.CrossEntropyLoss(reduction="none")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    hook = Hook(tmp_path / "run").watch(model, loss, optimizer)
    value = loss(model(torch.ones(4, 2)), torch.zeros(4, dtype=torch.long))
    value.sum().backward()
    optimizer.step()
    hook.close()
    run = open_run(tmp_path / "run")
    captured = run.tensor("losses/CrossEntropyLoss").value(0)
    np.testing.assert_array_equal(captured, value.detach().numpy())
