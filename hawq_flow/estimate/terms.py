"""The physical model of the HLS stages: of each layer, how much there is of what costs; see coefficients.json for that.

Every figure is linear in a few named terms, so layers add up, a table of costs is separable, and a coefficient has a
unit: LUTs a full adder, flip-flops a register bit. The functions here give the amounts.

**Latency strategy** (constants in the logic; hls4ml's ``latency``). With ``z`` non-zero weights, sums of ``b_s`` bits,
inputs of ``b_a`` and weights of ``b_w`` bits, ``s`` simple and ``h`` hard products (:mod:`hawq_flow.estimate.counts`):

- ``sum``: ``z b_s`` full adders, a row of them for each non-zero weight;
- ``simple``: ``s (b_a + b_w)`` full adders, a row more for the second digit of a constant;
- a hard product is a DSP block when its input is wider than ``DSP_INPUT_BITS`` (``dsp_glue``: LUTs around it), else
  made of shifts and two adders (``shifted``); where the user forces multipliers into the fabric, an array of ``b_a
  b_w`` full adders (``fabric``);
- with a reuse factor ``R`` above 1, hls4ml allows ``ceil(n m / R) - floor(zeros / R)`` multipliers (its
  ``multiplier_limit``); the layer's hard products take turns on them, ``ceil(h / limit)`` cycles, through multiplexers
  (``turns``). Simple products and sums stay as they are: reuse saves DSP blocks, not adders.

The clock cuts the tree of sums: a tree of ``log2(1 + z / m)`` levels that takes so many cycles has registers at
``cycles / levels`` of its levels, ``z b_s`` bits a full set (``registered``), more than one set where stages wait for
each other (``in_flight``); registers are shared by inferences ``R`` cycles apart.

**Resource strategy** (weights in block RAM; ``R`` cycles, ``u = ceil(n m / R)`` multipliers): each multiplier selects
one of ``n`` inputs and one of ``m`` accumulators: ``select_in = n b_a``, ``select_out = u m b_s`` where more than two
accumulators take turns, ``accumulate = m b_s``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from hawq_flow.estimate.features import PRODUCT, HardwareConfig, LayerFeatures
from hawq_flow.to_rtl.csd import HARD_DIGITS

Terms = Mapping[str, float]

DSP_INPUT_BITS = 11
"""Constant products of wider inputs go to DSP blocks by default (Vivado HLS 2019-2020, Vitis HLS 2022-2024)."""
DSP_WEIGHT_BITS = 5
"""Resource strategy: products with wider weights go to DSP blocks (Vivado HLS 2020.1, 16-bit inputs)."""
CHAIN_WEIGHTS = 4096
"""Weights above which Vitis HLS no longer balances a layer's sums, which hls4ml itself advises against."""
FAMILIES = ("7series", "ultrascale")
DEFAULTS: Mapping[str, Mapping[str, float]] = {
    "lut": {
        "sum": 1.0,
        "simple": 1.0,
        "shifted": 1.0,
        "dsp_glue": 0.25,
        "fabric": 1.0,
        "turns": 0.5,
        "select_in": 1.0,
        "accumulate": 1.0,
        "select_out": 0.5,
        "clip": 1.5,
        "round": 1.0,
        "softmax": 150.0,
    },
    "ff": {
        "softmax": 16.0,
        "register": 1.0,
        "accumulator": 1.0,
        "unit": 1.0,
        "in_flight": 1.0,
        "chain": 1.0,
        "stored": 0.5,
        "input": 1.0,
        **{f"{family}.{name}": 0.5 for family in FAMILIES for name in ("registered", "product")},
        **{f"{family}.boundary": 1.0 for family in FAMILIES},
    },
    "dsp": {"block": 1.0},
    "bram18": {"block": 1.0, "softmax": 1.0},
    "latency_cycles": {
        "start": 2.0,
        "chain": 0.5,
        **{
            f"{family}.{name}": amount
            for family, level in zip(FAMILIES, (4.0, 1.0), strict=True)
            for name, amount in {
                "level": level,
                "dsp": level,
                "rescale": level / 2,
                "softmax": level,
                "softmax_clock": 4 * level,
                "call": 1.0,
            }.items()
        },
    },
}
"""All terms, by figure, and what one of each takes from first principles, where nothing was fitted: LUTs a full adder
or two bits of a multiplexer, ns a level of adders."""
BRAM_SHAPES = ((512, 36), (1024, 18), (2048, 9), (4096, 4), (8192, 2), (16384, 1))
"""Words and bits a word of one block RAM of 18 Kbit."""


