"""A pool of judging processes, so that a run need not wait for its judge to start."""

from __future__ import annotations

import atexit
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping

from vinedresser.foreign_signals import holding_foreign
from vinedresser.infra.supervise.judge_environment import judge_environment
from vinedresser.rules.judge_server import Request

__all__ = ["JudgePool"]


class JudgePool:
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
