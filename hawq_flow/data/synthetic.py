"""Data made up here, for networks whose real data are not at hand.

They resemble real ones to the arithmetic (range, smoothness, structure to learn from) and in nothing else: accuracies
on them say nothing about the real task.

::

    synthetic:images   any shape (channels, height, width): a windowed grating whose direction is the class, at a random
                       place with random phase, wavelength and colour, on a smooth random background, plus noise
    synthetic:machine  640 values, 5 frames of 128 bands in decibels: the harmonics of a machine whose speed drifts;
                       "faulty" ones have a resonance that "healthy" ones lack, or lack a harmonic
    synthetic:sensor   (1, 8, 8): the shares that the cells of a sensor have of the charge of 1 to 3 particle showers

All are functions of a seed, drawn with numpy's PCG64 generator.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hawq_flow.data.errors import DataError
from hawq_flow.data.files import Table

NAMES = ("images", "machine", "sensor")
FRAMES, BANDS = 5, 128
SIDE, SHOWERS = 8, 3
FAULTY = 0.15
"""Fraction of the machines that are faulty."""


def synthetic(source: str, name: str, shape: Sequence[int] | None, samples: int, classes: int, seed: int) -> Table:
    """Make ``samples`` examples.

    Parameters
    ----------
    source:
        For errors.
    name:
        One of :data:`NAMES`.
    shape:
        Of one image, (channels, height, width); the others have their own and take None.
    classes:
        Number of classes of images; the others have their own and take 0.
    seed:
        Of everything random.

    Raises
    ------
    DataError
        If the name is unknown, or a size is missing, too small, or given where it is fixed.
    """
    if name not in NAMES:
        raise DataError(f"{source}: no synthetic data of that name; expected one of {', '.join(NAMES)}")
    if samples < 1:
        raise DataError(f"{source}: `samples` is {samples}; expected how many examples to make, 1 or more")
    rng = np.random.default_rng(np.random.PCG64(seed))
    if name == "images":
        if shape is None or len(shape) != 3 or min(shape) < 1:
            given = "left out" if shape is None else list(shape)
            raise DataError(f"{source}: `shape` is {given}; expected [channels, height, width]")
        if classes < 2:
            raise DataError(f"{source}: `classes` is {classes}; expected 2 or more")
        return _images(tuple(shape), samples, classes, rng)
    if shape is not None or classes:
        raise DataError(f"{source}: `shape` or `classes` given; expected neither: they are fixed")
    return _machine(samples, rng) if name == "machine" else _sensor(samples, rng)


def _images(shape: tuple[int, ...], samples: int, classes: int, rng: np.random.Generator) -> Table:
    channels, height, width = shape
    y = np.arange(samples) % classes
    span = min(height, width)

    def column(values: NDArray[np.float64]) -> NDArray[np.float64]:
        return values[:, None, None]

    angle = math.pi * (y + rng.uniform(-0.2, 0.2, samples)) / classes
    wavelength = rng.uniform(0.2, 0.35, samples) * max(span, 10)
    phase = rng.uniform(0, 2 * math.pi, samples)
    centre_y, centre_x = rng.uniform(0.3, 0.7, samples) * height, rng.uniform(0.3, 0.7, samples) * width
    colour = rng.uniform(0.3, 1.0, (samples, channels)) * rng.choice([-1.0, 1.0], (samples, channels))
    row, col = np.arange(height)[:, None], np.arange(width)[None, :]
    down, right = row - column(centre_y), col - column(centre_x)
    along = down * column(np.cos(angle)) + right * column(np.sin(angle))
    window = np.exp(-0.5 * ((down / (0.35 * height)) ** 2 + (right / (0.35 * width)) ** 2))
    grating = window * np.cos(2 * math.pi * along / column(wavelength) + column(phase))
    # A smooth background: a 3 x 3 grid of random values between which the image interpolates linearly.
    coarse = rng.standard_normal((samples, channels, 3, 3))
    x = _stretch(height) @ coarse @ _stretch(width).T
    x *= 0.3
    x += colour[:, :, None, None] * grating[:, None]
    x += 0.3 * rng.standard_normal(x.shape)
    return Table(x, y, (), "direction", "shared")


def _stretch(size: int) -> NDArray[np.float64]:
    """(size, 3): linear interpolation from 3 points to ``size``."""
    place = np.linspace(0, 2, size)
    return np.maximum(0.0, 1.0 - np.abs(place[:, None] - np.arange(3)))


def _machine(samples: int, rng: np.random.Generator) -> Table:
    faulty = np.arange(samples) % 20 < round(20 * FAULTY)
    band, frame = np.arange(BANDS, dtype=np.float64), np.arange(FRAMES)
    # Harmonics 1 to 8 of a speed that differs between machines and drifts over the frames, on the bands' log scale.
    speed = 14 + 2 * rng.standard_normal(samples)[:, None] + 0.4 * rng.standard_normal((samples, 1)) * frame
    power = (
        np.full((samples, FRAMES, BANDS), 1e-3)
        * np.exp(-band / 60)
        * np.exp(0.3 * rng.standard_normal((samples, 1, 1)))
    )
    missing = np.where(faulty & (rng.random(samples) < 0.5), rng.integers(2, 5, samples), 0)
    load = np.exp(0.3 * rng.standard_normal((samples, 1)))
    for harmonic in range(1, 9):
        place = speed + 34 * math.log2(harmonic)
        strength = load * np.exp(0.15 * rng.standard_normal((samples, 1))) * harmonic**-1.2
        strength = np.where((missing == harmonic)[:, None], 0.05 * strength, strength)
        power += strength[:, :, None] * np.exp(-0.5 * ((band - place[:, :, None]) / 1.8) ** 2)
    resonance = rng.uniform(60, 120, samples)[:, None, None]
    extra = np.where(faulty & (missing == 0), 0.15, 0.0)[:, None, None]
    power += extra * load[:, :, None] * np.exp(-0.5 * ((band - resonance) / 2.5) ** 2)
    power *= rng.gamma(20.0, 1 / 20.0, power.shape)  # the estimate of a spectrum from few periods scatters
    x = 10 * np.log10(power)
    labels = np.where(faulty, "faulty", "healthy")
    names = tuple(f"frame{f}_band{b}" for f in range(FRAMES) for b in range(BANDS))
    return Table(x.reshape(samples, -1), labels, names, "state", "feature")


def _sensor(samples: int, rng: np.random.Generator) -> Table:
    showers = 1 + np.arange(samples) % SHOWERS
    cell = np.arange(SIDE)
    x = np.zeros((samples, SIDE, SIDE))
    for shower in range(SHOWERS):
        energy = np.where(shower < showers, rng.exponential(1.0, samples) + 0.3, 0.0)
        row, col = rng.uniform(-0.5, SIDE - 0.5, (2, samples, 1))
        width = rng.uniform(0.5, 1.0, (samples, 1))
        down = np.exp(-0.5 * ((cell - row) / width) ** 2)
        right = np.exp(-0.5 * ((cell - col) / width) ** 2)
        blob = down[:, :, None] * right[:, None, :]
        x += energy[:, None, None] * blob / blob.sum(axis=(1, 2), keepdims=True)
    x = np.maximum(x + 0.01 * rng.standard_normal(x.shape) - 0.01, 0.0)  # noise, and the threshold of the readout
    x /= x.sum(axis=(1, 2), keepdims=True)
    names = tuple(f"cell_{r}_{c}" for r in range(SIDE) for c in range(SIDE))
    return Table(x[:, None], showers, names, "showers", "shared")
