"""Judge a run beside its training: a process for each run and rule group that is judged now."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from vinedresser.errors import StoreError, VinedresserError
from vinedresser.rules.judge_server import Request
from vinedresser.rules.registry import RULES
from vinedresser.store.storage import Location
from vinedresser.tasks.lifecycle.judge_pool import JudgePool
from vinedresser.tasks.lifecycle.prepare import rules_key
from vinedresser.tasks.retry_outages import retry_outages

__all__ = ["JudgeFailed", "run_judge"]

# A judge that is killed folds the run again from its start and finds the same; one that is killed
# this often is being killed by something that a further try will not mend.
_MOST_RESTARTS = 5

_POOL = JudgePool()


class JudgeFailed(VinedresserError, RuntimeError):
    """The process that judges a run failed; the training goes on unjudged."""


def run_judge(directory: Path, group: str, *, location: Location) -> None:
    """Judge a run until it is over; its findings are where it is.

    A process judges it that judges nothing else meanwhile, so that a rule can neither stall nor
    break the flow or another run. Where all rules are built in, the process takes another run
    afterwards; what a rule of one's own leaves behind ends with its run. After an outage of an
    object store a run is judged again from the first step, and the same is found.

    Args:
        directory: of the run; it has the group's rules, and gets the judge's log.
        group: of rules.
        location: where to read the run and write the findings.

    Raises:
        JudgeFailed: the judge failed, with the end of its output.
    """
    try:
        retry_outages(lambda: _judge(directory, group, location), location)
    except StoreError as error:
        raise JudgeFailed(str(error)) from error


def _judge(directory: Path, group: str, location: Location) -> None:
    """Judge once, but for a process that is killed.

    Raises:
        StoreError: the judge of a run on an object store failed, most likely since that is away.
        JudgeFailed: the judge failed.
    """
    log = directory / "rules" / f"{group}.log"
    request = Request(str(location), group, str(directory / rules_key(group)), str(log))
    judge = _POOL.judge if _all_built_in(Path(request.spec)) else _judge_alone
    for _ in range(1 + _MOST_RESTARTS):
        code = judge(request)
        if code >= 0:
            break
    if code != 0:
        said = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        last = said[-1] if said else "it said nothing"
        message = f"{directory.name}: the judge of group {group} ended with {code}: {last}"
        raise StoreError(message) if _may_be_away(code, location) else JudgeFailed(message)


def _judge_alone(request: Request) -> int:
    """Judge a run by a process of its own; return its exit code."""
    command = [
        *(sys.executable, "-m", "vinedresser.rules.worker", request.location),
        *("--group", request.group, "--spec", request.spec),
    ]
    with Path(request.log).open("ab") as output:
        return subprocess.run(command, stdout=output, stderr=output, check=False).returncode


def _all_built_in(spec: Path) -> bool:
    """Say whether all rules of a file are ours; of one that is not right the judge will tell."""
    try:
        return set(json.loads(spec.read_text(encoding="utf-8"))["rules"]) <= RULES.keys()
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _may_be_away(code: int, location: Location) -> bool:
    """Say whether a judge may have ended for want of its store; wrong settings are its code 2."""
    return code == 1 and isinstance(location, str)
