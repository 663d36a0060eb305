"""Trying a regex on the names of a training, in a process that ends in time.

As a program, it reads a JSON object with ``regex`` and ``names`` from stdin.
"""

from __future__ import annotations

import json
import re
import resource
import signal
import subprocess
import sys
from collections.abc import Iterable

from vinedresser.errors import ConfigError

# Seconds of computing for all names. Of a harmless regex, a thousand names take a millisecond.
_MOST = 3


def check_quick(regex: str, names: Iterable[str]) -> None:
    """Check that a regex does not try out so many ways to match that the training would stand.

    Python cannot interrupt a search in a training, which meanwhile holds the interpreter.

    Args:
        regex: a valid regex.
        names: names of tensors.

    Raises:
        ConfigError: searching takes more than some seconds, or could not be tried.
    """
    command = [sys.executable, "-m", "vinedresser.capture.requests.trying_regex"]
    content = json.dumps({"regex": regex, "names": [*names]})
    done = subprocess.run(command, input=content, text=True, capture_output=True, check=False)
    if done.returncode == -signal.SIGXCPU:
        raise ConfigError(
            f"regex {regex!r}: takes more than {_MOST} s for the names of this run, which would "
            "halt its training: avoid repetitions within repetitions, such as (a+)+"
        )
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise ConfigError(
            f"regex {regex!r}: not sent, since the process that tries it on the names of this run "
            f"ended with exit code {done.returncode}: {reason}"
        )


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CPU, (_MOST, _MOST + 1))
    _given = json.load(sys.stdin)
    _pattern = re.compile(_given["regex"])
    for _name in _given["names"]:
        _pattern.search(_name)
