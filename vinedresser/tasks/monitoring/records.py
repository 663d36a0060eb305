"""What a monitor keeps in its folder: its lives, its progress, windows and alerts.

    STORE/NAME/
        lock                        held by the flow that judges windows
        life-1/                     from one baseline to the next
            monitor.json
            baseline/
            windows/000000.json     the verdict of each window
            accuracy/000000.json    the verdict of each batch of labels
            progress.json           where the next window begins
            answer.json             what the monitor says of all requests so far
            alerts/ID.json
            actions/monitor.jsonl   the actions that were taken
            explanations/ID/        explanation.json, explain.html, pictures
            monitor.html

Folder and files are on this machine; the requests may be in an object store.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

from vinedresser.drift.verdict import Answer
from vinedresser.errors import ConfigError
from vinedresser.objects import LocalStorage
from vinedresser.objects.files import folder_below
from vinedresser.store.json_values import check_time
from vinedresser.store.records import Record, read_record

__all__ = [
    "AccuracyRecord",
    "AlertRecord",
    "AnswerRecord",
    "ExplanationRecord",
    "MonitorRecord",
    "Progress",
    "Tone",
    "WindowRecord",
    "accuracy_key",
    "alert_id",
    "alert_key",
    "alerts_of",
    "explanation_folder",
    "life_folder",
    "lives_in",
    "tone_of",
    "window_key",
]

_LIFE = re.compile(r"life-([1-9]\d*)", re.ASCII)
_ALERT = re.compile(r"[0-9a-f]{32}", re.ASCII)


Tone = Literal["bad", "doubtful", "good"]
"""How an answer is shown."""


@dataclass(frozen=True)
class MonitorRecord(Record):
    """One life of a monitor: it has one baseline, and one budget of false alarms.

    Attributes:
        id: an id, which identifies its MLflow run.
        life: number of the life, from 1.
        created: seconds since the epoch.
        settings: settings that cannot change in its life.
        experiment_id: id of the MLflow experiment.
        run_id: id of its MLflow run; "" until it is created.
    """

    KEY: ClassVar[str] = "monitor.json"

    id: str
    name: str
    life: int
    created: float
    settings: dict[str, Any]
    experiment_id: str
    run_id: str = ""

    @property
    def shown(self) -> str:
        """Name of its MLflow run."""
        return self.name if self.life == 1 else f"{self.name} (life {self.life})"


@dataclass(frozen=True)
class Progress(Record):
    """How far the requests have been judged.

    Attributes:
        windows: number of windows that were judged.
        cursor: where the next one begins, for `RequestStore.after`; None at the first request.
        state: state of the drift monitor; {} before the first window.
        labels: where the next labels begin, for `RequestStore.labelled`; None at the first.
        batches: number of batches of labels that were judged.
        told: number of windows that MLflow knows.
        told_batches: number of batches of labels that MLflow knows.
    """

    KEY: ClassVar[str] = "progress.json"

    windows: int = 0
    cursor: dict[str, Any] | None = None
    state: dict[str, Any] = field(default_factory=dict)
    told: int = 0
    told_batches: int = 0
    labels: dict[str, Any] | None = None
    batches: int = 0


@dataclass(frozen=True)
class AccuracyRecord(Record):
    """The accuracy of predictions whose labels have become known.

    Attributes:
        number: number of the batch of labels, from 0.
        window: number of the last window before.
        requests: number of requests with a label.
        unknown: number of labels of requests that were not recorded.
        time: seconds since the epoch.
        verdict: the verdict; see `vinedresser.drift.Verdict`.
    """

    KEY: ClassVar[str] = "accuracy"

    number: int
    window: int
    requests: int
    unknown: int
    time: float
    verdict: dict[str, Any]

    def __post_init__(self) -> None:
        """Refuse what is not a time."""
        check_time("time", self.time)


@dataclass(frozen=True)
class WindowRecord(Record):
    """A judged window.

    Attributes:
        number: number of the window, from 0.
        begin: cursor before its first request; None before the first of all.
        end: cursor after its last request.
        requests: number of its requests.
        first: time of its first request, seconds since the epoch.
        last: time of its last request.
        verdict: the verdict; see `vinedresser.drift.Verdict`.
    """

    KEY: ClassVar[str] = "windows"

    number: int
    begin: dict[str, Any] | None
    end: dict[str, Any]
    requests: int
    first: float
    last: float
    verdict: dict[str, Any]

    def __post_init__(self) -> None:
        """Refuse what is not a time."""
        check_time("first", self.first)
        check_time("last", self.last)


@dataclass(frozen=True)
class AlertRecord(Record):
    """An alarm of a monitor.

    Attributes:
        id: 32 hexadecimal digits.
        window: number of the window.
        since: number of the window since which the requests have drifted.
        time: seconds since the epoch.
        text: what has drifted.
        ids: ids of the requests of the window.
    """

    KEY: ClassVar[str] = "alerts"

    id: str
    window: int
    since: int
    time: float
    text: str
    ids: list[str]


@dataclass(frozen=True)
class AnswerRecord(Record):
    """What a monitor says of all requests so far.

    Attributes:
        answer: "drift", "no drift seen" or "cannot tell"; see `vinedresser.drift.Verdict`.
        reasons: why it cannot tell of some features or requests, or of all of them.
        text: the answer in one sentence, with the numbers of requests.
        alert: id of the last alert of this life, also of one about the form of requests; "" for
            none.
        came: number of requests of the service, recorded or not; None if unknown.
        recorded: number of recorded ones; None if unknown.
        lost: number of those that were to be recorded and were lost; None if unknown.
        exact: whether these are exact; see `vinedresser.serving.RequestStore.counts`.
        judged: number of requests in the windows of this life.
        waiting: number of recorded requests that no window has yet.
        windows: number of windows of this life.
        until: time of the last request that was judged, seconds since the epoch; None if there is
            none.
        counted: number of those judged that count in the last verdict: of requests that depend on
            each other, some are left out, and of too few, all.
    """

    KEY: ClassVar[str] = "answer.json"

    answer: Answer
    reasons: list[str]
    text: str
    alert: str
    came: int | None
    recorded: int | None
    lost: int | None
    exact: bool
    judged: int
    waiting: int
    windows: int
    until: float | None
    counted: int = 0

    def __post_init__(self) -> None:
        """Refuse what is none of the answers."""
        if self.answer not in get_args(Answer):
            raise ValueError(f"answer: {self.answer!r} is none of {', '.join(get_args(Answer))}")

    @property
    def tone(self) -> Tone:
        """How it is shown."""
        return tone_of(self.answer, self.reasons, alert=bool(self.alert))


@dataclass(frozen=True)
class ExplanationRecord(Record):
    """The explanation of an alert or of a window.

    Attributes:
        alert: id of the alert; for a window that was chosen by hand, an id of its own.
        window: number of the window.
        time: seconds since the epoch.
        text: what was found.
        run_id: id of its MLflow run; "" until it is created.
        told: whether MLflow has it.
        skipped: it was not made, since another alert had been explained a short time before.
    """

    KEY: ClassVar[str] = "explanation.json"

    alert: str
    window: int
    time: float
    text: str
    run_id: str = ""
    told: bool = False
    skipped: bool = False


def alert_id(monitor: MonitorRecord, what: str) -> str:
    """Return the id of an alert: the same whenever its window is judged.

    Args:
        monitor: the life of the monitor.
    """
    return hashlib.sha256(f"{monitor.id} {what}".encode()).hexdigest()[:32]


def tone_of(answer: str, reasons: Sequence[str], *, alert: bool) -> Tone:
    """Return how an answer is shown: nothing is good of which something cannot be told.

    Args:
        answer: see `AnswerRecord`.
        reasons: why it cannot tell of something.
        alert: whether there is an alert.
    """
    if answer == "drift" or alert:
        return "bad"
    return "doubtful" if answer == "cannot tell" or reasons else "good"


def accuracy_key(number: int) -> str:
    """Return the key of the record of a batch of labels."""
    return f"{AccuracyRecord.KEY}/{number:06d}.json"


def window_key(number: int) -> str:
    """Return the key of the record of a window."""
    return f"{WindowRecord.KEY}/{number:06d}.json"


def alert_key(alert: str) -> str:
    """Return the key of the record of an alert.

    Raises:
        ConfigError: it is not the id of an alert.
    """
    return f"{AlertRecord.KEY}/{_checked(alert)}.json"


def alerts_of(life: LocalStorage) -> list[AlertRecord]:
    """Return the alerts of a life of a monitor, in the order of their windows.

    Args:
        life: storage of its folder.

    Raises:
        CorruptData: one cannot be read.
        StoreError: the folder cannot be read.
    """
    found = [read_record(life, AlertRecord, key=key) for key in life.list(f"{AlertRecord.KEY}/")]
    return sorted((one for one in found if one is not None), key=lambda one: one.window)


def explanation_folder(life: Path, alert: str) -> Path:
    """Return the folder of the explanation of an alert.

    Raises:
        ConfigError: it is not the id of an alert.
        NotAFile: it is something else, such as a symbolic link.
    """
    return folder_below(life, f"explanations/{_checked(alert)}")


def life_folder(state: Path, life: int) -> Path:
    """Return the folder of a life of a monitor.

    Raises:
        NotAFile: it is something else, such as a symbolic link.
    """
    return folder_below(state, f"life-{life}")


def lives_in(state: Path) -> list[int]:
    """Return the numbers of the lives of a monitor, ascending.

    Args:
        state: folder of its state.
    """
    found = [_LIFE.fullmatch(folder) for folder in LocalStorage(state).folders()]
    lives = sorted(int(one[1]) for one in found if one is not None)
    return [one for one in lives if (life_folder(state, one) / MonitorRecord.KEY).is_file()]


def _checked(alert: str) -> str:
    # It may come from an event, and becomes part of a path.
    if _ALERT.fullmatch(alert) is None:
        raise ConfigError(f"{alert!r}: not the id of an alert, 32 hexadecimal digits")
    return alert
