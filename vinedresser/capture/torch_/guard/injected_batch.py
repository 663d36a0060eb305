"""The answer of a running training to the batch of a snapshot, without an update."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from vinedresser.errors import ConfigError, CorruptData, StoreError
from vinedresser.frameworks.torch_.codec import TorchCodec
from vinedresser.frameworks.torch_.names import Names, unwrapped
from vinedresser.frameworks.torch_.nesting import leaves
from vinedresser.frameworks.torch_.nonfinite import nonfinite_entries
from vinedresser.frameworks.torch_.random_states import current_states, set_states
from vinedresser.frameworks.torch_.step_inputs import trained_model, with_output
from vinedresser.snapshots.reading import open_snapshot

# What the user's model and loss raise for a batch that does not fit them.
_OF_MODELS = (RuntimeError, ValueError, TypeError, LookupError, AttributeError)


class InjectedBatch:
    """Computes loss and gradients of a recorded batch with the present weights.

    A copy of the model and of the loss computes them, from the recorded random states, and the
    present ones are restored: the training stays as it is.

    Args:
        model: the trained model.
        loss: its loss module; None: the model computes its loss.
    """

    def __init__(self, model: nn.Module, loss: nn.Module | None) -> None:
        self._model = weakref.ref(model)
        self._loss = None if loss is None else weakref.ref(loss)

    def answer(self, location: str) -> str:
        """Return loss and gradients in words.

        Args:
            location: location of the snapshot.

        Raises:
            ConfigError: the snapshot does not exist, or its batch does not fit the training.
        """
        try:
            calls, random = _inputs(location)
        except (StoreError, CorruptData) as error:
            raise ConfigError(str(error)) from error
        states = current_states()
        try:
            set_states(random)
            return self._computed(calls)
        except _OF_MODELS as error:
            if isinstance(error, ConfigError):
                raise
            why = str(error).partition("\n")[0]
            raise ConfigError(f"the batch does not fit the training: {why}") from error
        finally:
            set_states(states)

    def _computed(self, calls: list[dict[str, Any]]) -> str:
        loss_fn = None if self._loss is None else self._loss()
        model, loss_fn = copy.deepcopy((self._model(), loss_fn))
        assert model is not None, "its training runs"
        parameters = [
            parameter
            for parameter in Names(unwrapped(model)).parameters()
            if parameter.value.requires_grad
        ]
        values, recorded, total = (
            [],
            [],
            [torch.zeros_like(parameter.value) for parameter in parameters],
        )
        for call in calls:
            with torch.enable_grad():
                output = model(*call["args"], **call["kwargs"])
                loss = _loss(loss_fn, call, output)
                found = torch.autograd.grad(
                    loss, [parameter.value for parameter in parameters], allow_unused=True
                )
            values.append(float(loss.detach()))
            recorded += [float(each["value"]) for each in call["losses"][-1:]]
            total = [
                one if more is None else one + more for one, more in zip(total, found, strict=True)
            ]
        bad = [
            one.path for one, each in zip(parameters, total, strict=True) if nonfinite_entries(each)
        ]
        norm = float(torch.stack([one.double().norm() for one in total]).norm())
        told = f"loss {_mean(values):.6g}"
        told += f" (in the snapshot {_mean(recorded):.6g})" if recorded else ""
        others = f" and {len(bad) - 1} other gradients" if len(bad) > 1 else ""
        return told + (f", not finite: {bad[-1]}{others}" if bad else f", gradient norm {norm:.6g}")


def _inputs(location: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the calls of the trained model, and the random states before them.

    Raises:
        StoreError: the storage refused.
    """
    snapshot = open_snapshot(location)
    record, codec = snapshot.record, TorchCodec()
    if record.framework != "torch":
        raise ConfigError(f"{location}: only batches of torch can be given to a training")
    missing = next((why for path, why in record.left_out.items() if ".calls." in path), None)
    if missing is not None:
        raise ConfigError(f"{location}: a part of its batch was not stored: {missing}")
    models = snapshot.value(record.contents.get("models"), codec)
    shared = snapshot.value(record.contents.get("shared"), codec)
    try:
        calls = models[trained_model(models)]["calls"]
        found = [{key: call[key] for key in ("args", "kwargs", "losses")} for call in calls]
        random = dict(shared["random"])
    except (KeyError, TypeError, AttributeError, StopIteration) as error:
        raise CorruptData(f"{location}: not the contents of a step: {error!r}") from error
    if not found:
        raise ConfigError(f"{location}: it has no inputs")
    return found, random


def _loss(loss_fn: nn.Module | None, call: Mapping[str, Any], output: Any) -> Tensor:
    if loss_fn is not None:
        arguments = with_output(call["losses"][-1]["arguments"] if call["losses"] else (), output)
        if arguments is not None:
            output = loss_fn(*arguments)
    found = [one for _, one in leaves(output) if one.numel() == 1 and one.requires_grad]
    if len(found) != 1:
        raise ConfigError(
            "how the training computes its loss is not known: pass its loss module to Hook.watch, "
            "or let the model return its loss"
        )
    return found[0]


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)
