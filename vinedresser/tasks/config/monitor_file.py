"""`monitor.toml`: a served model whose requests are watched for drift.

    [monitor]   what is watched
    [model]     the served model, whose predictions and saliency are wanted
    [baseline]  what requests are compared with
    [window]    the requests that are judged together
    [alarm]     when an alarm is raised
    [explain]   how an alarm is explained
    [actions]   on_warning: actions for an alarm; on_info: for when the monitor cannot tell any
                more, or not yet; [actions.NAME] notify, email, command
    [tracking]  as in an experiment file

Paths are relative to the file.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from annotated_types import Ge, Gt, Le, Lt

from vinedresser.errors import ConfigError
from vinedresser.explain.saliency.options import Method
from vinedresser.infra.configuration import build, load_toml
from vinedresser.infra.entry import is_reference
from vinedresser.objects import Location
from vinedresser.quantities import parse_time
from vinedresser.store.records.run_name import name_fault
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
    "monitor_of",
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
            other, as requests may. Give false for rows that are shuffled or sorted, such as by
            class: 2,000 requests or more then have to show whether requests do.
        period: of a cycle of requests, such as a week: "7d", "24h", "90m" or "30s", if there are
            `times`; or a number of rows, of which only whole cycles are compared. None: a cycle is
            looked for.
        times: ``module:function`` that returns when each of the inputs was a request: seconds since
            the epoch or dates of numpy in UTC, [N]. Requests are compared with the inputs in the
            same phase of the period.
    """

    data: str
    rows: Annotated[int, Ge(20)] = 5000
    in_time_order: bool = True
    period: int | str | None = None
    times: str | None = None

    def __post_init__(self) -> None:
        """Check values that types do not."""
        _check_reference("data", self.data)
        _check_reference("times", self.times)
        if isinstance(self.period, str):
            try:
                parse_time(self.period)
            except ValueError as error:
                raise ValueError(f"period: {error}") from error
            if self.times is None:
                raise ValueError("period: a time needs times, too; without, give a number of rows")
        elif self.times is not None:
            raise ValueError('times: need a period that is a time, such as "7d"')
        elif self.period is not None and not 2 <= self.period <= self.rows // 2:
            raise ValueError(f"period: must be from 2 to half of rows, not {self.period}")

    @property
    def length(self) -> float | None:
        """Length of the cycle: seconds with `times`, otherwise rows; None if it is looked for."""
        return parse_time(self.period) if isinstance(self.period, str) else self.period


@dataclass(frozen=True)
class WindowTable:
    """The requests that are judged together.

    Attributes:
        requests: number of requests in a window.
    """

    requests: Annotated[int, Ge(10), Le(100_000)] = 200


@dataclass(frozen=True)
class AlarmTable:
    """When an alarm is raised.

    Attributes:
        budget: probability of any false alarm in the whole life of the monitor.
        at_least: smallest change of numbers that is worth an alarm, in standard deviations.
        at_least_share: smallest change of shares of the requests that is worth one, from 0 to 1.
    """

    budget: Annotated[float, Gt(0), Lt(0.5)] = 0.01
    at_least: Annotated[float, Ge(0), Lt(math.inf)] = 0.0
    at_least_share: Annotated[float, Ge(0), Lt(1)] = 0.0


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

    examples: Annotated[int, Ge(4), Le(512)] = 32
    method: Method = "fullgrad"
    following: Annotated[int, Ge(0)] = 0
    patience: Annotated[float, Ge(0), Lt(math.inf)] = 30.0
    cooldown: Annotated[float, Ge(0), Lt(math.inf)] = 3600.0


@dataclass(frozen=True)
class Monitor:
    """A checked monitor file; paths are absolute.

    Attributes:
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

    Raises:
        ConfigError: the file is invalid; the message names the key and what is expected.
    """
    return monitor_of(load_toml(path), path)


def monitor_of(document: Mapping[str, Any], path: Path) -> Monitor:
    """Check a monitor file that has been read; see `load_monitor`."""
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
    named = {
        "model.build": model.build,
        "baseline.data": baseline.data,
        "baseline.times": baseline.times,
    }
    for key, reference in named.items():
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
    for key in ("on_stop", "snapshot", "adjust"):
        if key in actions:
            raise ConfigError(
                f"{path}: actions.{key}: not supported in a monitor, whose alarms are warnings; "
                "use on_warning, or on_info for when it cannot tell"
            )
    for key in ("on_warning", "on_info"):
        for name in actions.get(key, ()):
            if name in _OF_TRAININGS:
                raise ConfigError(
                    f"{path}: actions.{key}: {name} is for trainings; a monitor has notify, email "
                    "and command"
                )
    return actions
