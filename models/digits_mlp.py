"""A small classifier of 8x8 digit images: flatten, hidden layers with batch norm and ReLU, 10 classes.

1,430 parameters, 1,336 multiply-accumulates an image.
"""

from collections.abc import Sequence

from torch import nn


def build(pixels: int = 64, hidden: Sequence[int] = (16, 12), classes: int = 10) -> nn.Module:
    """The network in float: standardized images (n, ...) of ``pixels`` values to logits (n, classes)."""
    layers: list[nn.Module] = [nn.Flatten()]
    width = pixels
    for size in hidden:
        layers += [nn.Linear(width, size), nn.BatchNorm1d(size), nn.ReLU()]
        width = size
    return nn.Sequential(*layers, nn.Linear(width, classes))
