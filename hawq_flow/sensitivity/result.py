"""What the sensitivity stage returns: traces with both of their errors, as frozen values with a strict JSON form.

A trace carries two standard errors, which answer different questions. ``estimator_error`` is what a repetition with
other random probes on the same data would change (0 for the exact method); ``sampling_error`` is what other
training data of the same size would change: the standard deviation of the per-sample traces over sqrt(samples).
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from hawq_flow.document import exact_keys, version

Method = Literal["exact", "sketch", "hutchinson"]
SENSITIVITY_VERSION = 1


@dataclass(frozen=True)
class LayerSensitivity:
    """Curvature of the loss in the weights of one layer (bias excluded).

    Attributes
    ----------
    name:
        The layer's name in the float model.
    parameters:
        ``n``, the number of weights.
    trace:
        Trace of the Hessian of the mean loss in this layer's weights; loss (cross-entropy: nats) per squared weight.
    method:
        ``exact`` (layerwise Gauss-Newton identity), ``sketch`` (the same with random signs at the outputs) or
        ``hutchinson`` (PyHessian).
    estimator_error, sampling_error:
        Standard errors of ``trace``: from the random probes (0.0 if exact), and from the finite data.
    samples:
        Training samples averaged over.
    iterations:
        Random probes of every sample (sketch) or batch of data (hutchinson); 0 if exact.
    converged:
        Whether ``estimator_error`` reached the requested relative error (always so if exact).
    top_eigenvalue:
        Largest eigenvalue of that Hessian block on the first ``eigenvalue_samples`` samples; None when not asked for.
    eigenvalue_residual:
        ``|H v - lambda v|``, which bounds the distance of ``top_eigenvalue`` to an eigenvalue; None when not asked for.
    diagonal:
        float64 array of the weight's shape, each weight's second derivative, or None. Not compared by ``==``.
    """

    name: str
    parameters: int
    trace: float
    method: Method
    estimator_error: float
    sampling_error: float
    samples: int
    iterations: int = 0
    converged: bool = True
    top_eigenvalue: float | None = None
    eigenvalue_residual: float | None = None
    eigenvalue_samples: int = 0
    diagonal: NDArray[np.float64] | None = field(default=None, compare=False, repr=False)

    @property
    def mean_trace(self) -> float:
        """Trace over ``n``: the mean eigenvalue, HAWQ-v2's measure (arXiv:1911.03852)."""
        return self.trace / self.parameters


@dataclass(frozen=True)
class ActivationSensitivity:
    """Curvature of the loss in one activation tensor: a layer's output after its non-linearity, or the network's input.

    ``trace`` is the mean over samples of the trace of the Hessian of that sample's loss in that sample's
    ``size`` activation elements. The other attributes are those of :class:`LayerSensitivity`.
    """

    name: str
    size: int
    trace: float
    method: Method
    estimator_error: float
    sampling_error: float
    samples: int
    iterations: int = 0
    converged: bool = True

    @property
    def mean_trace(self) -> float:
        """Trace over the number of elements: the mean eigenvalue."""
        return self.trace / self.size


