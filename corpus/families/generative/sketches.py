"""Clothes from their outlines: a generator, and a network that tells its pictures from true ones.

After Isola et al., "Image-to-image translation with conditional adversarial networks", CVPR 2017,
with the pictures of Xiao, Rasul and Vollgraf, "Fashion-MNIST", 2017.

Shape legend: N pictures of 14 x 14 pixels.
"""

from __future__ import annotations

import torch
from torch import nn

from corpus import networks
from corpus.data.fashion import clothes
from corpus.data.held_out import HeldOut, held_out
from corpus.draw import Draw
from corpus.epochs import learning_rate, optimizer_of, plan, trained
from corpus.family import Ending, Family
from corpus.loop import explained

_SEEN = 600


def _generator(draw: Draw, width: int) -> tuple[nn.Sequential, nn.Module]:
    head = nn.Conv2d(width, 1, 3, padding=1)
    model = nn.Sequential(
        *(nn.Conv2d(1, width, 3, 2, padding=1), nn.ReLU()),
        *(nn.Conv2d(width, 2 * width, 3, padding=1), nn.ReLU()),
        *(nn.Conv2d(2 * width, 2 * width, 3, padding=1), nn.ReLU()),
        *(nn.ConvTranspose2d(2 * width, width, 4, 2, padding=1), nn.ReLU(), head),
    )
    model.append(nn.Sigmoid() if draw.has("wrong_output_activation") else nn.Tanh())
    return model, head


def _discriminator() -> nn.Sequential:
    return nn.Sequential(
        *(nn.Conv2d(2, 16, 3, 2, padding=1), nn.LeakyReLU(0.2)),
        *(nn.Conv2d(16, 24, 3, 2, padding=1), nn.LeakyReLU(0.2), nn.Conv2d(24, 1, 3, padding=1)),
    )


def _train(draw: Draw) -> Ending:
    rows = _sketches(draw, 900)
    generator, head = _generator(draw, draw.choice([12, 16]))
    discriminator = _discriminator()
    networks.spoil(draw, generator)
    length = plan(draw, _SEEN, [15, 20], (7, 9))
    rate = learning_rate(draw, 2e-3, 4e-3)
    opt_g = optimizer_of(draw, "adam", trained(draw, generator, head), rate)
    opt_d = torch.optim.Adam(discriminator.parameters(), 1e-3, betas=(0.5, 0.999))
    adversarial, l1 = nn.BCEWithLogitsLoss(), nn.L1Loss()
    draw.watch.loss(adversarial)
    draw.watch.begin(generator, opt_g, name="generator")
    draw.watch.begin(discriminator, opt_d, name="discriminator")
    weight = draw.by_fault({"term_left_out": 0.0, "term_wrong_sign": -20.0}, 20.0)
    for epoch in range(length.epochs):
        generator.train()
        for batch in torch.randperm(_SEEN)[: length.batches * length.size].split(length.size):
            sketch, real = rows.x[batch], rows.y[batch]
            fake = generator(sketch)
            opt_d.zero_grad()
            on_real = discriminator(torch.cat([sketch, real], 1))
            on_fake = discriminator(torch.cat([sketch, fake.detach()], 1))
            loss_d = adversarial(on_real, torch.ones_like(on_real))
            loss_d = (loss_d + adversarial(on_fake, torch.zeros_like(on_fake))) / 2
            loss_d.backward()
            opt_d.step()
            opt_g.zero_grad()
            if draw.has("detached_graph"):
                fake = fake.detach().requires_grad_()
            judged = discriminator(torch.cat([sketch, fake], 1))
            loss_g = adversarial(judged, torch.ones_like(judged)) + weight * l1(fake, real)
            loss_g.backward()
            opt_g.step()
        if epoch % 3 == 2:
            generator.eval()
            with draw.watch.evaluating(), torch.no_grad():
                draw.watch.metric("val_l1", float(l1(generator(rows.x_val), rows.y_val)))
    generator.eval()
    with torch.no_grad():
        found = generator(rows.x_test)
    return Ending(explained(found.flatten(1), rows.y_test.flatten(1)), bar=0.5)


def _sketches(draw: Draw, count: int) -> HeldOut:
    """Return outlines and pictures between -1 and 1, float32 [count, 1, 14, 14] each."""
    order = torch.tensor(draw.numpy.permutation(4000)[:count])
    picture = clothes(4000)[0][order]
    low, high = picture.amin((2, 3), keepdim=True), picture.amax((2, 3), keepdim=True)
    picture = 2 * (picture - low) / (high - low) - 1
    across = (picture - picture.roll(1, 3)).abs()
    down = (picture - picture.roll(1, 2)).abs()
    outline = (torch.maximum(across, down) > draw.between(0.5, 0.6)).float()
    return held_out(
        *(draw, outline, picture, _SEEN),
        prepared={
            # Bytes, which the last layer cannot reach.
            "unnormalised_targets": (outline, 127.5 * (picture + 1)),
            "swapped_pairs": (outline[torch.randperm(count)], picture),
        },
    )


FAMILY = Family(
    _train,
    (
        *("swapped_pairs", "unnormalised_targets", "constant_inputs", "term_left_out"),
        *("term_wrong_sign", "wrong_output_activation", "detached_graph", "zero_init"),
        *("dead_relu", "wrong_parameters", "lr_too_low"),
    ),
    spent="2026-11-28",
)
