"""The run's own record, and those of its MLflow run and of what it replaces."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Literal

from vinedresser.errors import ConfigError
from vinedresser.masking import masked_arguments, masked_text, masked_value
from vinedresser.store.json_values import check_time, shown
from vinedresser.store.records.record import Record

__all__ = [
    "FORMAT_VERSION",
    "POLICY_GRADIENT",
    "RemedyRecord",
    "RestartRecord",
    "RunRecord",
    "TrackingRecord",
    "check_format",
    "describe_changes",
    "new_run",
]

FORMAT_VERSION = 1

# More ranks than any run has.
_MOST_RANKS = 1 << 16


# `RunRecord.losses`: the function of a loss that weights log-probabilities by advantages.
POLICY_GRADIENT = "policy_gradient"


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
        data: sources of each channel of the training data, as given.
        framework: "torch", …; "" until a hook knows the model.
        versions: versions of the framework, numpy, Python and vinedresser.
        world_size: number of ranks that write.
        capture: the current capture configuration (`CaptureConfig.to_json`).
        capture_digest: its SHA-256.
        needs: the part of the capture configuration that the rules require.
        capture_budget: share of the training's time for captures that only rules need; 1: no
            limit; None: the hook's default.
        guard: "nonfinite" if gradients that are not finite are looked for before each update;
            "off"; "" for the hook's default.
        snapshots: when snapshots are taken and how many are kept (`SnapshotSettings`); {}: the
            defaults.
        live: whether the training may be steered (`LiveSettings`); {}: the defaults.
        thinned: first step with longer intervals than the rules ask for to keep that share
            (``since``), and their largest factor (``most``), on rank 0; {} if nothing was left out.
        modules: type and activation function (else "") of each module or layer of the watched
            models by path, followed by "model" for a watched model itself.
        features: names of the input features, in the order of the tensors; [] if unknown.
        classes: names of the classes, in the order of their numbers; [] if unknown.
        boosted: by class of a mixture that was boosted before this training was resumed, its boost
            at the resumption (1 if it was taken back), and how often it was boosted.
        losses: ``{"type": class or function, "settings": {…}}`` of each loss by name (without
            ``losses/``): plain settings such as reduction, label_smoothing, from_logits; for class
            weights, whether there are any; with ``"custom": true`` if no framework defines the
            class or function, so that its name says nothing, and perhaps with the ``"function"``
            that it applies to its arguments. ``{"function": …, "negated": …, "activation": …}`` of
            a loss that was recognised by its backward pass, with the settings of the function if
            known, and with ``"actions": true`` if it compares the values of chosen actions. The
            activation is that whose result the function is given; "" if none or unknown. It is
            known of PyTorch's loss modules, too.
        optimizers: ``{"type": class, "settings": {"lr": …}, "parameters": number of elements,
            "tensors": number of tensors}`` of each optimizer, in the order of first use.
        frozen: full names (weights/..., biases/...) of parameters that are not trained, or were not
            at first.
        unoptimized: full names of trainable parameters that no optimizer has so far; [] before the
            first optimizer or step.
        dropout: dropout rate of each module or layer by path.
        unpaired: losses, named as in `losses`, whose labels are not those of the captured inputs,
            since a step calls the model several times, as for pairs of rows.
        loaded: whether weights, or the state of an optimizer, are known to have been loaded before
            the first step (PyTorch).
        fresh: full names of weights, frozen or of no optimizer, that still have the random initial
            values of their framework (PyTorch).
        order: full names of the weights and biases in the order of the forward, as far as known
            (PyTorch); those of `modules` are in the order of their definition.
        linear: full names of the weights of a linear model, by which it multiplies its inputs one
            after another without an activation between them, though fewer would do as well
            (PyTorch, `keras.Sequential`); [] for any other model.
        expectations: what the user expects of the training, a line each
            (`vinedresser.queries.expectation`).
        references: names of the good runs that it is compared with.
        named_references: ids of those that the user has named; [] if they were chosen ("auto").
        breaches: by name of a rule (`vinedresser.rules.contracts`), what the hook has seen in the
            training process that is wrong in any training: ``{"step": step at which it was certain,
            "where": line of the script or "", …}`` (PyTorch).
        code: revision of the code in version control, with the suffix "-dirty" if it was changed
            since; "" if there is none.
        branch: its branch, "" if there is none.
        repository: URL of its remote repository, "" if there is none.
        flow: id of the flow run that launched it, "" if there is none.
        remedy: the stopped run that this one replaces and the changes, as JSON (`RemedyRecord`);
            {} if it replaces none.
        restart: the failed run that this one begins again, as JSON (`RestartRecord`); {} if none.
        kind: "training", or "requests" for a process that records the requests of a service.
        format_version: version of the run directory's format.
    """

    KEY: ClassVar[str] = "run.json"
    # Indentation would make the lists of `capture` and `needs` half as large again.
    INDENTED: ClassVar[bool] = False

    id: str
    name: str
    created: float
    command: list[str] = field(default_factory=list)
    parameters: dict[str, Any] = field(default_factory=dict)
    total_steps: int | None = None
    data: dict[str, list[str]] = field(default_factory=dict)
    framework: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    world_size: int = 1
    capture: dict[str, Any] = field(default_factory=dict)
    capture_digest: str = ""
    needs: dict[str, Any] = field(default_factory=dict)
    capture_budget: float | None = None
    guard: str = ""
    snapshots: dict[str, Any] = field(default_factory=dict)
    live: dict[str, Any] = field(default_factory=dict)
    thinned: dict[str, int] = field(default_factory=dict)
    modules: dict[str, list[str]] = field(default_factory=dict)
    features: list[str] = field(default_factory=list)
    classes: list[str] = field(default_factory=list)
    boosted: dict[str, list[float]] = field(default_factory=dict)
    losses: dict[str, dict[str, Any]] = field(default_factory=dict)
    optimizers: list[dict[str, Any]] = field(default_factory=list)
    frozen: list[str] = field(default_factory=list)
    unoptimized: list[str] = field(default_factory=list)
    dropout: dict[str, float] = field(default_factory=dict)
    unpaired: list[str] = field(default_factory=list)
    loaded: bool = False
    fresh: list[str] = field(default_factory=list)
    order: list[str] = field(default_factory=list)
    linear: list[str] = field(default_factory=list)
    expectations: list[str] = field(default_factory=list)
    references: list[str] = field(default_factory=list)
    named_references: list[str] = field(default_factory=list)
    breaches: dict[str, dict[str, Any]] = field(default_factory=dict)
    code: str = ""
    branch: str = ""
    repository: str = ""
    flow: str = ""
    remedy: dict[str, Any] = field(default_factory=dict)
    restart: dict[str, Any] = field(default_factory=dict)
    kind: Literal["training", "requests"] = "training"
    format_version: int = FORMAT_VERSION

    @property
    def policy_gradients(self) -> frozenset[str]:
        """Full names of the losses that are policy gradients."""
        return frozenset(
            f"losses/{name}"
            for name, setup in self.losses.items()
            if setup.get("function") == POLICY_GRADIENT
        )

    @property
    def chooses_actions(self) -> bool:
        """Whether a loss is a policy gradient or an error of the values of chosen actions."""
        values = any(setup.get("actions") is True for setup in self.losses.values())
        return values or bool(self.policy_gradients)

    def may_rise(self, loss: str) -> bool:
        """Return whether a loss tells nothing about progress, because of policy gradients.

        That is so for a policy gradient, and for a loss of unknown function in the same run, such
        as a sum with it or the loss of a value function, whose targets the policy changes.

        Args:
            loss: its full name.
        """
        policies = self.policy_gradients
        return bool(policies) and (
            loss in policies or loss.removeprefix("losses/") not in self.losses
        )

    def __post_init__(self) -> None:
        """Refuse values with which readers would fail later, or look for ranks forever."""
        check_format(self.format_version)
        if not 1 <= self.world_size <= _MOST_RANKS:
            raise ValueError(f"world_size is {self.world_size}, not from 1 to {_MOST_RANKS}")
        check_time("created", self.created)
        if self.capture_budget is not None and not 0 < self.capture_budget <= 1:
            raise ValueError(f"capture_budget is {self.capture_budget}, not above 0 and at most 1")
        for name, pair in self.boosted.items():
            if len(pair) != 2:
                raise ValueError(f"boosted has {shown(pair)} for {name}, not two numbers")
        if self.remedy:
            RemedyRecord.from_json(self.remedy)
        if self.restart:
            RestartRecord.from_json(self.restart)

    @property
    def thinned_note(self) -> str:
        """What was captured less often to keep the budget, in words; "" if nothing was."""
        if not self.thinned:
            return ""
        return (
            f"from step {self.thinned.get('since')}, captures for the rules were up to "
            f"{self.thinned.get('most')} times rarer, to keep to {self.capture_budget or 1:.1%} of "
            "the time"
        )

    def to_json(self) -> dict[str, Any]:
        """See `Record.to_json`; what looks like a secret is masked."""
        # Without the copies of `asdict`: the configurations are large, and training waits.
        document = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        return document | {
            "command": masked_arguments(self.command),
            "parameters": masked_value("", self.parameters),
        }


