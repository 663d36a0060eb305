"""The rule about untrained parameters, on real trainings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.rules.inside_trainings import captured, found
from tests.rules.trainings import digits
from vinedresser.capture.hook.hook import Hook
from vinedresser.rules.base import capture_for
from vinedresser.rules.judge import judge
from vinedresser.rules.optimisation.untrained_parameters import UntrainedParameters
from vinedresser.rules.presets import PRESETS
from vinedresser.rules.registry import rules_from_table
from vinedresser.store.finding import Finding
from vinedresser.store.reading.reader import open_run

Optimizer = Callable[[nn.Module], torch.optim.Optimizer]


class Net(nn.Module):
    """Three layers on digits; the graph may be cut after one, and one may be unused."""

    def __init__(
        self, *, cut: bool = False, spare: bool = False, tied: bool = False, old: bool = False
    ) -> None:
        super().__init__()
        self.old = nn.Linear(8, 8) if old else None
        self.first = nn.Linear(64, 64)
        self.second = nn.Linear(64, 64)
        if tied:
            self.second.weight = self.first.weight
        self.head = nn.Linear(64, 10)
        self.spare = nn.Linear(64, 10) if spare else None
        self.cut = cut

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.second(self.first(x).relu()).relu()
        out: Tensor = self.head(hidden.detach() if self.cut else hidden)
        return out


def some(*names: str) -> Optimizer:
    """Return a function that creates an optimizer of some layers."""
    return lambda model: torch.optim.Adam(
        [parameter for name in names for parameter in model.get_submodule(name).parameters()],
        lr=3e-3,
    )


def everything(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), lr=3e-3)


def pretrained() -> Net:
    """Return a network whose hidden layers have other values than those of a new one."""
    model = Net()
    for name in ("first.weight", "second.weight"):
        nn.init.orthogonal_(model.get_parameter(name))
    return model


def frozen() -> nn.Module:
    model = pretrained()
    model.first.requires_grad_(False)
    model.second.requires_grad_(False)
    return model


def without_rate(model: nn.Module) -> torch.optim.Optimizer:
    assert isinstance(model, Net)
    groups: list[dict[str, Any]] = [
        {"params": list(model.first.parameters()), "lr": 0.0},
        {"params": [*model.second.parameters(), *model.head.parameters()]},
    ]
    return torch.optim.Adam(groups)


def dark() -> nn.Module:
    """Return a network whose first layer outputs zeros and cannot be trained."""
    model = Net()
    nn.init.constant_(model.first.weight, 1e-20)
    nn.init.zeros_(model.first.bias)
    return model


class Coded(nn.Module):
    """Two encoders of digits and a head; the first is multiplied by a factor."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.masked = nn.Sequential(nn.Linear(64, 64), nn.ReLU())
        self.plain = nn.Sequential(nn.Linear(64, 32), nn.ReLU())
        self.head = nn.Linear(96, 10)
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(torch.cat([self.masked(x) * self.factor, self.plain(x)], 1))
        return out


def decayed(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.1)


def freeze(model: nn.Module, step: int) -> None:
    if step == 40:
        model.get_submodule("first").requires_grad_(False)
        for parameter in model.get_submodule("first").parameters():
            parameter.grad = None


def take_turns(model: nn.Module, step: int) -> None:
    """Skip the first layer in every second step, including the checked ones."""
    if step % 2 == 0:
        for parameter in model.get_submodule("first").parameters():
            parameter.grad = None


def judged(
    directory: Path,
    model: Callable[[], nn.Module],
    optimizer: Optimizer,
    steps: int = 110,
    before_step: Callable[[nn.Module, int], None] = lambda model, step: None,
) -> list[Finding]:
    rule = UntrainedParameters()
    run = captured(
        directory, [rule], model, optimizer, steps=steps, total=steps, before_step=before_step
    )
    return found(run, rule)


def freeze_all_but_second(model: nn.Module, step: int) -> None:
    """Freeze all but a small layer in the middle."""
    if step == 40:
        for layer in (model.get_submodule("first"), model.get_submodule("head")):
            layer.requires_grad_(False)
            layer.zero_grad()


