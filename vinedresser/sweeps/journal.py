"""Optuna's journal of a sweep: a file that is valid after any crash; and its trials."""

from __future__ import annotations

import fcntl
import json
import math
import os
import re
import socket
import threading
import time
import uuid
from collections.abc import Container, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from optuna.exceptions import OptunaError
from optuna.storages import JournalStorage
from optuna.storages.journal import BaseJournalBackend
from optuna.trial import FrozenTrial, TrialState

from vinedresser.errors import CorruptData, StillRunning, StoreError, VinedresserError
from vinedresser.objects.file_lock import is_file_locked, take_lock
from vinedresser.objects.files import folder_below, make_folder, open_file
from vinedresser.plain_logs import plain_logger
from vinedresser.processes import is_suspended
from vinedresser.store.json_values import DAMAGE, checker, parse_json, shown
from vinedresser.sweeps.space import Space
from vinedresser.sweeps.spec import FLOWS
from vinedresser.sweeps.widening import distributions, renewed

__all__ = ["SweepJournal", "SweepStorage", "read_journal"]

# Enough for a million reported values; one read returns at most 2 GiB.
_MOST_BYTES = 1 << 30
_IS_NUMBER, _IS_CONFIGURATION = checker(float), checker(dict[str, float | str | bool | None])

# The end of the name of the file beside the journal that a process locks for its turn, and in
# which it writes who it is.
_TURN = ".turn"
# Seconds for which a process waits for its turn before it says for whom.
_LONG = 10.0
# Seconds between two turns of a process, in which others can take theirs: a process that decides
# without a pause left them none for half a minute on a busy machine.
_GAP = 0.002

_LOG = plain_logger(__name__)


