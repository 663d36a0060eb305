"""Fully sharded trainings: each rank writes its own shards and waits for nobody."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.numpy import load_file
from torch import nn

from tests.capture.torch_.parallel.fsdp_training import STEPS, Net, batch
from tests.capture.torch_.parallel.ranks import run_ranks, started_ranks
from vinedresser.capture import open_run
from vinedresser.store.reading.reader import Run

# Plain data-parallel trainings are the quick case.
pytestmark = pytest.mark.thorough

RANKS = (0, 1)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fsdp")
    run_ranks("tests.capture.torch_.parallel.fsdp_training", folder)
    return folder


def whole(run: Run, name: str, step: int) -> NDArray[np.float32]:
    """Put the shards of a tensor together: `fully_shard` splits the first dimension, in order."""
    return np.concatenate([run.tensor(name).value(step, rank=rank) for rank in RANKS])


def kind_of(name: str) -> str:
    return "biases" if "bias" in name else "weights"


def test_the_training_is_bit_identical(trained: Path) -> None:
    for rank in RANKS:
        plain, hooked = (
            load_file(trained / f"{way}-{rank}.safetensors") for way in ("plain", "hooked")
        )
        assert {name: value.tobytes() for name, value in hooked.items()} == {
            name: value.tobytes() for name, value in plain.items()
        }


def test_each_rank_writes_its_shards(trained: Path) -> None:
    run = open_run(trained / "run")
    assert run.ranks == RANKS
    for rank in RANKS:
        seen = load_file(trained / f"hooked-{rank}.safetensors")
        for name, _ in Net().named_parameters():
            for step in range(STEPS):
                gradient = run.tensor(f"gradients/{name}").value(step, rank=rank)
                assert gradient.tobytes() == seen[f"gradients/{name}.{step}"].tobytes()
                weight = run.tensor(f"{kind_of(name)}/{name}").value(step, rank=rank)
                assert weight.tobytes() == seen[f"weights/{name}.{step}"].tobytes()
                # Its statistics are those of the shard.
                l2 = run.tensor(f"gradients/{name}").reduction("l2", rank=rank)
                exact = np.linalg.norm(gradient.astype(np.float64))
                assert l2.values[step] == pytest.approx(exact, rel=1e-5)


def test_the_shards_together_are_the_gradient_of_the_joint_batch(trained: Path) -> None:
    run = open_run(trained / "run")
    for step in range(STEPS):
        twin = Net().double()
        with torch.no_grad():
            for name, parameter in twin.named_parameters():
                parameter.copy_(torch.tensor(whole(run, f"{kind_of(name)}/{name}", step)))
        losses = []
        for rank in RANKS:
            x, y = batch(step, rank)
            losses.append(nn.functional.cross_entropy(twin(x.double()), y))
        torch.stack(losses).mean().backward()
        for name, parameter in twin.named_parameters():
            assert parameter.grad is not None
            captured = whole(run, f"gradients/{name}", step)
            np.testing.assert_allclose(captured, parameter.grad.numpy(), rtol=2e-4, atol=1e-7)
        for rank in RANKS:
            loss = run.scalars("losses", rank=rank, mode="train")["losses/CrossEntropyLoss"]
            assert loss.values[step] == pytest.approx(losses[rank].item(), rel=1e-5)


def test_shards_of_the_optimizers_state(trained: Path) -> None:
    run = open_run(trained / "run")
    for rank in RANKS:
        seen = load_file(trained / f"hooked-{rank}.safetensors")
        last = run.tensor("optimizer_state/first.weight.exp_avg")
        assert last.value(STEPS - 1, rank=rank).shape == seen["first.weight"].shape


def test_names_and_outputs_are_those_of_the_users_model(trained: Path) -> None:
    run = open_run(trained / "run")
    assert {name.removeprefix("outputs/") for name in run.tensor_names(collection="outputs")} >= {
        "first", "module.0", "module.1", "module.2", "module", "last", "Net",
    }  # fmt: skip
    assert not [name for name in run.tensor_names() if "FSDP" in name]
    for rank in RANKS:
        x, _ = batch(1, rank)
        weight, bias = (
            whole(run, name, 1) for name in ("weights/first.weight", "biases/first.bias")
        )
        captured = run.tensor("outputs/first").value(1, rank=rank)
        np.testing.assert_allclose(captured, x.numpy() @ weight.T + bias, rtol=1e-4, atol=1e-6)


def test_an_evaluation_has_shards_too(trained: Path) -> None:
    # A forward without backward leaves the whole parameters in their places.
    run = open_run(trained / "run")
    for rank in RANKS:
        view = run.tensor("weights/first.weight")
        assert view.steps(mode="eval", rank=rank).tolist() == [STEPS]
        seen = load_file(trained / f"hooked-{rank}.safetensors")["first.weight"]
        np.testing.assert_array_equal(view.value(STEPS, mode="eval", rank=rank), seen)


def test_a_rank_stopped_alone_saves_its_shards_without_waiting(tmp_path: Path) -> None:
    with started_ranks("tests.capture.torch_.parallel.fsdp_training", tmp_path, "stop") as ended:
        said = ended.result(90).stderr
    # The other one is told by gloo that its peer is gone.
    assert re.fullmatch(r"exit codes of the ranks: \[[^,]+, (143|-6)\]\n", said), said
    (saved,) = (tmp_path / "run" / "checkpoints").iterdir()
    assert saved.name == "step-2.rank-1.safetensors"
    with safe_open(saved, "np") as file:
        places = json.loads(file.metadata()["sharded"])
    assert places["first.weight"] == {
        "shape": [7, 6],
        "placements": ["S(0)"],
        "mesh": [2],
        "coordinate": [1],
    }
    assert load_file(saved)["first.weight"].shape == (3, 6)
