"""What a run is: its own record, and which run of MLflow it is."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from vinedresser.store.records.record import Record

__all__ = [
    "FORMAT_VERSION",
    "RunRecord",
    "TrackingRecord",
]

FORMAT_VERSION = 1

# More processes than any run has.
_MOST_RANKS = 1 << 16


@dataclass(frozen=True)
class RunRecord(Record):
    """What a run is.

    Made by the launcher, or by the hook where there is no launcher; the hook replaces it once, when
    it has seen the model, with framework, world size and capture filled in.

    Attributes:
        id: 32 hexadecimal digits.
        name: what people call it.
        created: seconds since the epoch.
        command: the program and its arguments.
        parameters: hyperparameters, as given.
        total_steps: steps it is expected to take, where somebody said so.
        framework: "torch", … or "" as long as no hook has seen a model.
        versions: of the framework, numpy, Python and vinedresser.
        world_size: how many ranks write.
        capture: the capture configuration in force (`CaptureConfig.to_json`).
        capture_digest: SHA-256 of it.
        needs: of the capture configuration, what the rules ask for.
        modules: of the watched models, type and activation function ("" where the module is none)
            of each module or layer by its path, and "model" after them for a watched model itself.
        features: names of the input's features, in the order in which tensors have them.
        classes: the classes, in the order of their numbers; both [] where a model has none.
        losses: of each loss by its name (without ``losses/``), ``{"type": class or function,
            "settings": {…}}``: plain settings such as reduction, label_smoothing, from_logits; of
            weights for classes whether there are any.
        optimizers: of each ``{"type": class, "settings": {"lr": …}, "parameters": elements that it
            updates, "tensors": how many}``, in the order in which they were seen.
        frozen: full names (weights/..., biases/...) of parameters that are not to be trained.
        unoptimized: of those that are, but that no optimizer seen so far has; [] as long as
            neither an optimizer nor a step was seen.
        dropout: of each module or layer that drops something in training, the share, by its path.
        code: the version control's id of the code, "" when there is none.
        flow: id of the flow run that launched it, "" when there was none.
        remedy: of which stopped run it takes the place, and what is different, as JSON
            (`RemedyRecord`); {} where it takes no other's.
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
        """Refuse what would have a reader look for ranks for ever, or for none."""
        if not 1 <= self.world_size <= _MOST_RANKS:
            raise ValueError(f"world_size is {self.world_size}, not from 1 to {_MOST_RANKS}")


@dataclass(frozen=True)
class TrackingRecord(Record):
    """The MLflow run of this run, and how far it is up to date.

    Attributes:
        uri: tracking URI.
        experiment_id: MLflow's experiment.
        run_id: MLflow's run, made before the training starts.
        settled: its final status, tags and report are all there.
        parent: MLflow's run under which it is shown, "" for none.
    """

    KEY: ClassVar[str] = "tracking.json"

    uri: str
    experiment_id: str
    run_id: str
    settled: bool = False
    parent: str = ""
