"""The table ``[prune]``: the model, what to remove in each round, and when to end."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, Literal

from annotated_types import Ge, Lt

from vinedresser.errors import PruningError
from vinedresser.infra.configuration import check_model_name
from vinedresser.infra.entry import is_reference
from vinedresser.masking import masked_arguments
from vinedresser.pruning.criteria.registry import criterion_named
from vinedresser.pruning.selection import Limits
from vinedresser.quantities import parse_amount

__all__ = ["PREFIX", "PruneTable", "Target", "tuning_of"]

# The keys that must name functions of the user's.
_FUNCTIONS = ("model", "example", "train", "evaluate", "losses")
# Of the parameters of a run that are settings of the pruning.
PREFIX = "prune."

Target = Literal["parameters", "macs", "latency", "size"]
_TARGETS: tuple[Target, ...] = ("parameters", "macs", "latency", "size")

_Amount = int | str | list[int | str] | dict[str, int]


@dataclass(frozen=True)
class PruneTable:
    """The settings of a pruning. Functions are named ``module:function``.

    Attributes:
        model: builds the unpruned model, with any weights; called in every round.
        example: returns an example input of the model.
        train: fine-tunes a model; called with the model, a `vinedresser.capture.Hook` and the
            parameters of the runs by name; or a command, a program and its arguments, which gets
            the parameters as options and uses `vinedresser.pruning.fine_tuning`.
        evaluate: returns a figure of a model of which more is better, such as its accuracy.
        losses: yields the losses of some batches of a model, for criteria that measure gradients,
            and for targets by operations or latency.
        weights: file with the trained weights (``.safetensors``, ``.pt``, ``.pth`` or, of a Keras
            model, ``.weights.h5``), or folder of a saved model (`vinedresser.pruning.save`),
            relative to the settings' file; or such a file or folder in MLflow, ``runs:/ID/PATH`` or
            ``models:/NAME/VERSION``; or a function that is called with the model once and loads or
            trains them; None: ``model`` loads them.
        criterion: name of the criterion, or ``module:function`` of the user's own.
        amount: filters to remove in each round: a number, or a share of those that are left; a list
            has one for each round, and its last is repeated; a table has a number for each group.
        rounds: maximum number of rounds.
        parameters: target: a number of parameters, or a share of the unpruned model's. The last
            round removes no more than it takes.
        macs: target: multiply-accumulate operations for one example, or a share.
        latency: target: a share of the unpruned model's latency for the example, measured on this
            machine in turns.
        size: target: bytes of parameters and buffers, or a share.
        max_drop: the most that the figure of ``evaluate`` may drop below the unpruned model's, in
            its own unit.
        max_round_drop: the most that it may drop in one round.
        floor: least number of channels that remain in every group.
        floor_share: least share of its channels that remain in every group, from 0 to below 1.
        round_to: numbers of remaining channels are multiples of this.
        kinds: what to choose from: also "units" (of linear layers) and "heads" (of attention).
        ignore: layers to leave alone.
        teacher: pass the unpruned model to the function ``train`` as ``teacher``, for knowledge
            distillation.
        register: name of a registered model in MLflow, of which the result becomes a version with
            the alias "pruned".
        retries: how often a round begins again whose run crashed or was killed.
    """

    model: str
    example: str
    train: str | list[str]
    evaluate: str
    losses: str | None = None
    weights: str | None = None
    criterion: str = "l1"
    amount: _Amount = "10%"
    rounds: Annotated[int, Ge(1)] = 10
    parameters: int | str | None = None
    macs: int | str | None = None
    latency: str | None = None
    size: int | str | None = None
    max_drop: Annotated[float, Ge(0), Lt(math.inf)] | None = None
    max_round_drop: Annotated[float, Ge(0), Lt(math.inf)] | None = None
    floor: Annotated[int, Ge(1)] = 1
    floor_share: Annotated[float, Ge(0), Lt(1)] = 0.0
    round_to: Annotated[int, Ge(1)] = 1
    kinds: list[Literal["filters", "units", "heads"]] = field(default_factory=lambda: ["filters"])
    ignore: list[str] = field(default_factory=list)
    teacher: bool = False
    register: str | None = None
    retries: Annotated[int, Ge(0)] = 1

    def __post_init__(self) -> None:
        """Check values that types do not."""
        self._check_command()
        for key in _FUNCTIONS:
            given = getattr(self, key)
            if isinstance(given, str) and not is_reference(given):
                other = ', or a command such as ["python", "finetune.py"]' * (key == "train")
                raise ValueError(f'{key}: must be "module:function"{other}, not {given!r}')
        if self.weights == "":
            raise ValueError("weights: is empty; leave it out if the model has them")
        self._check_criterion()
        self._check_amounts()
        for key in self.targeted:
            _check_amount(key, getattr(self, key))
        if self.register is not None:
            check_model_name(self.register)

    @property
    def tracked_weights(self) -> str | None:
        """The URI of weights in MLflow; None if they are not there."""
        there = self.weights is not None and self.weights.startswith(("runs:/", "models:/"))
        return self.weights if there else None

    @property
    def functions(self) -> dict[str, str]:
        """The names of the user's functions by key."""
        given = {key: getattr(self, key) for key in (*_FUNCTIONS, "weights", "criterion")}
        return {
            key: name for key, name in given.items() if isinstance(name, str) and is_reference(name)
        }

    @property
    def command(self) -> list[str] | None:
        """The program and its arguments that fine-tune a model; None if a function does."""
        return self.train if isinstance(self.train, list) else None

    @property
    def trainer(self) -> str:
        """What fine-tunes a model, for messages."""
        return self.train if isinstance(self.train, str) else " ".join(self.train)

    def _check_command(self) -> None:
        if self.command is None:
            return
        if not self.command or not self.command[0]:
            raise ValueError("train: is empty; give a program and its arguments")
        if masked_arguments(self.command) != self.command:
            raise ValueError(
                "train: has what looks like a secret, and would be stored with each round; pass it "
                "as an environment variable (run.environment_from)"
            )
        if self.teacher:
            raise ValueError(
                "teacher: not supported with a command; its script gets the unpruned model from "
                "vinedresser.pruning.fine_tuning.load_teacher"
            )

    def _check_criterion(self) -> None:
        if is_reference(self.criterion):
            return
        try:
            criterion = criterion_named(self.criterion)
        except PruningError as error:
            raise ValueError(f"criterion: {error}") from error
        if criterion.measurements and self.losses is None:
            raise ValueError(f"losses: missing; criterion {self.criterion} measures gradients")

    def _check_amounts(self) -> None:
        amounts = self.amount if isinstance(self.amount, list) else [self.amount]
        if not amounts or amounts == [{}]:
            raise ValueError("amount: is empty")
        for amount in amounts:
            each = amount.values() if isinstance(amount, dict) else [amount]
            for one in each:
                _check_amount("amount", one)

    @classmethod
    def from_parameters(cls, parameters: Mapping[str, Any]) -> PruneTable:
        """Return the table whose settings are among the parameters of a run."""
        own = {key: value for key, value in parameters.items() if key.startswith(PREFIX)}
        return cls(**{key.removeprefix(PREFIX): value for key, value in own.items()})

    def to_parameters(self) -> dict[str, Any]:
        """Return the settings as parameters of a run, without those that are not set."""
        given = asdict(self).items()
        return {f"{PREFIX}{key}": value for key, value in given if value not in (None, [])}

    @property
    def limits(self) -> Limits:
        """What every round must leave."""
        return Limits(self.floor, self.floor_share, self.round_to)

    @property
    def per_round(self) -> dict[str, Any]:
        """The settings that decide about a round, not about how many there are."""
        whole = {"rounds", "max_drop", "max_round_drop", "retries", "register", *_TARGETS}
        return {key: value for key, value in asdict(self).items() if key not in whole}

    def amount_of(self, number: int) -> int | str | dict[str, int]:
        """Return the amount of a round, counted from 1."""
        if isinstance(self.amount, list):
            return self.amount[min(number, len(self.amount)) - 1]
        return self.amount

    @property
    def targeted(self) -> list[Target]:
        """The costs that have a target."""
        return [key for key in _TARGETS if getattr(self, key) is not None]

    def targets(self, original: Mapping[Target, float]) -> dict[Target, float]:
        """Return what each cost has to get down to, of those that have a target.

        Args:
            original: costs of the unpruned model; a latency in seconds, a size in bytes.
        """
        given = {key: parse_amount(getattr(self, key)) for key in self.targeted}
        return {
            key: float(value) if isinstance(value, int) else float(value) * original[key]
            for key, value in given.items()
        }


def tuning_of(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of the fine-tuning, which are those of a run without the settings."""
    return {key: value for key, value in parameters.items() if not key.startswith(PREFIX)}


def _check_amount(key: str, given: int | str) -> None:
    try:
        parse_amount(given)
    except ValueError as error:
        raise ValueError(f"{key}: {error}") from error
