"""What is done to a sweep under chaos, by kind."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

import psutil

from tests.flows.chaos.chaos_beside import (
    begin_under_load,
    kill_an_up,
    lose_a_relay_at_its_start,
    remove_a_run,
)
from tests.flows.chaos.chaos_servers import SERVERS
from tests.flows.chaos.chaos_world import World
from tests.waiting import until

__all__ = ["KINDS", "Kind", "kinds_in"]

# Seconds for which a process is stopped (SIGSTOP).
_STOPPED = 30.0
_PARTS = ("flow", "trainer", "supervisor", "judge", "guard", "relay")

Strike = Callable[[World, random.Random], bool]


class Kind(NamedTuple):
    """One kind of accident.

    Attributes:
        strike: makes it happen, and checks what follows at once; returns False if there is
            nothing to hit.
        fits: returns whether it can happen in a world.
        ends_flow: the flow has to be resumed.
    """

    strike: Strike
    fits: Callable[[World], bool] = lambda _: True
    ends_flow: bool = False


def _kill(kind: str) -> Strike:
    return lambda world, draw: world.kill(kind, draw)


def _kill_server(kind: str) -> Strike:
    return lambda world, draw: world.backends.kill(kind, draw.uniform(0.0, 4.0))


def _kill_a_flow_that_starts(world: World, draw: random.Random) -> bool:
    """Kill a flow and its guard while the flow's private server starts."""
    if not world.kill("flow", draw):
        return False
    world.go_on()
    until(lambda: world.processes("guard") or world.code is not None, "a guard")
    until(lambda: world.processes("embedded server") or world.code is not None, "a server")
    world.kill("guard", draw)
    return world.kill("flow", draw)


def _stop_for_a_while(part: str, world: World, draw: random.Random) -> bool:
    """Stop a process and continue it; nothing ends because of that."""
    found = world.processes(part)
    if not found:
        return False
    training = world.supervised()
    chosen = draw.choice(found)
    with suppress(ProcessLookupError):
        os.kill(chosen, signal.SIGSTOP)
        time.sleep(_STOPPED)
        os.kill(chosen, signal.SIGCONT)
    states = world.states()
    ended = {
        name: state
        for name, state in states.items()
        if name in training and state not in ("running", "finished")
    }
    assert not ended, f"{part} was stopped for {_STOPPED:g} s: {ended}"
    return True


def _copy_a_run(world: World, draw: random.Random, *, orphan: bool) -> bool:
    """Copy a run that trains within its store; neither `reconcile` nor a flow ends the original."""
    found = world.processes("trainer")
    if not found:
        return False
    with suppress(psutil.Error):
        run = Path(psutil.Process(draw.choice(found)).environ()["VINEDRESSER_RUN"])
        copy = run.with_name(f"{run.name}-copied")
        # Files that vanish meanwhile are not copied.
        subprocess.run(["cp", "-r", run, copy], check=False, stderr=subprocess.DEVNULL)
        if orphan:
            world.kill("flow", draw)
        done = world.reconcile()
        assert done.returncode == 0, done.stdout + done.stderr
        state = world.states()[run.name]
        shutil.rmtree(copy)
        assert state in ("running", "finished"), state
        return True
    return False


def _interrupt(world: World, _: random.Random) -> bool:
    if world.code is not None:
        return False
    code = world.interrupt()
    assert code == 130, world.said()
    return True


def _signal_all(world: World, _: random.Random) -> bool:
    """Send SIGUSR1 to all processes, as SLURM does; none ends because of it."""
    found = world.left()
    before = world.processes("flow"), world.processes("trainer")
    for pid in found:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGUSR1)
    steps = world.progress()
    until(lambda: world.progress() > steps or world.code is not None, "a step")
    states = set(world.states().values())
    assert "killed" not in states | {""} or not all(before), states
    assert world.code in (None, 0), world.said()
    return all(before)


def _far(world: World) -> bool:
    return world.remote


def _local(world: World) -> bool:
    return not world.remote


def _served(world: World) -> bool:
    return world.servers


def _alone(world: World) -> bool:
    return not world.servers


KINDS = {
    "flow": Kind(_kill("flow"), ends_flow=True),
    **{part: Kind(_kill(part)) for part in ("trainer", "supervisor", "judge", "guard")},
    "relay": Kind(_kill("relay"), _far),
    **{server: Kind(_kill_server(server), _served) for server in SERVERS[:2]},
    "SeaweedFS": Kind(_kill_server("SeaweedFS"), _far),
    "embedded server": Kind(_kill("embedded server"), _alone),
    "starting flow": Kind(_kill_a_flow_that_starts, _alone, ends_flow=True),
    "Ctrl-C": Kind(_interrupt, _alone, ends_flow=True),
    "relay of a new hook": Kind(lose_a_relay_at_its_start, _far),
    "rm -rf of a run": Kind(remove_a_run),
    "SIGUSR1 to all": Kind(_signal_all),
    "up that starts": Kind(kill_an_up, _alone),
    "load of 20": Kind(begin_under_load, _alone),
    "copied run": Kind(partial(_copy_a_run, orphan=False), _local),
    "copied orphan": Kind(partial(_copy_a_run, orphan=True), _local, ends_flow=True),
    **{f"SIGSTOP {part}": Kind(partial(_stop_for_a_while, part)) for part in _PARTS[:-1]},
    "SIGSTOP relay": Kind(partial(_stop_for_a_while, "relay"), _far),
}


def kinds_in(world: World) -> list[str]:
    """Return the names of the kinds that can happen in a world."""
    return [name for name, kind in KINDS.items() if kind.fits(world)]
