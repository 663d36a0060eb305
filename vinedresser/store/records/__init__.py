"""The run directory: the names in it and the small records by which processes meet.

All processes of a run, the trainer with its hook, the supervisor, the judges and the recorder,
share nothing but this directory (or the same keys on an object store). Any of them may be killed
at any moment and started again. Only the standard library is used here: the supervisor needs no
more, and stays small.

    run.json                        what this run is                        launcher or hook
    launch.json                     what to start, and for whom             launcher
    owner.json                      for whom it goes on                     who adopted it
    supervisor.json, .lock, log.txt who starts it; its output               supervisor
    segments/<rank>/<seq>.safetensors, index/<rank>/<seq>.json              hook's writer
    manifests/<rank>/<number>.json  what a hundred index records say        hook's writer
    heartbeat/<rank>.json           who writes, how far it got              hook's writer
    waiting.json                    a reader waits: commit at once          judge
    capture_requests/<number>.json  what else is to be captured             person
    capture_changes/<rank>/<number>.json    what the hook made of that      hook's writer
    claim.json                      which processes write to it             hook
    trainer_requests/<number>.json  what is to be done between two steps    judge
    trainer_answers/<rank>/<number>.json    what the hook made of that      hook's writer
    findings/<group>.jsonl          what the rules of a group found         judge
    suspicions/<group>.json         what they suspect, in a sweep           judge
    actions/<group>.jsonl           what was done about it                  judge
    tags/<group>.json               what the run is marked with             judge
    stop.json                       who asks the run to end, and why        judge or person
    checkpoints/                    what the trainer saved when stopped     trainer
    exit.json                       how it ended; written last              supervisor
    tracking.json                   its MLflow run                          recorder
    report.html                     the picture of it all                   recorder
"""

from __future__ import annotations

from vinedresser.store.records.actions import (
    ActionRecord,
    TagsRecord,
    TrainerAnswer,
    TrainerRequest,
)
from vinedresser.store.records.capture_requests import (
    CaptureChange,
    CaptureRequest,
    ClaimRecord,
    WaitingRecord,
)
from vinedresser.store.records.environment import (
    ATTACH_VARIABLE,
    FLOW_VARIABLE,
    RANK_VARIABLE,
    RUN_ID_VARIABLE,
    RUN_VARIABLE,
    environment_without_run,
)
from vinedresser.store.records.heartbeat import (
    Heartbeat,
    heartbeats,
    last_step,
)
from vinedresser.store.records.keys import (
    LOG_KEY,
    actions_key,
    capture_change_key,
    capture_request_key,
    findings_key,
    heartbeat_key,
    index_key,
    manifest_key,
    segment_key,
    suspicions_key,
    tags_key,
    trainer_answer_key,
    trainer_request_key,
)
from vinedresser.store.records.lifecycle import (
    ExitCause,
    ExitRecord,
    LaunchRecord,
    OwnerRecord,
    StopBy,
    StopRecord,
    SupervisorRecord,
    WorkerRecord,
    owner_of,
)
from vinedresser.store.records.record import (
    Record,
    read_record,
    write_first,
    write_numbered,
    write_record,
)
from vinedresser.store.records.remedy import RemedyRecord, describe_changes
from vinedresser.store.records.run_creation import new_run
from vinedresser.store.records.run_record import (
    FORMAT_VERSION,
    RunRecord,
    TrackingRecord,
)

__all__ = [
    "ATTACH_VARIABLE",
    "FLOW_VARIABLE",
    "FORMAT_VERSION",
    "LOG_KEY",
    "RANK_VARIABLE",
    "RUN_ID_VARIABLE",
    "RUN_VARIABLE",
    "ActionRecord",
    "CaptureChange",
    "CaptureRequest",
    "ClaimRecord",
    "ExitCause",
    "ExitRecord",
    "Heartbeat",
    "LaunchRecord",
    "OwnerRecord",
    "Record",
    "RemedyRecord",
    "RunRecord",
    "StopBy",
    "StopRecord",
    "SupervisorRecord",
    "TagsRecord",
    "TrackingRecord",
    "TrainerAnswer",
    "TrainerRequest",
    "WaitingRecord",
    "WorkerRecord",
    "actions_key",
    "capture_change_key",
    "capture_request_key",
    "environment_without_run",
    "findings_key",
    "heartbeat_key",
    "heartbeats",
    "describe_changes",
    "index_key",
    "last_step",
    "manifest_key",
    "new_run",
    "owner_of",
    "read_record",
    "segment_key",
    "suspicions_key",
    "tags_key",
    "trainer_answer_key",
    "trainer_request_key",
    "write_first",
    "write_numbered",
    "write_record",
]
