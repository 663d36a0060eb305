"""Keys in a run directory that are not a record's own `KEY`."""

from __future__ import annotations

import re

__all__ = [
    "LOG_KEY",
    "actions_key",
    "capture_change_key",
    "capture_request_key",
    "findings_key",
    "heartbeat_key",
    "heartbeat_rank",
    "index_key",
    "manifest_key",
    "record_number",
    "segment_key",
    "suspicions_key",
    "tags_key",
    "trainer_answer_key",
    "trainer_request_key",
]

# The trainer's output, as text.
LOG_KEY = "log.txt"


def segment_key(rank: int, seq: int) -> str:
    """Return the key of a segment."""
    return f"segments/{rank}/{seq:012d}.safetensors"


def index_key(rank: int, seq: int) -> str:
    """Return the key of the index record that commits a segment."""
    return f"index/{rank}/{seq:012d}.json"


def record_number(key: str, rank: int) -> int | None:
    """Return the number of the segment that an index record commits; None for any other key."""
    found = re.fullmatch(r"index/\d+/(\d{12,})\.json", key, re.ASCII)
    return int(found[1]) if found and key == index_key(rank, int(found[1])) else None


def manifest_key(rank: int, number: int) -> str:
    """Return the key of a manifest, a copy of many index records."""
    return f"manifests/{rank}/{number:012d}.json"


def heartbeat_key(rank: int) -> str:
    """Return the key of a rank's heartbeat."""
    return f"heartbeat/{rank}.json"


def heartbeat_rank(key: str) -> int | None:
    """Return the rank of a heartbeat; None for any other key."""
    found = re.fullmatch(r"heartbeat/(\d+)\.json", key, re.ASCII)
    return int(found[1]) if found and key == heartbeat_key(int(found[1])) else None


def capture_request_key(number: int) -> str:
    """Return the key of a capture request, numbered from 0."""
    return f"capture_requests/{number:06d}.json"


def capture_change_key(number: int, rank: int) -> str:
    """Return the key of a rank's answer to a capture request."""
    return f"capture_changes/{rank}/{number:06d}.json"


def findings_key(group: str) -> str:
    """Return the key of the findings of one rule group."""
    return f"findings/{group}.jsonl"


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
