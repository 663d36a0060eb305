"""Secrets are masked by name, by shape and in URLs; hyperparameters are not."""

from __future__ import annotations

import json

import pytest

from vinedresser.masking import (
    masked_arguments,
    masked_code,
    masked_names,
    masked_text,
    masked_value,
)

TOKEN = "hf_" + "a1B2" * 9


NAMES = """
    api_key apiKey WANDB_API_KEY --api-key apikey secret AWS_SECRET_ACCESS_KEY db_password HF_TOKEN
    token githubToken credentials private_key
"""


@pytest.mark.parametrize("name", NAMES.split())
def test_a_secret_is_known_by_its_name(name: str) -> None:
    assert masked_value(name, "correct-horse") == "***"
    assert masked_names({name: "correct-horse", "lr": 0.1}) == [name]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_tokens", 512),
        ("tokens", "abcdefghijkl"),
        ("pad_token", "<|endoftext|>"),
        ("token", "char"),
        ("token_dim", 64),
        ("use_secret", True),
        ("key_dim", 64),
        ("keyboard", "qwertyuiop"),
        ("monkey", "capuchin"),
        ("tokenizer", "bert-base-uncased"),
        ("path", "/data/sk-learn-forest-of-trees/model"),
        ("commit", "ad01b9b5f0e1c7d9ad01b9b5f0e1c7d9ad01b9b5"),
        ("url", "http://user@host:5000/path"),
        ("password", ""),
    ],
)
def test_hyperparameters_are_left_alone(name: str, value: object) -> None:
    assert masked_value(name, value) == value
    assert masked_names({name: value}) == []


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("https://me:pw@host/x", "https://***@host/x"),
        (
            "postgresql+psycopg2://me:p%40w@db:5432/mlflow",
            "postgresql+psycopg2://***@db:5432/mlflow",
        ),
        ("http://host/x?token=abc&n=1", "http://host/x?token=***&n=1"),
        (f"use {TOKEN} here", "use *** here"),
        ("AKIA" + "A" * 16, "***"),
        ("ghp_" + "a" * 36, "***"),
        *(
            (f"{code}{TOKEN} {code}http://me:pw@host/", f"{code}*** {code}http://***@host/")
            for code in ("\x1b[1m", "\x1b[31m\x1b[4m", "\x1b(B", "\x9b1m", r"\x1b[1m", r"\u001b[m")
        ),
        ("12:30://", "12:30://"),
    ],
)
def test_texts(text: str, masked: str) -> None:
    assert masked_text(text) == masked
    assert masked_text(masked) == masked


def test_nested_values_and_arguments() -> None:
    value = {"hub": {"token": TOKEN, "name": "x"}, "urls": ["http://a:b@c"], "layers": (1, 2)}
    masked = masked_value("", value)
    assert masked == {
        "hub": {"token": "***", "name": "x"},
        "urls": ["http://***@c"],
        "layers": [1, 2],
    }
    assert masked_value("", masked) == masked
    given = ["t.py", "--api_key", "k", "--lr", "0.1", "--password=p", f"key={json.dumps(TOKEN)}"]
    known = ["t.py", "--api_key", "***", "--lr", "0.1", "--password=***", 'key="***"']
    assert masked_arguments(given) == known
    given = ["--token", "--verbose", "token=abcdefghij", "https://a:b@c"]
    assert masked_arguments(given) == ["--token", "--verbose", "token=***", "https://***@c"]


@pytest.mark.parametrize(
    ("line", "masked"),
    [
        ('+API_KEY = "abcdef"', '+API_KEY = "***"'),
        ("""+  "password": 'hunter2', lr=0.1""", """+  "password": '***', lr=0.1"""),
        (
            '-os.environ["AWS_SECRET_KEY"] = "x/y"',
            '-os.environ["AWS_SECRET_KEY"] = "***"',
        ),
        ("DB_PASSWORD=word; pad_token = '<pad>'", "DB_PASSWORD=***; pad_token = '<pad>'"),
        (" max_tokens: 512  # for key in keys:", " max_tokens: 512  # for key in keys:"),
        (f"+url = 'https://me:word@host/'  # {TOKEN}", "+url = 'https://***@host/'  # ***"),
    ],
)
def test_values_in_code(line: str, masked: str) -> None:
    assert masked_code(line) == masked
