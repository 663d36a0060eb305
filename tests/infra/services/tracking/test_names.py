"""Names of metrics in MLflow; only explicit run ids are used."""

from __future__ import annotations

import ast
import logging
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.paths import ROOT
from vinedresser.errors import ConfigError
from vinedresser.infra.catalog.tracking_uri import absolute_uri, sqlite_path
from vinedresser.infra.services.tracking import MetricNames, thin
from vinedresser.infra.services.tracking.metric_names import clean_key
from vinedresser.infra.services.tracking.runs import text

PACKAGE = ROOT / "vinedresser"


def test_thinning_keeps_the_first_thousand_and_fewer_and_fewer_after() -> None:
    assert all(thin(step) for step in range(1000))
    assert [step for step in range(1000, 1041) if thin(step)] == [1000, 1010, 1020, 1030, 1040]
    assert [step for step in range(9_980, 10_201) if thin(step)] == [
        9980,
        9990,
        10_000,
        10_100,
        10_200,
    ]
    assert sum(map(thin, range(1_000_000))) == 1000 + 3 * 900


def test_a_token_beside_a_control_character_is_masked_too() -> None:
    token = f"hf_{'a1' * 20}"
    assert text(f"\x07{token}\x1b{token}") == "\\x07***\\x1b***"


def test_a_metric_key_is_made_of_mode_and_name_and_stays_the_same() -> None:
    names = MetricNames()
    assert names.key("losses/CrossEntropyLoss", "train") == "train/loss"
    assert names.key("metrics/accuracy", "eval") == "eval/accuracy"
    assert names.key("losses/CrossEntropyLoss", "train") == "train/loss"


def test_the_first_loss_of_a_mode_is_named_loss() -> None:
    one, other = MetricNames(), MetricNames()
    assert one.key("losses/MSELoss", "eval") == other.key("losses/L1Loss", "eval") == "eval/loss"
    assert one.key("losses/Penalty", "eval") == "eval/Penalty"


def test_two_names_never_share_a_key() -> None:
    names = MetricNames()
    met = ["losses/a", "metrics/a", "saved/a#1", "saved/a_1", "saved/a[1", "x" * 300, "x" * 301]
    keys = [names.key(name, "train") for name in met]
    assert None not in keys
    assert len(set(keys)) == len(met)


def test_metrics_beyond_the_limit_are_named_in_one_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    names = MetricNames(most=2)
    with caplog.at_level(logging.WARNING):
        keys = [names.key(f"metrics/m{number}", "train") for number in (0, 1, 2, 3, 2)]
    assert keys == ["train/m0", "train/m1", None, None, None]
    assert names.left_out == ["train metrics/m2", "train metrics/m3"]
    assert [record.message.count("metrics/m2") for record in caplog.records] == [1]


@given(st.text(max_size=300))
def test_every_name_becomes_a_valid_mlflow_key(name: str) -> None:
    # The reference is MLflow's own check.
    from mlflow.utils import validation

    checks: Any = validation
    key = clean_key(name)
    checks._validate_metric(key, 0.0, 0, 0)
    checks._validate_param(key, "")
    checks._validate_tag(key, "")


@pytest.mark.parametrize(
    "uri",
    ["mlruns", "./mlflow.db", "sqlite://", "sqlite:///:memory:", "sqlit:///x.db", "file:///x"],
)
def test_a_uri_that_processes_cannot_share_is_refused(uri: str) -> None:
    with pytest.raises(ConfigError, match=r"sqlite:///FILE\.db"):
        absolute_uri(uri)


def test_a_sqlite_uri_means_the_same_in_every_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    uri = absolute_uri("sqlite:///a b%23.db")
    monkeypatch.chdir("/")
    assert sqlite_path(uri) == tmp_path / "a b#.db"
    assert absolute_uri(uri) == uri
    assert absolute_uri("http://127.0.0.1:5000") == "http://127.0.0.1:5000"


@pytest.mark.thorough
def test_only_the_client_is_used_never_the_fluent_api() -> None:
    # Functions such as `mlflow.log_metric` open a stray run in a thread without one.
    allowed = {
        *("__version__", "MlflowClient", "MlflowException"),
        *("Dataset", "DatasetInput", "InputTag", "LoggedModel", "Metric", "Param", "Run", "RunTag"),
        *("Model", "ModelSignature", "ColSpec", "Schema", "TensorSpec"),
    }
    # Both act in processes of the user: a served model, which has no other interface, and a script
    # whose calls of the fluent API are led to its run.
    others = {
        PACKAGE / "serving" / "wrappers" / "pyfunc.py",
        PACKAGE / "capture" / "attach" / "mlflow_run.py",
    }
    for path in {*PACKAGE.rglob("*.py")} - others:
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if "mlflow" in text else ():
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("mlflow"):
                assert {alias.name for alias in node.names} <= allowed, f"{path}:{node.lineno}"
            if isinstance(node, ast.Name) and node.id == "mlflow":
                pytest.fail(f"{path}:{node.lineno}: uses mlflow other than by MlflowClient")
