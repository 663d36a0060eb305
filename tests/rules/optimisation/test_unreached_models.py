"""Optimizers that take steps while no gradient reaches their parameters, on real trainings."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.rules.inside_trainings import captured, found, stack
from tests.rules.trainings import adam, digits
from vinedresser.capture.hook.hook import Hook
from vinedresser.rules.base import capture_for
from vinedresser.rules.causes.root_cause import root_causes
from vinedresser.rules.judge import judge
from vinedresser.rules.optimisation.gradients_not_cleared import GradientsNotCleared
from vinedresser.rules.optimisation.untrained_parameters import UntrainedParameters
from vinedresser.store.finding import Finding
from vinedresser.store.reading.reader import open_run


def net() -> nn.Module:
    return stack((64, 32, 10), nn.ReLU)


@pytest.mark.thorough
def test_an_optimizer_of_another_model_is_the_cause_of_uncleared_gradients(tmp_path: Path) -> None:
    def others(model: nn.Module) -> torch.optim.Optimizer:
        return adam(1e-3)(net())

    rules = [GradientsNotCleared(), UntrainedParameters()]
    run = captured(tmp_path / "run", rules, net, others, steps=400, total=400)
    findings = found(run, *rules)
    (root,) = root_causes([finding for finding in findings if finding.severity != "info"])
    assert root.finding.rule == "untrained_parameters"
    assert (root.finding.severity, root.finding.evidence["share"]) == ("stop", 1.0)
    # The other model is a copy of this one: it is certain from the start.
    assert (findings[0].rule, findings[0].severity) == ("untrained_parameters", "warning")
    assert findings[0].step == 5


def test_training_an_input_through_a_model_is_no_alarm(tmp_path: Path) -> None:
    rule = UntrainedParameters()
    torch.manual_seed(0)
    model = net()
    image = torch.rand(1, 64, requires_grad=True)
    optimizer = torch.optim.Adam([image], lr=0.05)
    with Hook(tmp_path / "run", collections=capture_for([rule]).collections) as hook:
        hook.watch(model, optimizer=optimizer)
        for _ in range(200):
            # The model's gradients are computed, too.
            loss = functional.cross_entropy(model(image), torch.tensor([3]))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    assert {one.severity for one in found(open_run(tmp_path / "run"), rule)} <= {"info"}


def adversaries(folder: Path, *, detached: bool, pretrained: int = 0) -> list[Finding]:
    """Train a generator of rows of digits and its discriminator; judge the run.

    Args:
        folder: directory of the run.
        detached: whether the generator's loss is cut off from it.
        pretrained: steps in which only the discriminator is trained.
    """
    rule = UntrainedParameters()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    rows = digits().x
    generator, critic = stack((4, 32, 64), nn.ReLU), stack((64, 32, 1), nn.ReLU)
    of_generator, of_critic = adam(1e-3)(generator), adam(1e-3)(critic)
    loss = nn.BCEWithLogitsLoss()
    with Hook(folder, collections=capture_for([rule]).collections) as hook:
        hook.watch(critic, loss=loss, optimizer=of_critic, name="critic")
        hook.watch(generator, optimizer=of_generator, name="generator")
        for step in range(200):
            real = rows[torch.randint(len(rows), (32,))]
            fake = generator(torch.randn(32, 4))
            of_critic.zero_grad()
            known = loss(critic(real), torch.ones(32, 1))
            (known + loss(critic(fake.detach()), torch.zeros(32, 1))).backward()
            of_critic.step()
            if step < pretrained:
                continue
            of_generator.zero_grad()
            loss(critic(fake.detach() if detached else fake), torch.ones(32, 1)).backward()
            of_generator.step()
    return [one for one in judge(open_run(folder), [rule]) if one.statistic]


@pytest.mark.thorough
def test_a_generator_that_no_gradient_reaches_is_found(tmp_path: Path) -> None:
    (finding,) = adversaries(tmp_path / "run", detached=True)
    assert (finding.severity, finding.evidence["trouble"]) == ("warning", "elsewhere")
    assert finding.step <= 80
    assert all(name.startswith("weights/generator.") for name in finding.evidence["names"])


@pytest.mark.thorough
@pytest.mark.parametrize("pretrained", [0, 110])
def test_a_generator_that_is_trained_later_is_no_alarm(pretrained: int, tmp_path: Path) -> None:
    found = adversaries(tmp_path / "run", detached=False, pretrained=pretrained)
    assert {one.severity for one in found} <= {"info"}
