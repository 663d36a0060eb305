"""Labels and predictions of steps that call the model several times before the backward pass."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from vinedresser import Hook, open_run
from vinedresser.capture.torch_.losses.several_forwards import inputs_of_several
from vinedresser.frameworks.torch_.losses.model_outputs import mark_outputs
from vinedresser.store.collections.schedule import SaveConfig
from vinedresser.store.reading.reader import Run

ALL = {name: SaveConfig(every=1) for name in ("predictions", "labels", "losses", "model_inputs")}
ROWS, FEATURES, STEPS = 6, 4, 3
CLASSES = torch.tensor([0, 1, 2, 1, 0, 2])
SAME = torch.tensor([[1.0], [0.0], [0.0], [1.0], [1.0], [0.0]])
NUMBERS = torch.linspace(-1, 2, ROWS)[:, None]


class Compared(NamedTuple):
    """A loss and what it compares: the arguments of a loss function, or None."""

    loss: Tensor
    predictions: Tensor | None = None
    labels: Tensor | None = None
    first: bool = False


_StepLoss = Callable[[nn.Module], Compared]


def rows() -> Tensor:
    return torch.randn(ROWS, FEATURES)


def siamese(model: nn.Module) -> Compared:
    """Koch et al., Siamese neural networks for one-shot image recognition, 2015."""
    distances = (model(rows()) - model(rows())).abs().mean(1, keepdim=True)
    loss = F.binary_cross_entropy_with_logits(1 - distances, SAME)
    return Compared(loss, 1 - distances, SAME)


def two_views(model: nn.Module) -> Compared:
    """Chen et al., A simple framework for contrastive learning of visual representations, 2020."""
    first, second = F.normalize(model(rows())), F.normalize(model(rows()))
    scores, own = first @ second.T / 0.5, torch.arange(ROWS)
    return Compared(F.cross_entropy(scores, own), scores.log_softmax(1), own)


def residuals(model: nn.Module) -> Compared:
    """Raissi et al., Physics-informed neural networks, 2019: boundary first."""
    boundary, inside = model(rows())[:, :1], rows().requires_grad_()
    (slope,) = torch.autograd.grad(model(inside)[:, :1].sum(), inside, create_graph=True)
    loss = F.mse_loss(slope[:, 0], torch.zeros(ROWS)) + F.mse_loss(boundary, NUMBERS)
    return Compared(loss)


def boundary_last(model: nn.Module) -> Compared:
    inside = rows().requires_grad_()
    (slope,) = torch.autograd.grad(model(inside).sum(), inside, create_graph=True)
    outputs, targets = model(rows()), NUMBERS.expand(ROWS, 3).contiguous()
    loss = F.mse_loss(outputs, targets) + F.mse_loss(slope, torch.zeros(ROWS, FEATURES))
    return Compared(loss, outputs, targets)


def pairs(model: nn.Module) -> Compared:
    """Rendle et al., BPR: Bayesian personalized ranking, 2009."""
    return Compared(-F.logsigmoid(model(rows())[:, 0] - model(rows())[:, 0]).mean())


def ranks(model: nn.Module) -> Compared:
    """Burges et al., Learning to rank using gradient descent, 2005."""
    difference = model(rows())[:, 0] - model(rows())[:, 0]
    return Compared(F.binary_cross_entropy_with_logits(difference, torch.ones(ROWS)))


def judged(model: nn.Module) -> Compared:
    """Goodfellow et al., Generative adversarial networks, 2014."""
    real, made = model(rows())[:, :1], model(rows())[:, :1]
    compare = F.binary_cross_entropy_with_logits
    return Compared(compare(real, torch.ones(ROWS, 1)) + compare(made, torch.zeros(ROWS, 1)))


def smoothly_judged(model: nn.Module) -> Compared:
    real, made = model(rows())[:, :1], model(rows())[:, :1]
    compare, high = F.binary_cross_entropy_with_logits, 0.8 + 0.2 * torch.rand(ROWS, 1)
    return Compared(compare(real, high) + compare(made, torch.zeros(ROWS, 1)))


def consistent(model: nn.Module) -> Compared:
    """Laine and Aila, Temporal ensembling for semi-supervised learning, 2017."""
    first, second = model(rows()), model(rows())
    agreement = F.mse_loss(first.softmax(1), second.softmax(1).detach())
    return Compared(
        agreement + F.cross_entropy(first, CLASSES), first.log_softmax(1), CLASSES, True
    )


def stopped(model: nn.Module) -> Compared:
    """Chen and He, Exploring simple Siamese representation learning, 2021."""
    first = model(rows())
    return Compared(F.mse_loss(first, model(rows()).detach()))


def bootstrapped(model: nn.Module) -> Compared:
    """Sutton, Learning to predict by the methods of temporal differences, 1988."""
    values, later = model(rows()), model(rows())
    return Compared(F.mse_loss(values, torch.randn(ROWS, 3) + 0.9 * later.detach()))


def both_stopped(model: nn.Module) -> Compared:
    first, second = model(rows()), model(rows())
    return Compared(F.mse_loss(first, 2 * second.detach()) + F.mse_loss(second, first.detach()))


def repeated(model: nn.Module) -> Compared:
    """Liang et al., R-Drop: regularized dropout for neural networks, 2021."""
    x = rows()
    first, second = model(x), model(x)
    twice = F.cross_entropy(first, CLASSES) + F.cross_entropy(second, CLASSES)
    apart = F.kl_div(first.log_softmax(1), second.softmax(1), reduction="batchmean")
    return Compared(twice + apart, first.log_softmax(1), CLASSES, True)


def parts(model: nn.Module) -> Compared:
    first, second = model(rows()), model(rows())
    loss = F.cross_entropy(second, CLASSES.flip(0)) + F.cross_entropy(first, CLASSES)
    return Compared(loss, first.log_softmax(1), CLASSES, True)


def guessed(model: nn.Module) -> Compared:
    """Sohn et al., FixMatch, 2020: labels that the model is sure of, and known ones."""
    guesses = CLASSES.flip(0)
    sure = (torch.rand(ROWS) < 0.5).float()
    strong = (F.cross_entropy(model(rows()), guesses, reduction="none") * sure).mean()
    scores = model(rows())
    return Compared(strong + F.cross_entropy(scores, CLASSES), scores.log_softmax(1), CLASSES)


def attacked(model: nn.Module) -> Compared:
    """Goodfellow et al., Explaining and harnessing adversarial examples, 2015."""
    x = rows().requires_grad_()
    (slope,) = torch.autograd.grad(F.cross_entropy(model(x), CLASSES), x)
    clean, spoilt = model(x.detach()), model(x.detach() + 0.1 * slope.sign())
    loss = F.cross_entropy(spoilt, CLASSES) + F.cross_entropy(clean, CLASSES)
    return Compared(loss, clean.log_softmax(1), CLASSES)


def unclear(model: nn.Module) -> Compared:
    _, second, third = model(rows()), model(rows()), model(rows())
    loss = F.cross_entropy(second, CLASSES.flip(0)) + F.cross_entropy(third, CLASSES)
    return Compared(loss)


LOSSES: list[_StepLoss] = [
    *(siamese, two_views, residuals, boundary_last, pairs, ranks, judged, smoothly_judged),
    *(consistent, stopped, bootstrapped, both_stopped, repeated, parts, guessed, attacked, unclear),
]


def train(path: Path | None, step_loss: _StepLoss) -> tuple[list[Tensor], list[Compared]]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(FEATURES, 5), nn.Tanh(), nn.Linear(5, 3))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    hook = None if path is None else Hook(path, collections=ALL).watch(model, optimizer=optimizer)
    seen = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        compared = step_loss(model)
        compared.loss.backward()
        seen.append(compared)
        optimizer.step()
    if hook is not None:
        hook.close()
        assert hook.problems == []
    return [torch.get_rng_state(), *(parameter.detach() for parameter in model.parameters())], seen


def assert_compared(run: Run, seen: list[Compared], name: str = "loss") -> None:
    if seen[0].labels is None:
        assert run.tensor_names(regex="labels|predictions") == []
        assert run.info.unpaired == []
        return
    assert run.info.unpaired == ([] if seen[0].first else [name])
    for step, compared in enumerate(seen):
        for kind, expected in (("labels", compared.labels), ("predictions", compared.predictions)):
            assert expected is not None
            value = run.tensor(f"{kind}/{name}").value(step)
            np.testing.assert_allclose(value, expected.detach().numpy(), rtol=1e-5)


@pytest.mark.parametrize("step_loss", LOSSES, ids=lambda one: one.__name__)
def test_a_function_has_only_certain_labels(step_loss: _StepLoss, tmp_path: Path) -> None:
    plain, _ = train(None, step_loss)
    hooked, seen = train(tmp_path / "run", step_loss)
    assert all(torch.equal(one, other) for one, other in zip(plain, hooked, strict=True))
    assert_compared(open_run(tmp_path / "run"), seen)


def test_a_module_has_only_certain_labels(tmp_path: Path) -> None:
    def pair_of(model: nn.Module) -> Compared:
        scores = (model(rows()) - model(rows())).abs().mean(1, keepdim=True)
        return Compared(module(scores, SAME), scores, SAME)

    def adversary(model: nn.Module) -> Compared:
        real, made = model(rows())[:, :1], model(rows())[:, :1]
        return Compared(module(real, torch.ones(ROWS, 1)) + module(made, torch.zeros(ROWS, 1)))

    def in_order(model: nn.Module) -> Compared:
        first, second = model(rows())[:, :1], model(rows())[:, :1]
        loss = module(first, SAME) + module(second, 1 - SAME)
        return Compared(loss, first, SAME, True)

    for step_loss in (pair_of, adversary, in_order):
        torch.manual_seed(1)
        model, module = nn.Linear(FEATURES, 3), nn.BCEWithLogitsLoss()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        path, seen = tmp_path / step_loss.__name__, []
        with Hook(path, collections=ALL).watch(model, module, optimizer) as hook:
            for _ in range(STEPS):
                seen.append(step_loss(model))
                optimizer.zero_grad()
                seen[-1].loss.backward()
                optimizer.step()
        assert hook.problems == []
        assert_compared(open_run(path), seen, "BCEWithLogitsLoss")


def test_labels_without_inputs_do_not_follow_those_with_inputs(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Linear(FEATURES, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Hook(tmp_path / "run", collections=ALL).watch(model, optimizer=optimizer):
        for several in (False, True, False):
            output = model(rows()) + model(rows()) if several else model(rows())
            optimizer.zero_grad()
            F.cross_entropy(output, CLASSES).backward()
            optimizer.step()
    run = open_run(tmp_path / "run")
    assert run.tensor("labels/loss").steps().tolist() == [0, 2]
    assert run.info.unpaired == []


class Term(NamedTuple):
    """A term of a random loss; its labels are certain if ``kind`` is "classes" or "numbers"."""

    value: Tensor
    forwards: frozenset[int]
    kind: str
    labels: Tensor


def random_term(chance: random.Random, outputs: list[Tensor]) -> Term:
    count = chance.choice([1, 1, 1, 2])
    chosen = chance.sample(range(len(outputs)), min(count, len(outputs)))
    predictions = outputs[chosen[0]] if len(chosen) == 1 else sum(outputs[one] for one in chosen)
    assert isinstance(predictions, Tensor)
    forwards = frozenset(one + 1 for one in chosen)
    kind = chance.choice(["classes", "yes or no", "numbers", "constant", "penalty"])
    functions: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], Tensor]] = {
        "classes": (F.cross_entropy, torch.randint(0, 3, (ROWS,))),
        "yes or no": (
            F.binary_cross_entropy_with_logits,
            torch.randint(0, 2, (ROWS, 3)).to(torch.float32),
        ),
        "numbers": (F.mse_loss, torch.randn(ROWS, 3)),
        "constant": (
            F.binary_cross_entropy_with_logits,
            torch.full((ROWS, 3), chance.choice([0.0, 0.9, 1.0])),
        ),
    }
    if kind == "penalty":
        return Term(predictions.square().mean(), forwards, "", CLASSES)
    function, labels = functions[kind]
    certain = {"classes": "classes", "yes or no": "classes"}.get(kind, "")
    if kind == "numbers" and len(chosen) == 1:
        certain = "numbers"
    return Term(chance.uniform(0.1, 2) * function(predictions, labels), forwards, certain, labels)


def certain_terms(terms: list[Term]) -> list[Term]:
    """Return the terms of which one may be recorded."""
    certain = [term for term in terms if term.kind]
    if len({one.forwards for one in certain if one.kind == "numbers"}) > 1:
        certain = [one for one in certain if one.kind == "classes"]
    first = [one for one in certain if one.forwards == {1}]
    if not first and len({one.forwards for one in certain}) > 1:
        return []
    return first or certain


@pytest.mark.parametrize("seed", range(6))
def test_random_sums_have_only_certain_labels(seed: int) -> None:
    chance = random.Random(seed)
    torch.manual_seed(seed)
    found_any = 0
    for _ in range(25):
        outputs = [
            2 * torch.randn(ROWS, 3, requires_grad=True) for _ in range(chance.randint(2, 4))
        ]
        for number, output in enumerate(outputs, start=1):
            mark_outputs(output, number)
        terms = [random_term(chance, outputs) for _ in range(chance.randint(1, 4))]
        loss = terms[0].value
        for term in terms[1:]:
            loss = loss + term.value
        found = inputs_of_several(loss, numbers=True)
        expected = certain_terms(terms)
        if found is not None:
            found_any += 1
            same = [one for one in expected if torch.equal(one.labels, found.inputs.labels)]
            assert same
            assert found.first == (same[0].forwards == {1})
        else:
            assert len(expected) != 1
    assert found_any
