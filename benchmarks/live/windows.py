"""Windows of a thousand and their values, for each way of closing them."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from vinedresser.capture import Hook
from vinedresser.errors import AgentAway, ConfigError
from vinedresser.queries.answer import Answer
from vinedresser.queries.live.client import ask_live, flush_live
from vinedresser.queries.query import Query

__all__ = ["WAYS", "exact_windows"]

WAYS = ("3 steps", "0.002 seconds", "epoch", "evaluation", "flush", "chosen")
_QUERY = "losses/loss reduce sum"


def exact_windows(folder: Path, way: str, count: int) -> tuple[int, int]:
    """Ask a loop for sums of its losses; return the numbers of exact windows and of all.

    A window is exact if its value is the sum over its steps, and it begins after the last one.

    Args:
        folder: directory of the run.
        way: one of `WAYS`.
        count: number of windows.
    """
    random_ = random.Random(0)
    query = Query.parse(_QUERY, way)
    answers: list[Answer] = []

    def read() -> None:
        for answer in ask_live(str(folder), query, rate=None):
            answers.append(answer)
            if len(answers) >= count:
                return

    losses: dict[int, float] = {}
    evaluated: list[float] = []
    with Hook(folder, live=True) as hook:
        agent = hook._agent
        assert agent is not None
        threads = [threading.Thread(target=read, daemon=True)]
        threads[0].start()
        while not len(agent.observer.table):
            time.sleep(0.01)
        if way == "flush":
            threads.append(threading.Thread(target=_flush_for_ever, args=(folder, query)))
            threads[1].daemon = True
            threads[1].start()
        between: dict[str, Callable[[], Any]] = {
            "epoch": lambda: hook.event("epoch"),
            "chosen": lambda: hook.event("chosen"),
        }
        step = 0
        while threads[0].is_alive():
            losses[step] = random_.random()
            hook.step(loss=losses[step])
            step += 1
            if step % 4 == 0:
                between.get(way, int)()
            if way == "evaluation":
                evaluated.append(random_.random())
                with hook.mode("eval"):
                    hook.step(loss=evaluated[-1])
            # The reader shares the interpreter.
            time.sleep(0.0003)
    if way == "evaluation":
        return sum(one.value in evaluated for one in answers), len(answers)
    return _exact(answers, losses), len(answers)


def _exact(answers: list[Answer], losses: dict[int, float]) -> int:
    """Return the number of answers that are the sums of their steps, without gaps between them."""
    exact, after = 0, answers[0].since
    for answer in answers:
        steps = range(answer.since, answer.step + 1)
        right = abs(answer.value - sum(losses[step] for step in steps)) < 1e-9
        exact += right and answer.events == len(steps) and answer.since == after
        after = answer.step + 1
    return exact


def _flush_for_ever(folder: Path, query: Query) -> None:
    # Until nobody asks, or the training has ended.
    with suppress(AgentAway, ConfigError):
        while True:
            flush_live(str(folder), query.normalised)
