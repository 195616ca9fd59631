"""A design -> an hls4ml project on disk: complete or absent, free of machine paths, the same bytes every time.

The road is hls4ml's own: convert_from_onnx_model, then write(). Between its parsing and its code generation every type
is replaced by the one the IR derives, and every layer is compared with what was designed; hls4ml having merged,
dropped or changed anything else is an error that names the layer.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import ArrayLike

from hawq_flow import __version__, interpret, to_qonnx, tools
from hawq_flow.network import IntegerNetwork, OutputSpec
from hawq_flow.numeric import IntArray
from hawq_flow.to_hls import catapult, extension, texts
from hawq_flow.to_hls.config import HlsConfig
from hawq_flow.to_hls.fixed import FixedType
from hawq_flow.to_hls.graph import Layer
from hawq_flow.to_hls.plan import Design, design

VECTORS = 64
_STAMP = "hawqflow"


class ProjectError(RuntimeError):
    """hls4ml failed, or did something else than was designed; the text names what came out and what was expected."""


def write_project(
    network: IntegerNetwork,
    folder: Path | str,
    config: HlsConfig | None = None,
    *,
    model: onnx.ModelProto | None = None,
    vectors: ArrayLike | None = None,
) -> Path:
    """Write the hls4ml project of a network.

    Parameters
    ----------
    folder:
        The project's folder. It must not exist; it appears when everything in it is written and checked. A log of what
        hls4ml printed stands beside it, as ``NAME.hls4ml.log``.
    model:
        The network's QONNX model, if already exported (it must carry the network's digest).
    vectors:
        Integers (n, *input shape) for ``tb_data``; default: 64 rows drawn over the input's range, seeded by the digest.

    Returns
    -------
    The folder.

    Raises
    ------
    FileExistsError
        If ``folder`` exists.
    NotExact
        For what cannot be exact (see :func:`design`).
    ProjectError
        If hls4ml fails, or its outcome differs from the design.
    """
    config = config or HlsConfig()
    target = Path(folder)
    with tools.whole_folder(target, "a project") as work:
        _write(network, config, model, vectors, work, target.parent / f"{target.name}.hls4ml.log")
    return target


def _write(
    network: IntegerNetwork,
    config: HlsConfig,
    model: onnx.ModelProto | None,
    vectors: ArrayLike | None,
    work: Path,
    log: Path,
) -> None:
    """The files of :func:`write_project` in ``work``, an empty folder, and hls4ml's log."""
    model = model if model is not None else to_qonnx.export(network)
    found = {entry.key: entry.value for entry in model.metadata_props}.get("hawq_flow.digest", "none")
    if found != network.digest:
        raise ProjectError(
            f"to_hls: the QONNX model has digest {found[:12]}, the network {network.digest[:12]}; export it again"
        )
    plan = design(network, config)
    with _captured(log):
        try:
            layers, ports = _generate(plan, config, work)
        except (ProjectError, OSError, MemoryError):
            raise
        except Exception as error:  # whatever hls4ml raises, of which it documents nothing
            raise ProjectError(
                f"hls4ml failed on the network with digest {network.digest[:12]}: {type(error).__name__}: {error}. "
                f"What it printed is in {log}. Report the network, or leave it to QONNX"
            ) from error
    _write_extras(network, model, plan, config, layers, ports, work, vectors)
    if config.backend == "Catapult":
        try:
            catapult.finish(work, config)
        except catapult.WriterError as error:
            raise ProjectError(f"Catapult: {error}") from error
    _make_portable(work)


@contextlib.contextmanager
def _captured(log: Path) -> Iterator[None]:
    """Everything printed or warned inside goes to ``log``; nothing is dropped, and errors pass through."""
    buffer = io.StringIO()
    try:
        with contextlib.redirect_stdout(buffer), warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield
    finally:
        lines = [f"{w.category.__name__}: {w.message}" for w in caught]
        log.write_text("\n".join([buffer.getvalue(), *lines]) + "\n")


# --- hls4ml ----------------------------------------------------------------------------------------------------------


