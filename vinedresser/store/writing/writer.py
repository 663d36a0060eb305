"""Writing a run: a queue and a writer thread, neither of which can harm the training."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import asdict

from vinedresser.errors import CorruptData, KeyTaken, RunRemoved, SecondWriter, StoreError
from vinedresser.objects import Storage
from vinedresser.processes import this_process
from vinedresser.store.records import (
    Heartbeat,
    WaitingRecord,
    heartbeat_key,
    read_record,
    write_record,
)
from vinedresser.store.step_record import ScalarStep, StepRecord
from vinedresser.store.writing.committing import Committer
from vinedresser.store.writing.record_queue import Queued, QueuePolicy, RecordQueue

# Seconds between heartbeats, and between checks for waiting readers (the minimum between two
# segments that are cut for a reader).
_BEAT = 1.0
_GLANCE = 0.05
# Seconds from a segment until one may be cut for a reader, as a multiple of the CPU time that the
# segment took: a live reader of short steps costs the training 1 % of a core at most.
_REST = 100
# A writer that falls behind makes segments up to this factor larger, because fewer files cost less,
# but not with more tensors than this, because each tensor has a cost of its own.
_BEHIND = 4
_MANY = 1000


class RunWriter:
    """Writes the records of one rank as immutable segments, on its own thread.

    A segment is cut when it reaches `cut_bytes`, when its first record is `cut_seconds` old, and
    when a reader waits; the latter at most every 50 ms, and less often if segments cost more than
    0.5 ms of CPU time. If the writer falls behind, a segment includes all
    queued records, up to four times `cut_bytes`. A record that cannot be stored is counted as
    dropped and reported; nothing is raised into the training.

    Args:
        rank: rank of this process.
        queue_bytes: maximum bytes in flight, from `add` until committed. A larger record is
            accepted when nothing else is in flight.
        policy: behaviour of `add` at that limit: "block" waits, "drop" refuses the record.
        cut_bytes: size at which a segment is cut.
        cut_seconds: age at which a segment is cut.
        on_problem: called on the writer's thread with one sentence, once per kind of problem.
        on_release: called on the writer's thread for each accepted record when it is committed or
            lost: its buffers may be reused.
        on_beat: called on the writer's thread after every heartbeat, about once a second; it must
            not raise.

    Attributes:
        last_step: last completed optimizer step, for the heartbeat; -1 before the first. Train
            records raise it; set it for steps without captured data.
        problems: one sentence per kind of problem, in the order of occurrence.
        busy: CPU time spent so far on statistics, and on segments with more than train steps of
            scalars, in seconds.

    Raises:
        SecondWriter: the run has, or had, a writer of this rank: its heartbeat exists.
        StoreError: the storage refused.
    """

    def __init__(
        self,
        storage: Storage,
        rank: int = 0,
        *,
        queue_bytes: int = 256 << 20,
        policy: QueuePolicy = "block",
        cut_bytes: int = 8 << 20,
        cut_seconds: float = 1.0,
        on_problem: Callable[[str], None] | None = None,
        on_release: Callable[[StepRecord], None] | None = None,
        on_beat: Callable[[], object] | None = None,
    ) -> None:
        self.last_step = -1
        self.stopped = False
        self.collective = ""
        self.problems: list[str] = []
        self.busy = 0.0
        self._storage = storage
        self._rank = rank
        self._cut_bytes = cut_bytes
        self._cut_seconds = cut_seconds
        self._on_problem = on_problem
        self._on_release = on_release
        self._on_beat = on_beat
        self._committer = Committer(storage, rank)
        self._queue = RecordQueue(queue_bytes, policy)
        self._batch: list[Queued] = []
        self._batch_bytes = self._batch_tensors = 0
        self._lost = 0
        self._reported_dropped = 0
        self._kinds: set[str] = set()
        self._ended_early = False
        self._batch_since = self._glance_at = self._beaten_at = -float("inf")
        self._process = this_process()
        self._claim()
        self._thread = threading.Thread(target=self._run, name="vinedresser-writer", daemon=True)
        self._thread.start()

    @property
    def dropped(self) -> int:
        """Number of records that were lost."""
        return self._queue.refused + self._lost

    def add(self, record: StepRecord) -> bool:
        """Queue a record, which must no longer be modified; return False if it was dropped.

        In a forked child, and after `close`, it does nothing and returns False.
        """
        if os.getpid() != self._process.pid:
            return False
        if record.mode == "train" and record.step > self.last_step:
            self.last_step = record.step
        return self._queue.put(record)

    def add_scalars(self, step: ScalarStep) -> bool:
        """Queue a train step with only scalars, like `add`; `on_release` is not called for it."""
        if os.getpid() != self._process.pid:
            return False
        self.last_step = max(self.last_step, step.step)
        return self._queue.put(step)

    def flush(self, timeout: float | None = None) -> bool:
        """Wait until all records added so far are committed or lost; return False on timeout.

        Lost records are counted in `dropped`.

        Args:
            timeout: maximum seconds to wait; None: unlimited.
        """
        return os.getpid() == self._process.pid and self._queue.flush(timeout)

    def close(self, timeout: float | None = None) -> bool:
        """Flush, write the last heartbeat and end the thread; return False on timeout.

        Args:
            timeout: maximum seconds to wait; None: unlimited.
        """
        if os.getpid() != self._process.pid:
            return False
        self._queue.end()
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _claim(self) -> None:
        """Claim the rank by writing the first heartbeat."""
        try:
            write_record(
                self._storage, self._heartbeat(), key=heartbeat_key(self._rank), exclusive=True
            )
        except KeyTaken as error:
            raise SecondWriter(
                f"{self._storage.location}: rank {self._rank} already has a writer; each process "
                "needs its own rank, and each training its own run"
            ) from error
        except StoreError as error:
            # Segments are put exclusively, so a second writer is still noticed.
            self._report(error, "no heartbeat: ")
        self._beaten_at = time.monotonic()

    # The methods below run on the writer's thread.

    def _run(self) -> None:
        try:
            while self._turn():
                pass
            self._beat(closed=True)
        finally:
            # However this thread ends, no other thread may wait for it.
            self._queue.end()

    def _turn(self) -> bool:
        """Take new records, cut a due segment, send the heartbeat; return False at the end."""
        # Checked before taking: no record can arrive later that is not taken below.
        last = self._queue.ended
        wake = self._cut_bytes - self._batch_bytes if self._batch else 1
        for item in self._queue.take(self._patience(), wake):
            if not self._batch:
                self._batch_since = time.monotonic()
            self._batch.append(item)
            self._batch_bytes += item.size
            if isinstance(item.record, StepRecord):
                self._batch_tensors += len(item.record.tensors)
            most = self._cut_bytes * (_BEHIND if self._batch_tensors < _MANY else 1)
            if self._batch_bytes >= most:
                self._cut()
        if self._batch and (last or self._batch_bytes >= self._cut_bytes or self._due()):
            self._cut()
        if time.monotonic() >= self._beaten_at + _BEAT:
            self._beat()
            if self._on_beat is not None:
                self._on_beat()
        return not last

    def _patience(self) -> float:
        """Return the seconds until the next action is due if no record arrives."""
        now = time.monotonic()
        rest = self._beaten_at + _BEAT - now
        if self._batch:
            cut_at = min(self._glance_at, self._batch_since + self._cut_seconds)
            rest = min(rest, cut_at - now)
        return max(rest, 0.0)

    def _due(self) -> bool:
        """Return whether the batch must be cut although it is small."""
        now = time.monotonic()
        if self._queue.hurry or now >= self._batch_since + self._cut_seconds:
            return True
        if now < self._glance_at:
            return False
        self._glance_at = now + _GLANCE
        return self._reader_waits()

    def _reader_waits(self) -> bool:
        try:
            waiting = read_record(self._storage, WaitingRecord)
        except (StoreError, CorruptData) as error:
            self._report(error, "")
            return False
        return waiting is not None and waiting.until > time.time()

    def _cut(self) -> None:
        """Commit the batch, and release it even if that fails."""
        began = time.thread_time()
        batch, self._batch = self._batch, []
        self._batch_bytes = self._batch_tensors = 0
        taken = [item.record for item in batch if isinstance(item.record, StepRecord)]
        for record in taken:
            self._settle(record)
        self._commit([_whole(item.record) for item in batch])
        spent = time.thread_time() - began
        if taken:
            self.busy += spent
        self._glance_at = time.monotonic() + max(_GLANCE, _REST * spent)
        if self._on_release is not None:
            for record in taken:
                self._on_release(record)
        self._queue.settle(batch)

    def _settle(self, record: StepRecord) -> None:
        """Compute the pending statistics of a record."""
        for what, error in record.settle().items():
            self._report(error, f"{what} at {record.mode} step {record.step} is lost: ")

    def _commit(self, records: list[StepRecord]) -> None:
        dropped = self.dropped
        if self._ended_early:
            self._lost += len(records)
            return
        try:
            self._committer.commit(records, dropped - self._reported_dropped)
        except RunRemoved as error:
            self._lost += len(records)
            self._give_up(error)
        except (StoreError, SecondWriter) as error:
            self._lost += len(records)
            self._report(error, f"{_span(records)} lost: ")
            if isinstance(error, SecondWriter):
                self._write_no_more()
        except (CorruptData, MemoryError, TypeError, ValueError) as error:
            # One record is invalid or too large; keep the others.
            if len(records) > 1:
                for record in records:
                    self._commit([record])
            else:
                self._lost += 1
                self._report(error, f"{_span(records)} lost: ")
        else:
            # Whatever fails now, the records are committed.
            self._reported_dropped = dropped
            self._compact()

    def _compact(self) -> None:
        try:
            self._committer.compact()
        except RunRemoved as error:
            self._give_up(error)
        except (StoreError, SecondWriter, MemoryError) as error:
            self._report(error, "a long run will open more slowly: ", kind="manifest")

    def _beat(self, *, closed: bool = False) -> None:
        self._beaten_at = time.monotonic()
        if self._ended_early:
            return
        try:
            beat = self._heartbeat(closed=closed)
            write_record(self._storage, beat, key=heartbeat_key(self._rank))
        except RunRemoved as error:
            self._give_up(error)
        except StoreError as error:
            self._report(error, "no heartbeat: ")

    def _give_up(self, error: RunRemoved) -> None:
        """End, since the run is gone."""
        self._report(error, "")
        self._write_no_more()

    def _write_no_more(self) -> None:
        self._ended_early = True
        self._queue.end()

    def _heartbeat(self, *, closed: bool = False) -> Heartbeat:
        return Heartbeat(
            rank=self._rank,
            process=asdict(self._process),
            last_step=self.last_step,
            time=time.time(),
            dropped=self.dropped,
            closed=closed,
            stopped=self.stopped,
            collective=self.collective,
        )

    def _report(self, error: Exception, what: str, kind: str = "") -> None:
        kind = kind or type(error).__name__
        if kind in self._kinds:
            return
        self._kinds.add(kind)
        # A MemoryError may have no message.
        self.problems.append(f"{what}{str(error) or type(error).__name__}")
        if self._on_problem is not None:
            self._on_problem(self.problems[-1])


def _whole(record: StepRecord | ScalarStep) -> StepRecord:
    return record.to_record() if isinstance(record, ScalarStep) else record


def _span(records: list[StepRecord]) -> str:
    first, last = records[0], records[-1]
    if first is last:
        return f"the record of {first.mode} step {first.step} is"
    return f"{len(records)} records from {first.mode} step {first.step} to {last.step} are"
