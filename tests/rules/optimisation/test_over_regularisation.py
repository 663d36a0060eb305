"""The rule about too strong weight decay, penalties and dropout, on real trainings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tests.rules.inside_trainings import captured, found, stack
from tests.rules.trainings import Data, digits
from vinedresser.capture.hook.hook import Hook
from vinedresser.rules.base import capture_for
from vinedresser.rules.causes.root_cause import root_causes
from vinedresser.rules.data.corrupt_labels import CorruptLabels
from vinedresser.rules.optimisation.over_regularisation import OverRegularisation
from vinedresser.rules.signals.losses.penalty import Penalty
from vinedresser.store.finding import Finding
from vinedresser.store.reading.reader import open_run
from vinedresser.testing.runs import make_run, step_record


def net(dropout: float = 0.0) -> Callable[[], nn.Module]:
    return lambda: nn.Sequential(
        nn.Linear(64, 64), nn.ReLU(), nn.Dropout(dropout), nn.Linear(64, 10)
    )


def adam(decay: float) -> Callable[[nn.Module], torch.optim.Optimizer]:
    return lambda model: torch.optim.Adam(model.parameters(), lr=1e-3, weight_decay=decay)


def adamw(decay: float) -> Callable[[nn.Module], torch.optim.Optimizer]:
    return lambda model: torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=decay)


def penalise(strength: float) -> Callable[[nn.Module, int], None]:
    """Return a function that adds the gradient of strength * |W|² to the gradients."""

    def add(model: nn.Module, step: int) -> None:
        for parameter in model.parameters():
            if parameter.ndim > 1 and parameter.grad is not None:
                parameter.grad.add_(parameter.detach(), alpha=2 * strength)

    return add


def nothing(model: nn.Module, step: int) -> None:
    """Leave the gradients unchanged."""


def judged(
    directory: Path,
    model: Callable[[], nn.Module],
    optimizer: Callable[[nn.Module], torch.optim.Optimizer],
    before_step: Callable[[nn.Module, int], None] = nothing,
) -> list[Finding]:
    rule = OverRegularisation()
    return found(captured(directory, [rule], model, optimizer, before_step=before_step), rule)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("optimizer", "before_step", "decay"),
    [(adam(1.0), nothing, 1.0), (adamw(300.0), nothing, 300.0), (adam(0.0), penalise(1.0), None)],
)
def test_vanishing_weights(
    optimizer: Callable[[nn.Module], torch.optim.Optimizer],
    before_step: Callable[[nn.Module, int], None],
    decay: float | None,
    tmp_path: Path,
) -> None:
    *early, finding = judged(tmp_path / "run", net(), optimizer, before_step)
    assert [one.severity for one in early] in ([], ["warning"])
    assert (finding.severity, finding.fault) == ("stop", "over_regularisation")
    assert finding.value < 0.3
    assert finding.seen.startswith("the weights have shrunk to")
    if decay is None:
        assert finding.correction == {}
        assert finding.confidence <= 0.7
    else:
        assert finding.correction == {"weight_decay": decay / 100}
        assert f"{decay / 100:g} instead of {decay:g}" in finding.remedy


@pytest.mark.thorough
def test_too_much_dropout(tmp_path: Path) -> None:
    # Each of three layers drops a share that would be harmless in one.
    def model() -> nn.Module:
        layers: list[nn.Module] = []
        for _ in range(3):
            layers += [nn.Linear(64, 64), nn.ReLU(), nn.Dropout(0.95)]
        return nn.Sequential(*layers, nn.Linear(64, 10))

    early, finding = judged(tmp_path / "run", model, adam(0.0))
    assert (early.severity, finding.severity) == ("warning", "stop")
    assert early.step < 100
    assert {early.fault, finding.fault} == {"over_regularisation"}
    assert finding.seen.startswith("2 drops 95% of its units")


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("model", "optimizer", "before_step"),
    [
        (net(0.5), adam(0.0), nothing),
        (net(), adam(1e-4), nothing),
        (net(), adamw(0.1), nothing),
        (net(), adam(0.0), penalise(1e-3)),
        # More than usual, but it still learns.
        (net(0.8), adam(0.0), nothing),
        (net(), adamw(3.0), nothing),
    ],
)
def test_regularised_trainings_that_learn_are_ignored(
    model: Callable[[], nn.Module],
    optimizer: Callable[[nn.Module], torch.optim.Optimizer],
    before_step: Callable[[nn.Module, int], None],
    tmp_path: Path,
) -> None:
    assert judged(tmp_path / "run", model, optimizer, before_step) == []


@pytest.mark.thorough
def test_a_poor_training_with_another_cause_is_ignored(tmp_path: Path) -> None:
    slow = judged(
        tmp_path / "run", net(0.5), lambda model: torch.optim.SGD(model.parameters(), lr=1e-6)
    )
    assert slow == []


def tiny_weights() -> nn.Module:
    return stack([64, 64, 64, 64, 64, 10], nn.ReLU, lambda w: nn.init.uniform_(w, -0.05, 0.05))


def usual_weights() -> nn.Module:
    return stack([64, 64, 64, 64, 64, 10], nn.ReLU, nn.init.kaiming_normal_)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("optimizer", "before_step"), [(adam(0.0), penalise(0.01)), (adam(0.02), nothing)]
)
@pytest.mark.parametrize(
    ("model", "causes"),
    [
        # Digits with their own labels are not learned with these either.
        (tiny_weights, (["over_regularisation"], ["over_regularisation"])),
        (usual_weights, ([], ["corrupt_labels"])),
    ],
)
def test_labels_are_no_cause_of_a_penalty_that_outweighs_any(
    optimizer: Callable[[nn.Module], torch.optim.Optimizer],
    before_step: Callable[[nn.Module, int], None],
    model: Callable[[], nn.Module],
    causes: tuple[list[str], list[str]],
    tmp_path: Path,
) -> None:
    rules, data = [CorruptLabels(), OverRegularisation()], digits()
    rows = torch.randperm(len(data.y), generator=torch.Generator().manual_seed(0))
    for name, labels, cause in zip(("own", "other"), (data.y, data.y[rows]), causes, strict=True):
        run = captured(
            tmp_path / name,
            rules,
            model,
            optimizer,
            data=replace(data, y=labels),
            before_step=before_step,
        )
        assert [root.finding.fault for root in root_causes(found(run, *rules))] == cause


@pytest.mark.thorough
@pytest.mark.parametrize(("corrupt", "causes"), [(False, []), (True, ["corrupt_labels"])])
def test_a_linear_model_without_any_penalty_shrinks_to_small_targets(
    corrupt: bool, causes: list[str], tmp_path: Path
) -> None:
    """A squared error pulls one weight to its best value as a penalty pulls it to zero."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2048, 100, generator=generator)
    y = x @ torch.randn(100, 1, generator=generator) / (1000 if not corrupt else 100)
    y = y[torch.randperm(len(y), generator=generator)] if corrupt else y
    rules = [CorruptLabels(), OverRegularisation()]
    run = captured(
        tmp_path / "run",
        rules,
        lambda: nn.Linear(100, 1),
        lambda model: torch.optim.SGD(model.parameters(), lr=0.05),
        data=Data(x, y, x[:256], y[:256]),
        loss=nn.MSELoss(),
    )
    assert [root.finding.fault for root in root_causes(found(run, *rules))] == causes