class SweepJournal(BaseJournalBackend):
    """The journal of a sweep, in the file format of Optuna.

    Several flows may run a sweep, on machines that share the disk. One of them is its host; when
    that is gone, another one can be. They write in turns, and each first reads what others wrote.

    Optuna's own backend locks with links beside the file, which survive a killed process, syncs
    each line to the disk, and lets a partial line corrupt the next. This one uses a kernel lock
    that ends with its process, survives the death of any process, and truncates a partial line.

    Attributes:
        flow: the name of this process among those that run the sweep.

    Args:
        path: path of the file; created if missing.
        space: the search space, which may be wider than when the entries were written; None: the
            same.
        join: run the sweep beside another process.

    Raises:
        StillRunning: another process runs the sweep, and `join` is not set; or an earlier version
            of this package does, which takes no turns.
        CorruptData: a line is not an entry of a journal.
        StoreError: it cannot be read or written.
    """

    def __init__(self, path: Path, space: Space | None = None, *, join: bool = False) -> None:
        self.path = path
        self.flow = uuid.uuid4().hex
        self._distributions = {} if space is None else distributions(space)
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND
        with self._translated():
            make_folder(path.parent, FLOWS)
            self._descriptor = open_file(path.parent, path.name, flags)
        self._opened = [self._descriptor]
        # No thread takes a turn with descriptors that another one has closed.
        self._turning = threading.Lock()
        # The storage reads each line once, so lines can be dropped after they were read.
        self._logs: list[dict[str, Any]] = []
        self._first = self._size = 0
        self._hosting = False
        self._released = -math.inf
        try:
            if not (self.hosts() or join):
                raise StillRunning(f"{self.path}: another process is running this sweep")
            with self._translated():
                self._turns = self._open_turns()
                take_lock(self._lockable(f"{FLOWS}/{self.flow}"))
            with self.turn():
                pass
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Release the journal."""
        with self._turning:
            # It may have been removed with the sweep.
            with suppress(OSError):
                (folder_below(self.path.parent, FLOWS) / self.flow).unlink()
            while self._opened:
                os.close(self._opened.pop())

    def hosts(self) -> bool:
        """Return whether this process is the host of the sweep, which it becomes if there is none.

        Raises:
            StoreError: the file cannot be locked.
        """
        with self._translated():
            self._hosting = self._hosting or take_lock(self._descriptor)
        return self._hosting

    def lives(self, flow: object) -> bool:
        """Return whether a flow that runs the sweep lives, by its name in the journal."""
        if not isinstance(flow, str) or re.fullmatch("[0-9a-f]{32}", flow) is None:
            return False
        with self._translated():
            return is_file_locked(self.path.parent / FLOWS / flow)

    @contextmanager
    def turn(self) -> Iterator[bool]:
        """Keep others from writing for the duration of the context; not to be nested.

        Yields:
            Whether others have written since the last turn; their entries were added.

        Raises:
            CorruptData: a line of theirs is not an entry of a journal.
            StoreError: it cannot be read or locked, or was closed.
        """
        with self._turning:
            if not self._opened:
                raise StoreError(f"{self.path}: this process has closed it")
            with self._translated():
                self._await_turn()
            try:
                with self._translated():
                    new = self._load()
                self._logs += new
                yield bool(new)
            finally:
                with self._translated():
                    fcntl.flock(self._turns, fcntl.LOCK_UN)
                self._released = time.monotonic()

    def _open_turns(self) -> int:
        """Return the descriptor of the file of turns, which the host has made."""
        try:
            return self._lockable(f"{self.path.name}{_TURN}", os.O_CREAT if self._hosting else 0)
        except FileNotFoundError:
            raise StillRunning(
                f"{self.path}: an earlier version of vinedresser is running this sweep, and cannot "
                "be joined"
            ) from None

    def _lockable(self, key: str, create: int = os.O_CREAT) -> int:
        """Return the descriptor of a file for a lock, which `close` closes."""
        self._opened.append(open_file(self.path.parent, key, os.O_RDWR | create))
        return self._opened[-1]

    def _await_turn(self) -> None:
        """Lock the file of turns; say which process has it if that takes long."""
        began = time.monotonic()
        time.sleep(max(self._released + _GAP - began, 0.0))
        long = began + _LONG
        while not take_lock(self._turns):
            if time.monotonic() > long:
                long = math.inf
                last = os.pread(self._turns, 200, 0).decode(errors="replace")
                _LOG.warning(
                    "%s: has waited %g s for its turn; the last one was that of process %s%s",
                    self.path,
                    _LONG,
                    last or "?",
                    _suspended(last),
                )
        me = f"{os.getpid()} on {socket.gethostname()}".encode()
        # Whose turn it is helps others, and is not needed.
        with suppress(OSError):
            if os.pread(self._turns, 200, 0) != me:
                os.ftruncate(self._turns, 0)
                os.pwrite(self._turns, me, 0)

    def read_logs(self, log_number_from: int) -> list[dict[str, Any]]:
        """Return the lines from a number on; lines before it can no longer be read."""
        self._logs = self._logs[max(log_number_from - self._first, 0) :]
        self._first = max(log_number_from, self._first)
        return list(self._logs)

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Append lines, or none of them.

        Raises:
            StoreError: they cannot be written.
        """
        text = "".join(json.dumps(one, separators=(",", ":")) + "\n" for one in logs)
        with self._translated():
            end = os.fstat(self._descriptor).st_size
            try:
                rest = text.encode()
                while rest:
                    rest = rest[os.write(self._descriptor, rest) :]
            except OSError:
                # A full disk takes a part; the next line must not continue it.
                os.ftruncate(self._descriptor, end)
                raise
        self._size += len(text.encode())
        # As they would be read back: tuples become lists, for example.
        self._logs += [json.loads(line) for line in text.splitlines()]

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Raise errors of the operating system as errors of this journal."""
        try:
            yield
        except VinedresserError:
            raise
        except OSError as error:
            raise StoreError(f"{self.path}: {error.strerror}") from error

    def _load(self) -> list[dict[str, Any]]:
        """Read the new lines, and truncate one that a killed process has written partially."""
        size = os.fstat(self._descriptor).st_size
        if size > _MOST_BYTES:
            raise CorruptData(f"{self.path}: not a journal: larger than {_MOST_BYTES >> 20} MiB")
        text = os.pread(self._descriptor, max(size - self._size, 0), self._size)
        whole, newline, rest = text.rpartition(b"\n")
        self._size += len(whole + newline)
        if rest:
            os.ftruncate(self._descriptor, self._size)
        return [renewed(one, self._distributions) for one in _entries(self.path, whole)]


def _suspended(process: str) -> str:
    """Return what to do about the process that had the last turn, "" if it is not suspended.

    Args:
        process: what it has written, "PID on HOST".
    """
    pid, _, host = process.partition(" on ")
    if host != socket.gethostname():
        return "; if that is suspended, continue it or end it"
    if pid.isdecimal() and is_suspended(int(pid)):
        return ", which is suspended: continue it or end it"
    return ""


class _StoredJournal(BaseJournalBackend):
    """A journal that another process may write, as it is now; a partial line does not count.

    Raises:
        CorruptData: a line is not an entry of a journal.
        StoreError: it cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with open(open_file(path.parent, path.name, os.O_RDONLY), "rb") as file:
                text = file.read(_MOST_BYTES + 1)
        except OSError as error:
            raise StoreError(f"{path}: {error.strerror}") from error
        self._logs = _entries(path, text.rpartition(b"\n")[0])

    def read_logs(self, log_number_from: int) -> list[dict[str, Any]]:
        """Return the lines from a number on."""
        return self._logs[log_number_from:]

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Refuse to write."""
        raise StoreError(f"{self.path}: only read, not written ({len(logs)} lines)")


def read_journal(path: Path) -> list[FrozenTrial]:
    """Return the trials in a journal, which another process may write meanwhile.

    Args:
        path: path of the file.

    Raises:
        CorruptData: it is not the journal of a sweep.
        StoreError: it cannot be read.
    """
    storage = SweepStorage(_StoredJournal(path))
    return [
        trial
        for study in storage.get_all_studies()
        for trial in storage.get_all_trials(study._study_id, deepcopy=False)
    ]


def _entries(path: Path, text: bytes) -> list[dict[str, Any]]:
    """Return the entries of a journal, one in each line."""
    logs = []
    for number, line in enumerate(text.splitlines(), start=1):
        try:
            entry = parse_json(line)
            if not _is_entry(entry):
                raise ValueError(shown(entry))
        except ValueError as error:
            raise CorruptData(
                f"{path}: line {number} is not an entry of a journal: {error}"
            ) from error
        logs.append(entry)
    return logs


def _is_entry(entry: object) -> bool:
    """Return whether a value has what Optuna looks for in every entry."""
    return (
        isinstance(entry, dict)
        and type(entry.get("op_code")) is int
        and isinstance(entry.get("worker_id"), str)
    )


def _check(trial: FrozenTrial) -> None:
    """Check what Optuna takes from a journal without a look."""
    if not _IS_CONFIGURATION(trial.params):
        raise TypeError(f"trial {trial.number} has the configuration {shown(trial.params)}")
    reported = trial.intermediate_values
    for value in (*(trial.values or ()), *reported, *reported.values()):
        if not _IS_NUMBER(value):
            raise TypeError(f"trial {trial.number} has the value {shown(value)}")


class SweepStorage(JournalStorage):
    """A storage of one study, which lists its trials without looking at each of them again.

    Optuna lists all trials several times for each proposal and each decision to prune; with
    10,000 trials that took most of the time of both.

    Raises:
        CorruptData: its entries do not describe studies and trials.
    """

    def __init__(self, journal: SweepJournal | _StoredJournal) -> None:
        try:
            super().__init__(journal)
            for study in self.get_all_studies():
                for trial in super().get_all_trials(study._study_id, deepcopy=False):
                    _check(trial)
        except (*DAMAGE, AssertionError, RuntimeError, OptunaError) as error:
            reason = f"{type(error).__name__}: {error}"
            raise CorruptData(f"{journal.path}: not the journal of a sweep: {reason}") from error
        # The ids of all trials from the first one on that has not ended, and the trials before it,
        # which do not change any more, by the states that were asked for.
        self._open: list[int] = []
        self._ended: dict[tuple[bool, ...], list[FrozenTrial]] = {}
        self._last = -1
        self.renew()

    def renew(self) -> None:
        """Take in the trials that other processes created."""
        for study in self.get_all_studies():
            trials = super().get_all_trials(study._study_id, deepcopy=False)
            known = self._open[-1] if self._open else self._last
            self._open += [one._trial_id for one in trials if one._trial_id > known]

    def create_new_trial(self, study_id: int, template_trial: FrozenTrial | None = None) -> int:
        """Create a trial, and return its id; see `optuna.storages.BaseStorage`."""
        self._open.append(super().create_new_trial(study_id, template_trial))
        return self._open[-1]

    def get_all_trials(
        self,
        study_id: int,
        deepcopy: bool = True,
        states: Container[TrialState] | None = None,
    ) -> list[FrozenTrial]:
        """Return the trials in the order of their numbers; see `optuna.storages.BaseStorage`."""
        if deepcopy:
            return super().get_all_trials(study_id, deepcopy, states)
        trials = [self.get_trial(one) for one in self._open]
        count = next(
            (n for n, one in enumerate(trials) if not one.state.is_finished()), len(trials)
        )
        for selection, ended in self._ended.items():
            ended += [trial for trial in trials[:count] if selection[trial.state]]
        self._last = max([self._last, *self._open[-1:]])
        del self._open[:count], trials[:count]
        selection = tuple(states is None or state in states for state in TrialState)
        others = [trial for trial in trials if selection[trial.state]]
        if selection not in self._ended:
            every = super().get_all_trials(study_id, deepcopy, states)
            self._ended[selection] = every[: len(every) - len(others)]
        return self._ended[selection] + others
