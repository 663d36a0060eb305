"""The run directory: the names in it and the small records by which processes meet.

All processes of a run, the trainer with its hook, the supervisor, the judges and the recorder,
share nothing but this directory (or the same keys on an object store). Any of them may be killed
at any moment and started again. Only the standard library is used here: the supervisor needs no
more, and stays small.

    run.json                        what this run is                        launcher or hook
    launch.json                     what to start, and for whom             launcher
    supervisor.json, .lock, log.txt who starts it; its output               supervisor
    segments/<rank>/<seq>.safetensors, index/<rank>/<seq>.json              hook's writer
    manifests/<rank>/<number>.json  what a hundred index records say        hook's writer
    heartbeat/<rank>.json           who writes, how far it got              hook's writer
    waiting.json                    a reader waits: commit at once          judge
    capture_requests/<number>.json  what else is to be captured             person
    capture_changes/<rank>/<number>.json    what the hook made of that      hook's writer
    claim.json                      which processes write to it             hook
    findings/<group>.jsonl          what the rules of a group found         judge
    stop.json                       who asks the run to end, and why        judge or person
    checkpoints/                    what the trainer saved when stopped     trainer
    exit.json                       how it ended; written last              supervisor
    tracking.json                   its MLflow run                          recorder
    report.html                     the picture of it all                   recorder
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Literal, Self, TypeVar

from vinedresser.errors import Damaged, KeyMissing, KeyTaken
from vinedresser.infra.json_fields import known_fields
from vinedresser.infra.processes import ProcessIdentity
from vinedresser.infra.storage import Storage

__all__ = [
    "ATTACH_VARIABLE",
    "FLOW_VARIABLE",
    "FORMAT_VERSION",
    "LOG_KEY",
    "RANK_VARIABLE",
    "RUN_ID_VARIABLE",
    "RUN_VARIABLE",
    "CaptureChange",
    "CaptureRequest",
    "ClaimRecord",
    "ExitCause",
    "ExitRecord",
    "Heartbeat",
    "LaunchRecord",
    "Record",
    "RunRecord",
    "StopRecord",
    "SupervisorRecord",
    "TrackingRecord",
    "WaitingRecord",
    "capture_change_key",
    "capture_request_key",
    "environment_without_run",
    "findings_key",
    "heartbeat_key",
    "heartbeats",
    "index_key",
    "last_step",
    "manifest_key",
    "read_record",
    "segment_key",
    "write_first",
    "write_record",
]

FORMAT_VERSION = 1

# More processes than any run has.
_MOST_RANKS = 1 << 16

# The trainer's output, as text.
LOG_KEY = "log.txt"

# What a launched trainer finds in its environment: where its run is, which one it is (by this all
# its descendants are known), and, where somebody sets it, its rank.
RUN_VARIABLE = "VINEDRESSER_RUN"
RUN_ID_VARIABLE = "VINEDRESSER_RUN_ID"
RANK_VARIABLE = "VINEDRESSER_RANK"
# Set where what a launched Python trains is to be captured without its script's doing.
ATTACH_VARIABLE = "VINEDRESSER_ATTACH"
# What the helpers of a flow find: the flow. Supervisors and trainers do not carry it.
FLOW_VARIABLE = "VINEDRESSER_FLOW"

_VARIABLES = frozenset(
    {RUN_VARIABLE, RUN_ID_VARIABLE, RANK_VARIABLE, ATTACH_VARIABLE, FLOW_VARIABLE}
)

R = TypeVar("R", bound="Record")

ExitCause = Literal["finished", "stopped", "crashed", "killed"]


def environment_without_run() -> dict[str, str]:
    """Return the environment, but for what says to which run and flow this process belongs."""
    return {name: value for name, value in os.environ.items() if name not in _VARIABLES}


def segment_key(rank: int, seq: int) -> str:
    """Return the key of a segment."""
    return f"segments/{rank}/{seq:012d}.safetensors"


def index_key(rank: int, seq: int) -> str:
    """Return the key of the record that commits a segment."""
    return f"index/{rank}/{seq:012d}.json"


def manifest_key(rank: int, number: int) -> str:
    """Return the key of a manifest, which says again what many index records say."""
    return f"manifests/{rank}/{number:012d}.json"


def heartbeat_key(rank: int) -> str:
    """Return the key of a rank's heartbeat."""
    return f"heartbeat/{rank}.json"


def capture_request_key(number: int) -> str:
    """Return the key of a capture request; they are numbered from 0."""
    return f"capture_requests/{number:06d}.json"


def capture_change_key(number: int, rank: int) -> str:
    """Return the key of a rank's answer to a capture request."""
    return f"capture_changes/{rank}/{number:06d}.json"


def findings_key(group: str) -> str:
    """Return the key of the findings of one rule group."""
    return f"findings/{group}.jsonl"


