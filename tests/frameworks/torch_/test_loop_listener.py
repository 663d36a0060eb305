"""The events of torch training loops, and that torch is as before without listeners."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.amp import GradScaler
from torch.optim import SGD, Optimizer, optimizer
from torch.optim.lr_scheduler import LRScheduler, StepLR
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _BaseDataLoaderIter

from vinedresser.frameworks.torch_.loop_listener import LoopListener, listen_to_loop
from vinedresser.frameworks.torch_.optimizer_steps import Arguments, listen_to_steps

Tensors = list[torch.Tensor]


class Everything(LoopListener):
    """Notes each event."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def optimizer_made(self, optimizer: Optimizer) -> None:
        self.seen.append(f"made {type(optimizer).__name__}")

    def scheduler_made(self, scheduler: LRScheduler) -> None:
        self.seen.append(f"made {type(scheduler).__name__}")

    def batch_awaited(self, _: Any) -> None:
        self.seen.append("awaited")

    def batch_loaded(self, batch: Any) -> tuple[Any] | None:
        self.seen.append("loaded")
        return (batch + 1,)

    def module_called(self, module: nn.Module) -> None:
        self.seen.append(f"called {type(module).__name__}")

    def loss_scaled(self, _: GradScaler) -> None:
        self.seen.append("scaled")

    def backward_begins(self, losses: Any) -> None:
        self.seen.append(f"backward of {len(losses)}")

    def gradients_cleared(self, _: nn.Module) -> None:
        self.seen.append("cleared")

    def state_taken(self, _: nn.Module) -> None:
        self.seen.append("state taken")

    def weights_loaded(self, _: nn.Module, state: Any) -> None:
        self.seen.append(f"weights loaded: {len(state)}")

    def step_begins(self, _optimizer: Optimizer, _args: Any, _kwargs: Any) -> None:
        self.seen.append("step begins")

    def step_ended(self, _optimizer: Optimizer, _args: Any, _kwargs: Any) -> None:
        self.seen.append("step ended")

    def scaler_step_begins(self, _: GradScaler, optimizer: Optimizer) -> None:
        self.seen.append(f"scaler steps {type(optimizer).__name__}")

    def scaler_step_ended(self, _: GradScaler, optimizer: Optimizer) -> None:
        self.seen.append(f"scaler stepped {type(optimizer).__name__}")


class Calling(SGD):
    """Overrides `step`, and calls that of its base class, which torch hooks, too."""

    def step(self, closure: Any = None) -> Any:
        return super().step(closure)


@pytest.fixture(autouse=True)
def hooked_sgd() -> None:
    """Have torch hook `SGD.step`, as it does when the first optimizer of a class is made."""
    SGD([torch.zeros(1)])


def state_of_torch() -> list[object]:
    """Return what listeners replace in torch."""
    methods = (
        *((Optimizer, "add_param_group"), (LRScheduler, "_initial_step")),
        *((_BaseDataLoaderIter, "__next__"), (nn.Module, "__call__"), (nn.Module, "zero_grad")),
        *((nn.Module, "state_dict"), (nn.Module, "load_state_dict")),
        *((GradScaler, "scale"), (GradScaler, "step")),
    )
    autograd: Any = torch.autograd
    hooks: Any = optimizer
    return [
        *(owner.__dict__[name] for owner, name in methods),
        autograd._make_grads,
        *hooks._global_optimizer_pre_hooks,
        *hooks._global_optimizer_post_hooks,
    ]


