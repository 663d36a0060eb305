"""Run one script under supervision, its run on an object store."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path

from vinedresser.capture.attach.launching import further_runs
from vinedresser.capture.store.reader import open_run
from vinedresser.errors import VinedresserError
from vinedresser.explain.report import write_report
from vinedresser.infra.launcher import settle, start
from vinedresser.infra.run_directory import ExitRecord, RunRecord
from vinedresser.infra.storage import open_storage
from vinedresser.infra.storage.relaying import RelayProcess
from vinedresser.infra.storage.spool import adopt_spool, make_spool
from vinedresser.tasks.judging import run_judge
from vinedresser.tasks.prepare import rules_key
from vinedresser.tasks.run_script import SCRIPT_GROUP, training_seen
from vinedresser.tasks.settle import REPORT

__all__ = ["RemoteScript", "free_url"]

# Seconds for which the end of a run waits for its upload, and after which it says so.
_PATIENCE, _QUIET = 60.0, 3.0


def free_url(store: str, stem: str) -> str:
    """Return the first of STORE/STEM-1, -2 and so on at which there is no run.

    Args:
        store: ``s3://bucket/prefix``.
        stem: what the run is called after.

    Raises:
        StoreError: the store refused.
    """
    storage = open_storage(store)
    number = 1
    while storage.exists(f"{stem}-{number}/{RunRecord.KEY}"):
        number += 1
    return f"{storage.location}/{stem}-{number}"


class RemoteScript:
    """A script whose run directory is a spool, as long as not all of it is in its store.

    Args:
        url: of the run.
        say: says a sentence to a person.

    Attributes:
        url: of the run.
        directory: the spool.
        seen: whether a training was seen; known when it has run.

    Raises:
        OSError: the spool cannot be written.
    """

    def __init__(self, url: str, say: Callable[[str], object]) -> None:
        self.url = url
        self.seen = False
        self._say = say
        self.directory, self._lock = make_spool(url, uuid.uuid4().hex[:12])
        self._relays: list[tuple[str, RelayProcess]] = []

    def prepare(self, make: Callable[[Path], object]) -> None:
        """Make the spool a run that can be started.

        Args:
            make: does that to a directory.

        Raises:
            VinedresserError: as it does.
        """
        try:
            make(self.directory)
        except VinedresserError:
            os.close(self._lock)
            shutil.rmtree(self.directory, ignore_errors=True)
            raise

    def run(self) -> ExitRecord:
        """Start the prepared script and the upload of its run, and return how it ended.

        Raises:
            AlreadyARun: the store has a run there; nothing was started.
            StoreError: the store refused; nothing was started.
            LaunchError: it could not be started.
            JudgeFailed: the judge failed; the script had run to its end all the same.
        """
        self._upload(self.url, self.directory, self._lock)
        supervisor = start(self.directory)
        failures: list[Exception] = []
        judge = threading.Thread(target=self._judge, args=(failures,))
        if (self.directory / rules_key(SCRIPT_GROUP)).is_file():
            judge.start()
        supervisor.wait()
        end = settle(self.directory)
        self.seen = training_seen(self.directory)
        for number, directory in enumerate(further_runs(self.directory), start=2):
            settle(directory)
            url = f"{self.url}.{number}"
            self._upload(url, directory, adopt_spool(directory, url))
        self._await_uploads()
        if judge.is_alive():
            judge.join()
        for url, relay in self._relays:
            if relay.done:
                _report(url)
                shutil.rmtree(relay.folder, ignore_errors=True)
        if failures:
            raise failures[0]
        return end

    @property
    def uploaded(self) -> list[str]:
        """The URLs of the runs that are in the store to their end."""
        return [url for url, relay in self._relays if relay.done]

    def _upload(self, url: str, directory: Path, lock: int) -> None:
        try:
            relay = RelayProcess(directory, lock, keep=True)
        except VinedresserError:
            shutil.rmtree(directory, ignore_errors=True)
            raise
        relay.listen(self._say)
        self._relays.append((url, relay))

    def _await_uploads(self) -> None:
        deadline = time.monotonic() + _PATIENCE
        for url, relay in self._relays:
            if not relay.wait(_QUIET) and relay.alive:
                self._say(f"waiting for the upload to {url}, {_PATIENCE:.0f} s at the most")
            if not relay.wait(max(deadline - time.monotonic(), 0.0)):
                relay.leave()
                self._say(
                    f"not everything is in {url} yet; it waits in {relay.folder}, and "
                    "`vinedresser reconcile` uploads what is left there"
                )

    def _judge(self, failures: list[Exception]) -> None:
        """Judge in a thread, and keep what went wrong for the caller."""
        try:
            run_judge(self.directory, SCRIPT_GROUP, location=self.url)
        except (VinedresserError, OSError) as error:
            failures.append(error)


def _report(url: str) -> None:
    """Draw the report of a run that is in its store, and put it there."""
    run = open_run(url)
    with tempfile.TemporaryDirectory() as folder:
        report = write_report(run, Path(folder, REPORT))
        run.storage.put(REPORT, [report.read_bytes()])