@dataclass(frozen=True)
class Record:
    """A small JSON object under a fixed key; subclasses are the contract, field by field."""

    KEY: ClassVar[str]

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Self:
        """Build the record; keys of a newer format are left out.

        Raises:
            TypeError: a field without a default is missing, or has a value of another type.
        """
        return cls(**known_fields(cls, document))

    def to_json(self) -> dict[str, Any]:
        """Return the record as plain JSON types."""
        return asdict(self)


@dataclass(frozen=True)
class RunRecord(Record):
    """What a run is.

    Made by the launcher, or by the hook where there is no launcher; the hook replaces it once, when
    it has seen the model, with framework, world size and capture filled in.

    Attributes:
        id: 32 hexadecimal digits.
        name: what people call it.
        created: seconds since the epoch.
        command: the program and its arguments.
        parameters: hyperparameters, as given.
        total_steps: steps it is expected to take, where somebody said so.
        framework: "torch", … or "" as long as no hook has seen a model.
        versions: of the framework, numpy, Python and vinedresser.
        world_size: how many ranks write.
        capture: the capture configuration in force (`CaptureConfig.to_json`).
        capture_digest: SHA-256 of it.
        needs: of the capture configuration, what the rules ask for.
        modules: of the watched models, type and activation function ("" where the module is none)
            of each module or layer by its path, and "model" after them for a watched model itself.
        features: names of the input's features, in the order in which tensors have them.
        classes: the classes, in the order of their numbers; both [] where a model has none.
        code: the version control's id of the code, "" when there is none.
        flow: id of the flow run that launched it, "" when there was none.
    """

    KEY: ClassVar[str] = "run.json"

    id: str
    name: str
    created: float
    command: list[str] = field(default_factory=list)
    parameters: dict[str, Any] = field(default_factory=dict)
    total_steps: int | None = None
    framework: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    world_size: int = 1
    capture: dict[str, Any] = field(default_factory=dict)
    capture_digest: str = ""
    needs: dict[str, Any] = field(default_factory=dict)
    modules: dict[str, list[str]] = field(default_factory=dict)
    features: list[str] = field(default_factory=list)
    classes: list[str] = field(default_factory=list)
    code: str = ""
    flow: str = ""
    format_version: int = FORMAT_VERSION

    def __post_init__(self) -> None:
        """Refuse what would have a reader look for ranks for ever, or for none."""
        if not 1 <= self.world_size <= _MOST_RANKS:
            raise ValueError(f"world_size is {self.world_size}, not from 1 to {_MOST_RANKS}")


@dataclass(frozen=True)
class LaunchRecord(Record):
    """What the supervisor is to start.

    Attributes:
        argv: the program and its arguments.
        cwd: the directory to start it in.
        environment: variables added to the inherited ones.
        owner: the process for which it runs; when that dies, the training is asked to end.
        grace: seconds between asking (SIGTERM) and killing (SIGKILL).
        forward: pass the training's output through to the supervisor's own, beside the log.
    """

    KEY: ClassVar[str] = "launch.json"

    argv: list[str]
    cwd: str
    environment: dict[str, str] = field(default_factory=dict)
    owner: dict[str, Any] | None = None
    grace: float = 10.0
    forward: bool = False


@dataclass(frozen=True)
class SupervisorRecord(Record):
    """Who supervises: process identities of the supervisor and of the trainer it started."""

    KEY: ClassVar[str] = "supervisor.json"

    supervisor: dict[str, Any]
    trainer: dict[str, Any]
    started: float


@dataclass(frozen=True)
class Heartbeat(Record):
    """A rank's sign of life, written every second by the hook's writer thread.

    Attributes:
        process: identity of the writing process (`ProcessIdentity`).
        last_step: last optimizer step that ended, -1 before the first.
        time: seconds since the epoch.
        dropped: step records that were not written, by a full queue or a full disk.
        closed: the writer ended in good order; nothing more will come.
    """

    KEY: ClassVar[str] = "heartbeat"

    rank: int
    process: dict[str, Any]
    last_step: int
    time: float
    dropped: int = 0
    closed: bool = False

    def identity(self) -> ProcessIdentity:
        """Return who writes."""
        return ProcessIdentity(**self.process)


@dataclass(frozen=True)
class WaitingRecord(Record):
    """A reader waits for steps: until this time, commit them at once instead of in batches."""

    KEY: ClassVar[str] = "waiting.json"

    until: float


@dataclass(frozen=True)
class CaptureRequest(Record):
    """Somebody asks a run to capture something else from now on.

    Attributes:
        collections: the collections that change, with their new save configs.
        time: seconds since the epoch.
    """

    KEY: ClassVar[str] = "capture_requests"

    collections: dict[str, Any]
    time: float


