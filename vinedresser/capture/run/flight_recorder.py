"""The collective operation in which a rank is, by torch's flight recorder.

It records collectives of NCCL and gloo while ``TORCH_FR_BUFFER_SIZE`` is positive, and returns them
as JSON; what it writes to files is a pickle, which is not read.
"""

from __future__ import annotations

import json
import os
import sys
import time

_VARIABLES = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
# Seconds until the next reading, as a multiple of those that one took, in which no other thread of
# Python runs: 30 ms for 2,000 collectives of gloo.
_REST = 100


class FlightRecorder:
    """Says in which collective operation this process is while no step ends."""

    def __init__(self) -> None:
        self._steps = -1
        self._pending = ""
        self._next = 0.0

    def look(self, steps: int) -> str:
        """Return the oldest collective that has not ended; "" if steps end, or none is known.

        Args:
            steps: number of finished steps; the recorder is read if it is that of the last call.
        """
        if not any(os.environ.get(name, "0").strip() not in ("", "0") for name in _VARIABLES):
            return ""
        library = sys.modules.get("torch._C._distributed_c10d")
        dump = getattr(library, "_dump_fr_trace_json", None)
        if self._steps != steps or dump is None:
            self._steps, self._pending = steps, ""
        elif time.monotonic() >= self._next:
            began = time.thread_time()
            # Those that have not ended, as far as the recorder knows: it does not with gloo.
            entries = json.loads(dump(True, True)).get("entries", ())
            pending = next((one for one in entries if not one["retired"]), None)
            self._pending = "" if pending is None else _told(pending)
            self._next = time.monotonic() + _REST * (time.thread_time() - began)
        return self._pending


def _told(entry: dict[str, object]) -> str:
    """Return an entry in words, such as ``all_reduce number 5 of default_pg, Float [3]``."""
    name = str(entry["profiling_name"]).rpartition(":")[2]
    group = entry["process_group"]
    described = group[-1] if isinstance(group, list) and group else group
    dtypes, sizes = entry["input_dtypes"], entry["input_sizes"]
    assert isinstance(dtypes, list)
    assert isinstance(sizes, list)
    inputs = "".join(f", {dtype} {size}" for dtype, size in zip(dtypes[:1], sizes, strict=False))
    # Sending and receiving are counted apart.
    number = entry["p2p_seq_id" if entry.get("is_p2p") else "collective_seq_id"]
    return f"{name} number {number} of {described}{inputs}"
