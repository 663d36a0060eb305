"""`monitor.toml`: a served model whose requests are watched for drift.

    [monitor]   name, requests (the folder in which the service records them), store, cwd
    [model]     build and weights: the served model, whose predictions and saliency are wanted;
                features, layer, classify: as in the service; classes
    [baseline]  data: what the model was trained or validated on; rows
    [window]    requests: the number that is judged together
    [alarm]     budget: probability of a false alarm over the life of the monitor
    [explain]   examples, method, following, patience, cooldown
    [actions]   on_warning: actions for an alarm; [actions.NAME] notify, email, command
    [tracking]  uri, experiment

Paths are relative to the file.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

from vinedresser.errors import ConfigError
from vinedresser.explain.saliency.options import Method
from vinedresser.infra.configuration import build, load_toml
from vinedresser.infra.entry import is_reference
from vinedresser.store.records.run_name import name_fault
from vinedresser.store.storage import Location
from vinedresser.tasks.config.actions_table import checked_actions
from vinedresser.tasks.config.experiment import TrackingTable
from vinedresser.tasks.config.known_tables import check_tables
from vinedresser.tasks.config.locations import store_in, tracking_uri_in
from vinedresser.tasks.config.run_spec import refuse_missing_package

__all__ = [
    "AlarmTable",
    "BaselineTable",
    "ExplainTable",
    "ModelTable",
    "Monitor",
    "MonitorTable",
    "WindowTable",
    "load_monitor",
]

T = TypeVar("T")

_TABLES = ("monitor", "model", "baseline", "window", "alarm", "explain", "actions", "tracking")
# Actions for which there is no training: an alarm is about a service.
_OF_TRAININGS = frozenset({"tag", "snapshot", "checkpoint", "adjust", "stop"})


@dataclass(frozen=True)
class MonitorTable:
    """What is watched.

    Attributes:
        name: name of the monitor.
        requests: where the service records its requests: its folder in a store, ``STORE/SERVICE``,
            or the URL of that.
        store: folder of the monitor's own state, in a folder with its name.
        cwd: folder that comes first on the module path.
    """

    name: str
    requests: str
    store: str = "monitors"
    cwd: str = "."


@dataclass(frozen=True)
class ModelTable:
    """The served model; without it, inputs alone are compared and nothing is explained.

    Attributes:
        build: ``module:function`` that returns the model, with any weights.
        weights: file with its weights (``.safetensors``, ``.pt``, ``.pth`` or, of a Keras model,
            ``.weights.h5``), relative to the settings' file; None: `build` loads them.
        features: names of the features, as in the service.
        layer: layer whose output is the column "embedding", as in the service.
        classify: how scores are read, as in the service; None: by their values.
        classes: names of the classes.
    """

    build: str | None = None
    weights: str | None = None
    features: list[str] | None = None
    layer: str | None = None
    classify: Literal["logits", "probabilities", "values"] | None = None
    classes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Check values that types do not."""
        _check_reference("build", self.build)
        for key in ("weights", "layer"):
            if getattr(self, key) is not None and self.build is None:
                raise ValueError(f"{key}: needs build, the function that returns the model")


@dataclass(frozen=True)
class BaselineTable:
    """What requests are compared with.

    Attributes:
        data: ``module:function`` that returns inputs like those of the service, in the order in
            which they were collected: an array [N, ...], or inputs and their labels.
        rows: the most of them that are used, the last ones.
        in_time_order: whether the rows are in the order of time; neighbours may then depend on each
            other, as requests may. Give false for rows that are sorted, such as by class.
    """

    data: str
    rows: int = 5000
    in_time_order: bool = True

    def __post_init__(self) -> None:
        """Check values that types do not."""
        _check_reference("data", self.data)
        if self.rows < 20:
            raise ValueError(f"rows: must be at least 20, not {self.rows}")


@dataclass(frozen=True)
class WindowTable:
    """The requests that are judged together.

    Attributes:
        requests: number of requests in a window.
    """

    requests: int = 200

    def __post_init__(self) -> None:
        """Check values that types do not."""
        if not 10 <= self.requests <= 100_000:
            raise ValueError(f"requests: must be from 10 to 100000, not {self.requests}")


@dataclass(frozen=True)
class AlarmTable:
    """When an alarm is raised.

    Attributes:
        budget: probability of any false alarm in the whole life of the monitor.
    """

    budget: float = 0.01

    def __post_init__(self) -> None:
        """Check values that types do not."""
        if not 0 < self.budget < 0.5:
            raise ValueError(f"budget: must be above 0 and below 0.5, not {self.budget}")


