"""Saving only some rows of large batches, the same ones of every tensor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from vinedresser.capture import CaptureConfig, Collection, Hook, SaveConfig, open_run
from vinedresser.errors import ConfigError
from vinedresser.frameworks.torch_.views import some_rows
from vinedresser.store.reductions.sampling import affordable_rows

KINDS = ("inputs", "outputs", "labels", "predictions", "weights")


def places(rows: int, most: int) -> list[int]:
    """Return which rows are kept, worked out one by one."""
    return [round(i * (rows - 1) / (most - 1)) for i in range(most)]


@pytest.mark.parametrize(
    ("asked", "rows"),
    [
        ([5, 8], 8),
        ([5, None], None),
        ([None], None),
        ([7], 7),
    ],
)
def test_the_largest_number_of_rows_wins(asked: list[int | None], rows: int | None) -> None:
    saves = tuple(SaveConfig(every=1, rows=one) for one in asked)
    # Who asks for statistics alone has nothing to say.
    figures = SaveConfig(every=1, rows=3, reductions=("l2",))
    config = CaptureConfig.of({"inputs": saves, "all": Collection(regex="^inputs", save=figures)})
    ask = config.asks("inputs/0", 0, "train")
    assert (ask.tensor, ask.rows) == (True, rows)
    assert CaptureConfig.from_json(config.to_json()) == config


@pytest.mark.parametrize("rows", [0, -1, True, 2.5, "3"])
def test_an_invalid_number_of_rows_is_refused(rows: Any) -> None:
    with pytest.raises(ConfigError, match=r"rows = .*: must be an integer, at least 1"):
        SaveConfig(rows=rows)


def test_records_of_older_versions_mean_all_rows() -> None:
    assert SaveConfig.from_json({"every": 2}).rows is None


def test_tensors_of_a_batch_keep_the_same_rows_and_statistics_cover_all(tmp_path: Path) -> None:
    model, loss = nn.Sequential(nn.Linear(4, 40), nn.ReLU(), nn.Linear(40, 3)), nn.MSELoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    save = SaveConfig(every=1, rows=10, tensor=True, reductions=("mean", "p50"))
    x, y = torch.randn(37, 4), torch.randn(37, 3)
    with Hook(tmp_path / "run", collections=dict.fromkeys(KINDS, save)) as hook:
        hook.watch(model, loss, optimizer)
        weights = model.get_parameter("0.weight").detach().clone()
        logits = model(x)
        loss(logits, y).backward()
        optimizer.step()
    assert hook.problems == []
    run = open_run(tmp_path / "run")
    kept = places(37, 10)
    for name, whole in {
        "inputs/0": x,
        "labels/MSELoss": y,
        "predictions/MSELoss": logits.detach(),
        "outputs/2": logits.detach(),
    }.items():
        view = run.tensor(name)
        np.testing.assert_array_equal(view.value(0), whole[kept], err_msg=name)
        assert view.reduction("mean").values[0] == pytest.approx(whole.mean().item(), abs=1e-6)
        assert view.reduction("p50").values[0] == pytest.approx(np.median(whole.numpy()), abs=1e-6)
    np.testing.assert_array_equal(run.tensor("weights/0.weight").value(0), weights[places(40, 10)])
    assert run.tensor("weights/2.weight").shape == (3, 40)


def test_a_collection_without_rows_keeps_its_tensors_whole(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 5), nn.ReLU())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    collections: dict[str, Any] = {
        "outputs": SaveConfig(every=1, rows=4),
        "inputs": SaveConfig(every=1, rows=6),
        "first": Collection(regex="^outputs/0$", save=SaveConfig(every=2)),
    }
    with Hook(tmp_path / "run", collections=collections) as hook:
        hook.watch(model, optimizer=optimizer)
        for _ in range(2):
            model(torch.randn(9, 4)).sum().backward()
            optimizer.step()
    run = open_run(tmp_path / "run")
    outputs = [run.tensor("outputs/0").value(step) for step in range(2)]
    # The input of the next layer has its own rows.
    inputs = run.tensor("inputs/1").value(0)
    assert [output.shape for output in outputs] == [(9, 5), (4, 5)]
    np.testing.assert_array_equal(inputs, outputs[0][places(9, 6)])
    np.testing.assert_array_equal(
        run.tensor("outputs/1").value(0), np.maximum(outputs[0][places(9, 4)], 0)
    )


@pytest.mark.parametrize(
    "dtype",
    [torch.bool, torch.uint16, torch.bfloat16, torch.float8_e5m2, torch.complex64, torch.float64],
)
def test_rows_of_every_type_and_layout(dtype: torch.dtype) -> None:
    tensor = torch.arange(60).reshape(4, 15).to(torch.float32).to(dtype)
    chosen = some_rows(tensor.T, 6)
    assert chosen.dtype == dtype
    expected = [tensor.T.contiguous().view(torch.uint8)[place].tolist() for place in places(15, 6)]
    assert chosen.contiguous().view(torch.uint8).tolist() == expected
    assert some_rows(tensor, 4) is tensor
    assert some_rows(tensor[0, 0], 1).shape == ()


def test_a_custom_loop(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(50, 3))
    collections = {"inputs": SaveConfig(every=1, rows=8), "saved": SaveConfig(every=1, rows=1)}
    with Hook(tmp_path / "run", collections=collections) as hook:
        hook.save("latent", torch.from_numpy(x))
        hook.step(inputs=x)
    run = open_run(tmp_path / "run")
    np.testing.assert_array_equal(run.tensor("inputs/batch").value(0), x[places(50, 8)])
    np.testing.assert_array_equal(run.tensor("saved/latent").value(0), x[:1])


@pytest.mark.parametrize(
    ("asked", "shape", "kept"),
    [
        (None, (100, 1 << 20), None),
        (64, (100, 3, 32, 32), 64),
        (64, (100, 3, 224, 224), 1),
        (64, (8, 1024, 50000), 0),
        (64, (100, 1 << 14), 16),
        (64, (100,), 64),
        (64, (), 64),
    ],
)
def test_fewer_large_rows_are_kept(
    asked: int | None, shape: tuple[int, ...], kept: int | None
) -> None:
    assert affordable_rows(asked, shape, 4) == kept


def test_rows_above_the_limit_are_not_kept(tmp_path: Path) -> None:
    save = SaveConfig(every=1, rows=8)
    with Hook(tmp_path / "run", collections={"labels": save, "losses": save}) as hook:
        hook.step(labels=np.zeros((2, 1 << 20), np.float32), loss=1.0)
    assert open_run(tmp_path / "run").tensor_names() == []


def test_one_photograph_is_kept(tmp_path: Path) -> None:
    save = SaveConfig(every=1, rows=8)
    model = nn.Sequential(nn.Flatten(), nn.Linear(3 * 224 * 224, 2))
    loss, optimizer = nn.MSELoss(), torch.optim.SGD(model.parameters(), lr=0.0)
    with Hook(tmp_path / "run", collections={"model_inputs": save, "labels": save}) as hook:
        hook.watch(model, loss, optimizer)
        loss(model(torch.zeros(20, 3, 224, 224)), torch.zeros(20, 2)).backward()
        optimizer.step()
    run = open_run(tmp_path / "run")
    assert run.tensor("inputs/Sequential").value(step=0).shape == (1, 3, 224, 224)
    assert run.tensor("labels/MSELoss").value(step=0).shape == (8, 2)