def _generate(plan: Design, config: HlsConfig, work: Path) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Run hls4ml into ``work``; return every layer's C++ variable, elements, types and reuse factor, and the outputs.

    The outputs are the variables that the top function returns, in its order.
    """
    import hls4ml
    from qonnx.core.modelwrapper import ModelWrapper

    extension.register()
    wrapper = ModelWrapper(plan.model)
    settings = hls4ml.utils.config_from_onnx_model(
        wrapper, granularity="name", backend=config.backend, default_reuse_factor=config.reuse_factor
    )
    settings["Model"]["Strategy"] = config.strategy
    for name, type in plan.results.items():
        settings["LayerName"][name]["Precision"]["result"] = str(type)
    for name, told in plan.settings.items():
        settings["LayerName"][name].update(told)
    settings["Flows"] = ["convert"]  # up to the merging of nodes; write() runs the rest
    graph = hls4ml.converters.convert_from_onnx_model(
        wrapper,
        output_dir=str(work),
        project_name=config.project,
        backend=config.backend,
        clock_period=config.clock_period_ns,
        io_type=config.io_type,
        hls_config=settings,
        **catapult.settings(config),
    )
    for layer, made in _matched(plan, graph):
        _check_constants(layer, made)
        for role, type in layer.types.items():
            _set_type(made, role, type)
    graph.config.config["HLSConfig"].pop("Flows")
    # By name; else hls4ml writes the model into its YAML, object by object.
    graph.config.config["OnnxModel"] = "hls4ml_model.onnx"
    graph.write()
    for made in graph.get_layers():
        _check_plumbing(made)
    _check_ports(graph, config)
    layers = {}
    for layer, made in _matched(plan, graph):
        _check_types(layer, made, config.backend)
        _check_settings(plan, made)
        variable = made.get_output_variable()
        layers[layer.name] = {
            "variable": variable.name,
            "elements": int(np.prod(variable.shape)),
            "reuse_factor": int(made.get_attr("reuse_factor", 1)),
            "strategy": str(made.get_attr("strategy", "none")).capitalize(),
            "types": {role: type.cpp(config.backend) for role, type in layer.types.items()},
        }
    ports = [variable.name for variable in graph.get_output_variables()]
    if len(set(ports)) != len(plan.model.graph.output):
        raise ProjectError(
            f"hls4ml made the output ports {', '.join(ports)}; expected {len(plan.model.graph.output)} distinct ones"
        )
    return layers, ports


def _matched(plan: Design, graph: Any) -> Iterator[tuple[Layer, Any]]:
    """Designed layers with hls4ml's, in order; an error when either side has one that the other lacks."""
    expected = {layer.name: layer for layer in plan.layers}
    made = {layer.name: layer for layer in graph.get_layers() if not _plumbing(layer)}
    unknown = [name for name in made if name not in expected]
    missing = [name for name, layer in expected.items() if name not in made and not layer.optional]
    if unknown or missing:
        raise ProjectError(
            f"hls4ml made layers that were not designed ({', '.join(unknown) or 'none'}) or dropped designed ones "
            f"({', '.join(missing) or 'none'}); it has {', '.join(made)}. Its merging rules differ from those of the "
            "version this was written for (1.3.0): pin that, or adapt to_hls"
        )
    return iter([(expected[name], layer) for name, layer in made.items()])


def _plumbing(layer: Any) -> bool:
    """Layers that copy streams for several readers; they carry their operand's type."""
    return bool(layer.class_name in ("Clone", "Repack"))


def _check_plumbing(made: Any) -> None:
    if not _plumbing(made):
        return
    source = str(made.get_input_variable().type.precision.definition_cpp())
    for variable in made.get_variables():
        text = str(variable.type.precision.definition_cpp())
        if text != source:
            raise ProjectError(
                f"{made.name}: hls4ml copies a stream of {source} into one of {text}; its {made.class_name} differs "
                "from the one this was written for (hls4ml 1.3.0)"
            )


