"""The anomaly detector of MLPerf Tiny (arXiv:2106.07597; DCASE 2020 task 2's baseline for ToyADMOS): an autoencoder.

Dense layers 640-128-128-128-128-8-128-128-128-128-640 with batch norm and ReLU after all but the last. It learns to
reconstruct the spectra of healthy machines; what it reconstructs badly is an anomaly.
267,928 parameters, 264,192 multiply-accumulates a sample.
"""

from collections import OrderedDict

from torch import nn


def build(features: int = 640, hidden: int = 128, depth: int = 4, code: int = 8) -> nn.Module:
    """The network in float: standardized samples (n, features) to their reconstruction (n, features).

    ``depth`` hidden layers of ``hidden`` units stand on each side of the ``code``.
    """
    sizes = [hidden] * depth + [code] + [hidden] * depth
    names = [f"encode{i}" for i in range(1, depth + 1)] + ["latent"] + [f"decode{i}" for i in range(1, depth + 1)]
    layers: OrderedDict[str, nn.Module] = OrderedDict()
    width = features
    for name, size in zip(names, sizes, strict=True):
        layers[name] = nn.Linear(width, size)
        layers[f"{name}_norm"], layers[f"{name}_relu"] = nn.BatchNorm1d(size), nn.ReLU()
        width = size
    layers["reconstruction"] = nn.Linear(width, features)
    return nn.Sequential(layers)
