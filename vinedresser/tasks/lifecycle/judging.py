"""Judge a run while it trains: one process for each run and rule group."""

from __future__ import annotations

import atexit
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

from vinedresser.errors import StoreError, VinedresserError
from vinedresser.foreign_signals import holding_foreign
from vinedresser.infra.supervise.judge_environment import judge_environment
from vinedresser.objects import LocalStorage, Location
from vinedresser.objects.files import APPEND, open_file
from vinedresser.objects.retrying import attempts
from vinedresser.rules.judge_server import Request
from vinedresser.rules.registry import RULES
from vinedresser.store.json_values import DAMAGE, parse_json
from vinedresser.tasks.retry_outages import retry_outages

__all__ = ["JudgeFailed", "rules_key", "run_judge"]

# Seconds before a judge that was killed, or whose disk failed, starts again: it reads the run from
# its start and finds the same. What ends it this often is not repaired by another try.
_PAUSES = (0.0, 0.1, 0.5, 1.0, 2.0)
# Exit code of a judge whose storage failed.
_STORAGE_FAILED = 3


class _JudgePool:
    """Judging processes: as many as there were runs and groups to judge at the same time.

    Each judges one run at a time. They end with this process, even if it is killed.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[_StandingJudge] = []
        atexit.register(self.close)

    def judge(self, request: Request) -> int:
        """Judge a run until it is over.

        Returns:
            The exit code of the judge; negative when a signal ended it.
        """
        judge = self._take()
        code = judge.judge(request)
        with self._lock:
            self._idle.append(judge)
        return code

    def close(self) -> None:
        """End the idle processes."""
        with self._lock:
            idle, self._idle = self._idle, []
        # All end at the same time.
        for judge in idle:
            judge.dismiss()
        for judge in idle:
            judge.close()

    def _take(self) -> _StandingJudge:
        """Return a live idle judge with the environment of `judge_environment`, or start one."""
        environment = judge_environment()
        with self._lock:
            while self._idle:
                judge = self._idle.pop()
                if judge.alive and judge.environment == environment:
                    return judge
                judge.close()
        return _StandingJudge(environment)


class _StandingJudge:
    """The process of a judge, see `vinedresser.rules.judge_server`.

    Args:
        environment: environment of the process, with credentials of stores and for actions.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.environment = environment
        with holding_foreign():
            self._process = subprocess.Popen(
                [sys.executable, "-m", "vinedresser.rules.judge_server"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=environment,
                # Ctrl-C is for the flow: a judge continues until its run is over.
                start_new_session=True,
            )

    @property
    def alive(self) -> bool:
        """Whether the process is alive."""
        return self._process.poll() is None

    def judge(self, request: Request) -> int:
        """Judge a run; return the exit code of the judge."""
        process = self._process
        assert process.stdin is not None, "both are pipes"
        assert process.stdout is not None, "both are pipes"
        try:
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
            answer = process.stdout.readline()
        except BrokenPipeError:
            answer = b""
        # Without an answer nothing was judged, even if the process exits with 0.
        return int(answer) if answer else process.wait() or -signal.SIGTERM

    def dismiss(self) -> None:
        """Tell the process, which is idle, to end."""
        assert self._process.stdin is not None, "it is a pipe"
        self._process.stdin.close()

    def close(self) -> None:
        """End the process, which is idle, and wait for it."""
        assert self._process.stdout is not None, "it is a pipe"
        self.dismiss()
        self._process.wait()
        self._process.stdout.close()


_POOL = _JudgePool()


class JudgeFailed(VinedresserError, RuntimeError):
    """The process that judges a run failed; the training continues unjudged."""


def rules_key(group: str) -> str:
    """Return the key of a run's file with the rules and actions of one group."""
    return f"rules/{group}.json"


def run_judge(directory: Path, group: str, *, location: Location) -> None:
    """Judge a run until it is over; write the findings to the run.

    The process judges only this run at a time, so that a rule can neither stall nor break the flow
    or another run. If all rules are built in, it is reused for another run afterwards; a process
    with a custom rule ends with its run. After an outage of an object store the run is judged again
    from its first step, with the same findings.

    Args:
        directory: directory with the group's rules; receives the judge's log.
        group: the rule group.
        location: location at which the run is read and the findings are written.

    Raises:
        JudgeFailed: the judge failed; the message has the end of its output.
    """
    try:
        retry_outages(lambda: _judge(directory, group, location), location)
    except StoreError as error:
        raise JudgeFailed(str(error)) from error


def _judge(directory: Path, group: str, location: Location) -> None:
    """Judge once; restart a judge that was killed, or whose disk failed.

    Raises:
        StoreError: the judge of a run on an object store failed, probably because of an outage.
    """
    log = directory / "rules" / f"{group}.log"
    request = Request(str(location), group, str(directory / rules_key(group)), str(log))
    judge = _POOL.judge if _all_built_in(Path(request.spec)) else _judge_alone
    remote = isinstance(location, str)
    for _ in attempts(_PAUSES):
        if not log.parent.is_dir():
            raise JudgeFailed(f"{directory.name}: the judge of group {group} cannot write its log")
        code = judge(request)
        if code >= 0 and (remote or code != _STORAGE_FAILED):
            break
    if code != 0:
        content = LocalStorage(directory).get(f"rules/{group}.log")
        output = content.decode(errors="replace").strip().splitlines()
        last = output[-1] if output else "no output"
        message = f"{directory.name}: the judge of group {group} ended with code {code}: {last}"
        # Code 2 means wrong settings.
        outage = remote and code in (1, _STORAGE_FAILED)
        raise StoreError(message) if outage else JudgeFailed(message)


def _judge_alone(request: Request) -> int:
    """Judge a run in a process of its own; return the exit code."""
    command = [
        *(sys.executable, "-m", "vinedresser.rules.worker", request.location),
        *("--group", request.group, "--spec", request.spec),
    ]
    log = Path(request.log)
    with open(open_file(log.parent, log.name, APPEND), "ab") as output, holding_foreign():
        return subprocess.run(
            command, stdout=output, stderr=output, env=judge_environment(), check=False
        ).returncode


def _all_built_in(spec: Path) -> bool:
    """Return whether all rules of a file are built in; the judge reports an invalid file."""
    try:
        document = parse_json(LocalStorage(spec.parent).get(spec.name))
        return set(document["rules"]) <= RULES.keys()
    except (StoreError, *DAMAGE):
        return False
