"""A small training that can be asked while it runs."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tests.waiting import until
from vinedresser.capture import Hook, SaveConfig
from vinedresser.errors import AgentAway
from vinedresser.queries.answer import Answer
from vinedresser.queries.live.client import agent_status, ask_live
from vinedresser.queries.query import Query

__all__ = ["Client", "LiveTraining", "listens"]


class LiveTraining:
    """A training in this process; a step at a time.

    Args:
        path: directory of the run.
        live: whether it may be asked.
        optimizer: makes the optimizer.
        stored: collections to store at every step.
    """

    def __init__(
        self,
        path: Path,
        *,
        live: bool = True,
        optimizer: Callable[..., torch.optim.Optimizer] = torch.optim.SGD,
        stored: tuple[str, ...] = (),
    ) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(inplace=True), nn.Linear(16, 1))
        self.loss = nn.MSELoss()
        self.optimizer = optimizer(self.model.parameters(), lr=0.01)
        collections = {name: SaveConfig(every=1, tensor=True) for name in stored}
        self.hook = Hook(path, live=live, collections=collections)
        self.hook.watch(self.model, loss=self.loss, optimizer=self.optimizer)
        self.steps = 0

    def step(self) -> None:
        x = torch.randn(32, 8)
        self.optimizer.zero_grad()
        self.loss(self.model(x), x.sum(1, keepdim=True)).backward()
        self.optimizer.step()
        self.steps += 1

    def until(self, condition: Callable[[], object], between: Callable[[], object] = int) -> None:
        """Train until a condition holds."""

        def step() -> object:
            self.step()
            between()
            return condition()

        until(step, "a condition of a training", 60)

    def digest(self) -> str:
        """Return a digest of everything that the training has computed."""
        state = [*self.model.state_dict().values(), torch.get_rng_state()]
        return hashlib.sha256(b"".join(one.numpy().tobytes() for one in state)).hexdigest()


class Client:
    """A client on another thread.

    Args:
        path: directory of the run.
        text: the query.
        every: what closes a window.
        limit: number of answers after which it leaves; None: it stays.
        rate: maximum number of windows per second; None: no limit.
    """

    def __init__(
        self, path: Path, text: str, every: str = "step", *, limit: int | None = 3, rate: Any = None
    ) -> None:
        self.answers: list[Answer] = []
        self.error: Exception | None = None
        self._limit = limit
        answers = ask_live(str(path), Query.parse(text, every), rate=rate)
        self._thread = threading.Thread(target=self._read, args=(answers,), daemon=True)
        self._thread.start()

    def _read(self, answers: Iterator[Answer]) -> None:
        try:
            for answer in answers:
                self.answers.append(answer)
                if len(self.answers) == self._limit:
                    break
        except Exception as error:  # noqa: BLE001 (for the test to look at)
            self.error = error
        finally:
            answers.close()  # type: ignore[attr-defined]

    def done(self) -> bool:
        return not self._thread.is_alive()


def listens(path: Path) -> bool:
    """Return whether a training in another process can be asked already."""
    try:
        agent_status(str(path))
    except AgentAway:
        return False
    return True
