"""Labels and predictions are the arguments of the loss."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (as everybody calls it)

from vinedresser.capture import Hook, SaveConfig, open_run
from vinedresser.store.reading.reader import Run
from vinedresser.store.step_record import Mode

ALWAYS = SaveConfig(every=1)
ALL = dict.fromkeys(("labels", "predictions", "losses", "outputs"), ALWAYS)


def net() -> nn.Module:
    torch.manual_seed(2)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))


def train(path: Path | None, *, as_function: bool, by_keyword: bool) -> tuple[list[Tensor], Any]:
    """Train for three steps of two batches, with an evaluation; return the end and what it saw."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loss: Callable[..., Tensor] = F.cross_entropy if as_function else nn.CrossEntropyLoss()
    hook = None if path is None else Hook(path, collections=ALL)
    if hook is not None:
        hook.watch(model, None if as_function else loss, optimizer)
        loss = hook.loss(loss) if as_function else loss
    seen = []
    for step in range(3):
        optimizer.zero_grad()
        for _ in range(2):
            x, y = torch.randn(5, 3), torch.randint(0, 4, (5,))
            p = model(x)
            seen.append((step, p.detach().clone(), y))
            (loss(input=p, target=y) if by_keyword else loss(p, y)).backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        p = model(torch.ones(2, 3))
        seen.append((3, p, torch.tensor([1, 3])))
        loss(p, torch.tensor([1, 3]))
    if hook is not None:
        hook.close()
        assert hook.problems == []
    return [torch.get_rng_state(), *(parameter.detach() for parameter in model.parameters())], seen


@pytest.mark.parametrize("as_function", [False, True], ids=["module", "function"])
@pytest.mark.parametrize("by_keyword", [False, True], ids=["by_position", "by_keyword"])
def test_labels_are_those_of_the_first_batch(
    as_function: bool, by_keyword: bool, tmp_path: Path
) -> None:
    plain, _ = train(None, as_function=as_function, by_keyword=by_keyword)
    hooked, seen = train(tmp_path / "run", as_function=as_function, by_keyword=by_keyword)
    assert all(torch.equal(one, other) for one, other in zip(plain, hooked, strict=True))
    name = "cross_entropy" if as_function else "CrossEntropyLoss"
    run = open_run(tmp_path / "run")
    assert set(run.tensor_names(collection="labels")) == {f"labels/{name}"}
    assert set(run.tensor_names(collection="predictions")) == {f"predictions/{name}"}
    for step, p, y in (seen[0], seen[2], seen[4], seen[6]):
        mode: Mode = "eval" if step == 3 else "train"
        found = [
            run.tensor(f"{kind}/{name}").value(step, mode) for kind in ("labels", "predictions")
        ]
        np.testing.assert_array_equal(found[0], y)
        np.testing.assert_array_equal(found[1], p)


def one_loss(tmp_path: Path, loss: Callable[..., Tensor], *arguments: Any, **more: Any) -> Run:
    model = nn.Linear(3, 2)
    with Hook(tmp_path / "run", collections=ALL) as hook:
        hook.watch(model)
        watched = hook.loss(loss, "mine")
        with hook.mode("eval"):
            watched(*arguments, **more)
    assert hook.problems == []
    return open_run(tmp_path / "run")


def test_nestings_and_other_objects_than_tensors(tmp_path: Path) -> None:
    answer, truth, third = torch.ones(2, 3), torch.zeros(2), torch.full((2,), 9.0)

    def loss(_scale: float, out: Any, *, wanted: Any, weight: Tensor) -> Tensor:
        found: Tensor = (out["logits"].sum() - wanted[0].sum()) * weight.sum()
        return found

    given = {"logits": answer, "hidden": (truth, third)}
    run = one_loss(tmp_path, loss, 0.5, given, wanted=[truth], weight=third)
    assert set(run.tensor_names()) == {
        "predictions/mine[logits]", "predictions/mine[hidden][0]", "predictions/mine[hidden][1]",
        "labels/mine[0]",
    }  # fmt: skip
    np.testing.assert_array_equal(run.tensor("predictions/mine[logits]").value(0, "eval"), answer)


def test_a_loss_without_arguments(tmp_path: Path) -> None:
    run = one_loss(tmp_path, lambda value: value, torch.tensor(2.5))
    assert run.tensor_names() == []
    assert run.scalars("losses", mode="eval")["losses/mine"].values.tolist() == [2.5]


def test_predictions_are_stored_once_with_the_output(tmp_path: Path) -> None:
    model, loss = net(), nn.CrossEntropyLoss()
    with Hook(tmp_path / "run", collections=ALL) as hook:
        hook.watch(model, loss)
        with hook.mode("eval"):
            loss(model(torch.randn(4, 3)), torch.tensor([0, 1, 2, 3]))
            recording = hook._session.recorder.current()
            assert recording is not None
            tensors = recording.tensors
            assert tensors["predictions/CrossEntropyLoss"] is tensors["outputs/Sequential"]


def test_a_named_model(tmp_path: Path) -> None:
    model, loss = net(), nn.MSELoss()
    with Hook(tmp_path / "run", collections=ALL) as hook:
        hook.watch(model, loss, name="student")
        with hook.mode("eval"):
            loss(model(torch.randn(4, 3)), torch.zeros(4, 4))
    run = open_run(tmp_path / "run")
    assert set(run.scalars("losses", mode="eval")) == {"losses/student.MSELoss"}
    assert run.tensor("labels/student.MSELoss").shape == (4, 4)


def test_a_block_evaluates_a_model_in_training_mode(tmp_path: Path) -> None:
    model, loss = net(), nn.MSELoss()
    with Hook(tmp_path / "run", collections=ALL) as hook:
        hook.watch(model, loss)
        with hook.mode("eval"), torch.no_grad():
            for rows in (4, 3):
                loss(model(torch.randn(rows, 3)), torch.zeros(rows, 4))
    labels = open_run(tmp_path / "run").tensor("labels/MSELoss")
    # The first batch.
    assert labels.value(0, mode="eval").shape == (4, 4)


def test_integer_labels_have_reductions(tmp_path: Path) -> None:
    model, loss = net(), nn.CrossEntropyLoss()
    save = SaveConfig(every=1, reductions=("mean", "max", "histogram"))
    with Hook(tmp_path / "run", collections={"labels": save}) as hook:
        hook.watch(model, loss)
        with hook.mode("eval"):
            loss(model(torch.randn(4, 3)), torch.tensor([0, 1, 3, 3]))
    assert hook.problems == []
    view = open_run(tmp_path / "run").tensor("labels/CrossEntropyLoss")
    assert view.reduction("mean", mode="eval").values.tolist() == [1.75]


class Embedding(nn.Module):
    """Embeds the three rows of each triplet at once."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 4)

    def forward(self, triplets: Tensor) -> list[Tensor]:
        return list(self.layer(triplets).unbind(1))


def test_a_loss_of_outputs_has_no_labels(tmp_path: Path) -> None:
    model, loss = Embedding(), nn.TripletMarginLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Hook(tmp_path / "run", collections=ALL).watch(model, loss, optimizer):
        for _ in range(2):
            optimizer.zero_grad()
            loss(*model(torch.randn(5, 3, 3))).backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            loss(*model(torch.randn(5, 3, 3)))
    run = open_run(tmp_path / "run")
    for mode in ("train", "eval"):
        assert run.scalars("losses", mode=mode)["losses/TripletMarginLoss"].values.size
    assert run.tensor_names(regex="labels|predictions") == []
