"""The visual wake words detector of MLPerf Tiny (arXiv:2106.07597): MobileNet v1 of width 0.25 for 96x96 colour images.

Howard et al., arXiv:1704.04861: a 3x3 convolution with stride 2, thirteen depthwise separable blocks, the mean over the
map, 2 classes; batch norm and ReLU6 after every convolution, which therefore has no bias.
213,586 parameters, 7,489,664 multiply-accumulates an image.
"""

from collections import OrderedDict

from torch import nn

BLOCKS = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1))
"""Channels at full width and stride of every block."""


def build(width: float = 0.25, blocks: int = len(BLOCKS), classes: int = 2) -> nn.Module:
    """The network in float: standardized images (n, 3, h, w) to logits (n, classes).

    ``width`` multiplies every number of channels (at least 8 remain); fewer ``blocks`` make a shorter network.
    """
    layers: OrderedDict[str, nn.Module] = OrderedDict()

    def add(name: str, layer: nn.Conv2d) -> None:
        layers[name] = layer
        layers[f"{name}_norm"], layers[f"{name}_relu"] = nn.BatchNorm2d(layer.out_channels), nn.ReLU6()

    channels = max(8, int(32 * width))
    add("conv", nn.Conv2d(3, channels, 3, stride=2, padding=1, bias=False))
    for i, (full, stride) in enumerate(BLOCKS[:blocks], start=1):
        outputs = max(8, int(full * width))
        add(f"depthwise{i}", nn.Conv2d(channels, channels, 3, stride=stride, padding=1, groups=channels, bias=False))
        add(f"pointwise{i}", nn.Conv2d(channels, outputs, 1, bias=False))
        channels = outputs
    layers["pool"], layers["flatten"] = nn.AdaptiveAvgPool2d(1), nn.Flatten()
    layers["head"] = nn.Linear(channels, classes)
    return nn.Sequential(layers)
