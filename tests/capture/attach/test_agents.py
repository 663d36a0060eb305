"""Agents whose loss joins a policy gradient and the error of a critic, in an unchanged script."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.capture.attach.runs import attached, script
from vinedresser.store.reading.reader import open_run

# Five steps per update, and rewards of 1: the first advantages are all positive.
ACTOR_CRITIC = """
    import torch
    import torch.nn.functional as F
    from torch import nn
    torch.manual_seed(0)
    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.critic, self.actor = nn.Linear(4, 8), nn.Linear(8, 1), nn.Linear(8, 2)
        def forward(self, x):
            hidden = self.body(x).tanh()
            return self.critic(hidden).flatten(), self.actor(hidden)
    model = Both()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(6):
        x, returns = torch.randn(5, 4), 5 - torch.arange(5.0) + 0.1 * torch.rand(5)
        values, logits = model(x)
        policy = torch.distributions.Categorical(logits=logits)
        chosen = policy.log_prob(policy.sample())
        advantages = (returns - values).detach()
        loss = POLICY0.5 * F.mse_loss(returns, values)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("policy", "function"),
    [("-(advantages * chosen).mean() + ", "policy_gradient"), ("", "mse_loss")],
)
def test_a_sum_with_a_policy_gradient_is_one_although_the_critic_was_seen_first(
    tmp_path: Path, policy: str, function: str
) -> None:
    script(tmp_path, ACTOR_CRITIC.replace("POLICY", policy))
    result = attached("train.py", cwd=tmp_path, options=("--collection", "labels:every=1"))
    assert result.returncode == 0, result.stderr
    (setup,) = open_run(tmp_path / "runs" / "run").info.losses.values()
    assert setup["function"] == function
