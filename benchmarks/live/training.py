"""Trainings whose agent has clients in other processes, and what a step costs."""

from __future__ import annotations

import time
from pathlib import Path

import torch
from torch import nn

from benchmarks.live.client import Clients
from vinedresser.capture import Hook

__all__ = ["ARMS", "Training"]

QUERY = "norm(gradients) by tensor"

# Number of clients, windows per second (0: no limit) and whether the last client stalls, by arm;
# None: no agent.
ARMS: dict[str, tuple[int, float, bool] | None] = {
    "hook": None,
    "hook again": None,
    "idle agent": (0, 0, False),
    "one client, 10 Hz": (1, 10, False),
    "one client, every step": (1, 0, False),
    "four clients, every step": (4, 0, False),
    "one and a stalled client, every step": (2, 0, True),
}


class Training:
    """A perceptron of 18 tensors, 0.53 million parameters, with the clients of an arm.

    Args:
        folder: directory of the run.
        arm: key of `ARMS`.
    """

    def __init__(self, folder: Path, arm: str) -> None:
        torch.manual_seed(0)
        layers = [layer for _ in range(8) for layer in (nn.Linear(256, 256), nn.ReLU())]
        self.model = nn.Sequential(*layers, nn.Linear(256, 10))
        self.loss = nn.CrossEntropyLoss()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)
        self.inputs, self.labels = torch.randn(64, 256), torch.randint(0, 10, (64,))
        asked = ARMS[arm]
        self.hook = Hook(folder, live=asked is not None)
        self.hook.watch(self.model, loss=self.loss, optimizer=self.optimizer)
        count, rate, stalls = asked or (0, 0, False)
        self.clients = Clients(folder, QUERY, count, rate=rate, stalls=stalls)
        agent = self.hook._agent
        deadline = time.monotonic() + 60
        while count and agent is not None and self._receivers() < count:
            assert time.monotonic() < deadline, "the clients have not come"
            time.sleep(0.05)

    def _receivers(self) -> int:
        agent = self.hook._agent
        assert agent is not None
        return sum(len(stream.sinks) for stream in agent.observer.table._streams)

    def block(self, steps: int = 25) -> float:
        """Train some steps; return the processor time of the process, in seconds per step."""
        began = time.process_time()
        for _ in range(steps):
            self.optimizer.zero_grad()
            self.loss(self.model(self.inputs), self.labels).backward()
            self.optimizer.step()
        return (time.process_time() - began) / steps

    def close(self) -> None:
        """End the clients and the run."""
        self.clients.close()
        self.hook.close()