def narrow() -> Net:
    model = Net()
    model.first, model.second, model.head = nn.Linear(64, 8), nn.Linear(8, 4), nn.Linear(4, 10)
    return model


def replace_first(model: nn.Module, step: int) -> None:
    if step == 40:
        first = model.get_submodule("first")
        assert isinstance(first.weight, nn.Parameter)
        first.weight = nn.Parameter(first.weight.detach().clone())


@pytest.mark.parametrize(
    ("make", "change", "trouble"),
    [(narrow, freeze_all_but_second, "cut_off"), (Net, replace_first, "left_out")],
)
def test_weights_that_nobody_means_to_stop_in_mid_run_are_a_warning(
    make: Callable[[], nn.Module],
    change: Callable[[nn.Module, int], None],
    trouble: str,
    tmp_path: Path,
) -> None:
    finding, *_ = judged(tmp_path / "run", make, everything, before_step=change)
    assert (finding.severity, finding.evidence["trouble"]) == ("warning", trouble)
    assert 40 < finding.step <= 80


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("model", "optimizer", "cause", "names"),
    [
        (Net, some("second", "head"), "no optimizer has them, though", ["first"]),
        (lambda: Net(cut=True), everything, "no gradient reaches them", ["first", "second"]),
    ],
)
def test_untrained_parameters_are_a_warning(
    model: Callable[[], nn.Module],
    optimizer: Optimizer,
    cause: str,
    names: list[str],
    tmp_path: Path,
) -> None:
    (finding,) = judged(tmp_path / "run", model, optimizer)
    assert (finding.severity, finding.fault) == ("warning", "untrained_parameters")
    # What the only optimizer has is known from the start.
    assert finding.step == (5 if finding.evidence["trouble"] == "left_out" else 10)
    assert finding.since == 5
    assert finding.cause.startswith(cause)
    assert finding.evidence["names"] == [f"weights/{name}.weight" for name in names]
    sizes = {"first": 64 * 64, "second": 64 * 64, "head": 640}
    share = sum(sizes[name] for name in names) / sum(sizes.values())
    assert finding.value == pytest.approx(share, rel=1e-6)


@pytest.mark.thorough
@pytest.mark.parametrize("optimizer", [everything, decayed])
def test_gradients_of_zero_are_a_warning_once_the_others_learn(
    optimizer: Optimizer, tmp_path: Path
) -> None:
    (finding,) = judged(tmp_path / "run", lambda: Coded(0.0), optimizer, 200)
    assert (finding.severity, finding.evidence["trouble"]) == ("warning", "zero")
    assert (finding.evidence["names"], finding.since) == (["weights/masked.0.weight"], 5)
    assert "do not get a gradient" in finding.seen
    assert judged(tmp_path / "healthy", lambda: Coded(1.0), optimizer, 200) == []


def test_gradients_of_zero_at_the_looks_only_are_no_alarm(tmp_path: Path) -> None:
    def in_turns(model: nn.Module, step: int) -> None:
        # As if the loss of every second step did not depend on the first layer.
        if step % 2 == 0:
            for parameter in model.get_submodule("first").parameters():
                assert parameter.grad is not None
                parameter.grad.zero_()

    def plain(model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.parameters(), lr=0.1)

    assert judged(tmp_path / "run", Net, plain, 200, in_turns) == []


@pytest.mark.thorough
@pytest.mark.parametrize("lost", ["constant", "bias"])
def test_gradients_of_zero_of_a_network_that_does_not_learn_are_another_fault(
    lost: str, tmp_path: Path
) -> None:
    def dead() -> nn.Module:
        model = Net()
        if lost == "bias":
            nn.init.constant_(model.second.bias, -100.0)
        for one in model.parameters() if lost == "constant" else ():
            nn.init.zeros_(one)
        return model

    assert judged(tmp_path / "run", dead, everything, 200) == []


@pytest.mark.parametrize(("cut", "count"), [(True, 1), (False, 0)])
def test_a_cut_graph_is_found_at_the_end_of_a_short_run(
    cut: bool, count: int, tmp_path: Path
) -> None:
    findings = judged(tmp_path / "run", lambda: Net(cut=cut), everything, 30)
    assert [finding.evidence["trouble"] for finding in findings] == ["cut_off"] * count