@pytest.mark.thorough
def test_two_layers_that_shrink_alike_hide_no_labels(tmp_path: Path) -> None:
    """The gradient of each is proportional to the other, so that both stay the same multiples."""
    rules, data = [CorruptLabels(), OverRegularisation()], digits()
    rows = torch.randperm(len(data.y), generator=torch.Generator().manual_seed(0))
    run = captured(
        tmp_path / "run",
        rules,
        net(),
        lambda model: torch.optim.SGD(model.parameters(), lr=0.05, weight_decay=0.3),
        data=replace(data, y=data.y[rows]),
    )
    (root,) = root_causes(found(run, *rules))
    assert root.finding.fault == "corrupt_labels"


def keras_run(directory: Path, strength: float) -> Any:
    import keras

    keras.utils.set_random_seed(0)
    l2 = keras.regularizers.L2
    model = keras.Sequential(
        [
            keras.Input((64,)),
            keras.layers.Dense(64, activation="relu", kernel_regularizer=l2(strength)),
            keras.layers.Dropout(0.1),
            keras.layers.Dense(10, activation="softmax", kernel_regularizer=l2(strength)),
        ]
    )
    model.compile(keras.optimizers.SGD(1e-2), "sparse_categorical_crossentropy")
    data = digits()
    with Hook(
        directory, collections=capture_for([OverRegularisation()]).collections, total_steps=276
    ) as hook:
        hook.watch(model)
        model.fit(data.x.numpy(), data.y.numpy(), batch_size=64, epochs=12, verbose=0)
    return open_run(directory)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