def _check_ports(graph: Any, config: HlsConfig) -> None:
    """An input port is a parameter of the top function: it must not hide what the function uses."""
    inputs = list(graph.get_input_variables())
    ports, used = {variable.name for variable in inputs}, {config.project}
    for made in graph.get_layers():
        used |= {weight.name for weight in made.weights.values()}
        used |= {variable.name for variable in made.get_variables() if variable not in inputs}
    if ports & used:
        raise ProjectError(
            f"{', '.join(sorted(ports & used))}: the name of an input port, and in the C++ that of an array or a "
            "function as well, which the port would hide. Rename the input"
        )


def _check_settings(plan: Design, made: Any) -> None:
    for name, told in plan.settings.items():
        if made.name.endswith(f"_{name}") and "Conv" in made.class_name:
            found = {
                "ReuseFactor": made.get_attr("reuse_factor"),
                "Strategy": str(made.get_attr("strategy")).capitalize(),
            }
            if any(found[key] != value for key, value in told.items()):
                raise ProjectError(f"{made.name}: hls4ml took {found}, expected {dict(told)}")


def _check_constants(layer: Layer, made: Any) -> None:
    for role, expected in layer.constants.items():
        found = np.asarray(made.weights[role].data, dtype=np.float64).ravel()
        wanted = np.broadcast_to(expected, expected.shape).ravel()
        if found.shape != wanted.shape or not (found == wanted).all():
            raise ProjectError(
                f"{layer.name}: hls4ml holds a {role} of {found.size} values {found[:4]}..., expected {wanted.size} "
                f"values {wanted[:4]}...; its merging rules differ from those this was written for (hls4ml 1.3.0)"
            )


def _set_type(made: Any, role: str, type: FixedType) -> None:
    """Give one role of an hls4ml layer its type, under a name that says whose it is."""
    from hls4ml.model.types import NamedType

    precision = made.model.config.backend.convert_precision_string(str(type))
    named = NamedType(f"{made.name}_{role}_t", precision)
    made.set_attr(f"{role}_t", named)
    if role in made.weights:
        made.weights[role].type = named
        made.weights[role].update_precision(precision)
    if role == "result":
        made.get_output_variable().type = named


def _check_types(layer: Layer, made: Any, backend: str) -> None:
    """After code generation: what the C++ declares is what was designed."""
    for role, expected in layer.types.items():
        if backend == "Catapult" and role == "accum" and "Pooling" in made.class_name:
            continue  # widened by hls4ml, and not used by a maximum
        places = {"type": made.get_attr(f"{role}_t")}
        if role in made.weights:
            places["constant"] = made.weights[role].type
        if role == "result":
            places["variable"] = made.get_output_variable().type
        for place, found in places.items():
            text = str(found.precision.definition_cpp())
            if text != expected.cpp(backend):
                raise ProjectError(
                    f"{layer.name}: {role} {place} is {text} after code generation, expected {expected.cpp(backend)}"
                )


# --- what stands beside hls4ml's files -------------------------------------------------------------------------------


