"""A sweep of which one process after the other is killed, and what has to come out all the same."""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from tests.flows.chaos.chaos_kinds import KINDS
from tests.flows.chaos.chaos_trainer import EPOCH
from tests.flows.chaos.chaos_world import Size, World, until

__all__ = ["Kill", "sweep_with_kills"]

# Steps of all trainings between two kills, from and to.
_BETWEEN = (2, 25)
# Seconds that a flow may take without a step, on a busy machine.
_STILL = 300.0
# As many kills hit one sweep at the most.
_PER_SWEEP = 14
# As often a flow that ended by itself is gone on with, one after the other.
_TRIES = 5

Say = Callable[[str], object]


class Kill(NamedTuple):
    """What was killed, and when.

    Attributes:
        kind: of accident; see `KINDS`.
        steps: of all trainings together by then.
        seconds: until the next step was seen.
    """

    kind: str
    steps: int
    seconds: float


def sweep_with_kills(
    world: World, size: Size, kinds: deque[str], draw: random.Random, say: Say
) -> list[Kill]:
    """Search, kill and go on until the sweep is whole, and check what came out.

    Args:
        world: whose sweep it is.
        size: of the sweep.
        kinds: what is to happen, in this order; what happened is removed.
        draw: says when, and which one of a kind.
        say: told of each kill, and of each run that was broken off.
    """
    place = "far" if world.remote else "near" if world.servers else "alone"
    label = f"{place} {world.name}"
    kills: list[Kill] = []
    finished: set[str] = set()
    tries = 0
    world.start()
    while not (world.code is not None and world.whole(size)):
        if world.code is not None:
            tries += 1
            assert tries < _TRIES, world.said()
            finished |= set(world.finished_runs())
            world.go_on()
        elif not kinds or len(kills) == _PER_SWEEP:
            until(lambda: world.code is not None, "the end", 4 * _STILL)
        elif _reach(world, world.progress() + draw.randint(*_BETWEEN)):
            kill = _kill(world, kinds[0], draw)
            if kill is not None:
                say(f"  {label}  {kill.kind:<19} at step {kill.steps:>4}, {kill.seconds:5.1f} s")
                kills.append(kill)
                kinds.popleft()
                tries = 0
    _check(world, size, finished, lambda text: say(f"  {label}  {text}"))
    return kills


def _kill(world: World, kind: str, draw: random.Random) -> Kill | None:
    """Make one of a kind happen, and wait for the next step; None where there is none."""
    before, at = world.progress(), time.monotonic()
    accident = KINDS[kind]
    if not accident.strike(world, draw):
        return None
    if accident.ends_flow:
        # At once: what trains on can be adopted.
        world.go_on()
    until(lambda: world.progress() > before or world.code is not None, "a step", _STILL)
    return Kill(kind, before, time.monotonic() - at)


def _reach(world: World, goal: int) -> bool:
    """Wait until so many steps were taken; False: the flow has ended before."""
    until(lambda: world.code is not None or world.progress() >= goal, f"step {goal}", _STILL)
    return world.code is None


def _check(world: World, size: Size, finished: set[str], say: Say) -> None:
    """Check what is left when a sweep is over."""
    world.backends.wait()
    until(lambda: not world.left(), "the last process to end", 90.0)
    done = world.reconcile()
    assert done.returncode == 0, done.stdout + done.stderr
    until(lambda: not world.left(), "the last process to end", 90.0)
    assert "RUNNING" not in set(world.mlflow_runs().values())
    assert world.mlflow_runs()[world.name] == "FINISHED"
    runs = world.finished_runs()
    assert finished <= set(runs)
    # Of each trial one run came to its end: nothing that was finished was done again.
    trials = [f"trial-{number:04d}" for number in range(size.trials)]
    assert sorted(name[: len(trials[0])] for name in runs) == trials
    for one in world.broken_off():
        say(
            f"{one.run:<14} {one.state:<8} {one.stored:>3} steps stored, gone on with at "
            f"{one.resumed}: {one.lost} lost"
        )
        assert one.lost <= EPOCH, "more than a checkpoint interval"
