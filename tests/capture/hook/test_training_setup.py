"""The setup of the training in the run's record: losses, optimizers, untrained parameters."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import xgboost
from sklearn.ensemble import GradientBoostingRegressor
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 (as everybody calls it)

from vinedresser.capture import Hook, SaveConfig, open_run
from vinedresser.capture.adapters.training_setup import described_function, plain_settings
from vinedresser.store.records import RunRecord


def net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))


def data() -> tuple[Tensor, Tensor]:
    return torch.randn(5, 4), torch.randint(0, 3, (5,))


def record_of(hook: Hook) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(hook.path, "run.json").read_text())
    return found


def test_known_setup_is_recorded_before_the_first_step(tmp_path: Path) -> None:
    model = net()
    model.get_parameter("0.bias").requires_grad_(False)
    loss = nn.CrossEntropyLoss(weight=torch.ones(3), label_smoothing=0.1)
    optimizer = torch.optim.AdamW(
        [model.get_parameter("0.weight"), *model[1].parameters()], lr=0.02
    )
    hook = Hook(tmp_path / "run").watch(model, loss, optimizer)
    found = record_of(hook)
    settings = found["losses"]["CrossEntropyLoss"].pop("settings")
    assert found["losses"] == {"CrossEntropyLoss": {"type": "CrossEntropyLoss"}}
    expected = {"reduction": "mean", "label_smoothing": 0.1, "ignore_index": -100, "weight": True}
    assert settings == expected
    (told,) = found["optimizers"]
    assert told["type"] == "AdamW"
    assert (told["parameters"], told["tensors"]) == (4 * 8 + 8 + 8, 3)
    plain = {key: told["settings"][key] for key in ("lr", "betas", "eps", "weight_decay")}
    assert plain == {"lr": 0.02, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.01}
    assert found["frozen"] == ["biases/0.bias"]
    assert found["unoptimized"] == ["weights/2.weight", "biases/2.bias"]
    hook.close()


def test_untrained_weights_with_their_random_values_are_recorded(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 3))
    nn.init.orthogonal_(model.get_parameter("1.weight"))
    model[0].requires_grad_(False)
    optimizer = torch.optim.SGD(model[3].parameters(), lr=0.1)
    hook = Hook(tmp_path / "run").watch(model, nn.CrossEntropyLoss(), optimizer)
    hook.close()
    assert record_of(hook)["fresh"] == ["weights/0.weight", "weights/2.weight"]


def test_setup_seen_in_the_first_step_is_recorded_before_its_commit(tmp_path: Path) -> None:
    model = net()
    hook = Hook(tmp_path / "run").watch(model)
    # It is not known yet that no optimizer updates it.
    assert record_of(hook)["unoptimized"] == []
    loss = hook.loss(partial(F.cross_entropy, reduction="sum"))
    optimizer = torch.optim.SGD(model[2].parameters(), lr=0.1, momentum=0.9)
    x, y = data()
    loss(model(x), y, label_smoothing=0.2).backward()
    optimizer.step()
    hook.flush()
    found = record_of(hook)
    assert found["losses"]["cross_entropy"]["type"] == "cross_entropy"
    settings = found["losses"]["cross_entropy"]["settings"]
    assert settings["reduction"] == "sum"
    assert settings["label_smoothing"] == 0.2
    assert settings["ignore_index"] == -100
    assert [one["type"] for one in found["optimizers"]] == ["SGD"]
    assert found["unoptimized"] == [
        *("weights/0.weight", "biases/0.bias", "weights/1.weight", "biases/1.bias")
    ]
    # A second optimizer updates the rest; the deleted first one remains recorded.
    second = torch.optim.Adam([*model[0].parameters(), *model[1].parameters()])
    del optimizer
    for _ in range(3):
        loss(model(x), y).backward()
        second.step()
    hook.close()
    found = record_of(hook)
    assert [one["type"] for one in found["optimizers"]] == ["SGD", "Adam"]
    assert found["unoptimized"] == []
    assert open_run(tmp_path / "run").info.optimizers == found["optimizers"]


def test_the_setup_of_two_models_is_recorded(tmp_path: Path) -> None:
    generator, critic = nn.Linear(2, 2), nn.Linear(2, 1)
    teacher = nn.Linear(2, 2)
    for_critic = torch.optim.RMSprop(critic.parameters(), lr=1e-3)
    for_generator = torch.optim.Adam(generator.parameters(), lr=1e-3)
    hook = Hook(tmp_path / "run")
    hook.watch(critic, nn.BCEWithLogitsLoss(), for_critic, name="critic")
    hook.watch(generator, None, for_generator, name="generator")
    hook.watch(teacher, name="teacher")
    for _ in range(2):
        critic(generator(torch.randn(4, 2))).mean().backward()
        for_critic.step()
        for_generator.step()
    hook.close()
    found = record_of(hook)
    assert found["losses"]["critic.BCEWithLogitsLoss"]["settings"]["pos_weight"] is False
    assert [one["type"] for one in found["optimizers"]] == ["RMSprop", "Adam"]
    assert found["unoptimized"] == ["weights/teacher.weight", "biases/teacher.bias"]


def test_equal_optimizers_are_two_and_a_shared_optimizer_is_one(tmp_path: Path) -> None:
    one, other = nn.Linear(2, 2), nn.Linear(2, 2)
    twins = [torch.optim.SGD(model.parameters(), lr=0.1) for model in (one, other)]
    joint = torch.optim.SGD([*one.parameters(), *other.parameters()], lr=0.1)
    hook = Hook(tmp_path / "run")
    for name, model, twin in zip(("one", "other"), (one, other), twins, strict=True):
        hook.watch(model, optimizer=[twin, joint], name=name)
    hook.close()
    found = [optimizer["tensors"] for optimizer in record_of(hook)["optimizers"]]
    assert sorted(found) == [2, 2, 4]


def test_the_setup_is_recorded_at_the_end_if_no_step_is_saved(tmp_path: Path) -> None:
    model = net()
    nothing = SaveConfig(every=0)
    hook = Hook(tmp_path / "run", collections={"losses": nothing, "metrics": nothing}).watch(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(data()[0]).sum().backward()
    optimizer.step()
    hook.close()
    assert [one["type"] for one in record_of(hook)["optimizers"]] == ["SGD"]


def test_an_old_record_has_no_setup() -> None:
    old = {"id": "0" * 32, "name": "old", "created": 1.0, "modules": {"0": ["Linear", ""]}}
    record = RunRecord.from_json(old)
    assert (record.losses, record.optimizers) == ({}, [])
    assert (record.frozen, record.unoptimized) == ([], [])


def test_settings_are_plain() -> None:
    given = {
        "one": torch.tensor(2.0),
        "many": torch.ones(3),
        "array": np.float32(0.5),
        "pair": (0.9, 0.99),
        "nothing": None,
        "object": object(),
        "nested": [[1]],
    }
    expected = {"one": 2.0, "many": True, "array": 0.5, "pair": [0.9, 0.99], "nothing": None}
    assert plain_settings(given) == expected


def test_a_loss_function_is_described_by_its_call_settings() -> None:
    def focal(prediction: Tensor, target: Tensor, gamma: float = 2.0, mean: bool = True) -> None:
        """A loss."""

    given = {"target": torch.ones(3), "mean": False}
    assert described_function(partial(focal, gamma=1.0), given) == {
        "type": "focal",
        "settings": {"gamma": 1.0, "mean": False},
        "custom": True,
    }
    assert "custom" not in described_function(torch.nn.functional.nll_loss)


def test_xgboost_and_scikit_learn_use_the_same_structure(tmp_path: Path) -> None:
    x, y = np.random.default_rng(0).normal(size=(40, 3)), np.arange(40) % 2
    hook = Hook(tmp_path / "trees")
    train = xgboost.DMatrix(x, y)
    parameters = {"objective": "binary:logistic", "scale_pos_weight": 2, "eta": 0.2, "max_depth": 3}
    watching = {"evals": [(train, "train")], "callbacks": [hook.xgboost()], "verbose_eval": False}
    xgboost.train(parameters, train, 2, **watching)
    hook.close()
    found = record_of(hook)
    objective = {"type": "binary:logistic", "settings": {"scale_pos_weight": 2}}
    assert found["losses"] == {"objective": objective}
    (told,) = found["optimizers"]
    assert told["type"] == "gbtree"
    assert told["settings"]["lr"] == pytest.approx(0.2)
    assert told["settings"]["max_depth"] == 3
    hook = Hook(tmp_path / "estimator")
    hook.sklearn(GradientBoostingRegressor(n_estimators=3, learning_rate=0.3)).fit(x, y)
    hook.close()
    found = record_of(hook)
    assert found["losses"] == {"objective": {"type": "squared_error", "settings": {}}}
    assert found["optimizers"][0]["type"] == "GradientBoostingRegressor"
    assert found["optimizers"][0]["settings"]["lr"] == 0.3
