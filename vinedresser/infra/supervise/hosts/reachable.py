"""Which hosts of a run can still be reached."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from vinedresser.infra.supervise.bounded_command import run_bounded
from vinedresser.infra.supervise.hosts.placing import is_here

# Seconds for all answers, for one of them, and before a host is asked again: one that has just
# failed may be about to come back.
_PATIENCE, _ANSWER, _AGAIN = 20.0, 10.0, 1.0


def unreachable_hosts(hosts: Sequence[str], given_up: Callable[[], bool]) -> list[str]:
    """Return the hosts on which ssh can run no command, in their order.

    Args:
        hosts: their names.
        given_up: returns True to end it early; then nothing is known, and none is returned.
    """
    missing = [host for host in hosts if not is_here(host)]
    deadline = time.monotonic() + _PATIENCE
    while missing and not given_up():
        with ThreadPoolExecutor(len(missing)) as pool:
            answers = [*pool.map(lambda host: _answers(host, given_up), missing)]
        missing = [host for host, answer in zip(missing, answers, strict=True) if not answer]
        if time.monotonic() + _AGAIN > deadline:
            break
        if missing:
            time.sleep(_AGAIN)
    return [] if given_up() else missing


def _answers(host: str, given_up: Callable[[], bool]) -> bool:
    with open(os.devnull, "wb") as output:
        code = run_bounded(
            ["ssh", "-o", "BatchMode=yes", host, "true"],
            cwd=os.curdir,
            environment=os.environ,
            output=output,
            timeout=_ANSWER,
            given_up=given_up,
        )
    return code == 0
