"""A network like a jet tagger, only smaller, and the contents of a bundle of it."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from hawq_flow import equality, to_onnx, to_qonnx
from hawq_flow.handover.contents import Contents
from hawq_flow.network import Dense, InputSpec, IntegerNetwork, OutputSpec, Requantize
from hawq_flow.numeric import IntType
from hawq_flow.prove import prove
from hawq_flow.to_hls import HlsConfig, write_project
from hawq_flow.to_rtl import generate


def jets_like() -> IntegerNetwork:
    """4 observables of 8 bits, 3 hidden values, 2 classes."""
    rng = np.random.default_rng(7)
    ops = (
        Dense("fc", "x", rng.integers(-7, 8, (3, 4)), rng.integers(-20, 20, 3), layer="fc"),
        Requantize(
            "fc_requant",
            "fc",
            np.array([3, 5, 1]),
            np.array([6, 7, 5]),
            np.asarray(0),
            IntType(6, False),
            layer="fc",
        ),
        Dense("head", "fc_requant", rng.integers(-7, 8, (2, 3)), rng.integers(-20, 20, 2), layer="head"),
        Requantize(
            "head_requant", "head", np.asarray(5), np.asarray(4), np.asarray(0), IntType(10, True), layer="head"
        ),
    )
    spec = InputSpec(
        "x",
        (4,),
        IntType(8, True),
        np.asarray(0.03),
        np.asarray(0),
        np.array([120.0, -0.5, 0.25, 3.0]),
        np.array([40.0, 1.5, 0.75, 2.0]),
    )
    metadata = {
        "experiment": "small",
        "plan": "int4",
        "classes": json.dumps(["background", "signal"]),
        "features": json.dumps(["pt", "eta", "phi", "mass"]),
    }
    return IntegerNetwork(
        (spec,), ops, (OutputSpec("head_requant", np.asarray(0.25)),), tuple(sorted(metadata.items()))
    )


def raw_rows(network: IntegerNetwork, rows: int) -> Any:
    """Raw data of the first input, some of it beyond its range."""
    spec = network.inputs[0]
    return np.random.default_rng(1).normal(size=(rows, *spec.shape)) * spec.std * 1.5 + spec.mean


@lru_cache(maxsize=8)
def models(network: IntegerNetwork) -> tuple[bytes, bytes]:
    """QONNX and integer ONNX, exported once."""
    qonnx, onnx = to_qonnx.export(network), to_onnx.export(network)
    return qonnx.SerializeToString(deterministic=True), onnx.SerializeToString(deterministic=True)


def contents(
    network: IntegerNetwork,
    *,
    rows: int = 40,
    work: Path | None = None,
    backends: tuple[str, ...] = (),
    verilog: bool = False,
    **given: Any,
) -> Contents:
    """The contents of a bundle; projects are written below ``work``."""
    raw = raw_rows(network, rows)
    spec = network.inputs[0]
    x = spec.integers(raw)
    certificate: Any = {"samples": rows, "backends": {}}
    counts: Any = {}
    if rows:
        certificate, counts = prove(
            network, {spec.name: x}, lambda part: {"interpreter": equality.reference_backend(network)}, {}
        )
    projects = {}
    for backend in backends:
        assert work is not None
        config = HlsConfig(backend=backend, project="small")
        projects[backend] = write_project(network, work / backend / "project", config, vectors=x[:8])
    whole = {
        "name": "small-int4",
        "rows": {spec.name: x},
        "raw": raw,
        "certificate": certificate,
        "coverage": {value: entry.to_dict() for value, entry in counts.items()},
        "qonnx": models(network)[0],
        "onnx": models(network)[1],
        "projects": projects,
        "rtl": generate(network) if verilog else None,
        "part": "xcu250-figd2104-2L-e",
        "clock_period_ns": 5.0,
        "drawn": 14,
    }
    return Contents(network=network, **(whole | given))