def check_format(version: int) -> None:
    """Refuse records of a newer format, whose meaning is not known.

    Raises:
        ValueError: the format is newer than `FORMAT_VERSION`.
    """
    if version > FORMAT_VERSION:
        raise ValueError(
            f"format_version is {version}: a newer version of vinedresser wrote it, and this one "
            f"reads versions up to {FORMAT_VERSION}; update it"
        )


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

    def to_json(self) -> dict[str, Any]:
        """See `Record.to_json`; a password in the tracking URI is masked."""
        return super().to_json() | {"uri": masked_text(self.uri)}


def new_run(
    name: str, parameters: Mapping[str, Any] | None = None, *, as_text: bool = False
) -> RunRecord:
    """Return a record with a new id, created now; fill in the rest with `dataclasses.replace`.

    Args:
        name: display name of the run.
        parameters: hyperparameters by name.
        as_text: keep values that JSON cannot represent as text, as for the arguments of a script;
            False: refuse them, as for those of a file.

    Raises:
        ConfigError: the parameters are not a mapping, or a value has no JSON type.
    """
    if parameters is not None and not isinstance(parameters, Mapping):
        raise ConfigError(f"parameters: must be a mapping, not a {type(parameters).__name__}")
    plain = {str(key): _plain(key, value, as_text) for key, value in (parameters or {}).items()}
    return RunRecord(id=uuid.uuid4().hex, name=name, created=time.time(), parameters=plain)


