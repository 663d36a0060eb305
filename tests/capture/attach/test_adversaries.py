"""Adversaries in an unchanged script: each has its own loss, whatever it is made of."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.capture.attach.runs import attached, script
from vinedresser.store.reading.reader import open_run

# The discriminator's optimizer is made last and steps first.
TRAINING = """
    import torch
    from torch import nn
    from torch.nn import functional as F
    torch.manual_seed(0)
    MODELS
    first = torch.optim.Adam(generator, lr=1e-3)
    second = torch.optim.Adam(discriminator, lr=1e-3)
    for step in range(6):
        first.zero_grad(), second.zero_grad()
        real, fake = judge(torch.randn(32, 4)), judge(generate(torch.randn(32, 3)))
        loss = F.binary_cross_entropy_with_logits(real, torch.ones(32, 1))
        loss = loss + F.binary_cross_entropy_with_logits(fake, torch.zeros(32, 1))
        loss.backward()
        second.step()
        first.zero_grad(), second.zero_grad()
        fooled = judge(generate(torch.randn(32, 3)))
        other = 100 + F.binary_cross_entropy_with_logits(fooled, torch.ones(32, 1))
        other.backward()
        first.step()
        print(loss.item(), other.item())
"""
BARE = """
    w1, b1 = torch.randn(3, 4, requires_grad=True), torch.zeros(4, requires_grad=True)
    w2, b2 = torch.randn(4, 1, requires_grad=True), torch.zeros(1, requires_grad=True)
    generator, discriminator = [w1, b1], [w2, b2]
    generate = lambda z: z @ w1 + b1
    judge = lambda x: x @ w2 + b2
"""
PAIRS = """
    g, h = nn.Linear(3, 5), nn.Linear(5, 4)
    d, e = nn.Linear(4, 5), nn.Linear(5, 1)
    generator = [*g.parameters(), *h.parameters()]
    discriminator = [*d.parameters(), *e.parameters()]
    generate = lambda z: h(g(z).relu())
    judge = lambda x: e(d(x).relu())
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("models", "names", "weights"),
    [
        (BARE, ("second", "first"), ["biases/first.b1", "biases/second.b2"]),
        pytest.param(
            *(PAIRS, ("d+e", "g+h"), ["biases/d.bias", "biases/e.bias", "biases/g.bias"]),
            marks=pytest.mark.thorough,
        ),
    ],
    ids=["tensors", "pairs of models"],
)
def test_each_optimizer_has_its_loss(
    tmp_path: Path, models: str, names: tuple[str, str], weights: list[str]
) -> None:
    script(tmp_path, TRAINING.replace("    MODELS\n", models))
    options = ("--collection", "biases:every=1")
    result = attached("train.py", cwd=tmp_path, options=options)
    assert result.returncode == 0, result.stderr
    printed = [[float(word) for word in line.split()] for line in result.stdout.splitlines()]
    run = open_run(tmp_path / "runs" / "run")
    for number, name in enumerate(names):
        recorded = run.scalars("losses")[f"losses/{name}"].values.tolist()
        # Its step ends with that of the discriminator.
        expected = [line[number] for line in printed]
        assert recorded == pytest.approx(expected[: len(recorded)])
        assert len(recorded) >= len(expected) - 1
    assert sorted(run.scalars("losses")) == sorted(f"losses/{name}" for name in names)
    assert set(weights) <= set(run.tensor_names("biases"))
