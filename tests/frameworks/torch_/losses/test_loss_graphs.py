"""What a loss function compared is found in the autograd graph of its value."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from vinedresser.frameworks.torch_.losses.loss_graphs import loss_inputs
from vinedresser.frameworks.torch_.losses.model_outputs import mark_outputs

CLASSES = torch.tensor([2, 0, 1, 1])


def outputs() -> Tensor:
    generator = torch.Generator().manual_seed(2)
    return torch.randn(4, 3, generator=generator).requires_grad_()


def targets() -> Tensor:
    return torch.rand(4, 3, generator=torch.Generator().manual_seed(3))


@pytest.mark.parametrize(
    "loss", [F.mse_loss, F.smooth_l1_loss, F.huber_loss, F.binary_cross_entropy_with_logits]
)
@pytest.mark.parametrize(
    "around",
    [
        lambda loss, _: loss,
        lambda loss, _: (1024.0 * loss / 2).clone(),
        lambda loss, x: loss + 0.1 * x.square().sum(),
    ],
    ids=["alone", "scaled", "penalty"],
)
def test_inputs_are_found_below_sums_and_products(
    loss: Callable[[Tensor, Tensor], Tensor], around: Callable[[Tensor, Tensor], Tensor]
) -> None:
    x = outputs()
    found = loss_inputs(around(loss(x, targets()), x))
    assert found is not None
    assert torch.equal(found.predictions, x)
    assert torch.equal(found.labels, targets())
    assert not found.predictions.requires_grad


@pytest.mark.parametrize(
    ("loss", "labels"),
    [(F.multi_margin_loss, CLASSES), (F.soft_margin_loss, targets().round() * 2 - 1)],
)
def test_losses_of_margins_have_labels(
    loss: Callable[[Tensor, Tensor], Tensor], labels: Tensor
) -> None:
    x = outputs()
    found = loss_inputs(loss(x, labels) + 0.1 * x.square().mean())
    assert found is not None
    assert found.function == loss.__name__
    assert torch.equal(found.predictions, x)
    assert torch.equal(found.labels, labels)


@pytest.mark.parametrize("settings", [{}, {"reduction": "sum"}, {"label_smoothing": 0.1}])
def test_a_cross_entropy_saves_logarithms_of_the_softmax(settings: dict[str, float]) -> None:
    x = outputs()
    value = F.cross_entropy(x, CLASSES, **settings)  # type: ignore[arg-type]
    found = loss_inputs(value)
    assert found is not None
    assert torch.equal(found.predictions, x.log_softmax(1))
    assert torch.equal(found.labels, CLASSES)
    # Their cross-entropy is the same.
    again = F.cross_entropy(found.predictions, found.labels, **settings)  # type: ignore[arg-type]
    torch.testing.assert_close(again, value.detach())


@pytest.mark.parametrize("loss", [F.binary_cross_entropy_with_logits, F.mse_loss])
def test_two_calls_with_a_label_each_are_one_comparison(
    loss: Callable[[Tensor, Tensor], Tensor],
) -> None:
    positive, negative = outputs()[:, :1], outputs()[:3, 1:2]
    ones, zeros = torch.ones(4, 1), torch.zeros(3, 1)
    found = loss_inputs(loss(positive, ones) + 0.5 * loss(negative, zeros))
    assert found is not None
    assert torch.equal(found.predictions, torch.cat([positive, negative]))
    assert torch.equal(found.labels, torch.cat([ones, zeros]))


@pytest.mark.parametrize(
    ("first", "second"),
    [(targets()[:, :1], torch.zeros(4, 1)), (torch.ones(4, 1), torch.ones(4, 1))],
    ids=["several labels", "the same label"],
)
def test_other_pairs_of_calls_are_not_joined(first: Tensor, second: Tensor) -> None:
    x = outputs()
    found = loss_inputs(F.mse_loss(x[:, :1], first) + F.mse_loss(x[:, 1:2], second))
    assert found is not None
    assert torch.equal(found.labels, first)


@pytest.mark.parametrize(
    "loss",
    [
        # Zhang et al., mixup: Beyond Empirical Risk Minimization, ICLR 2018.
        lambda x: 0.3 * F.cross_entropy(x, CLASSES) + 0.7 * F.cross_entropy(x, CLASSES.flip(0)),
        lambda x: 0.3 * F.mse_loss(x, targets()) + 0.7 * F.mse_loss(x, targets().flip(0)),
        lambda x: 0.3 * F.l1_loss(x, targets()) + 0.7 * F.l1_loss(x, targets().flip(0)),
    ],
)
def test_of_mixed_labels_none_are_found(loss: Callable[[Tensor], Tensor]) -> None:
    x = 1.0 * outputs()
    mark_outputs(x)
    assert loss_inputs(loss(x)) is None
    # The same labels twice are no mixture.
    again = F.cross_entropy(x, CLASSES) + F.cross_entropy(x, CLASSES, label_smoothing=0.1)
    assert loss_inputs(again) is not None


def test_a_sequence_loss_has_the_targets_of_its_sequences() -> None:
    logarithms = torch.randn(5, 2, 4).requires_grad_().log_softmax(2)
    labels = torch.tensor([[1, 2], [2, 3]])
    found = loss_inputs(F.ctc_loss(logarithms, labels, torch.tensor([5, 5]), torch.tensor([2, 2])))
    assert found is not None
    assert torch.equal(found.labels, labels)


@pytest.mark.parametrize("loss", [F.mse_loss, F.smooth_l1_loss, F.huber_loss])
def test_the_labels_of_an_error_are_the_argument_without_a_gradient(
    loss: Callable[[Tensor, Tensor], Tensor],
) -> None:
    x = outputs()
    found = loss_inputs(loss(targets(), x))
    assert found is not None
    assert torch.equal(found.predictions, x)
    assert torch.equal(found.labels, targets())


def test_tensors_that_are_broadcast_keep_their_shapes() -> None:
    x = outputs()[:, :1]
    with pytest.warns(UserWarning, match="different to the input size"):
        found = loss_inputs(F.mse_loss(x, targets()[:, 0]))
    assert found is not None
    assert (found.predictions.shape, found.labels.shape) == ((4, 1), (4,))


def test_nothing_is_found_in_other_graphs() -> None:
    x = outputs()
    deep = nn.Sequential(*(nn.Tanh() for _ in range(40)))(F.mse_loss(x, targets()))
    freed = F.mse_loss(x, targets())
    freed.backward()
    with torch.autograd.graph.saved_tensors_hooks(lambda one: one, pytest.fail):
        hooked = F.mse_loss(x, targets())
    for loss in (x.square().sum(), F.l1_loss(x, targets()), deep, freed, hooked, targets().sum()):
        assert loss_inputs(loss) is None


@pytest.mark.parametrize("activation", [torch.softmax, None], ids=["softmax", "tanh"])
def test_an_activation_before_a_cross_entropy_is_seen(
    activation: Callable[[Tensor, int], Tensor] | None,
) -> None:
    x = outputs()
    given = torch.tanh(x) if activation is None else activation(x, 1)
    found = loss_inputs(F.cross_entropy(given, CLASSES))
    assert found is not None
    assert found.function == "cross_entropy"
    assert torch.equal(found.predictions, given)


@pytest.mark.parametrize(
    "module",
    [
        nn.CrossEntropyLoss(ignore_index=1),
        nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 3.0]), reduction="sum"),
        nn.CrossEntropyLoss(label_smoothing=0.1, ignore_index=2),
        nn.NLLLoss(),
        nn.BCEWithLogitsLoss(pos_weight=torch.tensor([2.0, 1.0, 1.0])),
        nn.BCELoss(weight=torch.ones(3)),
        nn.MSELoss(reduction="sum"),
        nn.HuberLoss(),
    ],
)
def test_settings_of_a_function_are_those_of_its_module(module: nn.Module) -> None:
    x, of_classes = outputs(), isinstance(module, nn.CrossEntropyLoss | nn.NLLLoss)
    given = x.sigmoid() if isinstance(module, nn.BCELoss) else x
    found = loss_inputs(2 * module(given, CLASSES if of_classes else targets()))
    assert found is not None
    expected: dict[str, object] = {"reduction": module.reduction}
    expected |= {name: one is not None for name, one in module._buffers.items()}
    if of_classes:
        expected["ignore_index"] = module.ignore_index
    assert found.settings == expected


def test_two_outputs_have_no_labels() -> None:
    x = outputs()
    consistency = F.mse_loss(x.sigmoid(), x.tanh())
    assert loss_inputs(consistency) is None
    found = loss_inputs(consistency + (1.0 * F.cross_entropy(x, CLASSES)))
    assert found is not None
    assert torch.equal(found.labels, CLASSES)


def test_a_negative_log_likelihood_is_no_cross_entropy() -> None:
    x = outputs()
    found = loss_inputs(F.nll_loss(x.softmax(1), CLASSES))
    assert found is not None
    assert found.function == "nll_loss"
    assert torch.equal(found.predictions, x.softmax(1))


@pytest.mark.parametrize(
    ("shape", "axis", "function"),
    [
        ((4, 3), 1, "cross_entropy"),
        ((4, 3), -1, "cross_entropy"),
        ((4, 3), 0, "nll_loss"),
        ((4, 3, 2), 1, "cross_entropy"),
        ((4, 3, 2), -1, "nll_loss"),
        ((4, 3, 2, 2), -3, "cross_entropy"),
        ((4, 3, 2, 2), 2, "nll_loss"),
    ],
)
def test_a_log_softmax_over_another_axis_makes_no_cross_entropy(
    shape: tuple[int, ...], axis: int, function: str
) -> None:
    labels = torch.zeros(shape[:1] + shape[2:], dtype=torch.int64)
    logits = torch.ones(shape).requires_grad_()
    found = loss_inputs(F.nll_loss(logits.log_softmax(axis), labels))
    assert found is not None
    assert found.function == function


@pytest.mark.parametrize(("axis", "function"), [(2, "cross_entropy"), (1, "nll_loss")])
def test_the_classes_of_flattened_rows_are_the_last_axis(axis: int, function: str) -> None:
    logits = torch.randn(4, 6, 3).requires_grad_()
    flat = logits.log_softmax(axis).flatten(0, 1)
    found = loss_inputs(F.nll_loss(flat, torch.zeros(24, dtype=torch.int64)))
    assert found is not None
    assert found.function == function
    assert found.activation == ("" if axis == 2 else "log_softmax")
    assert torch.equal(found.predictions, flat)


@pytest.mark.parametrize(
    ("around", "negated"),
    [
        (lambda loss, x: -loss, True),
        (lambda loss, x: loss * -0.5, True),
        (lambda loss, x: -2 * loss / 3, True),
        (lambda loss, x: x.square().sum() - loss, True),
        (lambda loss, x: 1 - loss, True),
        (lambda loss, x: (-loss).neg(), False),
        (lambda loss, x: loss - x.square().sum(), False),
        # Another function is minimised.
        (lambda loss, x: F.smooth_l1_loss(x, targets() + 1) - 0.1 * loss, False),
        (lambda loss, x: -0.1 * loss + (2 * F.smooth_l1_loss(x, targets() + 1)).clone(), False),
        # Of a decreasing function, such as a peak signal-to-noise ratio, the negative increases.
        (lambda loss, x: -10 * torch.log10(1 / loss), False),
        (lambda loss, x: -loss.rsqrt(), False),
        (lambda loss, x: -loss.pow(-1), False),
        (lambda loss, x: -torch.log1p(loss.sqrt()), True),
        # Weights.
        (lambda loss, x: (-loss * torch.ones(2)).mean(), True),
        (lambda loss, x: (-loss * torch.tensor([1.0, -2.0])).mean(), False),
    ],
)
def test_a_loss_that_is_subtracted(
    around: Callable[[Tensor, Tensor], Tensor], negated: bool
) -> None:
    x = outputs()
    found = loss_inputs(around(F.mse_loss(x, targets()), x))
    assert found is not None
    assert found.negated == negated


@pytest.mark.parametrize(
    ("loss", "negated"),
    [
        (lambda x: -(x - targets()).abs().mean(), True),
        (lambda x: ((x - targets()) ** 2).mean(), False),
        # The other term may be the one that is minimised.
        (lambda x: x.exp().mean() - (x - targets()).abs().mean(), False),
    ],
)
def test_an_error_by_hand_that_is_subtracted(
    loss: Callable[[Tensor], Tensor], negated: bool
) -> None:
    x = 1.0 * outputs()
    mark_outputs(x)
    found = loss_inputs(loss(x))
    assert found is not None
    assert found.negated == negated


@pytest.mark.parametrize(
    ("activate", "name"),
    [
        (Tensor.relu, "relu"),
        (Tensor.tanh, "tanh"),
        (Tensor.sigmoid, "sigmoid"),
        (lambda x: x.softmax(1), "softmax"),
        (lambda x: 2 * x, ""),
    ],
)
def test_an_activation_before_a_function(activate: Callable[[Tensor], Tensor], name: str) -> None:
    x = outputs()
    for value in (
        F.cross_entropy(activate(x), CLASSES),
        F.binary_cross_entropy_with_logits(activate(x), targets()),
    ):
        found = loss_inputs(value)
        assert found is not None
        assert found.activation == name
        if name:
            assert torch.equal(found.predictions, activate(x))
    # Selecting or ordering values does not hide their activation; changing them does.
    for value in (
        F.mse_loss(activate(x), targets()),
        F.mse_loss(activate(x).T[:2], targets().T[:2]),
        F.binary_cross_entropy_with_logits(activate(x).reshape(-1), targets().reshape(-1)),
    ):
        found = loss_inputs(value)
        assert found is not None
        assert found.activation == name
    found = loss_inputs(F.mse_loss(activate(x) * 3, targets()))
    assert found is not None
    assert found.activation == ""
