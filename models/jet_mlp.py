"""The LHC jet tagger of the benchmark: 16 observables -> 64 -> 32 -> 32 -> 5 classes, ReLU (arXiv:1804.06913).

4,389 parameters, 4,256 multiply-accumulates a jet.
"""

from collections import OrderedDict
from collections.abc import Sequence

from torch import nn


def build(
    features: int = 16, hidden: Sequence[int] = (64, 32, 32), classes: int = 5, batch_norm: bool = False
) -> nn.Module:
    """The network in float, freshly initialized from torch's global generator.

    It maps standardized observables, shape (n, features), to logits, shape (n, classes). With ``batch_norm`` every
    hidden layer is followed by batch norm before its ReLU.
    """
    layers: OrderedDict[str, nn.Module] = OrderedDict()
    width = features
    for i, size in enumerate(hidden, start=1):
        layers[f"fc{i}"] = nn.Linear(width, size)
        if batch_norm:
            layers[f"bn{i}"] = nn.BatchNorm1d(size)
        layers[f"relu{i}"] = nn.ReLU()
        width = size
    layers["head"] = nn.Linear(width, classes)
    return nn.Sequential(layers)
