"""The keyword spotter of MLPerf Tiny (arXiv:2106.07597): DS-CNN after Zhang et al., "Hello Edge", arXiv:1711.07128.

Input: 49 frames of 10 cepstral coefficients. A 10x4 convolution with stride 2 to 64 channels, four depthwise separable
blocks (3x3 depthwise, then pointwise), the mean over the map, 12 classes; batch norm and ReLU after every convolution.
The convolution's padding is symmetric (5 and 1), as torch's is; the benchmark's pads 4 rows before and 5 after.
23,756 parameters, 2,656,768 multiply-accumulates a second of speech.
"""

from collections import OrderedDict

from torch import nn


def build(channels: int = 64, blocks: int = 4, classes: int = 12, dropout: float = 0.2) -> nn.Module:
    """The network in float: standardized spectra (n, 1, 49, 10) to logits (n, classes)."""
    layers: OrderedDict[str, nn.Module] = OrderedDict()

    def add(name: str, layer: nn.Conv2d) -> None:
        layers[name] = layer
        layers[f"{name}_norm"], layers[f"{name}_relu"] = nn.BatchNorm2d(channels), nn.ReLU()

    add("conv", nn.Conv2d(1, channels, (10, 4), stride=2, padding=(5, 1)))
    layers["dropout"] = nn.Dropout(dropout)
    for i in range(1, blocks + 1):
        add(f"depthwise{i}", nn.Conv2d(channels, channels, 3, padding=1, groups=channels))
        add(f"pointwise{i}", nn.Conv2d(channels, channels, 1))
    layers["pool"], layers["flatten"] = nn.AdaptiveAvgPool2d(1), nn.Flatten()
    layers["head"] = nn.Linear(channels, classes)
    return nn.Sequential(layers)
