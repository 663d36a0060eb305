"""Reports of what data sets feed to a training, in its run."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from itertools import islice

from vinedresser.data.delivered import fed_data_sets
from vinedresser.data.fed import Fed
from vinedresser.data.records import Origin
from vinedresser.errors import StoreError
from vinedresser.objects import Storage
from vinedresser.store.finding import Finding
from vinedresser.store.records import FedRecord, fed_key, findings_key, write_record

# Not the name of a group of rules, which is an identifier.
_GROUP = "trainer-data"
# Seconds between two records, unless a damaged record was left out.
_EVERY = 30.0
# Objects and damaged records that are listed, and damaged records that a finding names.
_MOST_LISTED, _MOST_NAMED = 1000, 3


class DataReport:
    """Keeps a record of what was fed, and a finding of damaged records that were left out.

    Args:
        step: return the number of finished steps.
        report: called with a sentence about a problem.
    """

    def __init__(
        self,
        storage: Storage,
        rank: int,
        step: Callable[[], int],
        report: Callable[[str], object],
    ) -> None:
        self._storage = storage
        self._rank = rank
        self._step = step
        self._report = report
        # Batches of data sets before this training, which may have nothing to do with them.
        self._before = {
            fed_data_set: fed_data_set.statistics.batches for fed_data_set in fed_data_sets()
        }
        self._written: tuple[int, int] = (0, 0)
        self._due = 0.0

    def look(self) -> None:
        """Write the record if it is due; called about once a second."""
        sets = self._used()
        if sets and (time.monotonic() >= self._due or self._state(sets)[1] != self._written[1]):
            self._write(sets)

    def close(self) -> None:
        """Write the record of all that was fed."""
        if sets := self._used():
            self._write(sets)

    def _used(self) -> list[Fed]:
        return [
            fed_data_set
            for fed_data_set in fed_data_sets()
            if fed_data_set.statistics.batches > self._before.get(fed_data_set, 0)
        ]

    def _state(self, sets: list[Fed]) -> tuple[int, int]:
        """Return numbers that change with what is to be written."""
        return sum(one.statistics.batches for one in sets), sum(len(one.damaged) for one in sets)

    def _write(self, sets: list[Fed]) -> None:
        state = self._state(sets)
        if state == self._written:
            return
        record = FedRecord(self._rank, time.time(), [_of_set(one) for one in sets])
        try:
            write_record(self._storage, record, key=fed_key(self._rank))
            if state[1] != self._written[1]:
                group = f"{_GROUP}-{self._rank}" if self._rank else _GROUP
                text = json.dumps(self._finding(sets).to_json()) + "\n"
                self._storage.put(findings_key(group), [text.encode()])
        except StoreError as error:
            self._report(f"no record of the training data: {error}")
        self._written = state
        self._due = time.monotonic() + _EVERY

    def _finding(self, sets: list[Fed]) -> Finding:
        damaged = [error for one in sets for error in list(one.damaged)]
        origins = [Origin(one.uri, one.offset, one.record) for one in damaged[:_MOST_LISTED]]
        named = "; ".join(str(one) for one in damaged[:_MOST_NAMED])
        more = f"; and {len(damaged) - _MOST_NAMED} more" if len(damaged) > _MOST_NAMED else ""
        records = "1 record is" if len(damaged) == 1 else f"{len(damaged)} records are"
        return Finding(
            rule="damaged_records",
            severity="info",
            step=self._step(),
            since=self._step(),
            mode="train",
            rank=self._rank,
            tensor="",
            statistic="records",
            value=float(len(damaged)),
            threshold=0.0,
            confidence=1.0,
            seen=f"{records} damaged and left out of the training, as skip_damaged allows: "
            f"{named}{more}",
            cause="the objects were damaged when they were written, where they lie, or on the way",
            remedy=f"`{origins[0].command}` shows what is left of the first one; write its object "
            "again from its source",
            evidence={"records": [origin._asdict() for origin in origins]},
        )


def _of_set(fed: Fed) -> dict[str, object]:
    """Return what a data set has fed as JSON; the training goes on meanwhile."""
    objects, damaged = list(fed.objects.items()), list(fed.damaged)
    waiting, parsing, decoding, queued = fed.statistics.stages
    return {
        "objects": len(objects),
        "records": fed.statistics.records,
        "iterations": fed.iterations,
        "damaged": len(damaged),
        "seconds": {
            "waiting": waiting,
            "parsing": parsing,
            "decoding": decoding,
            "queued": queued,
        },
        "fed": [[uri, one.records, one.iterations] for uri, one in islice(objects, _MOST_LISTED)],
        "left_out": [[one.uri, one.record, one.offset] for one in damaged[:_MOST_LISTED]],
    }
