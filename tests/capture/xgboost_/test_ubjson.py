"""Binary JSON of XGBoost has the same content as its text."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from tests.capture.xgboost_.trainings import PROBLEMS
from vinedresser.capture.xgboost_.ubjson import read_ubjson
from vinedresser.errors import CorruptData


def plain(value: Any) -> Any:
    """Return a value with arrays converted to lists."""
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    if isinstance(value, np.ndarray):
        return value.tolist()
    return [plain(one) for one in value] if isinstance(value, list) else value


def rounded(value: Any) -> Any:
    """Return a value with its numbers rounded to float32, since text has fewer digits."""
    if isinstance(value, dict):
        return {key: rounded(one) for key, one in value.items()}
    if isinstance(value, list):
        return [rounded(one) for one in value]
    return float(np.float32(value)) if isinstance(value, float) else value


@pytest.mark.parametrize(
    "name", ["binary", "forest of each class", "dart", "vector leaves", "linear"]
)
def test_a_booster_equals_its_json(name: str) -> None:
    booster = PROBLEMS[name].train()
    binary = plain(read_ubjson(bytes(booster.save_raw("ubj"))))
    text = json.loads(bytes(booster.save_raw("json")))
    assert rounded(binary) == rounded(text)


def test_numbers_and_constants_follow_the_specification() -> None:
    document = (
        b"{U\x01ai\xffU\x01bI\x01\x00U\x01cL" + b"\xff" * 8 + b"U\x01d["
        b"TFZ]U\x01eD@\x04\x00\x00\x00\x00\x00\x00U\x01fSU\x02hi}"
    )
    expected = {"a": -1, "b": 256, "c": -1, "d": [True, False, None], "e": 2.5, "f": "hi"}
    assert read_ubjson(document) == expected


@pytest.mark.parametrize("document", [b"", b"?", b"{", b"[$d#U\x05\x00", b"[#L\x00", b"SU\x01\xff"])
def test_invalid_documents_are_rejected(document: bytes) -> None:
    with pytest.raises(
        CorruptData, match=f"document of {len(document)} bytes is not valid Universal"
    ):
        read_ubjson(document)
