"""An MLflow model records its requests where MLflow loads it, in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from vinedresser.errors import ConfigError
from vinedresser.serving import RequestStore
from vinedresser.serving.wrappers.pyfunc import log_recorded

pytestmark = pytest.mark.thorough

_LOG = """
import sys, mlflow, numpy as np
from pathlib import Path
from sklearn.linear_model import LogisticRegression
from vinedresser.serving.wrappers.pyfunc import log_recorded
folder = Path(sys.argv[1])
mlflow.set_tracking_uri(f"sqlite:///{folder / 'mlflow.db'}")
mlflow.create_experiment("served", artifact_location=(folder / "artifacts").as_uri())
mlflow.set_experiment("served")
rows = np.random.default_rng(0).normal(5, 3, size=(100, 2))
model = LogisticRegression().fit(rows, rows[:, 0] > 5)
with mlflow.start_run():
    plain = mlflow.sklearn.log_model(model, name="plain", pip_requirements=["scikit-learn"])
    print(log_recorded(plain.model_uri, folder / "store", "churn"))
"""

_SERVE = """
import sys, mlflow, pandas as pd
from pathlib import Path
mlflow.set_tracking_uri(f"sqlite:///{Path(sys.argv[1]) / 'mlflow.db'}")
model = mlflow.pyfunc.load_model(sys.argv[2])
print(model.predict(pd.DataFrame({"age": [1.0, 9.0], "income": [1.0, 1.0]})).tolist())
"""


def output(code: str, *arguments: str) -> str:
    """Run a program in another process, and return the last line that it prints."""
    command = [sys.executable, "-W", "ignore", "-c", code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


@pytest.mark.slow
def test_a_logged_model_records_its_requests(tmp_path: Path) -> None:
    recorded = output(_LOG, str(tmp_path))
    assert output(_SERVE, str(tmp_path), recorded) == "[False, True]"
    found = RequestStore(tmp_path / "store/churn").after(None)[0]
    assert found.columns["age"].tolist() == [1.0, 9.0]
    assert found.columns["prediction"].tolist() == [False, True]


def test_settings_are_checked_before_the_model_is_logged(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="sample: 2"):
        log_recorded("models:/churn/1", tmp_path, "churn", sample=2)
