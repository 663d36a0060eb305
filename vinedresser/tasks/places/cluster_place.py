"""The place of a run that a worker of a cluster trains: prepared here, made and judged there."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vinedresser.errors import LaunchError, StillRunning
from vinedresser.infra.clusters.cluster import Cluster
from vinedresser.infra.launcher import settle
from vinedresser.store.records import (
    ExitRecord,
    RunRecord,
    StopBy,
    StopRecord,
    read_record,
    write_first,
)
from vinedresser.store.status import run_status
from vinedresser.store.storage import Location, open_storage, parse_location
from vinedresser.tasks.interruption import INTERRUPTED
from vinedresser.tasks.lifecycle.judging import JudgeFailed
from vinedresser.tasks.places.remote_place import reserve_url
from vinedresser.tasks.places.run_place import RunPlace
from vinedresser.tasks.places.shipment import Delivery, pack
from vinedresser.tasks.places.staging import settle_unborn, stage
from vinedresser.tasks.places.worker_run import run_shipment
from vinedresser.tasks.retry_outages import retry_outages

__all__ = ["ClusterPlace"]

# Seconds between two looks, in memory and in the store.
_TICK, _LOOK, _ANSWER = 0.1, 1.0, 10.0
_GONE = "the worker that ran it is gone"
# Seconds beyond its grace that a run has for its end when its worker is gone: on an object store it
# takes a minute until one whose machine has vanished counts as dead.
_PATIENCE = 120.0


class ClusterPlace(RunPlace):
    """A run that a worker trains.

    Args:
        directory: where it is prepared.
        location: where it belongs.

    Attributes:
        cluster: whose worker it is to be; set before it trains.
        groups: of rules, by which the worker judges it; set like that.
        attach: capture what the command trains without a hook of its own; set like that.
    """

    def __init__(self, directory: Path, location: Location) -> None:
        super().__init__(directory)
        self.cluster: Cluster | None = None
        self.groups: Sequence[str] = ()
        self.attach = True
        self._location = location
        self._over = threading.Event()
        self._asked = False

    @classmethod
    def make(cls, store: Location, name: str) -> ClusterPlace:
        """Return a place with this name, which is taken in its store.

        Raises:
            AlreadyARun: the name is taken.
            StoreError: the store refused.
        """
        if isinstance(store, Path):
            return cls(store / name, store / name)
        url = reserve_url(store, name)
        return cls(stage(store, name), url)

    @property
    def location(self) -> Location:
        """Where readers find it."""
        return self._location

    @property
    def control(self) -> Location:
        """Where to put what is asked of it while it trains."""
        return self._location

    @property
    def elsewhere(self) -> bool:
        """See `RunPlace.elsewhere`."""
        return True

    def appear(self) -> bool:
        """See `RunPlace.appear`."""
        storage = open_storage(self._location)
        while not retry_outages(lambda: storage.exists(RunRecord.KEY), self._location):
            if self._over.wait(_LOOK):
                return retry_outages(lambda: storage.exists(RunRecord.KEY), self._location)
        return True

    def train(self) -> ExitRecord:
        """Have a worker train, and return how it ended.

        Raises:
            LaunchError: the worker could not start it.
            StillRunning: its worker is gone, and it does not end; or not all is in the store.
            JudgeFailed: a judge failed; the training had run to its end all the same.
            StoreError: the store refused.
        """
        assert self.cluster is not None, "it is set before"
        shipment = pack(self.directory, self._location, self.groups, attach=self.attach)
        try:
            delivery, problem = self._await(self.cluster, shipment)
            end = self._end(delivery, problem)
        finally:
            self._over.set()
        for location in delivery.arrived if delivery else ():
            if location != str(self._location):
                self.additional.append(ClusterPlace(Path(location), parse_location(location)))
        if delivery is not None and delivery.failures:
            raise JudgeFailed(delivery.failures[0])
        return end

    def complete(self) -> list[RunPlace]:
        """See `RunPlace.complete`; what was prepared here is removed."""
        if self.directory != self._location:
            shutil.rmtree(self.directory, ignore_errors=True)
        return super().complete()

    def _await(self, cluster: Cluster, shipment: dict[str, Any]) -> tuple[Delivery | None, str]:
        """Return what a worker has delivered; or None, and what went wrong."""
        parameters = {"name": self.name, "shipment": shipment}
        try:
            future = cluster.submit(run_shipment, parameters)
        except LaunchError as error:
            return None, str(error)
        done = threading.Event()
        future.add_done_callback(lambda _: done.set())
        while not done.wait(_TICK) and not cluster.is_lost(future):
            if INTERRUPTED.is_set():
                self._ask("person", INTERRUPTED.reason)
        # What it is done with may still be on its way.
        future.wait(_ANSWER)
        if future.state.is_completed():
            return Delivery(**future.result()), ""
        return None, str(future.state.message or _GONE)

    def _end(self, delivery: Delivery | None, problem: str) -> ExitRecord:
        """Return how the run ended, which its worker or nobody sees to any more."""
        if delivery is not None and delivery.missing:
            raise StillRunning(f"{self._location}: not all of it is in its store yet")
        deadline = time.monotonic() + _PATIENCE
        while True:
            try:
                return retry_outages(lambda: self._settle(problem), self._location)
            except StillRunning:
                if time.monotonic() >= deadline:
                    raise
            self._ask("owner", _GONE)
            time.sleep(_LOOK)

    def _settle(self, problem: str) -> ExitRecord:
        """Return how the run ended; whose worker vanished without a word ends here.

        Raises:
            StillRunning: it has not ended.
            StoreError: the store refused.
        """
        if isinstance(self._location, Path):
            return settle(self._location)
        storage = open_storage(self._location)
        if end := read_record(storage, ExitRecord):
            return end
        if unborn := settle_unborn(self.directory, self._location, problem):
            return unborn
        status = run_status(storage)
        if not status.over:
            raise StillRunning(f"{self._location}: has not ended, though its worker is gone")
        return write_first(storage, ExitRecord("killed", _GONE, time.time(), last_step=status.step))

    def _ask(self, by: StopBy, reason: str) -> None:
        """Ask the run to end, once, though its worker may not have begun it yet."""
        if self._asked:
            return
        storage = open_storage(self._location)
        retry_outages(
            lambda: write_first(storage, StopRecord(by, reason, time.time())), self._location
        )
        self._asked = True
