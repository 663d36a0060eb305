"""A process that judges one run after the other: ``python -m vinedresser.rules.judge_server``.

Starting a judge takes ten times as long as judging a short run. So this one is started once: it
reads a request a line from its standard input, `Request` as JSON, judges as `rules.worker` does,
answers with the exit code that it would have had as a line on its standard output, and reads on.
At any time it judges one run, so a rule that stalls keeps no other run waiting. It ends with its
input or its parent.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from vinedresser.rules.worker import end_with_parent, judge_run

__all__ = ["Request", "main"]


class Request(NamedTuple):
    """What to judge.

    Attributes:
        location: of the run.
        group: of rules.
        spec: path of the JSON file with the rules.
        log: path of the file to which all output is appended.
    """

    location: str
    group: str
    spec: str
    log: str


def main() -> int:
    """Judge until there are no more requests; return the exit code."""
    end_with_parent()
    requests, answers = os.fdopen(os.dup(0), encoding="utf-8"), os.dup(1)
    # What a rule or an action reads or prints is none of ours.
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    threads = threading.active_count()
    for line in requests:
        request = Request(*json.loads(line))
        with _output_to(Path(request.log)):
            code = judge_run(request.location, request.group, Path(request.spec))
        os.write(answers, b"%d\n" % code)
        if threading.active_count() > threads:
            # An action that did not end in its time is not to reach into another run.
            break
    return 0


@contextmanager
def _output_to(log: Path) -> Iterator[None]:
    """Have all output go to a file; after an exception it stays so, for the traceback."""
    kept = os.dup(2)
    with log.open("ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    yield
    sys.stdout.flush()
    sys.stderr.flush()
    os.dup2(kept, 1)
    os.dup2(kept, 2)
    os.close(kept)


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, format="%(name)s: %(message)s")
    sys.exit(main())
