"""Knowledge distillation: fine-tuning a pruned model with the unpruned one as its teacher."""

from __future__ import annotations

import math
import sys
from typing import Any

from vinedresser.errors import PruningError


def distillation_loss(
    student_logits: Any,
    teacher_logits: Any,
    labels: Any,
    *,
    temperature: float = 4.0,
    weight: float = 0.5,
) -> Any:
    """Return the loss of a student that learns from labels and from a teacher.

    With logits s and t, labels y, temperature T and weight w, the mean over the batch of::

        (1 - w) * CE(y, softmax(s)) + w * T**2 * CE(softmax(t / T), softmax(s / T))

    where CE(p, q) = -sum(p * log(q)) is the cross-entropy over classes. The factor T**2 keeps the
    gradients of both terms at the same scale when T changes (Hinton, Vinyals and Dean, "Distilling
    the Knowledge in a Neural Network", 2015, section 2). No gradient reaches the teacher.

    Args:
        student_logits: float [batch, classes], a tensor of PyTorch, or of Keras' backend.
        teacher_logits: float [batch, classes].
        labels: int [batch], the numbers of the classes.
        temperature: above 0; the higher it is, the more the teacher's small probabilities count.
        weight: share of the teacher, from 0 to 1.

    Returns:
        Scalar tensor.

    Raises:
        PruningError: the logits differ in shape, do not fit the labels, or the temperature or the
            weight is out of range.
    """
    shape = tuple(student_logits.shape)
    if len(shape) != 2 or tuple(teacher_logits.shape) != shape or tuple(labels.shape) != shape[:1]:
        raise PruningError(
            f"the student's logits have shape {list(shape)}, the teacher's "
            f"{list(teacher_logits.shape)}, labels {list(labels.shape)}; they must be "
            "[batch, classes] twice, and [batch]"
        )
    if not (math.isfinite(temperature) and temperature > 0):
        raise PruningError(f"temperature: {temperature}: must be above 0")
    if not 0 <= weight <= 1:
        raise PruningError(f"weight: {weight}: must be from 0 to 1")
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(student_logits, torch.Tensor):
        from torch.nn import functional

        soft = functional.softmax(teacher_logits.detach() / temperature, dim=1)
        hard_loss = functional.cross_entropy(student_logits, labels)
        soft_loss = functional.cross_entropy(student_logits / temperature, soft)
    else:
        from keras import losses, ops

        soft = ops.softmax(ops.stop_gradient(teacher_logits) / temperature)
        hard = losses.sparse_categorical_crossentropy(labels, student_logits, from_logits=True)
        gentle = student_logits / temperature
        hard_loss = ops.mean(hard)
        soft_loss = ops.mean(losses.categorical_crossentropy(soft, gentle, from_logits=True))
    return (1 - weight) * hard_loss + weight * temperature**2 * soft_loss
