"""The whole examination: of the machine with its servers, and of a store."""

from __future__ import annotations

from collections.abc import Iterator

from vinedresser.objects import Location
from vinedresser.tasks.health.check import Check, unless_it_fails
from vinedresser.tasks.health.installation import installation_checks
from vinedresser.tasks.health.machine import machine_checks
from vinedresser.tasks.health.servers import server_checks
from vinedresser.tasks.health.stores import left_checks, store_checks
from vinedresser.tasks.health.tracking import tracking_checks

__all__ = ["examine", "examine_machine"]


def examine(store: Location | None) -> Iterator[Check]:
    """Yield what is seen of everything, as it is looked at.

    Nothing is changed: a file is made and removed where files have to be made, and a schedule is
    made and removed at a standing Prefect server.

    Args:
        store: an existing store; None: there is none yet.
    """
    yield from examine_machine(scheduler=True)
    yield from unless_it_fails("store", "crashes", left_checks)
    if store is not None:
        yield from store_checks(store)
    yield from tracking_checks(store)


def examine_machine(*, scheduler: bool) -> Iterator[Check]:
    """Yield what is seen of the packages, the machine and its servers.

    Args:
        scheduler: see `server_checks`.
    """
    yield from installation_checks()
    yield from machine_checks()
    yield from server_checks(scheduler=scheduler)
