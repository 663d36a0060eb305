"""A process that judges runs one after another: ``python -m vinedresser.rules.judge_server``.

Starting a judge takes ten times as long as judging a short run, so this process is reused. It reads
one `Request` per line from standard input, as JSON, judges like `rules.worker`, and writes the exit
code as a line to standard output. It judges one run at a time, so that a stalled rule delays no
other run. It ends with its input or its parent.
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

from vinedresser.foreign_signals import handle_foreign
from vinedresser.objects.files import APPEND, open_file
from vinedresser.rules.worker import end_with_parent, judge_run

__all__ = ["Request", "main"]


class Request(NamedTuple):
    """A run to judge, and how.

    Attributes:
        group: name of the rule group.
        spec: path of the JSON file with the rules.
        log: path of the file that all output is appended to.
    """

    location: str
    group: str
    spec: str
    log: str


def main() -> int:
    """Judge until the input ends; return the exit code."""
    handle_foreign()
    end_with_parent()
    requests, answers = os.fdopen(os.dup(0), encoding="utf-8"), os.dup(1)
    # Input and output of rules and actions must not mix with requests and answers.
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
            # An action that exceeded its time must not affect another run.
            break
    return 0


@contextmanager
def _output_to(log: Path) -> Iterator[None]:
    """Redirect all output to a file; after an exception it stays redirected, for the traceback."""
    kept = os.dup(2)
    with open(open_file(log.parent, log.name, APPEND), "ab") as file:
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
