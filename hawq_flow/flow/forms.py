"""A saved integer network written in any of the ONNX forms, each proved equal before its file appears."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import onnx

from hawq_flow import equality, to_finn, to_onnx, to_qcdq, to_qonnx
from hawq_flow.equality import Backend
from hawq_flow.flow.making import FlowError
from hawq_flow.network import IntegerNetwork
from hawq_flow.prove import drawn, prove


@dataclass(frozen=True)
class Form:
    """A way of writing a network: its options, how it is written, and the backends that run what was written."""

    options: tuple[str, ...]
    write: Callable[..., onnx.ModelProto]
    backends: Callable[[IntegerNetwork, onnx.ModelProto], Mapping[str, Backend]]


FORMS: dict[str, Form] = {
    "qonnx": Form(
        ("bipolar", "trunc"),
        to_qonnx.export,
        lambda network, model: {"qonnx": equality.qonnx_backend(network, model)},
    ),
    "onnx": Form(("dialect", "eight_bit", "functions"), to_onnx.export, equality.onnx_backends),
    "qcdq": Form(
        (),
        to_qcdq.export,
        lambda network, model: {
            "qcdq-plain": equality.executed(to_qcdq.runtime(model, network, optimized=False)),
            "qcdq-optimized": equality.executed(to_qcdq.runtime(model, network, optimized=True)),
        },
    ),
    "finn": Form(
        ("activations",),
        to_finn.export,
        lambda network, model: {"finn": equality.executed(lambda x: to_finn.execute(model, network, x))},
    ),
}
"""The forms by name."""


def write_form(
    network: IntegerNetwork, form: str, options: Mapping[str, Any], rows: int
) -> tuple[onnx.ModelProto, dict[str, Any]]:
    """The network in a form, and the certificate of its equality on ``rows`` drawn inputs.

    Raises
    ------
    FlowError
        On an unknown form, an option that the form lacks, or a difference from the interpreter.
    NotExact
        When the form cannot hold the network exactly.
    """
    if form not in FORMS:
        raise FlowError(f"unknown form {form!r}; expected one of {', '.join(FORMS)}")
    chosen = FORMS[form]
    if unknown := sorted(set(options) - set(chosen.options)):
        raise FlowError(
            f"{form} has no option {', '.join(unknown)}; its options: {', '.join(chosen.options) or 'none'}"
        )
    model = chosen.write(network, **options)
    backends = chosen.backends(network, model)
    certificate, _ = prove(network, drawn(network, rows), lambda part: backends, {})
    try:
        equality.require(certificate)
    except equality.EqualityError as error:
        raise FlowError(f"{form}: {error}") from error
    return model, certificate