def test_an_optimizer_of_frozen_parameters_only_is_a_warning(tmp_path: Path) -> None:
    finding, *at_end = judged(tmp_path / "run", frozen, some("first", "second"))
    assert {one.severity for one in at_end} <= {"stop"}
    assert (finding.severity, finding.evidence["trouble"]) == ("warning", "left_out")
    assert finding.evidence["names"] == ["weights/head.weight"]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("model", "optimizer", "before_step", "trouble"),
    [
        # A new head on unchanged layers; freezing them would be cheaper.
        (pretrained, some("head"), None, "left_out"),
        # Unused layers are not trained.
        (lambda: Net(spare=True), everything, None, "cut_off"),
        (lambda: Net(old=True), everything, None, "cut_off"),
        (Net, without_rate, None, "unmoved"),
        (Net, everything, freeze, "cut_off"),
    ],
)
def test_possibly_intended_cases_are_info(
    model: Callable[[], nn.Module],
    optimizer: Optimizer,
    before_step: Callable[[nn.Module, int], None] | None,
    trouble: str,
    tmp_path: Path,
) -> None:
    before_step = before_step or (lambda model, step: None)
    (finding,) = judged(tmp_path / "run", model, optimizer, 170, before_step)
    assert (finding.severity, finding.evidence["trouble"]) == ("info", trouble)
    assert ("no longer" in finding.seen) is (before_step is freeze)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("model", "optimizer", "before_step"),
    [
        (Net, everything, None),
        (frozen, everything, None),
        (frozen, some("head"), None),
        (lambda: Net(tied=True), everything, None),
        (Net, everything, take_turns),
    ],
)
def test_trained_or_frozen_parameters_are_ignored(
    model: Callable[[], nn.Module],
    optimizer: Optimizer,
    before_step: Callable[[nn.Module, int], None] | None,
    tmp_path: Path,
) -> None:
    before_step = before_step or (lambda model, step: None)
    assert judged(tmp_path / "run", model, optimizer, before_step=before_step) == []


def test_updates_that_rounding_removes_in_some_weights_are_a_matter_of_the_rate(
    tmp_path: Path,
) -> None:
    def normalised() -> nn.Module:
        return nn.Sequential(nn.Linear(64, 64), nn.LayerNorm(64), nn.ReLU(), nn.Linear(64, 10))

    def tiny(model: nn.Module) -> torch.optim.Optimizer:
        # The next smaller float32 than a weight of 1 is less by 6e-8, than most others by 4e-9.
        return torch.optim.Adam(model.parameters(), lr=2e-8)

    (hint,) = judged(tmp_path / "run", normalised, tiny)
    assert hint.severity == "info"
    assert "too small for the precision" in hint.cause


@pytest.mark.parametrize("gradual", [False, True])
def test_layers_that_are_trained_later_are_no_alarm(gradual: bool, tmp_path: Path) -> None:
    torch.manual_seed(0)
    rule, data, loss = UntrainedParameters(), digits(), nn.CrossEntropyLoss()
    model = pretrained() if gradual else Net()
    head = some("head")(model) if gradual else some("second", "head")(model)
    others = None if gradual else some("first")(model)
    collections = capture_for([rule]).collections
    with Hook(tmp_path / "run", collections=collections, total_steps=110) as hook:
        hook.watch(model, loss=loss, optimizer=[head, others] if others else head)
        for step in range(110):
            if step == 30 and gradual:
                layers = [*model.first.parameters(), *model.second.parameters()]
                head.add_param_group({"params": layers})
            model.zero_grad()
            loss(model(data.x[:64]), data.y[:64]).backward()
            head.step()
            if step >= 30 and others:
                others.step()
    # A head that is trained alone at first is a hint.
    assert [one.severity for one in found(open_run(tmp_path / "run"), rule)] == ["info"] * gradual


@pytest.mark.thorough
def test_harmful_untrained_parameters_stop_the_run(tmp_path: Path) -> None:
    first, then = judged(tmp_path / "run", dark, some("head"), steps=300)
    assert (first.severity, then.severity) == ("info", "stop")
    assert then.value > 0.9
    assert "where guessing gives" in then.seen
    name = UntrainedParameters.name
    advisory = rules_from_table({name: PRESETS["advisory"][name]})
    found = judge(open_run(tmp_path / "run"), advisory)
    assert [one.severity for one in found] == ["info", "warning"]


