"""The collective operation in which a rank is, by torch's flight recorder.

It records collectives of NCCL and gloo while ``TORCH_FR_BUFFER_SIZE`` is positive, and returns them
as JSON; what it writes to files is a pickle, which is not read.
"""

from __future__ import annotations

import json
import os
import sys

__all__ = ["FlightRecorder"]

_VARIABLES = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")


class FlightRecorder:
    """Says in which collective operation this process is while no step ends."""

    def __init__(self) -> None:
        self._steps = -1

    def look(self, steps: int) -> str:
        """Return the oldest collective that has not ended; "" if steps end, or none is known.

        Args:
            steps: number of finished steps; the recorder is read if it is that of the last call.
        """
        if not any(os.environ.get(name, "0").strip() not in ("", "0") for name in _VARIABLES):
            return ""
        before, self._steps = self._steps, steps
        library = sys.modules.get("torch._C._distributed_c10d")
        dump = getattr(library, "_dump_fr_trace_json", None)
        if before != steps or dump is None:
            return ""
        trace = json.loads(dump())
        pending = [one for one in trace.get("entries", ()) if not one["retired"]]
        return _told(pending[0]) if pending else ""


def _told(entry: dict[str, object]) -> str:
    """Return an entry in words, such as ``all_reduce number 5 of default_pg, Float [3]``."""
    name = str(entry["profiling_name"]).rpartition(":")[2]
    group = entry["process_group"]
    described = group[-1] if isinstance(group, list) and group else group
    dtypes, sizes = entry["input_dtypes"], entry["input_sizes"]
    assert isinstance(dtypes, list)
    assert isinstance(sizes, list)
    inputs = "".join(f", {dtype} {size}" for dtype, size in zip(dtypes[:1], sizes, strict=False))
    return f"{name} number {entry['collective_seq_id']} of {described}{inputs}"