@dataclass(frozen=True)
class ExplainTable:
    """How an alarm is explained.

    Attributes:
        examples: number of requests of the window, and of the baseline, whose saliency is computed.
        method: what the saliency maps show.
        following: number of requests after the alarm whose inputs are captured, too.
        patience: seconds that the service has to hand over the inputs.
        cooldown: seconds after an explanation in which another alarm is not explained by itself.
    """

    examples: int = 32
    method: Method = "fullgrad"
    following: int = 0
    patience: float = 30.0
    cooldown: float = 3600.0

    def __post_init__(self) -> None:
        """Check values that types do not."""
        if not 4 <= self.examples <= 512:
            raise ValueError(f"examples: must be from 4 to 512, not {self.examples}")
        for key in ("following", "patience", "cooldown"):
            given = getattr(self, key)
            if not 0 <= given < math.inf:
                raise ValueError(f"{key}: must be at least 0, not {given}")


@dataclass(frozen=True)
class Monitor:
    """A checked monitor file; paths are absolute.

    Attributes:
        path: the file.
        name: name of the monitor.
        state: folder of its state.
        requests: where the service records its requests.
        cwd: folder that comes first on the module path.
        model: the served model.
        baseline: what requests are compared with.
        window: the requests that are judged together.
        alarm: when an alarm is raised.
        explain: how it is explained.
        actions: table of the actions.
        tracking_uri: MLflow's tracking URI.
        tracking_experiment: MLflow's experiment.
    """

    path: Path
    name: str
    state: Path
    requests: Location
    cwd: Path
    model: ModelTable
    baseline: BaselineTable
    window: WindowTable
    alarm: AlarmTable
    explain: ExplainTable
    actions: Mapping[str, Any]
    tracking_uri: str
    tracking_experiment: str

    @property
    def fixed(self) -> dict[str, Any]:
        """The settings that cannot change in the life of the monitor."""
        return {
            "requests": str(self.requests),
            "model": {key: value for key, value in asdict(self.model).items() if key != "classes"},
            "baseline": asdict(self.baseline),
            "window": asdict(self.window),
            "alarm": asdict(self.alarm),
        }


def load_monitor(path: Path) -> Monitor:
    """Read and check a monitor file.

    Args:
        path: the TOML file.

    Raises:
        ConfigError: the file is invalid; the message names the key and what is expected.
    """
    document = load_toml(path)
    check_tables(document, _TABLES, path)
    for needed, why in (("monitor", "name and requests"), ("baseline", "data")):
        if needed not in document:
            raise ConfigError(f"{path}: {needed}: missing; it needs at least {why}")

    def built(kind: type[T], key: str) -> T:
        return build(kind, document.get(key, {}), f"{path}: {key}")

    monitor, model = built(MonitorTable, "monitor"), built(ModelTable, "model")
    if fault := name_fault(monitor.name):
        raise ConfigError(f"{path}: monitor.name: {fault}")
    base = path.absolute().parent
    cwd = (base / monitor.cwd).resolve()
    if not cwd.is_dir():
        raise ConfigError(f"{path}: monitor.cwd: {cwd}: no such directory")
    state = store_in(monitor.store, base)
    if not isinstance(state, Path):
        raise ConfigError(f"{path}: monitor.store: must be a folder of this machine")
    state = state / monitor.name
    baseline, tracking = built(BaselineTable, "baseline"), built(TrackingTable, "tracking")
    _refuse_missing(model, baseline, cwd, path)
    return Monitor(
        path=path.absolute(),
        name=monitor.name,
        state=state,
        requests=store_in(monitor.requests, base),
        cwd=cwd,
        model=_with_absolute_weights(model, base, path),
        baseline=baseline,
        window=built(WindowTable, "window"),
        alarm=built(AlarmTable, "alarm"),
        explain=built(ExplainTable, "explain"),
        actions=_actions(document.get("actions", {}), cwd, path),
        tracking_uri=tracking_uri_in(tracking.uri, base, state.parent, f"{path}: tracking.uri"),
        tracking_experiment=tracking.experiment or monitor.name,
    )


def _check_reference(key: str, given: str | None) -> None:
    if given is not None and not is_reference(given):
        raise ValueError(f'{key}: must be "module:function", not {given!r}')


def _refuse_missing(model: ModelTable, baseline: BaselineTable, cwd: Path, path: Path) -> None:
    for key, reference in (("model.build", model.build), ("baseline.data", baseline.data)):
        if reference is not None:
            refuse_missing_package(reference, cwd, f"{path}: {key}")


def _with_absolute_weights(model: ModelTable, base: Path, path: Path) -> ModelTable:
    if model.weights is None:
        return model
    weights = (base / Path(model.weights).expanduser()).resolve()
    if not weights.is_file():
        raise ConfigError(f"{path}: model.weights: {weights}: no such file")
    return replace(model, weights=str(weights))


def _actions(table: object, cwd: Path, path: Path) -> dict[str, Any]:
    actions = checked_actions(table, {}, cwd, path)
    for key in ("on_stop", "on_info", "snapshot", "adjust"):
        if key in actions:
            raise ConfigError(
                f"{path}: actions.{key}: not supported in a monitor, whose alarms are warnings; "
                "use on_warning"
            )
    for name in actions.get("on_warning", ()):
        if name in _OF_TRAININGS:
            raise ConfigError(
                f"{path}: actions.on_warning: {name} is for trainings; a monitor has notify, email "
                "and command"
            )
    return actions
