"""The run directory: its file names, and the small records that processes exchange.

All processes of a run, the trainer with its hook, the supervisor, the judges and the recorder,
share only this directory (or the same keys on an object store). Any of them may be killed and
restarted at any time. This package uses only the standard library, which keeps the supervisor
small.

    file                            content                                 written by
    run.json                        the run's own record                    launcher or hook
    launch.json                     command, owner and settings             launcher
    owner.json                      the new owner of an adopted run         new owner
    supervisor.json, .lock, log.txt supervisor and trainer; output          supervisor
    system.jsonl                    load of its machine                     supervisor
    hosts/<host>.json               a host's ranks                          host
    host_orders.json                what the hosts are told                 supervisor
    segments/<rank>/<seq>.safetensors, index/<rank>/<seq>.json              hook's writer
    manifests/<rank>/<number>.json  copies of a hundred index records       hook's writer
    heartbeat/<rank>.json           writing process, last step              hook's writer
    fed/<rank>.json                 what data sets have fed                 hook's writer
    waiting.json                    a waiting reader: commit immediately    judge
    capture_requests/<number>.json  changes of the capture                  user
    capture_changes/<rank>/<number>.json    answers to them                 hook's writer
    claim.json                      the processes that write the run        hook
    trainer_requests/<number>.json  requests to act between two steps       judge or user
    trainer_answers/<rank>/<number>.json    answers to them                 hook's writer
    controls.jsonl                  everything that requests have changed   hook's writer
    findings/<group>.jsonl          findings of the rules of a group        judge
    checks/<group>.json             these rules, and what the run lacks     judge
    suspicions/<group>.json         their suspicions, in a sweep            judge
    actions/<group>.jsonl           actions taken on findings               judge
    tags/<group>.json               tags of the run                         judge
    streams/<name>/<rank>/<number>.jsonl    answers to a standing query     hook
    preflight.json                  result of the checks before the training flow
    stop.json                       the stop request and its reason         judge or user
    checkpoints/                    checkpoints saved when stopped          trainer
    exit.json                       the run's end; written last             supervisor
    tracking.json                   its MLflow run                          recorder
    pin.json                        it is never removed                     user
    report.html                     the report                              recorder
"""

from __future__ import annotations

from vinedresser.store.records.checks import ChecksRecord
from vinedresser.store.records.environment import (
    ATTACH_VARIABLE,
    FLOW_VARIABLE,
    HOST_VARIABLE,
    KEEP_MODEL_VARIABLE,
    METRICS_VARIABLE,
    MLFLOW_VARIABLE,
    PREFLIGHT_VARIABLE,
    RANK_VARIABLE,
    REPLAY_KERAS_VARIABLE,
    REPLAY_VARIABLE,
    RUN_ID_VARIABLE,
    RUN_VARIABLE,
    STACKS_VARIABLE,
    WORLD_SIZE_VARIABLE,
    environment_without_run,
    started_for,
)
from vinedresser.store.records.fed import FedRecord, fed_records
from vinedresser.store.records.heartbeat import Heartbeat, heartbeats, last_step, lost_records
from vinedresser.store.records.hosts import HostOrders, HostReport
from vinedresser.store.records.json_lines import read_journal, read_json_lines
from vinedresser.store.records.keys import (
    CHANGES_KEY,
    EXPERIMENT_KEY,
    LOG_KEY,
    STREAM,
    actions_key,
    capture_change_key,
    capture_request_key,
    checks_key,
    fed_key,
    findings_key,
    heartbeat_key,
    host_key,
    index_key,
    manifest_key,
    rank_log_key,
    record_number,
    segment_key,
    stream_key,
    suspicions_key,
    tags_key,
    trainer_answer_key,
    trainer_request_key,
)
from vinedresser.store.records.lifecycle import (
    ExitCause,
    ExitRecord,
    LaunchRecord,
    LaunchSettings,
    OwnerRecord,
    StopBy,
    StopRecord,
    SupervisorRecord,
    WorkerRecord,
    owner_of,
)
from vinedresser.store.records.listing import known_keys, strays
from vinedresser.store.records.machine import MachineRecord, SystemRecord
from vinedresser.store.records.parent_record import ParentRecord
from vinedresser.store.records.pin import PinRecord
from vinedresser.store.records.record import (
    Record,
    encoded,
    first_free,
    read_record,
    write_first,
    write_numbered,
    write_record,
)
from vinedresser.store.records.requests import (
    ActionRecord,
    CaptureChange,
    CapturePaceRecord,
    CaptureRequest,
    ClaimRecord,
    ControlRecord,
    StopStepRecord,
    TagsRecord,
    TrainerAnswer,
    TrainerRequest,
    TrainerRequestKind,
    WaitingRecord,
)
from vinedresser.store.records.run_name import name_at, name_fault
from vinedresser.store.records.run_record import (
    FORMAT_VERSION,
    POLICY_GRADIENT,
    RemedyRecord,
    RestartRecord,
    RunRecord,
    TrackingRecord,
    check_format,
    describe_changes,
    new_run,
)
from vinedresser.store.records.stacks import StacksRecord, StacksRequest

__all__ = [
    "ATTACH_VARIABLE",
    "FLOW_VARIABLE",
    "PREFLIGHT_VARIABLE",
    "FORMAT_VERSION",
    "HOST_VARIABLE",
    "KEEP_MODEL_VARIABLE",
    "CHANGES_KEY",
    "EXPERIMENT_KEY",
    "LOG_KEY",
    "MachineRecord",
    "METRICS_VARIABLE",
    "MLFLOW_VARIABLE",
    "RANK_VARIABLE",
    "REPLAY_KERAS_VARIABLE",
    "REPLAY_VARIABLE",
    "RUN_ID_VARIABLE",
    "RUN_VARIABLE",
    "STACKS_VARIABLE",
    "WORLD_SIZE_VARIABLE",
    "ActionRecord",
    "CaptureChange",
    "CapturePaceRecord",
    "CaptureRequest",
    "ChecksRecord",
    "ClaimRecord",
    "ControlRecord",
    "ExitCause",
    "ExitRecord",
    "FedRecord",
    "Heartbeat",
    "HostOrders",
    "HostReport",
    "LaunchRecord",
    "LaunchSettings",
    "OwnerRecord",
    "ParentRecord",
    "PinRecord",
    "Record",
    "RemedyRecord",
    "RestartRecord",
    "POLICY_GRADIENT",
    "RunRecord",
    "STREAM",
    "StopBy",
    "StacksRecord",
    "StacksRequest",
    "StopRecord",
    "StopStepRecord",
    "SupervisorRecord",
    "SystemRecord",
    "TagsRecord",
    "TrackingRecord",
    "TrainerAnswer",
    "TrainerRequest",
    "TrainerRequestKind",
    "WaitingRecord",
    "WorkerRecord",
    "actions_key",
    "capture_change_key",
    "capture_request_key",
    "checks_key",
    "environment_without_run",
    "fed_key",
    "fed_records",
    "findings_key",
    "heartbeat_key",
    "heartbeats",
    "check_format",
    "describe_changes",
    "encoded",
    "first_free",
    "host_key",
    "index_key",
    "known_keys",
    "last_step",
    "lost_records",
    "manifest_key",
    "name_at",
    "name_fault",
    "new_run",
    "owner_of",
    "rank_log_key",
    "read_journal",
    "read_json_lines",
    "read_record",
    "record_number",
    "segment_key",
    "started_for",
    "strays",
    "stream_key",
    "suspicions_key",
    "tags_key",
    "trainer_answer_key",
    "trainer_request_key",
    "write_first",
    "write_numbered",
    "write_record",
]
