"""Records of a run's launch, stop request and exit."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Self

from vinedresser.masking import masked_arguments, masked_names, masked_text, masked_value
from vinedresser.objects import Storage
from vinedresser.processes import ProcessIdentity
from vinedresser.quantities import parse_size, seconds_of
from vinedresser.store.json_values import check_time
from vinedresser.store.records.launchers import (
    SCHEDULERS,
    LauncherSettings,
    check_hosts,
    launcher_settings,
)
from vinedresser.store.records.record import Record, read_record

__all__ = [
    "ExitCause",
    "ExitRecord",
    "LaunchRecord",
    "LaunchSettings",
    "OwnerRecord",
    "StopBy",
    "StopRecord",
    "SupervisorRecord",
    "WorkerRecord",
    "owner_of",
]

ExitCause = Literal["finished", "stopped", "crashed", "killed"]
StopBy = Literal["rule", "sweep", "person", "owner", "limit"]


@dataclass(frozen=True, kw_only=True)
class LaunchSettings:
    """Settings of a file's table ``[run]`` that the process which starts the training needs.

    Attributes:
        gpus: GPUs of each run, which no other run uses (`CUDA_VISIBLE_DEVICES`); 0: all GPUs.
        grace: seconds for a checkpoint between the request to stop and SIGKILL.
        attach: capture trainings that have no hook of their own.
        environment_from: names of variables that the program inherits and must have, such as
            credentials; their values are never stored.
        ranks: processes of the command that train together as one run, on all hosts together.
        min_ranks: number of ranks that suffice for a restart if a host or GPU is gone; default:
            all of them.
        gpus_per_rank: GPUs that each of the ranks sees, and no other process uses; 0: each rank
            sees those of the run.
        metrics: metrics in the lines that the program prints: by name a regex whose first group is
            the number.
        contract: "sagemaker" for a script made for SageMaker's containers: variables, arguments and
            folders are as there.
        launcher: what starts the ranks, "local", "torchrun", "mpi", "ray", "slurm" or "kubernetes",
            or a table of its name and settings.
        hosts: number of hosts that share the ranks equally, or their names.
        time_limit: how long a run may train, "90 min", "2 h", or seconds; then it is stopped.
        memory_limit: how much memory the processes of a run may use together, "8 GB" or "512 MiB";
            above, it is stopped.
    """

    gpus: int = 0
    grace: float = 10.0
    attach: bool = True
    environment_from: list[str] = field(default_factory=list)
    ranks: int = 1
    min_ranks: int | None = None
    gpus_per_rank: int = 0
    metrics: dict[str, str] = field(default_factory=dict)
    contract: Literal["", "sagemaker"] = ""
    launcher: str | dict[str, Any] = "local"
    hosts: int | list[str] = 1
    time_limit: float | str | None = None
    memory_limit: str | None = None

    def __post_init__(self) -> None:
        """Check values that types do not; the supervisor has no package that does."""
        check_hosts(self.system, self.hosts, self.ranks)
        if self.gpus < 0:
            raise ValueError(f"gpus: must be at least 0, not {self.gpus}")
        if self.gpus_per_rank < 0:
            raise ValueError(f"gpus_per_rank: must be at least 0, not {self.gpus_per_rank}")
        if self.gpus and self.gpus_per_rank:
            raise ValueError("gpus_per_rank: give either gpus or gpus_per_rank")
        if not 0 <= self.grace < math.inf:
            raise ValueError(f"grace: must be at least 0 seconds, not {self.grace}")
        for name in self.environment_from:
            if not name or "=" in name or "\0" in name:
                raise ValueError(f"environment_from: {name!r} is not the name of a variable")
        if self.contract and self.system.name != "local":
            raise ValueError(f"contract: not supported with the launcher {self.system.name}")
        if self.gpus and self.elsewhere:
            raise ValueError("gpus: give gpus_per_rank for ranks on other hosts")
        self._check_limits()

    def _check_limits(self) -> None:
        self.most_seconds  # noqa: B018 - validates time_limit
        if self.most_bytes is not None and self.system.name != "local":
            raise ValueError(
                f"memory_limit: not supported with the launcher {self.system.name}, whose ranks "
                "may be on other machines"
            )

    @property
    def most_seconds(self) -> float | None:
        """The time limit in seconds; None: no limit.

        Raises:
            ValueError: it is not a time above 0.
        """
        return seconds_of("time_limit", self.time_limit)

    @property
    def most_bytes(self) -> int | None:
        """The memory limit in bytes; None: no limit.

        Raises:
            ValueError: it is not a size.
        """
        if self.memory_limit is None:
            return None
        try:
            return parse_size(self.memory_limit)
        except ValueError as error:
            raise ValueError(f"memory_limit: {error}") from error

    @property
    def system(self) -> LauncherSettings:
        """What starts the ranks."""
        return launcher_settings(self.launcher)

    @property
    def host_count(self) -> int:
        """Number of hosts that share the ranks."""
        return self.hosts if isinstance(self.hosts, int) else len(self.hosts)

    @property
    def elsewhere(self) -> bool:
        """Whether ranks may train on other machines than the one that starts them."""
        return self.host_count > 1 or self.system.name in SCHEDULERS

    @property
    def own_gpus(self) -> int:
        """GPUs of this machine that no other run uses."""
        return 0 if self.elsewhere else self.gpus or self.ranks * self.gpus_per_rank


@dataclass(frozen=True)
class LaunchRecord(LaunchSettings, Record):
    """The program that the supervisor starts, and the settings for that.

    Attributes:
        argv: the program and its arguments.
        cwd: working directory.
        environment: variables added to the inherited ones.
        owner: identity of the process that owns the run; when it dies, the training is stopped.
        forward: copy the training's output to the supervisor's own output.
        patience: seconds that the training continues without its owner, so that another process
            can adopt it.
        incomplete: values of the arguments or the environment are masked, since they look like
            secrets; the process that prepared the run has them.
        invocation: the `vinedresser` command that prepared the run, with its arguments; [] if
            another program did.
    """

    KEY: ClassVar[str] = "launch.json"

    argv: list[str]
    cwd: str
    environment: dict[str, str] = field(default_factory=dict)
    owner: dict[str, Any] | None = None
    forward: bool = False
    patience: float = 0.0
    incomplete: bool = False
    invocation: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Refuse an owner that is not the identity of a process."""
        super().__post_init__()
        if self.owner is not None:
            ProcessIdentity(**self.owner)

    def to_json(self) -> dict[str, Any]:
        """See `Record.to_json`; what looks like a secret is masked."""
        return super().to_json() | {
            "argv": masked_arguments(self.argv),
            "invocation": masked_arguments(self.invocation),
            "environment": masked_value("", self.environment),
            "incomplete": self.incomplete or self.masked,
        }

    @property
    def masked(self) -> bool:
        """Whether the stored record will lack values."""
        arguments = masked_arguments(self.argv) != self.argv
        return arguments or bool(masked_names(self.environment))


