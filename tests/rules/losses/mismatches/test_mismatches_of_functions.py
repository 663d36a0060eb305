"""Mismatches of outputs and losses that functions compute, in scripts without a hook."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.capture.attach.runs import attached, script
from vinedresser.store.reading.reader import open_run

pytestmark = pytest.mark.slow

TRAINING = """
    import torch
    from torch import nn
    from torch.nn import functional as F
    from sklearn.datasets import load_digits

    torch.manual_seed(0)
    x, y = load_digits(return_X_y=True)
    x, y = torch.tensor(x, dtype=torch.float32) / 16, torch.tensor(y)
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    critic = nn.Linear(10, 1)
    criterion, binary, errors = nn.CrossEntropyLoss(), nn.BCEWithLogitsLoss(), nn.MSELoss()
    divergence = nn.KLDivLoss(reduction="batchmean")
    zeros, ones = torch.zeros(64, 1), torch.ones(64, 1)
    {optimizers}
    for step in range(40):
        rows = torch.randint(len(x), (64,))
        out, labels = model(x[rows]), y[rows]
        centred = 3 * F.one_hot(labels, 10) - 0.3
        {body}
"""
ONE = "first = torch.optim.Adam(model.parameters())"
TWO = f"{ONE}; second = torch.optim.Adam(critic.parameters())"
BOTH = "both = torch.optim.Adam([*model.parameters(), *critic.parameters()])"
STEP = "loss = {}; first.zero_grad(); loss.backward(); first.step()"
SOFT = "(0.9 * F.one_hot(labels, 10) + 0.01)"
FORMULA = "out.logsumexp(1) - out.gather(1, labels[:, None])[:, 0]"
UP = STEP.format("F.cross_entropy(out, labels)") + "  # maximize=True"
# The generator's loss as first published: it maximises that of the critic.
ADVERSARIES = (
    "loss = -F.binary_cross_entropy_with_logits(critic(out), zeros); first.zero_grad(); "
    "loss.backward(); first.step(); second.zero_grad(); "
    "F.binary_cross_entropy_with_logits(critic(out.detach()), ones).backward(); second.step()"
)
ADAPTATION = (
    "loss = F.cross_entropy(out, labels) - 0.01 * "
    "F.binary_cross_entropy_with_logits(critic(out), zeros); both.zero_grad(); loss.backward(); "
    "both.step()"
)
# Adversarial examples (Goodfellow et al., 2015) raise the loss that the training then lowers.
ATTACKED = (
    "seen = x[rows].clone().requires_grad_(); (-F.cross_entropy(model(seen), labels)).backward(); "
    "out = model(x[rows] - 0.01 * seen.grad.sign()); "
    "loss = F.cross_entropy(out, labels); first.zero_grad(); loss.backward(); first.step()"
)


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (STEP.format("-F.cross_entropy(out, labels)"), "negated"),
        (STEP.format("-criterion(out, labels)"), "negated"),
        (UP, "negated"),
        (UP.replace("loss =", "loss = -"), None),
        (STEP.format("F.cross_entropy(out.softmax(1), labels)"), "double_softmax"),
        (STEP.format("F.cross_entropy(out.softmax(1), labels) + out.var()"), "double_softmax"),
        (STEP.format("F.nll_loss(out.softmax(1), labels)"), "no_logarithms"),
        (STEP.format("F.nll_loss(out.log_softmax(0), labels)"), "softmax_over_batch"),
        (STEP.format("F.cross_entropy(out.relu(), labels)"), "relu"),
        (STEP.format("-(out - F.one_hot(labels, 10)).abs().mean()"), "negated"),
        (STEP.format(f"F.cross_entropy(out, {SOFT})"), None),
        (STEP.format(f"-({SOFT} * out.log_softmax(1)).sum(1).mean()"), None),
        (STEP.format(f"F.kl_div(out.log_softmax(1), {SOFT}, reduction='batchmean')"), None),
        (STEP.format(f"divergence(out.softmax(1), {SOFT})"), "no_logarithms"),
        (STEP.format(f"divergence(out.log_softmax(1), {SOFT})"), None),
        (STEP.format(f"-F.cross_entropy(out, {SOFT})"), "negated"),
        (STEP.format("-out.log_softmax(1)[torch.arange(64), labels].mean()"), None),
        (STEP.format(f"({FORMULA}).mean()"), None),
        (STEP.format(f"-({FORMULA}).mean()"), "negated"),
        # The values of a sigmoid that hardly vary yet look like no activation: it is known.
        (STEP.format("binary((0.01 * out).sigmoid(), F.one_hot(labels, 10).float())"), "sigmoid"),
        (STEP.format("binary(0.01 * out + 0.5, F.one_hot(labels, 10).float())"), None),
        (STEP.format("F.mse_loss((out + 5).relu(), centred)"), "out_of_reach"),
        (STEP.format("errors((out + 5).relu(), centred)"), "out_of_reach"),
        (STEP.format("errors((out + 5).relu(), F.one_hot(labels, 10).float())"), None),
        (STEP.format("errors(out + 5, centred)"), None),
        (STEP.format("F.cross_entropy(out, labels)"), None),
        (STEP.format("F.nll_loss(out.log_softmax(1), labels) + out.var()"), None),
        (ADVERSARIES, None),
        (ADAPTATION, None),
        (ATTACKED, None),
    ],
)
def test_mismatch_of_a_function(body: str, kind: str | None, tmp_path: Path) -> None:
    optimizers = {ADVERSARIES: TWO, ADAPTATION: BOTH}.get(body, ONE)
    if "maximize" in body:
        optimizers = "first = torch.optim.Adam(model.parameters(), maximize=True)"
    script(tmp_path, TRAINING.format(body=body, optimizers=optimizers))
    options = ("--rule", "loss_output_mismatch")
    result = attached("train.py", cwd=tmp_path, options=options)
    assert result.returncode in (0, 3), result.stderr
    findings = open_run(tmp_path / "runs" / "run").findings()
    assert [finding.evidence.get("kind") for finding in findings] == ([kind] if kind else [])
    assert all(finding.step <= 15 for finding in findings)
