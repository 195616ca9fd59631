"""Shipped models down to the C simulation, on whole test sets: QAT evaluation = interpreter = QONNX = csim.

The jet tagger, the digits CNN and one residual block, trained for a moment; ``make equality-all`` proves the rest.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from hawq_flow import equality, interpret, to_onnx
from hawq_flow.config import load
from hawq_flow.coverage import count, problems
from hawq_flow.flow import Flow
from hawq_flow.lower import lower
from hawq_flow.plan import BitPlan
from hawq_flow.quant import quantize
from hawq_flow.to_hls import HlsConfig, write_project
from hawq_flow.to_qonnx import export
from hawq_flow.train import TrainConfig, fit

EXPERIMENTS = Path(__file__).parents[2] / "experiments"


@pytest.mark.parametrize(
    ("experiment", "weight", "activation", "config"),
    [
        ("jets", 5, 6, HlsConfig(backend="Vivado")),
        ("digits_cnn", 4, 5, HlsConfig()),
        ("digits_resnet", 6, 4, HlsConfig(io_type="io_stream")),
    ],
)
def test_every_representation_of_a_trained_model_is_equal(
    experiment: str, weight: int, activation: int, config: HlsConfig, tmp_path: Path
) -> None:
    flow = Flow(load(EXPERIMENTS / experiment), tmp_path / "run")
    topology, x, split = flow.topology, flow.standardized, flow.split
    plan = BitPlan.homogeneous(topology.shapes, weight, activation, input_bits=8)
    trained = quantize(flow.fresh_model(), plan, input_shape=topology.input_shape)
    fit(trained, x["train"][:4000], split.train.y[:4000], TrainConfig(epochs=2, batch_size=64))
    network = lower(trained)
    integers = network.inputs[0].integers(x["test"])  # standardized here, so mean 0 and deviation 1 are the network's
    model = export(network)
    write_project(network, tmp_path / "project", config, model=model)
    values = trained.integers(torch.from_numpy(x["test"]))
    backends = {
        "qat": equality.trace_backend({name: value.numpy() for name, value in values.items()}, "QAT evaluation"),
        "definition": equality.reference_backend(network),
        "qonnx": equality.qonnx_backend(network, model),
        **equality.onnx_backends(network, to_onnx.export(network)),
        "csim": equality.csim_backend(tmp_path / "project", tmp_path / "build"),
    }
    equality.require(equality.certify(network, integers, backends))
    counts = count(network, interpret.trace(network, integers))
    covered = {name: entry.to_dict() for name, entry in counts.items()}
    assert problems([output.name for output in network.outputs], covered) == []
    assert sum(entry.ties for entry in counts.values()) > 0
    assert len(np.unique(interpret.run(network, integers).argmax(1))) > 2
