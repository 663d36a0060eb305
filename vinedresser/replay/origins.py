"""Where the samples of a recorded step come from, if a data set of ours has delivered them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from vinedresser.data.records import Origin, Origins
from vinedresser.errors import CorruptData
from vinedresser.replay.results import Bisection
from vinedresser.snapshots.arrays import ArrayCodec
from vinedresser.snapshots.reading import Snapshot
from vinedresser.store.json_values import DAMAGE


def with_origins(bisection: Bisection | None, snapshot: Snapshot) -> Bisection | None:
    """Return a bisection with the origins of its samples, as far as they were recorded.

    Args:
        bisection: the samples that break the step; None if there are none.

    Raises:
        CorruptData: the snapshot is damaged.
        StoreError: the storage refused.
    """
    if bisection is None or bisection.spoiled or bisection.whole:
        return bisection
    batches = _batches(snapshot)
    found = [_of_sample(batches, *sample) for sample in bisection.samples]
    return replace(bisection, origins=[one for one in found if one is not None])


def _of_sample(batches: list[Any], number: int, row: int) -> Origin | None:
    """Return the origin of a row of a batch; None if it is not known."""
    packed = batches[number] if number < len(batches) else None
    if packed is None or packed["in_order"] is not True:
        return None
    origins = Origins.unpacked(packed["records"], packed["uris"])
    return origins[row] if row < len(origins) else None


def _batches(snapshot: Snapshot) -> list[Any]:
    """Return the recorded origins of the batches of the only model that has any."""
    try:
        models = dict(snapshot.record.contents["models"]["dict"])
        found = [
            snapshot.value(trees["origins"], ArrayCodec())
            for trees in (dict(model["dict"]) for model in models.values())
            # Snapshots of earlier versions have none.
            if "origins" in trees
        ]
        known = [one for one in found if any(each is not None for each in one)]
        return list(known[0]) if len(known) == 1 else []
    except DAMAGE as error:
        raise CorruptData(f"{snapshot.location}: not the contents of a step: {error!r}") from error