@dataclass(frozen=True)
class Sensitivity:
    """Sensitivities of a whole network, layers and activations in the order of the forward pass.

    ``reason`` says why ``auto`` chose the method ("" when it was asked for by name), why activations are left out, and
    why eigenvalues are of fewer samples than asked for; ``activations`` holds the input first, then every layer's
    output under the layer's name.
    """

    layers: tuple[LayerSensitivity, ...]
    activations: tuple[ActivationSensitivity, ...]
    method: Method
    reason: str = ""
    seed: int = 0

    def layer(self, name: str) -> LayerSensitivity:
        """The layer called ``name``; ``KeyError`` lists those there are."""
        for entry in self.layers:
            if entry.name == name:
                return entry
        raise KeyError(f"sensitivity: no layer {name!r}; it has {', '.join(entry.name for entry in self.layers)}")

    def activation(self, name: str) -> ActivationSensitivity:
        """The activation called ``name``; ``KeyError`` lists those there are."""
        for entry in self.activations:
            if entry.name == name:
                return entry
        raise KeyError(
            f"sensitivity: no activation {name!r}; it has "
            f"{', '.join(entry.name for entry in self.activations) or 'none'}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON form, version 1; diagonals become nested lists."""
        layers = []
        for entry in self.layers:
            plain = {f.name: getattr(entry, f.name) for f in dataclasses.fields(entry)}
            plain["diagonal"] = None if entry.diagonal is None else entry.diagonal.tolist()
            layers.append(plain)
        return {
            "version": SENSITIVITY_VERSION,
            "method": self.method,
            "reason": self.reason,
            "seed": self.seed,
            "layers": layers,
            "activations": [dataclasses.asdict(entry) for entry in self.activations],
        }

    def to_json(self) -> str:
        """:meth:`to_dict` as indented JSON text with a final newline."""
        return json.dumps(self.to_dict(), indent=2, allow_nan=False) + "\n"

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Sensitivity:
        """Read :meth:`to_dict`'s form back; ``ValueError`` on an unknown version or key, or a wrong value."""
        exact_keys(data, {"version", "method", "reason", "seed", "layers", "activations"}, "sensitivity")
        version(data["version"], SENSITIVITY_VERSION, "sensitivity", "Run the sensitivity stage again")
        layers = []
        for i, entry in enumerate(data["layers"]):
            where = f"sensitivity, layer {i}"
            exact_keys(entry, {f.name for f in dataclasses.fields(LayerSensitivity)}, where)
            values = {key: value for key, value in entry.items() if key != "diagonal"}
            _check_values(values, where)
            diagonal = None if entry["diagonal"] is None else np.array(entry["diagonal"], dtype=np.float64)
            if diagonal is not None and diagonal.size != entry["parameters"]:
                raise ValueError(
                    f"{where}: a diagonal of {diagonal.size} values; expected one for each of its "
                    f"{entry['parameters']} weights"
                )
            layers.append(LayerSensitivity(**values, diagonal=diagonal))
        activations = []
        for i, entry in enumerate(data["activations"]):
            where = f"sensitivity, activation {i}"
            exact_keys(entry, {f.name for f in dataclasses.fields(ActivationSensitivity)}, where)
            _check_values(entry, where)
            activations.append(ActivationSensitivity(**entry))
        _check_values({"method": data["method"], "seed": data["seed"]}, "sensitivity")
        return cls(tuple(layers), tuple(activations), data["method"], str(data["reason"]), data["seed"])

    @classmethod
    def from_json(cls, text: str) -> Sensitivity:
        """Read :meth:`to_json`'s text back."""
        return cls.from_dict(json.loads(text))


_INTEGERS = {"parameters": 1, "size": 1, "samples": 1, "iterations": 0, "eigenvalue_samples": 0, "seed": None}
_OPTIONAL = {"top_eigenvalue", "eigenvalue_residual"}


def _check_values(entry: Mapping[str, Any], where: str) -> None:
    for key, value in entry.items():
        if key == "name":
            valid, expected = isinstance(value, str) and value != "", "a non-empty string"
        elif key == "method":
            valid, expected = value in get_args(Method), "'exact', 'sketch' or 'hutchinson'"
        elif key == "converged":
            valid, expected = isinstance(value, bool), "true or false"
        elif key in _INTEGERS:
            least = _INTEGERS[key]
            valid = isinstance(value, int) and not isinstance(value, bool) and (least is None or value >= least)
            expected = "an integer" if least is None else f"an integer of at least {least}"
        else:
            valid = (value is None and key in _OPTIONAL) or (
                isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
            )
            expected = "a finite number"
        if not valid:
            raise ValueError(f"{where}: {key} is {value!r}; expected {expected}")
