"""Named terms of a loss that train nothing, and terms that are small, annealed or learned."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

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


def detached(model: Autoencoder, x: Tensor, step: int) -> dict[str, Tensor]:
    error, divergence = model(x)
    return {"error": error, "kl": 0.01 * divergence.detach()}


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
    ("terms", "step", "severity", "seen"),
    [
        (detached, 40, "warning", "kl of the loss has no gradient, unlike others"),
        (clamped, STEPS - 1, "warning", "kl of the loss was 50 in all 120 steps"),
        (without_weight, STEPS - 1, "info", "kl of the loss was 0 in all 120 steps"),
        (dwarfed, STEPS - 1, "info", "kl of the loss was never more than"),
    ],
)
def test_a_term_that_trains_nothing_is_named(
    tmp_path: Path, terms: Terms, step: int, severity: str, seen: str
) -> None:
    (finding,) = findings(tmp_path, terms)
    assert (finding.rule, finding.step, finding.severity) == ("idle_term", step, severity)
    assert seen in finding.seen


def test_the_term_with_the_wrong_sign_is_named(tmp_path: Path) -> None:
    def terms(model: Autoencoder, x: Tensor, step: int) -> dict[str, Tensor]:
        return {"error": model(x)[0], "size": -model.encoder(x).square().mean()}

    (finding,) = findings(tmp_path, terms, rate=0.03)
    assert (finding.rule, finding.tensor) == ("unbounded_loss", "saved/terms/size")
    assert finding.seen.startswith("size fell from")


@pytest.mark.parametrize("terms", [annealed, decayed, uncertain])
def test_terms_that_are_annealed_small_or_weighted_are_ignored(
    tmp_path: Path, terms: Terms
) -> None:
    assert findings(tmp_path, terms) == []


def test_terms_that_are_all_detached_to_be_reported_say_nothing_about_gradients(
    tmp_path: Path,
) -> None:
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
