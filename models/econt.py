"""A detector front end's encoder after the ECON-T chip of the CMS endcap calorimeter (arXiv:2105.01683).

An 8x8 image of a sensor's charges becomes 16 numbers, on the chip, so that less data leaves the detector: a 3x3
convolution to 8 channels with stride 2, then a dense layer, each with ReLU. Away from the chip a decoder reconstructs
the image; it is trained and quantized along with the encoder, and dropped (``decoder=False``) for the chip.
Encoder and decoder: 4,152 parameters, 5,120 multiply-accumulates an image.
"""

from collections import OrderedDict

from torch import nn


def build(code: int = 16, decoder: bool = True, side: int = 8) -> nn.Module:
    """The network in float: standardized images (n, 1, side, side) to their reconstruction (n, side * side).

    With ``decoder=False`` it gives the code, (n, code), alone; the encoder's layers keep their names.
    """
    pixels = side * side
    flat = 8 * (side // 2) ** 2
    layers: OrderedDict[str, nn.Module] = OrderedDict()
    layers["conv"], layers["conv_relu"] = nn.Conv2d(1, 8, 3, stride=2, padding=1), nn.ReLU()
    layers["flatten"] = nn.Flatten()
    layers["latent"] = nn.Linear(flat, code)
    if decoder:
        layers["latent_relu"] = nn.ReLU()
        layers["decode"], layers["decode_relu"] = nn.Linear(code, 24), nn.ReLU()
        layers["reconstruction"] = nn.Linear(24, pixels)
    return nn.Sequential(layers)
