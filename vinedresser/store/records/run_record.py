"""The run's own record, and the record of its MLflow run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from vinedresser.store.json_values import check_time
from vinedresser.store.records.record import Record
from vinedresser.store.records.remedy import RemedyRecord

__all__ = ["FORMAT_VERSION", "RunRecord", "TrackingRecord"]

FORMAT_VERSION = 1

# More ranks than any run has.
_MOST_RANKS = 1 << 16


@dataclass(frozen=True)
class RunRecord(Record):
    """The run's own record.

    Created by the launcher, or by the hook if there is no launcher. The hook replaces it once, when
    it knows the model, adding framework, world size and capture.

    Attributes:
        id: 32 hexadecimal digits.
        name: name of the run.
        created: seconds since the epoch.
        command: the program and its arguments.
        parameters: hyperparameters, as given.
        total_steps: expected number of steps, None if unknown.
        framework: "torch", …; "" until a hook knows the model.
        versions: versions of the framework, numpy, Python and vinedresser.
        world_size: number of ranks that write.
        capture: the current capture configuration (`CaptureConfig.to_json`).
        capture_digest: its SHA-256.
        needs: the part of the capture configuration that the rules require.
        modules: type and activation function (else "") of each module or layer of the watched
            models by path, followed by "model" for a watched model itself.
        features: names of the input features, in the order of the tensors; [] if unknown.
        classes: names of the classes, in the order of their numbers; [] if unknown.
        losses: ``{"type": class or function, "settings": {…}}`` of each loss by name (without
            ``losses/``): plain settings such as reduction, label_smoothing, from_logits; for class
            weights, whether there are any.
        optimizers: ``{"type": class, "settings": {"lr": …}, "parameters": number of elements,
            "tensors": number of tensors}`` of each optimizer, in the order of first use.
        frozen: full names (weights/..., biases/...) of parameters that are not trained.
        unoptimized: full names of trainable parameters that no optimizer has so far; [] before the
            first optimizer or step.
        dropout: dropout rate of each module or layer by path.
        code: id of the code in version control, "" if there is none.
        flow: id of the flow run that launched it, "" if there is none.
        remedy: the stopped run that this one replaces and the changes, as JSON (`RemedyRecord`);
            {} if it replaces none.
        format_version: version of the run directory's format.
    """

    KEY: ClassVar[str] = "run.json"

    id: str
    name: str
    created: float
    command: list[str] = field(default_factory=list)
    parameters: dict[str, Any] = field(default_factory=dict)
    total_steps: int | None = None
    framework: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    world_size: int = 1
    capture: dict[str, Any] = field(default_factory=dict)
    capture_digest: str = ""
    needs: dict[str, Any] = field(default_factory=dict)
    modules: dict[str, list[str]] = field(default_factory=dict)
    features: list[str] = field(default_factory=list)
    classes: list[str] = field(default_factory=list)
    losses: dict[str, dict[str, Any]] = field(default_factory=dict)
    optimizers: list[dict[str, Any]] = field(default_factory=list)
    frozen: list[str] = field(default_factory=list)
    unoptimized: list[str] = field(default_factory=list)
    dropout: dict[str, float] = field(default_factory=dict)
    code: str = ""
    flow: str = ""
    remedy: dict[str, Any] = field(default_factory=dict)
    format_version: int = FORMAT_VERSION

    def __post_init__(self) -> None:
        """Refuse values with which readers would fail later, or look for ranks forever."""
        if not 1 <= self.world_size <= _MOST_RANKS:
            raise ValueError(f"world_size is {self.world_size}, not from 1 to {_MOST_RANKS}")
        check_time("created", self.created)
        if self.remedy:
            RemedyRecord.from_json(self.remedy)


@dataclass(frozen=True)
class TrackingRecord(Record):
    """The MLflow run of this run, and whether it is complete.

    Attributes:
        uri: tracking URI.
        experiment_id: id of the MLflow experiment.
        run_id: id of the MLflow run, created before the training starts.
        settled: its final status, tags and report are recorded.
        parent: id of the parent run in MLflow, else "".
    """

    KEY: ClassVar[str] = "tracking.json"

    uri: str
    experiment_id: str
    run_id: str
    settled: bool = False
    parent: str = ""