@dataclass(frozen=True)
class OwnerRecord(Record):
    """The process that adopted the run; replaces the launch record's owner."""

    KEY: ClassVar[str] = "owner.json"

    process: dict[str, Any]

    def __post_init__(self) -> None:
        """Refuse what is not the identity of a process."""
        ProcessIdentity(**self.process)


@dataclass(frozen=True)
class WorkerRecord(Record):
    """The worker process of a cluster that runs it; the first one wins."""

    KEY: ClassVar[str] = "worker.json"

    process: dict[str, Any]

    def __post_init__(self) -> None:
        """Refuse what is not the identity of a process."""
        ProcessIdentity(**self.process)


@dataclass(frozen=True)
class SupervisorRecord(Record):
    """Identities of the supervisor and of the processes that it started.

    Attributes:
        trainer: the trainer; of several ranks, rank 0.
        started: seconds since the epoch.
        peers: the other ranks, in order.
    """

    KEY: ClassVar[str] = "supervisor.json"

    supervisor: dict[str, Any]
    trainer: dict[str, Any]
    started: float
    peers: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Refuse what are not identities of processes, or a start that is not a time."""
        check_time("started", self.started)
        ProcessIdentity(**self.supervisor)
        for one in (self.trainer, *self.peers):
            ProcessIdentity(**one)


@dataclass(frozen=True)
class StopRecord(Record):
    """The request to stop the run. The first one wins; it is never replaced.

    Attributes:
        by: "rule", "sweep" (worse than other trials), "person", "owner" (the owner is gone) or
            "limit" (over its limit of time or memory).
        rule: name of the rule, else "".
        step: step of the finding, None if there is none.
        reason: one sentence.
        time: seconds since the epoch.
        finding: the finding as JSON, None if there is none.
    """

    KEY: ClassVar[str] = "stop.json"

    by: StopBy
    reason: str
    time: float
    rule: str = ""
    step: int | None = None
    finding: dict[str, Any] | None = None


@dataclass(frozen=True)
class ExitRecord(Record):
    """The end of the run. Written last: nothing follows it.

    Attributes:
        cause: "finished" (exit code 0), "stopped" (by stop.json), "crashed" (failed on its own) or
            "killed" (by a signal from outside, or it vanished).
        code: exit code, None if a signal ended it or its end was not observed.
        signal: name of the signal, else "".
        reason: one sentence; for a crash, the last line of the traceback.
        last_step: last completed optimizer step, None if unknown.
        ended: seconds since the epoch.
        stop: the stop record if the cause is "stopped".
        rank: of several ranks, the first that failed; None if none failed.
    """

    KEY: ClassVar[str] = "exit.json"

    cause: ExitCause
    reason: str
    ended: float
    code: int | None = None
    signal: str = ""
    last_step: int | None = None
    stop: StopRecord | None = None
    rank: int | None = None

    def __post_init__(self) -> None:
        """Refuse an end that is not a time."""
        check_time("ended", self.ended)

    def to_json(self) -> dict[str, Any]:
        """See `Record.to_json`; what looks like a secret in the reason is masked."""
        return super().to_json() | {"reason": masked_text(self.reason)}

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Self:
        """See `Record.from_json`."""
        if isinstance(document, dict) and document.get("stop") is not None:
            document = document | {"stop": StopRecord.from_json(document["stop"])}
        return super().from_json(document)


def owner_of(storage: Storage) -> dict[str, Any] | None:
    """Return the identity of the process that owns a run, as JSON; None if it has no owner.

    Raises:
        CorruptData: a record is invalid.
        StoreError: the storage refused.
    """
    launch = read_record(storage, LaunchRecord)
    if launch is None or not launch.patience:
        return launch.owner if launch is not None else None
    heir = read_record(storage, OwnerRecord)
    return heir.process if heir is not None else launch.owner
