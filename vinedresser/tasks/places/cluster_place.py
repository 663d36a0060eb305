"""The place of a run that a worker of a cluster trains: prepared here, made and judged there."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prefect.tasks import Task

from vinedresser.errors import LaunchError, StillRunning, VinedresserError
from vinedresser.infra.services.clusters.cluster import Cluster
from vinedresser.infra.supervise.launcher import settle
from vinedresser.objects import Location, open_storage, parse_location
from vinedresser.store.records import (
    ExitRecord,
    RunRecord,
    StopBy,
    StopRecord,
    read_record,
    write_first,
)
from vinedresser.store.status import run_status
from vinedresser.tasks.interruption import INTERRUPTED
from vinedresser.tasks.places.remote_place import reserve_url
from vinedresser.tasks.places.run_place import RunPlace
from vinedresser.tasks.places.shipment import Delivery, pack, settle_unborn, stage
from vinedresser.tasks.retry_outages import retry_outages

__all__ = ["ClusterPlace", "WorkOrder"]

# Seconds between two polls in memory and in the store, and for a lost worker's last result.
_TICK, _LOOK, _ANSWER = 0.1, 1.0, 10.0
_GONE = "the worker that ran it is gone"
# Seconds beyond its grace for the end of a run whose worker is gone: it takes a minute until a run
# whose machine has vanished counts as dead.
_PATIENCE = 120.0


@dataclass(frozen=True)
class WorkOrder:
    """How workers of a cluster make the runs of an experiment.

    Attributes:
        cluster: cluster whose workers train.
        task: Prefect task that takes a run through its lifecycle on a worker.
        groups: rule groups by which the worker judges.
    """

    cluster: Cluster
    task: Task[..., Any]
    groups: Sequence[str]


class ClusterPlace(RunPlace):
    """A run that a worker trains.

    Args:
        directory: directory in which it is prepared.
        location: location at which readers find it.
        order: how workers make it; None for an additional run, which its worker has made.
    """

    def __init__(self, directory: Path, location: Location, order: WorkOrder | None = None) -> None:
        super().__init__(directory)
        self._order = order
        self._location = location
        self._over = threading.Event()
        self._asked = False

    @classmethod
    def make(cls, store: Location, name: str, order: WorkOrder) -> ClusterPlace:
        """Return a place with this name, reserved in its store.

        Raises:
            AlreadyARun: the name is taken.
            StoreError: the store refused a request.
        """
        if isinstance(store, Path):
            return cls(store / name, store / name, order)
        url = reserve_url(store, name)
        return cls(stage(store, name), url, order)

    @property
    def location(self) -> Location:
        """Location at which readers find the run."""
        return self._location

    @property
    def control(self) -> Location:
        """Location for requests to the run while it trains."""
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
        """Have a worker train the run, and return how it ended.

        Raises:
            LaunchError: the worker could not start the training.
            StillRunning: the worker is gone and the run does not end, or part of it is not yet in
                the store.
            StoreError: the store refused a request.
            VinedresserError: a stage failed on the worker, such as a judge; the training still
                ran to its end.
        """
        assert self._order is not None, "an additional run is trained by its script"
        shipment = pack(self.directory, self._location, self._order.groups)
        try:
            delivery, problem = self._await(self._order, shipment)
            end = self._end(delivery, problem)
        finally:
            self._over.set()
        for location in delivery.arrived if delivery else ():
            if location != str(self._location):
                self.additional.append(ClusterPlace(Path(location), parse_location(location)))
        if delivery is not None and delivery.failures:
            raise VinedresserError(delivery.failures[0])
        return end

    @property
    def removed(self) -> bool:
        """Return False: the run is made on another machine, which this one cannot look at."""
        return False

    def abandon(self, reason: str) -> None:
        """See `RunPlace.abandon`; a run on an object store does not exist yet."""
        self._over.set()
        if self.directory == self._location:
            super().abandon(reason)

    def complete(self) -> None:
        """See `RunPlace.complete`; also remove the directory in which the run was prepared."""
        if self.directory != self._location:
            shutil.rmtree(self.directory, ignore_errors=True)
        super().complete()

    def _await(self, order: WorkOrder, shipment: dict[str, Any]) -> tuple[Delivery | None, str]:
        """Return a worker's delivery, or None and what went wrong."""
        try:
            future = order.cluster.submit(order.task, {"name": self.name, "shipment": shipment})
        except LaunchError as error:
            return None, str(error)
        done = threading.Event()
        future.add_done_callback(lambda _: done.set())
        while not done.wait(_TICK) and not order.cluster.is_lost(future):
            if INTERRUPTED.is_set():
                self._ask("person", INTERRUPTED.reason)
        # The result of a finished task may still be on its way.
        future.wait(_ANSWER)
        if future.state.is_completed():
            return Delivery(**future.result()), ""
        return None, str(future.state.message or _GONE)

    def _end(self, delivery: Delivery | None, problem: str) -> ExitRecord:
        """Return how the run ended; end it if its worker no longer does."""
        if delivery is not None and delivery.missing:
            raise StillRunning(f"{self._location}: not yet complete in its store")
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
        """Return how the run ended; write the end of a run whose worker has vanished.

        Raises:
            StoreError: the store refused a request.
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
        """Ask the run to end, once; its worker may not have begun it yet."""
        if self._asked:
            return
        storage = open_storage(self._location)
        retry_outages(
            lambda: write_first(storage, StopRecord(by, reason, time.time())), self._location
        )
        self._asked = True
