"""The contents of a file are written as TOML again, without secrets."""

from __future__ import annotations

import tomllib
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from vinedresser.infra.configuration import masked_toml

_KEYS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8).map("k".__add__)
_SCALARS = (
    st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(allow_nan=False)
    | st.text(st.characters(codec="utf-8", categories=["L", "Zs", "Cc", "So"]), max_size=12)
)
_DOCUMENTS = st.dictionaries(
    _KEYS,
    st.recursive(
        _SCALARS | st.lists(_SCALARS, max_size=3),
        lambda inner: st.dictionaries(_KEYS, inner, max_size=3) | st.lists(inner, max_size=2),
        max_leaves=8,
    ),
    max_size=4,
)


@given(_DOCUMENTS)
def test_what_is_no_secret_is_read_as_it_was(document: dict[str, Any]) -> None:
    assert tomllib.loads(masked_toml(document)) == document


def test_secrets_are_masked_wherever_they_stand() -> None:
    document = tomllib.loads("""
[run]
command = ["python", "train.py", "--api-key", "hunter-1", "--seed", "1"]
[run.environment]
DB_PASSWORD = "hunter-2"
PIN_SECRET = 123456
HOME = "/home/ada"
DB = "host=db password=hunter-5 port=1"
[variants.a.parameters]
url = "https://ada:hunter-3@host/data"
"log.rate" = [1e-4, inf]
[tracking]
uri = "postgresql://ada:hunter-4@host/mlflow"
""")
    text = masked_toml(document)
    assert "hunter" not in text
    assert "123456" not in text
    masked = tomllib.loads(text)
    assert masked["run"]["command"][4:] == ["--seed", "1"]
    assert masked["run"]["environment"]["HOME"] == "/home/ada"
    assert masked["run"]["environment"]["DB"] == "host=db password=*** port=1"
    assert masked["variants"]["a"]["parameters"]["log.rate"] == [1e-4, float("inf")]
    assert masked["tracking"] == {"uri": "postgresql://***@host/mlflow"}
