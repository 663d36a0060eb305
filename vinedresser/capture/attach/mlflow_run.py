"""The MLflow run of a run, for a script that logs to MLflow itself."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from typing import Any

from vinedresser.capture.run.attachment import ATTACHMENT
from vinedresser.store.records import MLFLOW_VARIABLE

_URI = "MLFLOW_TRACKING_URI"


class _OwnRun:
    """Lets MLflow continue the run's MLflow run, where a script would start another one.

    MLflow reads two variables of the environment for this, and raises an error if they do not fit
    what the script has chosen: another server, or an experiment. They are answered only if they
    fit.

    Args:
        experiment: id of the experiment of the MLflow run.
    """

    def __init__(self, mlflow: Any, experiment: str, run: str) -> None:
        self._mlflow = mlflow
        self._experiment, self._run = experiment, run
        self._uri = os.environ[_URI]
        self._fluent = mlflow.tracking.fluent
        # The parameters that the MLflow run had before the script; None: not read.
        self._parameters: dict[str, str] | None = None
        self._begun = False

    def offer(self) -> None:
        """Answer for the two variables, and keep the parameters apart."""
        variables = self._mlflow.environment_variables
        _answer(variables.MLFLOW_RUN_ID, self._run_id)
        _answer(variables.MLFLOW_EXPERIMENT_ID, self._experiment_id)
        client = self._mlflow.tracking.MlflowClient
        one, batch = client.log_param, client.log_batch

        @functools.wraps(one)
        def log_param(self_: Any, run_id: str, key: str, value: Any, *args: Any, **kw: Any) -> Any:
            return one(self_, run_id, self._key(run_id, key, value), value, *args, **kw)

        @functools.wraps(batch)
        def log_batch(self_: Any, run_id: str, *args: Any, **kw: Any) -> Any:
            given = kw.get("params") or (args[1] if len(args) > 1 else ())
            # An iterator can be read once.
            for parameter in given if isinstance(given, list | tuple) else ():
                parameter._key = self._key(run_id, parameter.key, parameter.value)
            return batch(self_, run_id, *args, **kw)

        client.log_param, client.log_batch = log_param, log_batch

    def _run_id(self) -> str | None:
        """Return the run that the first `mlflow.start_run` of the process continues, or None."""
        if self._begun or not self._fits():
            return None
        self._begun = True
        # MLflow removes it.
        os.environ["MLFLOW_RUN_ID"] = self._run
        return self._run

    def _experiment_id(self) -> str | None:
        named = "MLFLOW_EXPERIMENT_NAME" in os.environ
        return self._experiment if self._fits() and not named else None

    def _fits(self) -> bool:
        """Return whether the script has chosen neither another server nor another experiment."""
        chosen = self._fluent._active_experiment_id
        return self._mlflow.get_tracking_uri() == self._uri and chosen in (None, self._experiment)

    def _key(self, run_id: str, key: str, value: Any) -> str:
        """Return the key of a parameter; MLflow refuses a second value, so it gets another key."""
        if run_id != self._run:
            return key
        if self._parameters is None:
            client = self._mlflow.tracking.MlflowClient()
            self._parameters = dict(client.get_run(run_id).data.params)
        return f"script/{key}" if self._parameters.get(key, str(value)) != str(value) else key


def _answer(variable: Any, answer: Callable[[], str | None]) -> None:
    """Let a variable of MLflow have a value unless the environment sets it."""
    original = variable.get

    def get() -> Any:
        found = original()
        return answer() if found is None else found

    variable.get = get


def attach() -> None:
    """Let the script's MLflow know the run; MLflow has just been imported."""
    told = os.environ.get(MLFLOW_VARIABLE)
    if told is None:
        return
    version, experiment, run = told.split("/")
    mlflow = sys.modules["mlflow"]
    if mlflow.__version__ != version:
        # It could refuse the database of another version.
        del os.environ[_URI]
        ATTACHMENT.shield.report(
            f"MLflow {mlflow.__version__} of the script does not log to the run's MLflow run, "
            f"which is of MLflow {version}"
        )
        return
    _OwnRun(mlflow, experiment, run).offer()