def multiplier_limit(layer: LayerFeatures, reuse: int) -> int:
    """How many multipliers hls4ml allows a layer (nnet_utils' ``multiplier_limit``), at least 1."""
    return max(-(-layer.n_in * layer.n_out // reuse) - layer.counts.zeros // reuse, 1)


def in_logic(layer: LayerFeatures, hardware: HardwareConfig) -> bool:
    """Whether the layer's constants are in the logic: HLS folds the resource strategy's, too, if used once."""
    return hardware.strategy == "latency" or hardware.reuse(layer.name) == 1


def uses_dsp(layer: LayerFeatures, hardware: HardwareConfig) -> bool:
    """Whether the layer's hard products are DSP blocks."""
    if hardware.multipliers != "auto":
        return hardware.multipliers == "dsp"
    if layer.kind == PRODUCT and not in_logic(layer, hardware):
        return layer.input_bits > DSP_INPUT_BITS and layer.weight_bits > DSP_WEIGHT_BITS
    return layer.input_bits > DSP_INPUT_BITS


def turns(layer: LayerFeatures, hardware: HardwareConfig) -> tuple[int, int]:
    """Multipliers that the hard products share, and the turns they take on them, in cycles (1 without reuse)."""
    reuse, hard = hardware.reuse(layer.name), layer.counts.hard
    if reuse == 1 or not hard:
        return hard, 1
    units = min(hard, multiplier_limit(layer, reuse))
    return units, -(-hard // units)


def resource_units(layer: LayerFeatures, reuse: int) -> int:
    """Multipliers of the resource strategy: ``ceil(n m / R)``."""
    return -(-layer.n_in * layer.n_out // reuse)


def levels(layer: LayerFeatures) -> float:
    """Depth of the sums of one output as a balanced tree: log2 of its non-zero weights and its bias."""
    return math.log2(1 + layer.counts.nonzeros / max(layer.counts.rows, 1))


def chained(layer: LayerFeatures) -> bool:
    """Whether the layer is so large that its sums are one chain of adders, not a tree."""
    return layer.n_in * layer.n_out > CHAIN_WEIGHTS


def _latency_lut(layer: LayerFeatures, hardware: HardwareConfig) -> Terms:
    counts = layer.counts
    units, _ = turns(layer, hardware)
    dsp = uses_dsp(layer, hardware)
    array = hardware.multipliers == "fabric"
    width = layer.input_bits + layer.weight_bits
    return {
        "sum": counts.nonzeros * layer.sum_bits,
        "simple": counts.simple * width,
        "shifted": 0.0 if dsp or array else (HARD_DIGITS - 1) * counts.hard * width,
        "dsp_glue": counts.hard * width if dsp else 0.0,
        "fabric": units * layer.input_bits * layer.weight_bits if array else 0.0,
        "turns": (counts.hard - units) * layer.input_bits,
    }


def _resource_lut(layer: LayerFeatures, hardware: HardwareConfig) -> Terms:
    reuse = hardware.reuse(layer.name)
    scale = reuse // layer.n_in  # accumulators that take turns on one multiplier
    selected = layer.n_out if scale > 2 else scale if scale == 2 else 0
    return {
        "select_in": layer.n_in * layer.input_bits,
        "accumulate": layer.n_out * layer.sum_bits,
        "select_out": resource_units(layer, reuse) * selected * layer.sum_bits,
    }


def at_once(amount: float, layer: LayerFeatures, hardware: HardwareConfig) -> float:
    """How much of an amount of all elements there is in hardware: one position's, where positions are streamed."""
    return amount / layer.positions if hardware.io_type == "io_stream" else amount


def _other_lut(layer: LayerFeatures, hardware: HardwareConfig) -> Terms:
    n = at_once(layer.elements, layer, hardware)
    match layer.kind:
        case "rescale":
            width = layer.input_bits + layer.weight_bits
            dsp = uses_dsp(layer, hardware)
            simple, hard = (at_once(number, layer, hardware) for number in (layer.counts.simple, layer.counts.hard))
            return {
                "clip": n * layer.output_bits,
                "round": n * layer.input_bits if layer.rounds else 0.0,
                "simple": (simple + (0 if dsp else (HARD_DIGITS - 1) * hard)) * width,
                "dsp_glue": hard * width if dsp else 0.0,
            }
        case "softmax":
            return {"softmax": n}
        case "multiply":
            dsp = uses_dsp(layer, hardware)
            return {"fabric": 0.0 if dsp else n * layer.input_bits * layer.weight_bits}
        case "table":
            return {}  # in block RAM
        case "compare":
            return {"sum": 1.5 * n * layer.operations * layer.output_bits}
        case _:
            return {"sum": n * layer.operations * layer.output_bits}


def lut_terms(layer: LayerFeatures, hardware: HardwareConfig) -> Terms:
    """Amounts that LUTs are paid for."""
    if layer.kind != PRODUCT:
        return _other_lut(layer, hardware)
    return (_latency_lut if in_logic(layer, hardware) else _resource_lut)(layer, hardware)


def cycle_terms(layer: LayerFeatures, hardware: HardwareConfig) -> Terms:
    """Amounts that clock cycles are paid for, beside those in :func:`waits`."""
    family, clock = hardware.family, hardware.clock_ns
    match layer.kind:
        case "softmax":
            return {f"{family}.softmax": math.log2(1 + layer.elements), f"{family}.softmax_clock": 1 / clock}
        case "rescale":
            return {f"{family}.rescale": 1 / clock, f"{family}.dsp": (layer.counts.hard > 0) / clock}
        case "product" if not in_logic(layer, hardware):
            return {"start": 1.0}
        case "product" if chained(layer):
            return {"chain": layer.counts.nonzeros / max(layer.counts.rows, 1)}  # an adder each
        case "product":
            dsp = uses_dsp(layer, hardware) and layer.counts.hard > 0
            return {f"{family}.level": levels(layer) / clock, f"{family}.dsp": dsp / clock}
        case "multiply":
            return {f"{family}.dsp": 1 / clock}
        case _:
            return {f"{family}.level": math.log2(1 + layer.operations) / clock}


def waits(layer: LayerFeatures, hardware: HardwareConfig) -> int:
    """Cycles that reuse adds to a layer's latency: turns beyond the first, and the positions of a convolution."""
    if layer.kind != PRODUCT:
        return 0
    reuse = hardware.reuse(layer.name)
    more = reuse * (layer.positions - 1)
    if not in_logic(layer, hardware):
        return reuse + more
    return turns(layer, hardware)[1] - 1 + more


def interval(layer: LayerFeatures, hardware: HardwareConfig, latency: float) -> float:
    """Cycles between two inferences: the reuse factor for each position, or sooner where the layer ends sooner."""
    if layer.kind != PRODUCT:
        return float(layer.positions) if hardware.io_type == "io_stream" else 1.0
    reuse = hardware.reuse(layer.name)
    if not in_logic(layer, hardware):
        return float(reuse * layer.positions)
    return min(reuse * layer.positions, math.floor(latency + 0.5) + 1) if reuse * layer.positions > 1 else 1.0


def ff_terms(layer: LayerFeatures, hardware: HardwareConfig, cycles: float) -> Terms:
    """Amounts that flip-flops are paid for, of a layer whose own logic takes ``cycles`` cycles (without waits).

    Registers come in whole stages: cycles are rounded.
    """
    counts, cycles = layer.counts, round(cycles)
    if layer.kind == "softmax":
        return {"softmax": layer.elements * cycles}
    if layer.kind != PRODUCT:
        return {"register": at_once(layer.elements, layer, hardware) * layer.output_bits * cycles}
    reuse = hardware.reuse(layer.name)
    width = layer.input_bits + layer.weight_bits
    if not in_logic(layer, hardware):
        return {"accumulator": layer.n_out * layer.sum_bits, "unit": resource_units(layer, reuse) * width}
    adders = counts.nonzeros * layer.sum_bits
    ratio = cycles / levels(layer) if counts.nonzeros else 0.0  # registers that a level of the tree has
    units, _ = turns(layer, hardware)
    return {
        f"{hardware.family}.registered": adders * min(ratio, 1.0),
        "in_flight": 0.0 if chained(layer) else adders * max(ratio - 1.0, 0.0) / reuse,
        "chain": adders / reuse if chained(layer) else 0.0,
        f"{hardware.family}.product": width * counts.hard * min(ratio, 1.0),
        "stored": width * (counts.hard - units),
    }


def dsp_terms(layer: LayerFeatures, hardware: HardwareConfig) -> Terms:
    """DSP blocks, counted: hard products in parallel, what a softmax and a general product take."""
    if layer.kind == "softmax":
        return {"block": 0 if hardware.multipliers == "fabric" else layer.elements}
    if not uses_dsp(layer, hardware):
        return {}
    if layer.kind == "multiply":
        return {"block": at_once(layer.elements, layer, hardware)}
    if layer.kind == PRODUCT and not in_logic(layer, hardware):
        return {"block": resource_units(layer, hardware.reuse(layer.name))}
    if layer.kind == PRODUCT:
        return {"block": turns(layer, hardware)[0]}
    return {"block": at_once(layer.counts.hard, layer, hardware)}


def memories(words: int, bits: int) -> int:
    """Block RAMs of 18 Kbit for a memory of so many words of so many bits."""
    depth, width = next((shape for shape in BRAM_SHAPES if words <= shape[0]), BRAM_SHAPES[-1])
    return -(-bits // width) * -(-words // depth)


def bram_terms(layer: LayerFeatures, hardware: HardwareConfig) -> Terms:
    """Block RAMs of 18 Kbit, counted: the resource strategy's weights and its table of accumulators; other tables."""
    if layer.kind == "table":
        tables = math.ceil(at_once(layer.elements, layer, hardware))
        return {"block": tables * memories(2**layer.weight_bits, layer.output_bits)}
    if layer.kind == "softmax":
        return {"softmax": layer.elements}
    if layer.kind != PRODUCT or in_logic(layer, hardware):
        return {}
    reuse = hardware.reuse(layer.name)
    weights = memories(reuse, resource_units(layer, reuse) * layer.weight_bits)
    return {"block": weights + (reuse // layer.n_in > 2)}


def _results(layer: LayerFeatures) -> int:
    """Elements that leave a layer; outputs of a product without a weight are constants."""
    if layer.kind == PRODUCT:
        return layer.counts.rows * layer.positions
    return layer.elements if layer.operations else 0


def design_terms(figure: str, layers: Sequence[LayerFeatures], hardware: HardwareConfig) -> Terms:
    """What a whole design adds to its layers: registers between them, cycles to enter them."""
    if figure == "ff" and len(layers) > 1:
        passed = (at_once(_results(layer), layer, hardware) * layer.output_bits for layer in layers[:-1])
        # 7 Series: every layer takes cycles of its own, so all that passes is registered, once. UltraScale at the same
        # clock does several layers in a cycle, and registers only what a cycle ends behind.
        return {f"{hardware.family}.boundary": sum(passed)}
    if figure == "ff" and layers:  # one layer alone: hls4ml registers what enters
        return {"input": float(layers[0].n_in * layers[0].input_bits)}
    if figure == "latency_cycles" and len(layers) > 1:
        return {f"{hardware.family}.call": float(sum(layer.kind == PRODUCT for layer in layers))}
    return {}