@pytest.mark.parametrize(("strength", "fires"), [(10.0, True), (1e-4, False)])
def test_regularisers_in_keras(strength: float, fires: bool, tmp_path: Path) -> None:
    run = keras_run(tmp_path / "run", strength)
    assert run.info.dropout == {"dropout": 0.1}
    findings = found(run, OverRegularisation())
    # A warning may precede the stop.
    assert {finding.fault for finding in findings} == ({"over_regularisation"} if fires else set())


@pytest.mark.parametrize(("penalty", "weight"), [(0.0, False), (3.0, False), (3.0, True)])
def test_the_share_of_a_penalty(penalty: float, weight: bool, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    labels, predictions = rng.integers(0, 3, 20), rng.normal(size=(20, 3))
    logs = predictions - np.log(np.exp(predictions).sum(1, keepdims=True))
    loss = float(-logs[np.arange(20), labels].mean())
    records = [
        step_record(
            step,
            scalars={"losses/CrossEntropyLoss": loss + penalty},
            tensors={
                "labels/CrossEntropyLoss": labels,
                "predictions/CrossEntropyLoss": predictions,
            },
        )
        for step in range(0, 30, 5)
    ]
    settings = {"reduction": "mean", "weight": weight}
    run = make_run(
        tmp_path / "run",
        records,
        capture=capture_for([OverRegularisation()]).to_json(),
        losses={"CrossEntropyLoss": {"type": "CrossEntropyLoss", "settings": settings}},
    )
    signal = Penalty()
    for part in (signal.identities.batches, signal.identities, signal.batches, signal):
        part.begin(run.info)
        part.on_record(run.info)
    for step in run.follow():
        for part in (signal.identities.batches, signal.identities, signal.batches, signal):
            part.update(step)
    if weight:
        assert signal.greatest() is None
    else:
        name, share = signal.greatest() or ("", -1.0)
        assert name == "losses/CrossEntropyLoss"
        assert share == pytest.approx(penalty / (loss + penalty), abs=1e-6)


class Ratings(nn.Module):
    """Products of embeddings, which count as no weight matrices."""

    def __init__(self) -> None:
        super().__init__()
        self.user, self.item = nn.Embedding(60, 6), nn.Embedding(60, 6)

    def forward(self, pairs: torch.Tensor) -> torch.Tensor:
        """Return ratings [N, 1] of pairs int64 [N, 2]."""
        product: torch.Tensor = self.user(pairs[:, 0]) * self.item(pairs[:, 1])
        return product.sum(1, keepdim=True)


def ratings() -> Data:
    """Return 2,000 ratings of rank 2."""
    generator = torch.Generator().manual_seed(0)
    pairs = torch.randint(60, (2000, 2), generator=generator)
    user, item = torch.randn(2, 60, 2, generator=generator)
    known = (user[pairs[:, 0]] * item[pairs[:, 1]]).sum(1, keepdim=True)
    return Data(pairs, known, pairs[:1], known[:1])


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("rate", "decay", "fires"),
    [
        (0.02, 12.0, True),
        (0.02, 0.01, False),
        # Created with a factor, which a schedule then makes small.
        (1.0, 0.2, False),
    ],
)
def test_a_decay_that_removes_much_at_each_step_is_warned_of(
    rate: float, decay: float, tmp_path: Path, *, fires: bool
) -> None:
    rule, made = OverRegularisation(), list[torch.optim.Optimizer]()

    def optimizer(model: nn.Module) -> torch.optim.Optimizer:
        made.append(torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=decay))
        return made[0]

    def schedule(_: nn.Module, step: int) -> None:
        made[0].param_groups[0]["lr"] = min(rate, 0.02)

    run = captured(
        tmp_path / "run",
        [rule],
        Ratings,
        optimizer,
        data=ratings(),
        loss=nn.MSELoss(),
        before_step=schedule,
    )
    findings = found(run, rule)
    assert bool(findings) is fires
    for finding in findings:
        assert (finding.severity, finding.fault, finding.step) == (
            "warning",
            "over_regularisation",
            10,
        )
        assert finding.seen.startswith("each step removes 24% of the weights")
        assert finding.correction == {"weight_decay": 0.12}


@pytest.mark.thorough
def test_weights_that_the_targets_ask_to_vanish_are_not_regularised(tmp_path: Path) -> None:
    torch.manual_seed(0)
    rule = OverRegularisation()
    model, rows = nn.Linear(4, 1), torch.randn(64, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Hook(tmp_path / "run", collections=capture_for([rule]).collections) as hook:
        hook.watch(model, optimizer=optimizer)
        for _ in range(100):
            optimizer.zero_grad()
            model(rows).square().mean().backward()
            optimizer.step()
    assert model.weight.abs().max() < 0.01
    assert found(open_run(tmp_path / "run"), rule) == []
