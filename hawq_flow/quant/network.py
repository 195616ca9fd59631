"""The quantized network: stages in order, calibration, freezing, and evaluation on exact integers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hawq_flow.numeric import IntArray
from hawq_flow.numeric import quantize as quantize_array
from hawq_flow.plan import BitPlan, LayerShape, max_bits
from hawq_flow.quant.grid import Grid
from hawq_flow.quant.joints import Joint, Passing, joint
from hawq_flow.quant.layer import IntegerLayer, QuantLayer, activation_type
from hawq_flow.quant.observe import Observer, QuantConfig
from hawq_flow.quant.steps import BLOCK_ELEMENTS, IntegerStep, bounds, evaluate_steps
from hawq_flow.topology import INPUT, Topology, read

CALIBRATION = 16384
"""Samples that start the activation scales; the input's scale sees all of them."""
CALIBRATION_ELEMENTS = 1 << 25
"""Fewer samples where the largest value of the network has more elements than this over all of them."""


class QuantNetwork(nn.Module):
    """A float model under a bit plan: trainable in fake quantization, exact integers in evaluation.

    Built by :func:`quantize`. :meth:`calibrate` it on data, train it (``train.fit``), :meth:`freeze` it, lower it.
    """

    input_scale: Tensor
    input_zero_point: Tensor
    _no_log: Tensor

    def __init__(self, topology: Topology, plan: BitPlan, config: QuantConfig) -> None:
        super().__init__()
        plan.check(topology.shapes)
        bits = plan.input_bits(INPUT)
        if not isinstance(bits, int):
            raise ValueError(f"bit plan, input {INPUT!r}: {len(bits)} widths; the input has one width for all features")
        self.plan, self.config = plan, config
        self.input_shape, self.output, self.output_shape = topology.input_shape, topology.output, topology.output_shape
        self.shapes: list[LayerShape] = topology.shapes
        self._largest = max(math.prod(s) for s in (self.input_shape, *(stage.shape for stage in topology.stages)))
        self._asymmetric = config.asymmetric and topology.may_shift(INPUT)
        self.input_type = activation_type(bits, relu=False, asymmetric=self._asymmetric)
        self.layers = nn.ModuleList(QuantLayer(stage, topology, plan[stage.name], config) for stage in topology.layers)
        self.joints = nn.ModuleList(
            joint(stage, topology, max_bits(plan.source_bits(stage.width)), config)
            for stage in topology.stages
            if stage.module is None
        )
        made: dict[str, QuantLayer | Joint | Passing] = {m.name: m for m in (*self._layers(), *self._joints())}
        self._order = [(made[stage.name], stage.sources) for stage in topology.stages]
        self._values = {INPUT: INPUT, **{stage.name: stage.output for stage in topology.stages}}
        last = {source: stage.name for stage in topology.stages for source in stage.sources}
        self._spent = {name: [s for s, reader in last.items() if reader == name and s != self.output] for name in made}
        self.register_buffer("input_scale", torch.zeros((), dtype=torch.float64))
        self.register_buffer("input_zero_point", torch.zeros((), dtype=torch.int64))
        self.register_buffer("_no_log", torch.zeros(()), persistent=False)
        self._age = -1  # steps since the scales were snapped; negative: snap before the next

    def _layers(self) -> list[QuantLayer]:
        return list(self.layers)  # type: ignore[arg-type]

    def _joints(self) -> list[Joint | Passing]:
        return list(self.joints)  # type: ignore[arg-type]

    @property
    def frozen(self) -> bool:
        """Whether every dyadic scale is fixed."""
        return all(part.frozen for part in (*self._layers(), *self._joints()) if not isinstance(part, Passing))

    @property
    def calibrated(self) -> bool:
        """Whether the input has its scale (and so every layer its first one)."""
        return bool(self.input_scale > 0)

    def _require_calibrated(self) -> None:
        if not self.calibrated:
            raise RuntimeError("network not calibrated: call calibrate(x) on training data first")

    @torch.no_grad()
    def observe(self, q: Tensor) -> None:
        """Let scales follow the weights and a batch of quantized inputs, unless they are learned or frozen."""
        if self.config.learn_scales or self.frozen:
            return
        self._observe(q)
        self._age = -1

    @torch.no_grad()
    def calibrate(self, x: Tensor) -> None:
        """Set the input's scale from all of ``x`` (n, *input_shape) and start every other scale from it.

        Stage by stage, each reading the *quantized* output of the one before: an error made is seen by the next.
        """
        if len(x) == 0:
            raise ValueError("calibrate: no data; give at least one batch of training inputs")
        if self.frozen:
            raise RuntimeError(
                "calibrate: the network is frozen; its scales are what was trained. Quantize the model anew"
            )
        self._check_shape(x.shape)
        observer = Observer(self.config.input_observer, self.config, self.input_type, self._asymmetric)
        observer.observe(x)
        scale, zero = observer.grid()
        self.input_scale.fill_(scale)
        self.input_zero_point.fill_(zero)
        rows = max(1, min(CALIBRATION, CALIBRATION_ELEMENTS // self._largest))
        self._observe(self.quantize_input(x[:rows]))
        self._age = -1

    def _input_grid(self) -> Grid:
        return Grid(self.input_scale, int(self.input_zero_point), self.input_type)

    def _observe(self, q: Tensor) -> None:
        """Run quantized inputs through float weights and quantized activations, each stage observing its own."""
        values, grids = {INPUT: q}, {INPUT: self._input_grid()}
        for part, sources in self._order:
            values[part.name], grids[part.name] = part.calibrate(
                [values[source] for source in sources], [grids[source] for source in sources]
            )
            for name in self._spent[part.name]:
                values.pop(name, None)

    def quantize_input(self, x: Tensor) -> Tensor:
        """Standardized data (n, *input_shape) -> integers minus zero point, in the parameters' dtype and device.

        One float64 function (``numeric.quantize``), called once for a whole data set; every representation gets the
        same integers.
        """
        q = self.input_integers(x.detach().cpu().numpy()) - int(self.input_zero_point)
        parameter = self._layers()[0].weight
        return torch.from_numpy(q.astype(np.float64)).to(parameter)

    def input_integers(self, x: Any) -> IntArray:
        """Standardized data (n, *input_shape) -> int64 input integers."""
        self._require_calibrated()
        array = np.asarray(x)
        self._check_shape(array.shape)
        return quantize_array(
            array, float(self.input_scale), int(self.input_zero_point), self.input_type, rank=array.ndim - 1
        )

    def _check_shape(self, shape: Sequence[int]) -> None:
        if tuple(shape[1:]) != self.input_shape:
            raise ValueError(f"input of shape {tuple(shape)}; expected (n, {', '.join(map(str, self.input_shape))})")

    def load_state_dict(self, *args: Any, **options: Any) -> Any:
        """As of every module; the next step snaps the scales afresh, and what is frozen trains no more."""
        result = super().load_state_dict(*args, **options)
        self._age = -1
        for part in (*self._layers(), *self._joints()):
            if not isinstance(part, Passing):
                part.settle()
        return result

    def _apply(self, *args: Any, **options: Any) -> Any:
        self._age = -1  # another dtype or device: the constants of training are made anew
        return super()._apply(*args, **options)

    def _walk(self, step: Callable[[QuantLayer | Joint | Passing, list[Grid]], Grid]) -> dict[str, Grid]:
        """The grid of every value, each stage's made by ``step`` from those it reads."""
        grids = {INPUT: self._input_grid()}
        for part, sources in self._order:
            grids[part.name] = step(part, [grids[source] for source in sources])
        return grids

    def refresh(self) -> None:
        """Snap every scale as it stands, for the training steps that follow."""
        with torch.no_grad():
            grids = self._walk(lambda part, given: part.refresh(given))
        self._output_scale = float(grids[self.output].scale)
        self._age = 0

    def train(self, mode: bool = True) -> QuantNetwork:
        """Switch between fake quantization (True) and exact integers; the next step snaps the scales afresh."""
        self._age = -1
        return super().train(mode)

    def train_forward(self, q: Tensor) -> Tensor:
        """Training on already quantized inputs (``quantize_input``'s): outputs (n, *output shape) in real units."""
        if self._age < 0 or (self._age >= self.config.refresh and not self.frozen):
            self.refresh()
        self._age += 1
        values, logs = {INPUT: q}, {INPUT: self._no_log}
        for part, sources in self._order:
            given = [logs[source] for source in sources]
            values[part.name] = part([values[source] for source in sources], given)
            logs[part.name] = given[0] if isinstance(part, Passing) else part.log_scale
            for name in self._spent[part.name]:
                values.pop(name, None)
        out, log_scale = values[self.output], logs[self.output]
        if not log_scale.requires_grad:
            return out * self._output_scale
        # The value of the scale, with the gradient of its logarithm: S * exp(log S - log S).
        return out * (self._output_scale * torch.exp(log_scale - log_scale.detach()))

    def forward(self, x: Tensor) -> Tensor:
        """Outputs (n, *output shape) of standardized data: fake quantization in training, exact in evaluation."""
        if self.training:
            return self.train_forward(self.quantize_input(x))
        name = self.output_value
        steps, grid = self.integer_steps()
        out = self._evaluated(self.input_integers(x.detach().cpu().numpy()), steps, (name,))[name]
        return float(grid.scale) * (out - grid.zero_point)

    def freeze(self) -> None:
        """Fix every dyadic scale, batch-norm statistic and folding; the weights go on training, clipped."""
        self._require_calibrated()
        self._walk(lambda part, given: part.freeze(given))
        self._age = -1

    @torch.no_grad()
    def integer_layers(self) -> list[IntegerLayer]:
        """Every layer with weights as integers, in order."""
        self._require_calibrated()
        found = []

        def step(part: QuantLayer | Joint | Passing, given: list[Grid]) -> Grid:
            if isinstance(part, QuantLayer):
                found.append(part.integers(given[0].scale, given[0].zero_point))
            return part.grid_behind(given)

        self._walk(step)
        return found

    @torch.no_grad()
    def integer_steps(self) -> tuple[list[IntegerStep], Grid]:
        """The network as integer steps in order, what evaluation computes and lowering copies; the output's grid."""
        self._require_calibrated()
        result: list[IntegerStep] = []
        sources_of = {part.name: sources for part, sources in self._order}

        def step(part: QuantLayer | Joint | Passing, given: list[Grid]) -> Grid:
            steps, grid = part.steps([self._values[source] for source in sources_of[part.name]], given)
            result.extend(steps)
            return grid

        grids = self._walk(step)
        return result, grids[self.output]

    @property
    def output_value(self) -> str:
        """Name of the integer value that is the network's output."""
        return self._values[self.output]

    @torch.no_grad()
    def integers(self, x: Tensor) -> dict[str, Tensor]:
        """Every integer of the network by its IR name, as float64 tensors: what evaluation computes.

        ``x`` is standardized data (n, *input_shape). Raises ``OverflowError`` when a bound from the actual weights
        reaches 2^53.
        """
        return self.integers_of(self.input_integers(x.detach().cpu().numpy()))

    @torch.no_grad()
    def integers_of(self, q: IntArray) -> dict[str, Tensor]:
        """:meth:`integers` of input integers (n, *input_shape)."""
        steps, _ = self.integer_steps()
        return self._evaluated(q, steps, (INPUT, *(step.name for step in steps)))

    def _evaluated(self, q: IntArray, steps: list[IntegerStep], wanted: tuple[str, ...]) -> dict[str, Tensor]:
        """Values by name, block by block of rows, on the network's device."""
        bounds(steps, INPUT, self.input_type)
        rows = max(1, BLOCK_ELEMENTS // self._largest)
        parts: dict[str, list[Tensor]] = {name: [] for name in wanted}
        for start in range(0, max(len(q), 1), rows):
            block = torch.from_numpy(q[start : start + rows]).to(self.input_scale)
            for name, value in evaluate_steps(steps, INPUT, block, wanted).items():
                parts[name].append(value)
        return {name: values[0] if len(values) == 1 else torch.cat(values) for name, values in parts.items()}

    def zero_fraction(self) -> dict[str, float]:
        """Fraction of integer weights that are zero, by layer: sparse BOPs count it."""
        return {layer.name: float((layer.weight == 0).mean()) for layer in self.integer_layers()}


def quantize(
    model: nn.Module, plan: BitPlan, config: QuantConfig | None = None, *, input_shape: Sequence[int] | None = None
) -> QuantNetwork:
    """A trainable quantized network from a float ``model`` and a bit plan; the model is copied, not changed.

    Parameters
    ----------
    model:
        Built from what :mod:`hawq_flow.topology` supports, with a forward that torch.fx can trace.
    plan:
        Widths for the input ``x`` and for every layer with weights by its name in the model.
    input_shape:
        Shape of one sample, channels first; None takes (in_features,) of the first linear layer.

    Raises
    ------
    UnsupportedModelError
        Naming the module or pattern that is not supported.
    ValueError
        If the plan does not name exactly the model's layers (both are listed).
    """
    return QuantNetwork(read(model, input_shape), plan, config or QuantConfig())
