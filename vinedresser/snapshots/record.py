"""The record of a snapshot, and where it lies in the run directory."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

from vinedresser.store.json_values import check_time, shown
from vinedresser.store.records import Record

__all__ = [
    "FORMAT_VERSION",
    "MEANS",
    "REASONS",
    "Reason",
    "SnapshotRecord",
    "processor",
    "record_key",
    "snapshot_name",
    "step_and_rank",
    "tensors_key",
]

FORMAT_VERSION = 1
"""Version of the format of snapshots."""

Reason = Literal["nonfinite", "jump", "periodic"]

REASONS: dict[Reason, str] = {
    "nonfinite": "gradients not finite",
    "jump": "the loss jumped",
    "periodic": "periodic",
}
"""The reasons in words."""

MEANS = "the gradients are means over all ranks, which one rank cannot reproduce"
"""Why a step of one rank is `SnapshotRecord.inexact`; its losses are not concerned."""

# What /proc/cpuinfo says of the kind of a processor, of x86 and ARM.
_PROCESSOR = (
    *("vendor_id", "cpu family", "model", "stepping", "model name"),
    *("CPU implementer", "CPU variant", "CPU part", "CPU revision"),
)
_NAME = re.compile(r"step-(?P<step>0|[1-9]\d{0,17})(?:-rank(?P<rank>[1-9]\d{0,4}))?", re.ASCII)


@dataclass(frozen=True)
class SnapshotRecord(Record):
    """What a snapshot holds; its tensors lie beside it.

    Attributes:
        step: the step, numbered from 0, whose update had not been made.
        rank: rank of the process.
        reason: "nonfinite" (non-finite gradients), "jump" (of a loss) or "periodic".
        time: seconds since the epoch.
        run: id of the run.
        framework: "torch", "keras" or "xgboost".
        versions: versions of the framework, numpy, Python and vinedresser.
        environment: what else decides about the bits of a result, by name: device, instruction
            set, number of threads, determinism flags.
        code: id of the code in version control, "" if there is none.
        world_size: number of ranks.
        bytes: size of the file of tensors.
        sha256: SHA-256 of that file, 64 hexadecimal digits.
        contents: models, optimizers, inputs and random states, as a tree (`snapshots.trees`).
        left_out: why something is missing, by its path in the contents.
        inexact: sentences on why a replay may differ.
    """

    KEY: ClassVar[str] = "snapshots"

    step: int
    rank: int
    reason: Reason
    time: float
    run: str
    framework: str
    versions: dict[str, str]
    environment: dict[str, Any]
    code: str
    world_size: int
    bytes: int
    sha256: str
    contents: dict[str, Any]
    left_out: dict[str, str] = field(default_factory=dict)
    inexact: list[str] = field(default_factory=list)
    format_version: int = FORMAT_VERSION

    def __post_init__(self) -> None:
        """Refuse values with which readers would fail later."""
        if self.format_version != FORMAT_VERSION:
            raise ValueError(
                f"its format is version {self.format_version}; this version of vinedresser reads "
                f"version {FORMAT_VERSION}"
            )
        if self.step < 0 or self.rank < 0 or self.bytes < 0:
            raise ValueError("step, rank and bytes must not be negative")
        if self.reason not in get_args(Reason):
            raise ValueError(f"reason is {shown(self.reason)}")
        check_time("time", self.time)

    @property
    def of_own_loop(self) -> bool:
        """Whether it is a step of one Keras model in the loop of Keras, not in a custom one."""
        models = self.contents.get("models")
        named = models.get("dict") if isinstance(models, dict) else None
        match named:
            case [[str(), {"dict": list(parts)}]]:
                return ["own_step", True] in parts
        return False

    @property
    def name(self) -> str:
        """Name of its folder."""
        return snapshot_name(self.step, self.rank)


def snapshot_name(step: int, rank: int) -> str:
    """Return the name of a snapshot's folder, such as ``step-120`` or ``step-120-rank1``."""
    return f"step-{step}" + (f"-rank{rank}" if rank else "")


def step_and_rank(name: str) -> tuple[int, int] | None:
    """Return step and rank of a snapshot's folder; None if it is not the name of one."""
    found = _NAME.fullmatch(name)
    return (int(found["step"]), int(found["rank"] or 0)) if found else None


def record_key(name: str) -> str:
    """Return the key of a snapshot's record in its run; without the record there is no snapshot."""
    return f"{SnapshotRecord.KEY}/{name}/snapshot.json"


def tensors_key(name: str) -> str:
    """Return the key of a snapshot's tensors in its run.

    It sorts before `record_key`, and the relay uploads in this order.
    """
    return f"{SnapshotRecord.KEY}/{name}/contents.safetensors"


@cache
def processor() -> str:
    """Return which processor computes; "" if the kernel does not say.

    Libraries choose their instructions by it, so two kinds round differently. The name alone does
    not tell: that of a virtual machine is often the same for several.
    """
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    first = dict(re.findall(r"^(.*?)\s*:\s*(.*)$", text.partition("\n\n")[0], re.MULTILINE))
    return " ".join(first[key] for key in _PROCESSOR if key in first)