def test_teachers_and_averages_are_ignored(tmp_path: Path) -> None:
    torch.manual_seed(0)
    rule, data, loss = UntrainedParameters(), digits(), nn.CrossEntropyLoss()
    model, teacher, average = Net(), Net(), Net()
    optimizer = everything(model)
    with Hook(tmp_path / "run", collections=capture_for([rule]).collections) as hook:
        hook.watch(model, loss=loss, optimizer=optimizer, name="student")
        hook.watch(teacher, name="teacher")
        hook.watch(average, name="average")
        for step in range(110):
            x, y = data.x[step * 8 : step * 8 + 64], data.y[step * 8 : step * 8 + 64]
            optimizer.zero_grad()
            with torch.no_grad():
                teacher(x), average(x)
            loss(model(x), y).backward()
            optimizer.step()
            with torch.no_grad():
                for ours, theirs in zip(average.parameters(), model.parameters(), strict=True):
                    ours.lerp_(theirs, 0.01)
    assert found(open_run(tmp_path / "run"), rule) == []


@pytest.mark.parametrize("steps", [False, True])
def test_missing_steps_are_found_in_evaluations(steps: bool, tmp_path: Path) -> None:
    torch.manual_seed(0)
    rule, data, model, loss = UntrainedParameters(), digits(), Net(), nn.CrossEntropyLoss()
    optimizer = everything(model)
    with Hook(tmp_path / "run", collections=capture_for([rule]).collections) as hook:
        hook.watch(model, loss=loss, optimizer=optimizer)
        for place in range(12):
            if place % 3 == 0:
                with hook.mode("eval"), torch.no_grad():
                    loss(model(data.x_eval), data.y_eval)
            optimizer.zero_grad()
            loss(model(data.x[:64]), data.y[:64]).backward()
            if steps:
                optimizer.step()
    findings = found(open_run(tmp_path / "run"), rule)
    assert [finding.severity for finding in findings] == ([] if steps else ["warning"])
    if not steps:
        assert "no optimizer has taken a step" in findings[0].seen
        assert findings[0].remedy.startswith("call optimizer.step()")


@pytest.mark.parametrize("late", [False, True])
def test_an_optimizer_of_another_model(late: bool, tmp_path: Path) -> None:
    torch.manual_seed(0)
    data, trained, other = digits(), Net(), Net()
    optimizer, rule = everything(other), UntrainedParameters()
    with Hook(tmp_path / "run", collections=capture_for([rule]).collections) as hook:
        hook.watch(other, optimizer=optimizer)
        for step in range(160):
            # The model of the optimizer is trained later, as after a phase of exploration.
            model = other if late and step >= 15 else trained
            loss = nn.functional.cross_entropy(model(data.x[:64]), data.y[:64])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    findings = [one for one in judge(open_run(tmp_path / "run"), [rule]) if one.statistic]
    if late:
        assert findings == []
    else:
        assert [finding.evidence["trouble"] for finding in findings] == ["elsewhere"] * 2
        assert [finding.severity for finding in findings] == ["warning", "stop"]
        assert (findings[0].step, findings[0].value) == (20, 1.0)
        assert "another model" in findings[0].cause
        # Enough steps show that it only guesses.
        assert "guessing" in findings[1].seen


def test_an_optimizer_that_takes_its_first_step_later_has_its_weights(tmp_path: Path) -> None:
    torch.manual_seed(0)
    rule, net, data = UntrainedParameters(), Coded(1.0), digits()
    rest = [*net.masked.parameters(), *net.head.parameters()]
    with Hook(tmp_path / "run", collections=capture_for([rule]).collections) as hook:
        hook.watch(net)
        first, later = torch.optim.Adam(rest), torch.optim.Adam(net.plain.parameters())
        for step in range(60):
            optimizer = later if step > 45 else first
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(net(data.x[:64]), data.y[:64])
            loss.backward()
            optimizer.step()
            hook.metric("loss", loss.item())
    assert found(open_run(tmp_path / "run"), rule) == []
