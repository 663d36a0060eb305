"""What a monitor says of all requests so far: one of three answers, and on how many it rests."""

from __future__ import annotations

from vinedresser.drift.verdict import Answer
from vinedresser.errors import NotARun
from vinedresser.explain.formatting import count
from vinedresser.serving.reading.counting import RequestCounts
from vinedresser.store.records import read_record
from vinedresser.tasks.monitoring.arming import Life
from vinedresser.tasks.monitoring.judging_windows import read_progress
from vinedresser.tasks.monitoring.records import (
    AccuracyRecord,
    AlertRecord,
    AnswerRecord,
    Progress,
    WindowRecord,
    accuracy_key,
    alert_id,
    alerts_of,
    window_key,
)

__all__ = ["answer", "last_answer"]

_ACCURACY = "accuracy: "
_UNKNOWN = RequestCounts(None, None, None, exact=False)


def last_answer(life: Life) -> AnswerRecord | None:
    """Return the answer of the last run of the monitor; None before the first.

    Raises:
        CorruptData: it cannot be read.
    """
    return read_record(life.storage, AnswerRecord)


def answer(life: Life) -> AnswerRecord:
    """Return what the monitor says of all requests so far.

    Args:
        life: the life of the monitor, all of whose complete windows have been judged.

    Raises:
        CorruptData: a record cannot be read.
        StoreError: the store of the requests refused, or the folder cannot be read.
    """
    progress, alerts = read_progress(life), alerts_of(life.storage)
    try:
        counts = life.requests.counts()
        waiting = len(life.requests.after(progress.cursor, life.monitor.window.requests)[0])
        missing = ""
    except NotARun as error:
        counts, waiting, missing = _UNKNOWN, 0, str(error)
    window = None
    if progress.windows:
        window = read_record(life.storage, WindowRecord, key=window_key(progress.windows - 1))
    reasons = _reasons(life, progress, window, counts)
    drift = [alert for alert in alerts if alert.id == alert_id(life.record, "drift")]
    verdict: Answer = "cannot tell" if window is None else window.verdict["answer"]
    if window is None:
        needed = life.monitor.window.requests
        few = f"{waiting:,} of the {needed:,} requests that a window needs have been recorded"
        reasons = [missing or few, *reasons]
    judged = progress.windows * life.monitor.window.requests
    counted = 0 if window is None else int(window.verdict["judged_rows"])
    numbers = _numbers(counts, progress.windows, (judged, counted, waiting))
    return AnswerRecord(
        answer="drift" if drift else verdict,
        reasons=reasons,
        text="; ".join([numbers, *_said(window, drift, alerts, reasons)]),
        alert=alerts[-1].id if alerts else "",
        came=counts.came,
        recorded=counts.recorded,
        lost=counts.lost,
        exact=counts.exact,
        judged=judged,
        counted=counted,
        waiting=waiting,
        windows=progress.windows,
        until=None if window is None else window.last,
    )


def _reasons(
    life: Life, progress: Progress, window: WindowRecord | None, counts: RequestCounts
) -> list[str]:
    """Return why it cannot be told of some features and requests."""
    found = [] if window is None else [str(one) for one in window.verdict["reasons"]]
    if progress.batches:
        # Labels may have been judged after the window.
        key = accuracy_key(progress.batches - 1)
        batch = read_record(life.storage, AccuracyRecord, key=key)
        found = [one for one in found if not one.startswith(_ACCURACY)]
        found += [] if batch is None else [str(one) for one in batch.verdict["reasons"]]
    if counts.lost:
        found.append(f"{count(counts.lost, 'request')} that the recorder lost: nothing is known")
    return found + [f"damaged requests: {problem}" for problem in life.requests.problems]


def _numbers(counts: RequestCounts, windows: int, requests: tuple[int, int, int]) -> str:
    """Return the numbers of requests in words.

    Args:
        windows: number of windows of this life.
        requests: number of requests in these, of those that count, and of those that wait.
    """
    judged, counted, waiting = requests
    least = "" if counts.exact else "at least "
    came = "an unknown number of requests" if counts.came is None else f"{least}{counts.came:,}"
    recorded = "an unknown number" if counts.recorded is None else f"{counts.recorded:,}"
    parts = [f"{came} requests came" if counts.came is not None else f"{came} came"]
    parts.append(f"{recorded} recorded")
    if counts.lost:
        parts.append(f"{counts.lost:,} lost")
    said = f"{judged:,} judged"
    if windows:
        said += f" in {count(windows, 'window')}"
    if counted < judged:
        said += f" ({counted:,} of them count{'' if counted else ' so far'})"
    parts.append(said)
    if waiting:
        parts.append(f"{waiting:,} wait for a window to be complete")
    return ", ".join(parts)


def _said(
    window: WindowRecord | None,
    drift: list[AlertRecord],
    alerts: list[AlertRecord],
    reasons: list[str],
) -> list[str]:
    """Return what was found, in words."""
    if window is None:
        return [f"cannot tell, because {'; '.join(reasons)}"]
    said = [str(window.verdict["summary"])]
    if drift and window.verdict["answer"] != "drift":
        # Of labels that were judged after the window.
        said = [one.text for one in drift]
    shown = [reason for reason in reasons if reason not in window.verdict["reasons"]]
    if shown:
        said.append(f"cannot tell of {'; '.join(shown)}")
    said += [f"alert: {alert.text}" for alert in alerts if alert not in drift]
    return said