def _write_extras(
    network: IntegerNetwork,
    model: onnx.ModelProto,
    plan: Design,
    config: HlsConfig,
    layers: Mapping[str, Mapping[str, Any]],
    ports: Sequence[str],
    work: Path,
    vectors: ArrayLike | None,
) -> None:
    to_qonnx.save(model, work / "model.onnx")
    to_qonnx.save(plan.model, work / "hls4ml_model.onnx")
    rows = _default_vectors(network) if vectors is None else np.asarray(vectors)
    tb = work / "tb_data"
    tb.mkdir(exist_ok=True)
    trace = interpret.trace(network, rows)
    golden = [plan.values[o.name].layout.to_firmware(trace[o.name]) for o in _outputs(network, plan)]
    write_rows(tb / "tb_input_features.dat", plan.values[network.inputs[0].name].layout.to_firmware(rows))
    write_rows(tb / "tb_output_predictions.dat", np.concatenate(golden, axis=1))
    manifest = _manifest(network, plan, config, layers, ports, len(rows))
    (work / texts.MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n")
    (work / "csim.cpp").write_text(texts.driver(manifest))
    (work / "Makefile").write_text(texts.makefile(config.project, config.backend))
    (work / "README.md").write_text(texts.readme(manifest))


def _outputs(network: IntegerNetwork, plan: Design) -> list[OutputSpec]:
    """The outputs in the order of the top function's arguments: that of the nodes, however the network lists them."""
    position = {node.output[0]: i for i, node in enumerate(plan.model.graph.node)}
    return sorted(network.outputs, key=lambda output: position[plan.values[output.name].tensor])


def _default_vectors(network: IntegerNetwork) -> IntArray:
    """Rows over the whole input range, the extremes first; the same for the same network."""
    spec = network.inputs[0]
    value = network.values[spec.name]
    rng = np.random.default_rng(int(network.digest[:16], 16))
    rows = rng.integers(value.low, value.high, (VECTORS, *spec.shape), dtype=np.int64, endpoint=True)
    rows[0], rows[1], rows[2] = value.low, value.high, 0  # every IntType holds 0
    return rows


def write_rows(path: Path, rows: IntArray) -> None:
    """Integers as text, one row a line, separated by blanks: the format of hls4ml's testbench and of ``csim``."""
    np.savetxt(path, rows.reshape(len(rows), -1), fmt="%d")


def _manifest(
    network: IntegerNetwork,
    plan: Design,
    config: HlsConfig,
    layers: Mapping[str, Mapping[str, Any]],
    ports: Sequence[str],
    rows: int,
) -> dict[str, Any]:
    import hls4ml

    values = network.values

    def port(spec: Any, name: str, fields: tuple[str, ...]) -> dict[str, Any]:
        value = values[spec.name]
        layer = layers[plan.values[spec.name].carrier]
        return {
            "value": spec.name,
            "port": name,
            "type": layer["types"]["result"],
            "elements": int(np.prod(value.shape)),
            "shape": list(value.shape),
            "order": plan.values[spec.name].layout.words(value.shape),
            "layout": plan.values[spec.name].layout.document,
            "integers": str(value.type),
            "range": list(value.type.range),
            **{key: getattr(spec, key).tolist() for key in fields},
        }

    return {
        "format": "hawq_flow.hls",
        "version": texts.VERSION,
        "hawq_flow": __version__,
        "hls4ml": str(hls4ml.__version__),
        "digest": network.digest,
        "top": config.project,
        "config": {key: value for key, value in dataclasses.asdict(config).items() if key != "project"},
        "inputs": [
            port(spec, layers[plan.values[spec.name].carrier]["variable"], ("scale", "zero_point", "mean", "std"))
            for spec in network.inputs
        ],
        "outputs": [
            port(spec, name, ("scale", "zero_point")) for spec, name in zip(_outputs(network, plan), ports, strict=True)
        ],
        "layers": dict(layers),
        "values": {
            name: {"layer": p.carrier, "shape": list(values[name].shape), "layout": p.layout.document}
            for name, p in plan.values.items()
        },
        "test_vectors": rows,
        "metadata": dict(network.metadata),
    }


def _make_portable(work: Path) -> None:
    """Take this machine and this moment out of hls4ml's files: the folder it wrote to and its random stamp."""
    settings = work / "hls4ml_config.yml"
    text = settings.read_text()
    stamp = re.search(r"^Stamp: '?(\w+)'?$", text, re.MULTILINE)
    if stamp is None:
        raise ProjectError(f"{settings.name}: no line 'Stamp: ...'; hls4ml 1.3.0 writes one")
    text = re.sub(r"^Stamp: .*$", f"Stamp: {_STAMP}", text, flags=re.MULTILINE)
    settings.write_text(re.sub(r"^OutputDir: .*(\n  .*)*$", "OutputDir: .", text, flags=re.MULTILINE))
    script = work / "build_lib.sh"
    script.write_text(script.read_text().replace(stamp[1], _STAMP))
    for path in sorted(work.rglob("*")):
        if path.is_file() and str(work).encode() in path.read_bytes():
            raise ProjectError(
                f"{path.relative_to(work)}: names the folder it was written in; a project must not hold machine paths. "
                "This hls4ml writes one that is not known here: report it"
            )