def loop() -> Tensors:
    """Train a model by each event once; return its weights."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 1))
    model.load_state_dict(model.state_dict())
    updater = SGD(model.parameters(), lr=0.1)
    StepLR(updater, 1)
    scaler = GradScaler("cpu", init_scale=2.0)
    rows: Any = [torch.ones(3)]
    for batch in DataLoader(rows, batch_size=1):
        model.zero_grad()
        scaler.scale(checkpoint(model, batch, use_reentrant=False).sum()).backward()
        scaler.step(updater)
    return [parameter.detach().clone() for parameter in model.parameters()]


def test_each_event_is_told_in_order_and_torch_is_restored() -> None:
    before = state_of_torch()
    plain = loop()
    first, second = Everything(), Everything()
    ends = [listen_to_loop(one) for one in (first, second)]
    replaced = state_of_torch()
    loop()
    for end in ends:
        assert state_of_torch() == replaced, "each event is replaced once, until the last ends"
        end()
        end()
    assert state_of_torch() == before
    assert first.seen == second.seen
    assert first.seen == [
        # Of the model and both of its layers.
        *("state taken", "state taken", "state taken"),
        *("weights loaded: 4", "made SGD", "made StepLR"),
        *("awaited", "loaded", "cleared", "scaled"),
        # Once: the calls in the backward pass are those of checkpointing.
        *("called Sequential", "called Linear", "called Linear", "backward of 1"),
        *("scaler steps SGD", "step begins", "step ended", "scaler stepped SGD"),
        "awaited",
    ]
    assert all(map(torch.equal, plain, loop()))


def test_only_some_events_and_one_of_them_for_a_while() -> None:
    some = Everything()
    end = listen_to_loop(some, only=[LoopListener.backward_begins])
    more = listen_to_loop(some, only=[LoopListener.gradients_cleared])
    loop()
    more()
    loop()
    end()
    assert some.seen == ["cleared", "backward of 1", "backward of 1"]


class Lone(LoopListener):
    """Counts the steps of optimizers; asks a function before each."""

    def __init__(self, before: Callable[[], object] = lambda: None) -> None:
        self.before = before
        self.begun = self.ended = 0

    def step_begins(self, *_: Any) -> None:
        self.begun += 1
        self.before()

    def step_ended(self, *_: Any) -> None:
        self.ended += 1


def step(kind: type[SGD] = SGD, closure: Any = None) -> None:
    weight = torch.zeros(2, requires_grad=True)
    weight.grad = torch.ones(2)
    kind([weight], lr=0.1).step(closure)


def test_a_step_that_calls_that_of_the_base_class_is_one() -> None:
    weight = torch.zeros(2, requires_grad=True)
    weight.grad = torch.ones(2)
    updater = Calling([weight], lr=0.1)
    all_steps, own = Lone(), Lone()
    ends = [
        listen_to_loop(all_steps),
        listen_to_steps(updater, own.step_begins, own.step_ended),
    ]
    for _ in range(3):
        updater.step()
    with pytest.raises(ZeroDivisionError):
        updater.step(lambda: 1 / 0)
    # The failed step has not ended, and the next one is no part of it.
    updater.step()
    for end in ends:
        end()
    updater.step()
    assert (all_steps.begun, all_steps.ended) == (own.begun, own.ended) == (5, 4)


def test_listeners_come_and_go_within_an_event() -> None:
    late = Lone()
    ends: list[Callable[[], None]] = []

    def change() -> None:
        while ends:
            ends.pop()()
        if not late.begun:
            ends.append(listen_to_loop(late))

    first, other = Lone(change), Lone()
    ends += [listen_to_loop(first), listen_to_loop(other)]
    step()
    step()
    step()
    while ends:
        ends.pop()()
    assert (first.begun, other.begun) == (1, 1)
    assert (late.begun, late.ended) == (2, 3)


def test_errors_of_a_guarded_listener_stay_out_of_the_loop() -> None:
    doings: list[str] = []

    def guard(doing: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def guarded(*args: Any) -> Any:
            try:
                return method(*args)
            except ZeroDivisionError:
                doings.append(doing)
                return None

        return guarded

    failing, other = Lone(lambda: 1 / 0), Lone()
    ends = [listen_to_loop(failing, guard), listen_to_loop(other)]
    step()
    ends.pop()()
    ends.pop()()
    assert doings == ["the start of an optimizer step"]
    assert other.begun == other.ended == failing.ended == 1


class Wrapping(LoopListener):
    """Replaces the closure of each step by one that adds to its result."""

    def step_begins(self, _: Optimizer, args: Any, kwargs: Any) -> Arguments:
        before = args[1]
        return (args[0], lambda: before() + 1), kwargs


def test_each_listener_may_replace_the_closure_of_those_before() -> None:
    ends = [listen_to_loop(Wrapping()), listen_to_loop(Wrapping())]
    results: list[float] = []

    class Returning(SGD):
        def step(self, closure: Any = None) -> Any:
            results.append(closure())

    step(Returning, lambda: 40.0)
    for end in ends:
        end()
    assert results == [42.0]
