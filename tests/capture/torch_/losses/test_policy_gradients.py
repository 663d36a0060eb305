"""Policy gradients are told from other losses by their graph."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from torch.distributions import (
    Bernoulli,
    Beta,
    Categorical,
    Distribution,
    Independent,
    MultivariateNormal,
    Normal,
    TransformedDistribution,
)
from torch.distributions.transforms import TanhTransform

from vinedresser.capture.torch_.losses.policy_gradients import PolicyGradients

ADVANTAGES = torch.tensor([0.5, -1.0, 2.0, -0.1])
ACTIONS = torch.tensor([0, 2, 1, 1])
OLD = torch.tensor([-1.0, -1.2, -0.9, -1.1])
QUANTILES = torch.tensor([0.1, 0.5, 0.9])
TARGET = torch.tensor([[0.3], [-0.2], [1.0], [0.0]])
RETURNS_OF_ASSETS = 0.01 * torch.randn(4, 3, generator=torch.Generator().manual_seed(1))


def logits() -> Tensor:
    return 1.0 * torch.randn(4, 3, generator=torch.Generator().manual_seed(0)).requires_grad_()


def reinforce(out: Tensor) -> Tensor:
    """One number per step of the episode, as many scripts write it."""
    chosen = Categorical(logits=out).log_prob(ACTIONS)
    return torch.stack(
        [-one * advantage for one, advantage in zip(chosen, ADVANTAGES, strict=True)]
    ).sum()


def ppo(out: Tensor) -> Tensor:
    ratio = (Categorical(logits=out).log_prob(ACTIONS) - OLD).exp()
    clipped = ratio.clamp(0.8, 1.2) * ADVANTAGES
    value = (out.mean(1) - ADVANTAGES).pow(2).mean()
    total: Tensor = -torch.min(ratio * ADVANTAGES, clipped).mean() + 0.5 * value
    return total


def ppo_of_positive_advantages(out: Tensor) -> Tensor:
    """The critic knows nothing yet, so that all rewards are better than expected."""
    ratio = (Categorical(logits=out).log_prob(ACTIONS) - OLD).exp()
    advantages = ADVANTAGES.abs()
    clipped = torch.max(-advantages * ratio, -advantages * ratio.clamp(0.8, 1.2))
    total: Tensor = (clipped + F.smooth_l1_loss(out.mean(1), advantages)).mean()
    return total


def ppo_in_logarithms(out: Tensor) -> Tensor:
    """The clipped objective as TorchRL writes it, before the critic knows anything."""
    logarithm = Categorical(logits=out).log_prob(ACTIONS) - OLD
    clipped = logarithm.clamp(-0.22, 0.18)
    gains = torch.stack([one.exp() * ADVANTAGES.abs() for one in (logarithm, clipped)], -1)
    return -gains.min(dim=-1).values.mean()


def actor_critic(out: Tensor) -> Tensor:
    chosen = Categorical(logits=out)
    policy = -(chosen.log_prob(ACTIONS) * ADVANTAGES).mean()
    value = F.mse_loss(out.mean(1), ADVANTAGES)
    total: Tensor = policy + 0.5 * value - 0.01 * chosen.entropy().mean()
    return total


def continuous(out: Tensor) -> Tensor:
    total: Tensor = -(Normal(out.mean(1), 1.0).log_prob(OLD) * ADVANTAGES).mean()
    return total


def of_cross_entropy(out: Tensor) -> Tensor:
    return (F.cross_entropy(out, ACTIONS, reduction="none") * ADVANTAGES).mean()


def of_one_hot_actions(out: Tensor) -> Tensor:
    chosen = (out.log_softmax(1) * F.one_hot(ACTIONS, 3)).sum(1)
    return -(chosen * ADVANTAGES).mean()


def of_a_ratio_of_probabilities(out: Tensor) -> Tensor:
    chosen = out.softmax(1).gather(1, ACTIONS[:, None])[:, 0]
    return -(chosen / OLD.exp() * ADVANTAGES).mean()


def of_bounded_actions(out: Tensor) -> Tensor:
    policy = Beta(out[:, 0].exp(), out[:, 1].exp())
    likely: Tensor = policy.log_prob(OLD.exp())
    return -(likely * ADVANTAGES).mean()


def is_policy_gradient(*losses: Tensor) -> bool:
    """Return whether the losses of one update are policy gradients."""
    found = PolicyGradients()
    for loss in losses:
        found.add(loss)
    return found.take()


@pytest.mark.parametrize(
    "loss",
    [
        *(reinforce, ppo, ppo_of_positive_advantages, ppo_in_logarithms, actor_critic, continuous),
        *(of_cross_entropy, of_one_hot_actions, of_a_ratio_of_probabilities, of_bounded_actions),
    ],
)
def test_policy_gradients(loss: Callable[[Tensor], Tensor]) -> None:
    assert is_policy_gradient(loss(logits()))


@pytest.mark.parametrize(
    "loss",
    [
        lambda out: F.cross_entropy(out, ACTIONS),
        lambda out: ((out - ADVANTAGES[:, None]) ** 2).mean(),
        # Weights of rows, a difference of two terms, a hinge, a variational bound.
        lambda out: (F.cross_entropy(out, ACTIONS, reduction="none") * ADVANTAGES.abs()).mean(),
        lambda out: out[:2].mean() - out[2:].mean(),
        lambda out: (1 - out[:, 0] * ADVANTAGES.sign()).clamp(min=0).mean(),
        lambda out: out.pow(2).sum() - 0.5 * (1 + out - out.exp()).sum(),
        lambda out: torch.min(out[0] * ADVANTAGES[0], out[1].clamp(0, 1) * ADVANTAGES[2]).mean(),
        lambda out: (out * (ADVANTAGES.sign() - 0.5)[:, None]).max(1).values.mean(),
        lambda out: torch.stack([out[0] * 2.0, out[1].clamp(0, 1) * 3.0]).max(0).values.mean(),
        lambda out: -(out.log_softmax(1) * out.detach().softmax(1)).sum(1).mean(),
        # Quantiles, the mean return of a portfolio, its logarithm and its Sharpe ratio.
        lambda out: torch.maximum(
            QUANTILES * (TARGET - out), (QUANTILES - 1) * (TARGET - out)
        ).mean(),
        lambda out: ((QUANTILES - (out > TARGET).float()) * (TARGET - out)).sum(1).mean(),
        lambda out: -(out.softmax(1) * RETURNS_OF_ASSETS).sum(1).mean(),
        lambda out: -(1 + (out.softmax(1) * RETURNS_OF_ASSETS).sum(1)).log().mean(),
        lambda out: -(gain := (out.tanh() * RETURNS_OF_ASSETS).sum(1)).mean() / gain.std(),
        # Rows of both signs, as of hinges and of a critic of Wasserstein distances.
        lambda out: -(out[:, 0] * ADVANTAGES.sign()).mean(),
    ],
)
def test_other_losses(loss: Callable[[Tensor], Tensor]) -> None:
    assert not is_policy_gradient(loss(logits()))


EPISODE = 20
CHOSEN = torch.arange(EPISODE) % 3
# Discounted sums of rewards of 1.
RETURNS = torch.tensor([(1 - 0.98**left) / 0.02 for left in range(EPISODE, 0, -1)])


def steps() -> Tensor:
    """Return logits of an episode, [steps, 3]."""
    return torch.randn(EPISODE, 3, generator=torch.Generator().manual_seed(0)).requires_grad_()


def test_an_episode_of_positive_returns_with_a_backward_pass_for_each_step() -> None:
    probabilities = steps().softmax(1)
    pairs = list(zip(probabilities, CHOSEN.tolist(), RETURNS.tolist(), strict=True))
    losses = [-torch.log(row[action]) * value for row, action, value in pairs]
    assert is_policy_gradient(*losses)
    # Fewer may have any factors.
    assert not is_policy_gradient(*losses[:7])
    # Factors of classes.
    weights = [0.2, 1.0, 3.0]
    weighted = [-torch.log(row[action]) * weights[action] for row, action, _ in pairs]
    assert not is_policy_gradient(*weighted)


@pytest.mark.parametrize(
    "policy", [Categorical(logits=steps()), Categorical(probs=steps().softmax(1))]
)
def test_a_batch_or_a_stack_of_positive_returns(policy: Categorical) -> None:
    chosen = policy.log_prob(CHOSEN)
    assert is_policy_gradient((-chosen * RETURNS).mean())
    stack = [-one * value for one, value in zip(chosen, RETURNS, strict=True)]
    assert is_policy_gradient(torch.stack(stack).sum())
    assert not is_policy_gradient(-chosen.mean())


@pytest.mark.parametrize(
    ("returns", "recognised"), [([20.0, 35.0, 27.5], True), ([3.0] * 8, False), ([4.0, 5.0], False)]
)
def test_a_return_of_the_whole_episode_that_changes_from_update_to_update(
    returns: list[float], *, recognised: bool
) -> None:
    found, seen = PolicyGradients(), []
    for value in returns:
        acted = zip(steps().softmax(1).split(1), CHOSEN.split(1), strict=True)
        rows = [Categorical(row).log_prob(action) for row, action in acted]
        found.add(torch.cat([-row * value for row in rows]).sum())
        seen.append(found.take())
    assert seen == [False] * (len(returns) - 1) + [recognised]


@pytest.mark.parametrize(
    ("factors", "recognised"),
    [
        # Five steps of an actor-critic, of which the critic expects nothing yet.
        (RETURNS, True),
        # Weights of classes.
        (torch.tensor([0.2, 1.0, 3.0])[CHOSEN], False),
        # A weight of all rows that changes from update to update.
        (RETURNS[::5].repeat_interleave(5), False),
    ],
)
def test_updates_after_a_few_steps_with_returns_of_one_sign(
    factors: Tensor, *, recognised: bool
) -> None:
    found, seen = PolicyGradients(), []
    for rows, actions, few in zip(steps().split(5), CHOSEN.split(5), factors.split(5), strict=True):
        found.add(-(Categorical(logits=rows).log_prob(actions) * few).mean())
        seen.append(found.take())
    assert seen == [False, recognised, recognised, recognised]


def test_steps_whose_log_probabilities_are_joined() -> None:
    """Value functions give [steps, 1], so that a mistake multiplies them with all of [steps]."""
    parts = [Categorical(rows).log_prob(CHOSEN[:4]) for rows in steps().softmax(1).split(4)]
    assert is_policy_gradient((-torch.cat(parts) * RETURNS[:, None]).mean())


@pytest.mark.parametrize(
    ("policy", "actions"),
    [
        (Normal(steps(), 0.5), steps().detach()),
        (Normal(steps(), torch.zeros(3, requires_grad=True).exp()), steps().detach()),
        (Independent(Normal(steps(), 0.5), 1), steps().detach()),
        (MultivariateNormal(steps(), torch.eye(3)), steps().detach()),
        (TransformedDistribution(Normal(steps(), 1.0), [TanhTransform()]), steps().detach().tanh()),
        (Bernoulli(logits=steps()), (steps().detach() > 0).float()),
    ],
)
def test_continuous_actions_with_returns_of_one_sign(policy: Distribution, actions: Tensor) -> None:
    chosen = policy.log_prob(actions)
    returns = RETURNS if chosen.ndim == 1 else RETURNS[:, None]
    assert is_policy_gradient((chosen * returns).mean())
    # A ratio to the policy that acted.
    assert is_policy_gradient(-((chosen - chosen.detach() - 0.1).exp() * returns).mean())
    assert not is_policy_gradient(-chosen.mean())


def test_weights_of_rows_in_a_regression_are_no_returns() -> None:
    out, targets = steps(), steps().detach() + 0.5
    for function in (F.mse_loss, F.l1_loss, F.smooth_l1_loss):
        rows = function(out, targets, reduction="none")
        assert not is_policy_gradient((rows * RETURNS[:, None]).mean())
    written = ((out - targets) ** 2).sum(1)
    assert not is_policy_gradient((written * RETURNS).mean())
    spread = torch.full_like(out, 0.3)
    likelihood = F.gaussian_nll_loss(out, targets, spread, reduction="none")
    assert not is_policy_gradient((likelihood * RETURNS[:, None]).mean())
    chosen = F.binary_cross_entropy_with_logits(out, (targets > 0).float(), reduction="none")
    assert not is_policy_gradient((chosen * RETURNS[:, None]).mean())


def test_soft_labels_and_weights_of_rows_are_no_returns() -> None:
    out = steps()
    soft = out.detach().softmax(1)
    assert not is_policy_gradient(-(soft * out.softmax(1).log()).sum(1).mean())
    rows = F.cross_entropy(out, CHOSEN, reduction="none")
    assert not is_policy_gradient((rows * RETURNS).mean())
    assert not is_policy_gradient(*(row * value for row, value in zip(rows, RETURNS, strict=True)))
