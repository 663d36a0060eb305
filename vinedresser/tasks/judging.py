"""Judge a run beside its training: one long-lived process per run and rule group."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from vinedresser.errors import StoreError, VinedresserError
from vinedresser.tasks.outages import through_outages
from vinedresser.tasks.prepare import rules_key

__all__ = ["JudgeFailed", "run_judge"]

# A judge that is killed folds the run again from its start and finds the same; one that is killed
# this often is being killed by something that a further try will not mend.
_MOST_RESTARTS = 5


class JudgeFailed(VinedresserError, RuntimeError):
    """The process that judges a run failed; the training goes on unjudged."""


def run_judge(directory: Path, group: str, *, location: Path | str) -> None:
    """Judge a run until it is over; its findings are where it is.

    It is a process of its own, so that a rule can neither stall nor break the flow. After an outage
    of an object store it judges again from the first step, and finds the same.

    Args:
        directory: of the run; it has the group's rules, and gets the judge's log.
        group: of rules.
        location: where to read the run and write the findings.

    Raises:
        JudgeFailed: the judge failed, with the end of its output.
    """
    try:
        through_outages(lambda: _judge(directory, group, location), location)
    except StoreError as error:
        raise JudgeFailed(str(error)) from error


def _judge(directory: Path, group: str, location: Path | str) -> None:
    """Judge once, but for a process that is killed.

    Raises:
        StoreError: the judge of a run on an object store failed, most likely since that is away.
        JudgeFailed: the judge failed.
    """
    log = directory / "rules" / f"{group}.log"
    command = [
        *(sys.executable, "-m", "vinedresser.rules.worker", str(location)),
        *("--group", group, "--spec", str(directory / rules_key(group))),
    ]
    for _ in range(1 + _MOST_RESTARTS):
        with log.open("ab") as output:
            code = subprocess.run(command, stdout=output, stderr=output, check=False).returncode
        if code >= 0:
            break
    if code != 0:
        said = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        last = said[-1] if said else "it said nothing"
        message = f"{directory.name}: the judge of group {group} ended with {code}: {last}"
        raise StoreError(message) if _may_be_away(code, location) else JudgeFailed(message)


def _may_be_away(code: int, location: Path | str) -> bool:
    """Say whether a judge may have ended for want of its store; wrong settings are its code 2."""
    return code == 1 and isinstance(location, str)
