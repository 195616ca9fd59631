"""IntegerNetwork -> pipelined Verilog-2001, its simulation, its synthesis by Yosys, its proof.

The design. The network is cut into *stages*, an op with adders, comparisons or tables and the rescale or table that
alone reads it; each is a module that ends in a register, and the top passes a row through them every clock cycle. Every
wire is as wide as the interval of what it carries, products with constants are adder graphs that share sub-expressions,
and the rounding is written out: nothing is left to a tool's choice, and a design is exact by construction for every
input of the declared types. What has no exact circuit is refused (:class:`NotSynthesizable`).

Modules: ``adders``, ``sharing``, ``csd`` (constant matrices as adder graphs); ``circuit`` (wires with proven ranges),
``products``, ``rescale``, ``operations`` (one function an op), ``plan`` (stages), ``generate``, ``names``, ``design``
(the result), ``writing`` (files); ``packing``, ``simulators``, ``simulate``, ``reader`` (a run of the text, cycle by
cycle); ``yosys``, ``synthesize``, ``netlist``, ``evaluator``, ``netlist_simulator``, ``drawing``, ``text_check``,
``figures`` (what synthesis makes of it); ``formal``, ``all_integers``, ``wiring``, ``equivalence`` (proofs).
"""

from hawq_flow.to_rtl.config import VIVADO_DSP_BITS, NotSynthesizable, RtlConfig
from hawq_flow.to_rtl.design import SYNTHESIS_NOTE, Module, Port, Rtl
from hawq_flow.to_rtl.generate import generate
from hawq_flow.to_rtl.simulate import Simulation, compile_simulation, simulate, traced
from hawq_flow.to_rtl.simulators import SimulationError, find_verilator
from hawq_flow.to_rtl.writing import manifest, write, written

__all__ = [
    "SYNTHESIS_NOTE",
    "VIVADO_DSP_BITS",
    "Module",
    "NotSynthesizable",
    "Port",
    "Rtl",
    "RtlConfig",
    "Simulation",
    "SimulationError",
    "compile_simulation",
    "find_verilator",
    "generate",
    "manifest",
    "simulate",
    "traced",
    "write",
    "written",
]