@dataclass(frozen=True)
class CaptureChange(Record):
    """What a rank's hook made of a capture request.

    Attributes:
        step: the first step to which it applies.
        capture: the capture configuration in force from there on.
        refused: why nothing was changed, "" where it was.
        time: seconds since the epoch.
    """

    KEY: ClassVar[str] = "capture_changes"

    step: int
    capture: dict[str, Any]
    time: float
    refused: str = ""


@dataclass(frozen=True)
class ClaimRecord(Record):
    """Which processes write to a run whose script has no hook of its own; the first ones win.

    Attributes:
        processes: what they have in common: of one process its identity, of ranks their job.
    """

    KEY: ClassVar[str] = "claim.json"

    processes: str


@dataclass(frozen=True)
class StopRecord(Record):
    """Who asks the run to end, and why. The first one wins; it is never replaced.

    Attributes:
        by: "rule", "person" or "owner" (the process for which it ran is gone).
        rule: the rule's name, "" when it was none.
        step: the step of the finding, None when there is none.
        reason: one sentence.
        time: seconds since the epoch.
        finding: the finding as JSON, None when there is none.
    """

    KEY: ClassVar[str] = "stop.json"

    by: Literal["rule", "person", "owner"]
    reason: str
    time: float
    rule: str = ""
    step: int | None = None
    finding: dict[str, Any] | None = None


@dataclass(frozen=True)
class ExitRecord(Record):
    """How the run ended. Written last: who reads it knows that nothing more will come.

    Attributes:
        cause: "finished" (exit code 0), "stopped" (asked to by stop.json), "crashed" (it failed by
            itself) or "killed" (a signal from outside, or it vanished).
        code: its exit code, None when a signal ended it or nobody saw it end.
        signal: the signal's name, "" when there was none.
        reason: one sentence; of a crash the last line of its traceback.
        last_step: last optimizer step that ended, None when it never said.
        ended: seconds since the epoch.
        stop: the stop record as JSON when the cause is "stopped".
    """

    KEY: ClassVar[str] = "exit.json"

    cause: ExitCause
    reason: str
    ended: float
    code: int | None = None
    signal: str = ""
    last_step: int | None = None
    stop: dict[str, Any] | None = None


@dataclass(frozen=True)
class TrackingRecord(Record):
    """The MLflow run of this run, and how far it is up to date.

    Attributes:
        uri: tracking URI.
        experiment_id: MLflow's experiment.
        run_id: MLflow's run, made before the training starts.
        settled: its final status, tags and report are all there.
    """

    KEY: ClassVar[str] = "tracking.json"

    uri: str
    experiment_id: str
    run_id: str
    settled: bool = False


def write_record(
    storage: Storage, record: Record, *, key: str | None = None, exclusive: bool = False
) -> None:
    """Store a record atomically under its key.

    Raises:
        KeyTaken: ``exclusive`` and there is one already.
        StoreError: the storage refused.
    """
    text = json.dumps(record.to_json(), indent=1, allow_nan=True) + "\n"
    storage.put(key or record.KEY, [text.encode()], exclusive=exclusive)


def read_record(storage: Storage, kind: type[R], *, key: str | None = None) -> R | None:
    """Return a record, or None when it is not there (yet).

    Raises:
        Damaged: it is not a JSON object with the fields of its kind.
        StoreError: the storage refused.
    """
    key = key or kind.KEY
    try:
        content = storage.get(key)
    except KeyMissing:
        return None
    try:
        return kind.from_json(json.loads(content))
    except (ValueError, TypeError, RecursionError) as error:
        raise Damaged(f"{storage.location}/{key}: not a {kind.__name__}: {error}") from error


def write_first(storage: Storage, record: R) -> R:
    """Store a record unless there is one of its kind, and return the one that is there.

    Raises:
        Damaged: the one that is there cannot be read.
        StoreError: the storage refused.
    """
    try:
        write_record(storage, record, exclusive=True)
    except KeyTaken:
        return read_record(storage, type(record)) or record
    return record


def heartbeats(storage: Storage) -> list[Heartbeat]:
    """Return the heartbeats of all ranks; one that cannot be read says nothing and is left out.

    Raises:
        StoreError: the storage refused.
    """
    found = []
    for key in storage.list("heartbeat/"):
        with suppress(Damaged):
            found.append(read_record(storage, Heartbeat, key=key))
    return [heartbeat for heartbeat in found if heartbeat is not None]


def last_step(storage: Storage) -> int | None:
    """Return the last optimizer step that any rank ended, by its heartbeat; None before the first.

    Raises:
        StoreError: the storage refused.
    """
    last = max((heartbeat.last_step for heartbeat in heartbeats(storage)), default=-1)
    return None if last < 0 else last
