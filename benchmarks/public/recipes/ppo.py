"""Proximal policy optimization, after CleanRL: a clipped objective, a value loss, an entropy."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn
from torch.distributions.categorical import Categorical

from benchmarks.public.recipes.cart import Carts
from benchmarks.public.recipes.journal import Journal, steps

CARTS, LENGTH, MINIBATCHES, EPOCHS, RATE = 8, 128, 4, 4, 2.5e-4
GAMMA, LAMBDA, CLIP = 0.99, 0.95, 0.2
HIDDEN = 384


def layer(inputs: int, outputs: int, scale: float = 2**0.5) -> nn.Linear:
    made = nn.Linear(inputs, outputs)
    nn.init.orthogonal_(made.weight, scale)
    nn.init.constant_(made.bias, 0.0)
    return made


class Agent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.critic = nn.Sequential(
            layer(4, HIDDEN), nn.Tanh(), layer(HIDDEN, HIDDEN), nn.Tanh(), layer(HIDDEN, 1, 1.0)
        )
        self.actor = nn.Sequential(
            layer(4, HIDDEN), nn.Tanh(), layer(HIDDEN, HIDDEN), nn.Tanh(), layer(HIDDEN, 2, 0.01)
        )

    def act(self, x: Tensor, action: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        chances = Categorical(logits=self.actor(x))
        chosen = chances.sample() if action is None else action
        return chosen, chances.log_prob(chosen), chances.entropy(), self.critic(x)[:, 0]


def advantages(rewards: Tensor, dones: Tensor, values: Tensor) -> Tensor:
    found, last = torch.zeros_like(rewards), torch.zeros(CARTS)
    for time in reversed(range(LENGTH)):
        going = 1 - dones[time]
        error = rewards[time] + GAMMA * values[time + 1] * going - values[time]
        last = found[time] = error + GAMMA * LAMBDA * going * last
    return found


def main() -> None:
    torch.manual_seed(1)
    carts, agent = Carts(CARTS, 1), Agent()
    optimizer = torch.optim.Adam(agent.parameters(), lr=RATE, eps=1e-5)
    total, journal, step = steps(320), Journal(), 0
    updates = -(-total // (MINIBATCHES * EPOCHS))
    for update in range(updates):
        optimizer.param_groups[0]["lr"] = RATE * (1 - update / updates)
        kept: list[tuple[Tensor, ...]] = []
        for _ in range(LENGTH):
            state = torch.from_numpy(carts.state)
            with torch.no_grad():
                action, log_chance, _, value = agent.act(state)
            _, reward, done = carts.step(action.numpy())
            kept.append(
                (state, action, log_chance, value, torch.from_numpy(reward), torch.from_numpy(done))
            )
        states, actions, log_chances, values, rewards, dones = map(
            torch.stack, zip(*kept, strict=True)
        )
        with torch.no_grad():
            after = agent.critic(torch.from_numpy(carts.state))[:, 0]
        gains = advantages(rewards, dones, torch.cat([values, after[None]])).flatten()
        returns = gains + values.flatten()
        for _ in range(EPOCHS):
            for rows in np.array_split(
                np.random.default_rng(step).permutation(len(gains)), MINIBATCHES
            ):
                if step == total:
                    break
                index = torch.from_numpy(rows)
                _, log_chance, entropy, value = agent.act(
                    states.flatten(0, 1)[index], actions.flatten()[index]
                )
                ratio = (log_chance - log_chances.flatten()[index]).exp()
                gain = gains[index]
                gain = (gain - gain.mean()) / (gain.std() + 1e-8)
                policy = torch.max(-gain * ratio, -gain * ratio.clamp(1 - CLIP, 1 + CLIP)).mean()
                critic = 0.5 * ((value - returns[index]) ** 2).mean()
                loss = policy - 0.01 * entropy.mean() + 0.5 * critic
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
                optimizer.step()
                journal.step(loss=loss.item())
                step += 1
    journal.finish(agent.state_dict().values())


if __name__ == "__main__":
    main()
