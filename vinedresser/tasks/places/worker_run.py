"""What a worker of a cluster does with a run: train, judge beside it, and bring it to its store."""

from __future__ import annotations

import logging
from dataclasses import asdict
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE

from vinedresser.infra.clusters.flow_sign import watches_for_signs
from vinedresser.infra.launcher import request_stop
from vinedresser.store.storage import parse_location
from vinedresser.tasks.lifecycle.run_script import run_to_end
from vinedresser.tasks.places.shipment import Delivery, Shipment, unpack

__all__ = ["run_shipment"]

_log = logging.getLogger(__name__)


@task(name="run", task_run_name="run {name}", cache_policy=NO_CACHE)
def run_shipment(name: str, shipment: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG001
    """Train and judge a run that was prepared elsewhere, and return its `Delivery`.

    It ends with a checkpoint when this process dies, or when its flow gives no more sign of life.

    Args:
        name: of the run, for Prefect's pages.
        shipment: a `Shipment`.

    Raises:
        AlreadyARun: another worker has it, or had it.
        LaunchError: it could not be started.
        StoreError: the store refused.
    """
    sent = Shipment(**shipment)
    place = unpack(sent, _log.warning)

    def stop(reason: str) -> None:
        request_stop(place.directory, by="owner", reason=reason)

    with watches_for_signs(parse_location(sent.store), stop):
        _, failures = run_to_end(place, sent.groups)
    arrived = [str(one.location) for one in place.complete()]
    every = [str(one.location) for one in (place, *place.additional)]
    missing = [one for one in every if one not in arrived]
    return asdict(Delivery(arrived, missing, [str(error) for error in failures]))
