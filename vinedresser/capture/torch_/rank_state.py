"""What tells the ranks of a distributed torch training apart: the collection ``ranks``."""

from __future__ import annotations

import re
import sys
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from fastcrc import crc32
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer

from vinedresser.capture.recording.recording import Recording
from vinedresser.capture.recording.session import Session
from vinedresser.capture.torch_.copies.reductions import octets
from vinedresser.capture.torch_.copies.torch_copier import Keep, TorchCopier
from vinedresser.capture.torch_.losses.losses import batch_size
from vinedresser.frameworks.torch_.loop_listener import LoopListener, listen_to_loop
from vinedresser.frameworks.torch_.losses.saved_tensors import saved
from vinedresser.frameworks.torch_.module_calls import ModuleHook, Removable
from vinedresser.frameworks.torch_.names import Names
from vinedresser.frameworks.torch_.nesting import leaves
from vinedresser.frameworks.torch_.optimizers import updated
from vinedresser.frameworks.torch_.views import host_view, plain_tensor
from vinedresser.store.reductions.alone import fingerprint

# Maximum numbers of parameters whose gradients are sampled, and of elements of each.
_PARAMETERS, _ELEMENTS = 8, 64
# Operations that end a loss function.
_LOSS = re.compile("Loss|CrossEntropy|^Mean")


