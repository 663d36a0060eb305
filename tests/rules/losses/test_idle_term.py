"""Named terms of a loss that train nothing, and terms that are small, annealed or learned."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.rules.trainings import batches, digits
from vinedresser.capture import Hook
from vinedresser.rules.base import capture_for
from vinedresser.rules.judge import judge
from vinedresser.rules.losses.idle_term import IdleTerm
from vinedresser.rules.losses.unbounded_loss import UnboundedLoss
from vinedresser.store.finding import Finding
from vinedresser.store.reading.reader import open_run

Terms = Callable[["Autoencoder", Tensor, int], dict[str, Tensor]]
STEPS = 120


class Autoencoder(nn.Module):
    """A variational autoencoder of digits, with the logarithms of the weights of two losses."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 8))
        self.decoder = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 64))
        self.scales = nn.Parameter(torch.zeros(2))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the error of the reconstruction, and the divergence."""
        mean, log_variance = self.encoder(x).chunk(2, 1)
        code = mean + torch.randn_like(mean) * (log_variance / 2).exp()
        error = functional.mse_loss(self.decoder(code), x)
        divergence = -(1 + log_variance - mean**2 - log_variance.exp()).mean() / 2
        return error, divergence


def findings(path: Path, terms: Terms, rate: float = 1e-2) -> list[Finding]:
    """Return the findings in a training that minimises the sum of its terms."""
    torch.manual_seed(0)
    model, rules = Autoencoder(), [IdleTerm(), UnboundedLoss()]
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    x = digits().x
    rows = batches(len(x), 64)
    with Hook(path / "run", collections=capture_for(rules).collections) as hook:
        hook.watch(model, optimizer=optimizer)
        for step in range(STEPS):
            found = terms(model, x[next(rows)], step)
            hook.terms(**found)
            loss = torch.stack(list(found.values())).sum()
            hook.save("losses/loss", loss)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return judge(open_run(path / "run"), rules)


def clamped(model: Autoencoder, x: Tensor, step: int) -> dict[str, Tensor]:
    error, divergence = model(x)
    return {"error": error, "kl": divergence.clamp(min=50.0)}


def without_weight(model: Autoencoder, x: Tensor, step: int) -> dict[str, Tensor]:
    error, divergence = model(x)
    return {"error": error, "kl": 0.0 * divergence}


def dwarfed(model: Autoencoder, x: Tensor, step: int) -> dict[str, Tensor]:
    error, divergence = model(x)
    return {"error": error, "kl": 1e-9 * divergence}


def annealed(model: Autoencoder, x: Tensor, step: int) -> dict[str, Tensor]:
    error, divergence = model(x)
    return {"error": error, "kl": max(0.0, step / STEPS - 0.3) * divergence}


def decayed(model: Autoencoder, x: Tensor, step: int) -> dict[str, Tensor]:
    error, _ = model(x)
    squares = [one.square().sum() for one in model.parameters()]
    return {"error": error, "decay": 1e-5 * torch.stack(squares).sum()}


def uncertain(model: Autoencoder, x: Tensor, step: int) -> dict[str, Tensor]:
    weighted = torch.stack(model(x)) * (-model.scales).exp()
    return {"error": weighted[0], "kl": weighted[1], "scales": model.scales.sum() / 2}


@pytest.mark.parametrize(
    ("terms", "severity", "seen"),
    [
        (clamped, "warning", "kl of the loss was 50 in all 120 steps"),
        (without_weight, "info", "kl of the loss was 0 in all 120 steps"),
        (dwarfed, "info", "kl of the loss was never more than"),
    ],
)
def test_a_term_that_trains_nothing_is_named(
    tmp_path: Path, terms: Terms, severity: str, seen: str
) -> None:
    (finding,) = findings(tmp_path, terms)
    assert (finding.rule, finding.step, finding.severity) == ("idle_term", STEPS - 1, severity)
    assert seen in finding.seen


def test_the_term_with_the_wrong_sign_is_named(tmp_path: Path) -> None:
    def terms(model: Autoencoder, x: Tensor, step: int) -> dict[str, Tensor]:
        return {"error": model(x)[0], "size": -model.encoder(x).square().mean()}

    (finding,) = findings(tmp_path, terms, rate=0.03)
    assert (finding.rule, finding.tensor) == ("unbounded_loss", "saved/terms/size")
    assert finding.seen.startswith("size fell from")


def by_turns(model: Autoencoder, x: Tensor, step: int) -> dict[str, Tensor]:
    """Two tasks, of which one has no rows in all but one of twenty batches."""
    error, divergence = model(x)
    return {"error": error, "kl": divergence if step % 20 == 7 else torch.zeros(())}


@pytest.mark.parametrize("terms", [annealed, decayed, uncertain, by_turns])
def test_terms_that_are_annealed_small_weighted_or_rare_are_ignored(
    tmp_path: Path, terms: Terms
) -> None:
    assert findings(tmp_path, terms) == []


def test_a_term_that_is_detached_to_be_reported_is_no_fault(tmp_path: Path) -> None:
    def terms(model: Autoencoder, x: Tensor, step: int) -> dict[str, Tensor]:
        error, divergence = model(x)
        return {"error": error + divergence - divergence.detach(), "kl": divergence.detach()}

    assert findings(tmp_path, terms) == []


def test_terms_that_drift_apart_together_fall_for_no_reason(tmp_path: Path) -> None:
    """The scores of a critic for real and generated rows, of which only the difference counts."""
    rules = [UnboundedLoss()]
    with Hook(tmp_path / "run", collections=capture_for([*rules, IdleTerm()]).collections) as hook:
        for step in range(STEPS):
            drift = 100.0 * step
            hook.terms(real=-drift - 1, generated=drift + 0.5)
            hook.step(loss=-0.5)
    assert judge(open_run(tmp_path / "run"), rules) == []


def test_a_term_of_several_elements_is_reported_once_and_not_saved(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Hook(tmp_path / "run", collections=capture_for([IdleTerm()]).collections) as hook:
        for _ in range(STEPS):
            hook.terms(rows=torch.ones(16, 8), some=np.ones(3), none=[], error=torch.ones(1, 1))
            hook.step(loss=1.0)
    told = capsys.readouterr().err
    for name, shape in ("rows", "[16, 8]"), ("some", "[3]"), ("none", "[0]"):
        assert told.count(f"saved/terms/{name} is not saved: its shape is {shape}") == 1
    run = open_run(tmp_path / "run")
    assert [*run.scalars("^saved/")] == ["saved/terms/error"]
    assert run.tensor_names("^saved/") == []


def test_terms_of_a_loop_that_reports_numbers_are_judged(tmp_path: Path) -> None:
    """Two adversaries in a loop of their own, whose losses are reported as numbers."""
    random = torch.Generator().manual_seed(0)
    with Hook(tmp_path / "run", collections=capture_for([IdleTerm()]).collections) as hook:
        for _ in range(STEPS):
            real, fake = torch.rand(2, generator=random)
            hook.terms(discriminator=real.item(), generator=fake)
            hook.step(loss=(real + fake).item())
    run = open_run(tmp_path / "run")
    assert run.scalars("^saved/terms/")["saved/terms/generator"].values.size == STEPS
    assert judge(run, [IdleTerm()]) == []
