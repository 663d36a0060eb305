"""Keys in a run directory that are not a record's own `KEY`."""

from __future__ import annotations

import re

__all__ = [
    "CHANGES_KEY",
    "EXPERIMENT_KEY",
    "LOG_KEY",
    "STREAM",
    "actions_key",
    "capture_change_key",
    "capture_request_key",
    "checks_key",
    "fed_key",
    "findings_key",
    "heartbeat_key",
    "host_key",
    "index_key",
    "manifest_key",
    "rank_log_key",
    "record_number",
    "segment_key",
    "stray_note",
    "stream_key",
    "suspicions_key",
    "tags_key",
    "trainer_answer_key",
    "trainer_request_key",
]

# The trainer's output, as text.
LOG_KEY = "log.txt"
# What was changed in the code since its revision, as a diff.
CHANGES_KEY = "changes.diff"
# The experiment, sweep or prune file that a run, or what makes runs of its own, was made from. Not
# a name that a user gives to his own file, which may lie in this folder.
EXPERIMENT_KEY = "experiment.masked.toml"

_RANK = r"(?:0|[1-9]\d*)"
# Numbers are padded with zeros to so many digits.
_SIX, _TWELVE = (rf"(?:\d{{{digits}}}|[1-9]\d{{{digits},}})" for digits in (6, 12))
# An editor's copies begin with a dot.
_GROUP = r"[^/.][^/]*"
# The name of a stream; others could lead out of its folder.
STREAM = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}"
# The names that the contract gives to the files of a folder, and what they contain.
_NAMES = {
    folder: (re.compile(f"{folder}/{pattern}", re.ASCII), content)
    for folder, pattern, content in (
        ("segments", rf"{_RANK}/{_TWELVE}\.safetensors", "a segment"),
        ("index", rf"{_RANK}/{_TWELVE}\.json", "an index record"),
        ("manifests", rf"{_RANK}/{_TWELVE}\.json", "a manifest"),
        ("heartbeat", rf"{_RANK}\.json", "a heartbeat"),
        ("hosts", rf"{_RANK}\.json", "the report of a host"),
        ("logs", rf"{_RANK}\.txt", "the output of a rank"),
        ("fed", rf"{_RANK}\.json", "a record of training data"),
        ("capture_requests", rf"{_SIX}\.json", "a capture request"),
        ("capture_changes", rf"{_RANK}/{_SIX}\.json", "an answer to a capture request"),
        ("trainer_requests", rf"{_SIX}\.json", "a request to the trainer"),
        ("trainer_answers", rf"{_RANK}/{_SIX}\.json", "an answer of the trainer"),
        ("findings", rf"{_GROUP}\.jsonl", "a file of findings"),
        ("checks", rf"{_GROUP}\.json", "a record of checks"),
        ("suspicions", rf"{_GROUP}\.json", "a record of suspicions"),
        ("actions", rf"{_GROUP}\.jsonl", "a journal of actions"),
        ("tags", rf"{_GROUP}\.json", "a record of tags"),
        ("streams", rf"{STREAM}/{_RANK}/{_SIX}\.jsonl", "a part of a stream"),
    )
}


def stray_note(key: str) -> str | None:
    """Return a sentence about a key in a folder of the contract that is not one of its names.

    None for a name of the contract and for all keys elsewhere.
    """
    pattern, content = _NAMES.get(key.partition("/")[0], (None, ""))
    if pattern is None or "/" not in key or pattern.fullmatch(key):
        return None
    return f"{key}: not the name of {content}; ignored"


def segment_key(rank: int, seq: int) -> str:
    """Return the key of a segment."""
    return f"segments/{rank}/{seq:012d}.safetensors"


def index_key(rank: int, seq: int) -> str:
    """Return the key of the index record that commits a segment."""
    return f"index/{rank}/{seq:012d}.json"


def record_number(key: str, rank: int) -> int | None:
    """Return the number of the segment that an index record commits; None for any other key."""
    of_rank = key.startswith(f"index/{rank}/") and stray_note(key) is None
    return int(key.rpartition("/")[2].removesuffix(".json")) if of_rank else None


def manifest_key(rank: int, number: int) -> str:
    """Return the key of a manifest, a copy of many index records."""
    return f"manifests/{rank}/{number:012d}.json"


def heartbeat_key(rank: int) -> str:
    """Return the key of a rank's heartbeat."""
    return f"heartbeat/{rank}.json"


def host_key(host: int) -> str:
    """Return the key of the report of one host of several."""
    return f"hosts/{host}.json"


def rank_log_key(rank: int) -> str:
    """Return the key of the output of one rank of several, as text."""
    return f"logs/{rank}.txt"


def fed_key(rank: int) -> str:
    """Return the key of the record of what was fed to a rank."""
    return f"fed/{rank}.json"


def capture_request_key(number: int) -> str:
    """Return the key of a capture request, numbered from 0."""
    return f"capture_requests/{number:06d}.json"


def capture_change_key(number: int, rank: int) -> str:
    """Return the key of a rank's answer to a capture request."""
    return f"capture_changes/{rank}/{number:06d}.json"


def findings_key(group: str) -> str:
    """Return the key of the findings of one rule group."""
    return f"findings/{group}.jsonl"


def checks_key(group: str) -> str:
    """Return the key of the record of which rules of one group judge the run."""
    return f"checks/{group}.json"


def suspicions_key(group: str) -> str:
    """Return the key of the suspicions of one rule group."""
    return f"suspicions/{group}.json"


def actions_key(group: str) -> str:
    """Return the key of the actions on the findings of one rule group."""
    return f"actions/{group}.jsonl"


def tags_key(group: str) -> str:
    """Return the key of the tags that one rule group gives the run."""
    return f"tags/{group}.json"


def trainer_request_key(number: int) -> str:
    """Return the key of a request to the trainer, numbered from 0."""
    return f"trainer_requests/{number:06d}.json"


def trainer_answer_key(number: int, rank: int) -> str:
    """Return the key of a rank's answer to a request to the trainer."""
    return f"trainer_answers/{rank}/{number:06d}.json"


def stream_key(name: str, rank: int, number: int) -> str:
    """Return the key of a part of a stream, numbered from 0."""
    return f"streams/{name}/{rank}/{number:06d}.jsonl"