class RankState(LoopListener):
    """Captures the collection ``ranks``, without any communication between the ranks.

    Args:
        root: the model as it is called.
        names: names of the user's model inside it.
        copier: copies single numbers.
        keep: shielded `TorchCopier.keep`.
    """

    def __init__(
        self, root: nn.Module, names: Names, copier: TorchCopier, keep: Keep, session: Session
    ) -> None:
        self._root = root
        self._session = session
        self._names = names
        self._copier = copier
        self._keep = keep
        # What wraps the root, if that is not the wrapper itself: Lightning calls it so.
        self._outer: weakref.ref[DistributedDataParallel] | None = None
        # Rows of all training forwards so far.
        self._rows = 0
        # The backward pass of the latest of them reduces all gradients.
        self._reduces = False
        self._took = session.shield.guard("the gradient of a rank", self._take_local)
        # The hooks that time forwards; None: there has been none with several ranks.
        self._timing: list[Removable] | None = None
        self._handles: list[Any] = []
        # Of the sampled parameters of the current step, in model order.
        self._sampled: list[nn.Parameter] = []
        # By id of the parameter: its gradient at the latest backward pass of this rank, and as the
        # optimizer consumes it.
        self._local: dict[int, Tensor] = {}
        self._consumed: dict[int, Tensor] = {}
        # Backward passes in the step, and those of them that reduce.
        self._passes = self._reducing = 0
        # What the latest backward pass began with, and the function that ends listening to it.
        self._objective: Tensor | None = None
        # The number by which a loss was divided right before it, if any.
        self._divisor: Tensor | None = None
        self._end: Callable[[], None] | None = None

    def names(self) -> list[str]:
        """Return the full names of what may be captured."""
        words = (
            *("collectives", "data_parallel", "divisor", "gradients", "inputs"),
            *("local_gradients", "objective", "passes", "random"),
            *("reduced", "reducing_passes", "rows"),
        )
        return [*map(self._name, words)]

    def called(self, args: Any, kwargs: Any) -> None:
        """Count the rows of a training forward that begins."""
        if _several_ranks():
            self._rows += batch_size((args, kwargs)) or 0
            if self._timing is None:
                self._timing = []
                self._find_outer()
                self._time_forwards()
            self._reduces = _reduces(self._wrapped())

    def begin(self, recording: Recording, args: Any, kwargs: Any) -> None:
        """Capture what is known at the first forward of a train step, and watch the gradients.

        Args:
            args: positional arguments of the forward.
        """
        self.forget()
        if not self._due(recording):
            return
        if recording.due.ask(self._name("random")):
            recording.add_scalar(self._name("random"), _random_state())
        if recording.due.ask(self._name("data_parallel")):
            parameters = [parameter.value for parameter in self._names.parameters()]
            parallel = _data_parallel(self._wrapped(), parameters)
            recording.add_scalar(self._name("data_parallel"), float(parallel))
        if recording.due.ask(self._name("inputs")):
            for _, one in leaves([args, kwargs]):
                # The mean of several, which differs if one does.
                self._copier.keep_scalar(recording, self._name("inputs"), _fingerprint(one), 1.0)
        if not recording.due.ask(self._name("local_gradients")):
            return
        compiled = self._root._compiled_call_impl is not None or hasattr(self._root, "_orig_mod")
        if recording.closure or compiled:
            return
        usable = [
            parameter.value
            for parameter in self._names.parameters()
            if _can_be_sampled(parameter.value)
        ]
        self._sampled = usable[:: max(1, -(-len(usable) // _PARAMETERS))]
        self._handles = [
            one.register_post_accumulate_grad_hook(self._took) for one in self._sampled
        ]
        events = (LoopListener.backward_begins,)
        self._end = listen_to_loop(self, self._session.shield.guard, only=events)

    def backward_begins(self, losses: Sequence[Any]) -> None:
        """See `LoopListener.backward_begins`."""
        only = losses[0] if len(losses) == 1 else None
        if isinstance(only, Tensor) and only.numel() == 1 and not only.is_complex():
            self._objective = only.detach()
            self._divisor = _divisor(only.grad_fn)

    def take_consumed(self, optimizer: Optimizer) -> None:
        """Sample the gradients that an optimizer is about to consume."""
        # A scaler has left the gradients of such an optimizer scaled.
        if self._sampled and getattr(optimizer, "grad_scale", None) is None:
            ids = updated([optimizer])
            for one in self._sampled:
                if id(one) in ids and one.grad is not None:
                    self._consumed.setdefault(id(one), _sample(one.grad))

    def end(self, recording: Recording) -> None:
        """Capture what is known at the end of a train step."""
        if not self._due(recording):
            return
        numbers: dict[str, Callable[[], int | None]] = {
            "collectives": _collectives,
            "reduced": lambda: self._reduces,
            "rows": lambda: self._rows,
            "passes": lambda: self._passes or None,
            "reducing_passes": lambda: self._reducing if self._passes else None,
        }
        for word, count in numbers.items():
            number = count() if recording.due.ask(self._name(word)) else None
            if number is not None:
                recording.add_scalar(self._name(word), float(number))
        if self._objective is not None and recording.due.ask(self._name("objective")):
            self._copier.keep_scalar(recording, self._name("objective"), self._objective, 1.0)
            if self._divisor is not None and recording.due.ask(self._name("divisor")):
                self._copier.keep_scalar(recording, self._name("divisor"), self._divisor, 1.0)
        known = self._local.keys() & self._consumed.keys()
        both = [id(one) for one in self._sampled if id(one) in known]
        for word, found in (("local_gradients", self._local), ("gradients", self._consumed)):
            ask = recording.due.ask(self._name(word))
            if both and ask:
                whole = torch.cat([found[one] for one in both])
                self._keep(recording, self._name(word), whole, ask)
        self.forget()

    def detach(self) -> None:
        """Remove all hooks."""
        self.forget()
        while self._timing:
            self._timing.pop().remove()

    def forget(self) -> None:
        """Remove the hooks of a step, and forget it."""
        while self._handles:
            self._handles.pop().remove()
        if self._end is not None:
            self._end()
            self._end = self._objective = self._divisor = None
        self._sampled = []
        self._local, self._consumed = {}, {}
        self._passes = self._reducing = 0

    def _name(self, word: str) -> str:
        return f"ranks/{self._names.prefix}{word}"

    def _due(self, recording: Recording) -> bool:
        return recording.mode == "train" and recording.due.reaches("ranks") and _several_ranks()

    def _find_outer(self) -> None:
        """Find the wrapper by whose forward the root is called."""
        outer = DistributedDataParallel._active_ddp_module
        if outer is not None and outer.module is self._root:
            self._outer = weakref.ref(outer)

    def _wrapped(self) -> nn.Module:
        """Return the root, or what wraps it."""
        outer = None if self._outer is None else self._outer()
        return self._root if outer is None else outer

    def _time_forwards(self) -> None:
        """Time the forwards of the model inside `DistributedDataParallel`.

        The wrapper itself waits for other ranks when it sends buffers.
        """
        wrapper = self._wrapped()
        model = wrapper.module if isinstance(wrapper, DistributedDataParallel) else None
        # A hook would be compiled with the model, or prevent torch's fast path in evaluations.
        if (
            model is None
            or model._compiled_call_impl is not None
            or hasattr(model, "_orig_mod")
            or isinstance(model, nn.TransformerEncoderLayer)
        ):
            return
        guard, skip = self._session.shield.guard, torch.compiler.is_compiling
        begins = guard("the start of a forward", self._forward_begins, skip=skip)
        ended = guard("the end of a forward", self._forward_ended, skip=skip)
        self._timing = [
            model.register_forward_pre_hook(ModuleHook(begins, model)),
            model.register_forward_hook(ModuleHook(ended, model)),
        ]

    def _forward_begins(self, model: nn.Module, *_: Any) -> None:
        timing = self._session.recorder.timing
        if timing is not None and model.training:
            timing.model_begins()

    def _forward_ended(self, *_: Any) -> None:
        timing = self._session.recorder.timing
        if timing is not None:
            timing.model_ended()

    def _take_local(self, parameter: nn.Parameter) -> None:
        # Called before `DistributedDataParallel` reduces the gradient.
        if parameter is self._sampled[-1]:
            self._passes += 1
            self._reducing += self._reduces
        if parameter.grad is not None:
            self._local[id(parameter)] = _sample(parameter.grad)


def _several_ranks() -> bool:
    """Return whether this process is one of several ranks of torch's process group."""
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def _reduces(root: nn.Module) -> bool:
    """Return whether a backward pass now reduces the gradients of a model over all ranks.

    Not within ``no_sync``, with a hook in place of the reduction, over a part of the ranks, or if
    the wrapper leaves parameters out.
    """
    return (
        isinstance(root, DistributedDataParallel)
        and root.require_backward_grad_sync
        and not root._comm_hooks
        and not root.parameters_to_ignore
        and root.process_group.size() == dist.get_world_size()
    )


def _data_parallel(root: nn.Module, parameters: Iterable[Tensor]) -> bool:
    """Return whether each rank trains the same model with its own part of the data."""
    if isinstance(root, DistributedDataParallel):
        return bool(root.process_group.size() == dist.get_world_size())
    # Loaded if the model is an instance.
    module = sys.modules.get("torch.distributed.fsdp")
    if module is None or not isinstance(root, module.FSDPModule):
        return False
    meshes: set[Any] = {getattr(parameter, "device_mesh", None) for parameter in parameters} - {
        None
    }
    return len(meshes) == 1 and all(
        mesh.ndim == 1 and mesh.size() == dist.get_world_size() for mesh in meshes
    )


def _divisor(node: Any) -> Tensor | None:
    """Return the number by which the result of a loss function is divided, or None.

    Args:
        node: the last operation before a backward pass.
    """
    if node is None or node.name() != "DivBackward0":
        return None
    below = node.next_functions[0][0]
    if below is None or not _LOSS.search(below.name()):
        return None
    divisor = saved(node, "other")
    return divisor if divisor is not None and divisor.numel() == 1 else None


def _can_be_sampled(parameter: Tensor) -> bool:
    whole = not (is_lazy(parameter) or hasattr(parameter, "to_local"))
    return whole and parameter.requires_grad and parameter.is_leaf and parameter.numel() > 0


def _sample(gradient: Tensor) -> Tensor:
    """Return evenly strided elements of a gradient, float64 [k <= 64]."""
    flat = plain_tensor(gradient).reshape(-1)
    return flat[:: max(1, -(-len(flat) // _ELEMENTS))].to(torch.float64, copy=True)


def _fingerprint(tensor: Tensor) -> Tensor:
    """Return a number that differs if the elements do, on the device of a tensor; float64 []."""
    plain = plain_tensor(tensor)
    if plain.device.type == "cpu":
        return torch.tensor(fingerprint(host_view(octets(plain))), dtype=torch.float64)
    # Copying a batch to the host would wait for the device.
    return octets(plain).sum(dtype=torch.float64)


def _collectives() -> int | None:
    """Return the number of collectives that this process has begun; None if it is not known."""
    groups: Iterable[Any] = dist.distributed_c10d._world.pg_map
    try:
        return sum(int(group._get_sequence_number_for_group()) for group in groups)
    except RuntimeError:
        # Not every backend counts them.
        return None


def _random_state() -> float:
    """Return the CRC-32C of the states of torch's default generators."""
    devices = torch.cuda.default_generators if torch.cuda.is_initialized() else ()
    states = [one.get_state() for one in (torch.default_generator, *devices)]
    return float(crc32.iscsi(b"".join(host_view(state).tobytes() for state in states)))