def _plain(key: object, value: object, as_text: bool) -> Any:
    """Return a value as JSON types."""
    try:
        return json.loads(json.dumps(value, default=str if as_text else None))
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"parameters.{key}: {value!r} has no JSON type; use numbers, strings, booleans, or "
            "lists and tables of them"
        ) from error


@dataclass(frozen=True)
class RemedyRecord(Record):
    """An attempt to remedy a finding; stored in the field ``remedy`` of run.json.

    Attributes:
        first: name of the original run, as configured by the user.
        attempt: number of the attempt, from 1.
        stopped: name of the stopped run: the original run or the previous attempt.
        finding: the finding as JSON, with its correction.
        changed: old and new value of each changed hyperparameter.
        checkpoint: key of the stopped run's checkpoint that this run resumes; "" to start anew.
        tried: what trials on a snapshot of the stopped run say, or ""; see `vinedresser replay`.
    """

    KEY: ClassVar[str] = "remedy"

    first: str
    attempt: int
    stopped: str
    finding: dict[str, Any]
    changed: dict[str, list[Any]] = field(default_factory=dict)
    checkpoint: str = ""
    tried: str = ""

    def __post_init__(self) -> None:
        """Refuse a finding without a rule, and changes without an old and a new value."""
        if not isinstance(self.finding.get("rule"), str):
            raise TypeError(f"finding is {shown(self.finding)}, which names no rule")
        for name, pair in self.changed.items():
            if len(pair) != 2:
                raise ValueError(f"changed has {shown(pair)} for {name}, not two values")

    @property
    def change(self) -> str:
        """Description of the change, such as "lr 1 instead of 100"."""
        return describe_changes(self.changed)

    @property
    def beginning(self) -> str:
        """Description of the starting point."""
        return f"from {self.checkpoint} of {self.stopped}" if self.checkpoint else "from the start"


@dataclass(frozen=True)
class RestartRecord(Record):
    """A run that begins a failed one again; stored in the field ``restart`` of run.json.

    Attributes:
        first: name of the original run, as configured by the user.
        number: number of the restart, from 1.
        failed: name of the run that failed: the original run or a later one.
        begins: "from the start", or from which checkpoint of which run.
        fewer: how many ranks it has instead of those of the file, and why; "" if it has all.
    """

    KEY: ClassVar[str] = "restart"

    first: str
    number: int
    failed: str
    begins: str = "from the start"
    fewer: str = ""

    @property
    def description(self) -> str:
        """What it begins again, from where, and with how many ranks if they are fewer."""
        return f"begins {self.failed} again {self.begins}{self.fewer and f', with {self.fewer}'}"


def describe_changes(changed: Mapping[str, Sequence[Any]]) -> str:
    """Return a description of changed hyperparameters.

    Args:
        changed: old and new value by name.
    """
    return ", ".join(
        f"{name} {_shown(new)} instead of {_shown(old)}" for name, (old, new) in changed.items()
    )


def _shown(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
