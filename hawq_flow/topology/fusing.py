"""Raw stages -> stages: batch norm, activations and dropout join the stage they follow; what nobody reads goes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from hawq_flow.topology.stages import INPUT, LAYERS, PASSING, Stage, Topology, UnsupportedModelError, identifier

_QUANTIZED = (*LAYERS, "add", "average")
"""Kinds that end in a requantization, which an activation joins."""


def fuse(input_shape: tuple[int, ...], raw: Mapping[str, Stage], output: str) -> Topology:
    """The topology of raw stages, one for each operation, in evaluation order.

    Raises
    ------
    UnsupportedModelError
        For a batch norm without a layer to fold into, dropout in the middle of nowhere, a layer that nobody reads, or
        names that become one identifier.
    """
    live = _live(raw, output)
    fused: dict[str, Stage] = {}
    alias = {INPUT: INPUT}
    readers = {name: [s.name for s in live if name in s.sources] for name in (INPUT, *raw)}

    def alone(name: str) -> bool:
        return len(readers[name]) == 1 and name != output

    def alone_from_host(name: str) -> bool:
        """Whether nothing but one chain leads from the stage that ``name`` stands for to ``name`` and on."""
        while alone(name):
            if name == alias[name]:
                return True
            name = raw[name].sources[0]
        return False

    for stage in live:
        sources = tuple(alias[source] for source in stage.sources)
        before, name = stage.sources[0], sources[0]
        target = fused.get(name)
        match stage.kind:
            case "batch_norm":
                if target is None or target.kind not in LAYERS or target.activation or target.batch_norm is not None:
                    found = "a ReLU" if target is not None and target.activation else "something else"
                    found = "the input" if target is None else found
                    raise UnsupportedModelError(
                        f"{stage.what}: batch norm must directly follow an nn.Linear or a convolution, to fold into "
                        f"it; here it follows {found}. Put it behind the layer before that, or "
                        "leave it out (the data are standardized)"
                    )
                if not alone_from_host(before):
                    raise UnsupportedModelError(
                        f"{stage.what}: layer {name!r} is read before and after it; branches at this point are not "
                        "supported"
                    )
                fused[name] = replace(target, batch_norm=stage.batch_norm, batch_norm_name=stage.name)
                alias[stage.name] = name
            case "dropout":
                if target is None or not alone_from_host(before):
                    raise UnsupportedModelError(f"{stage.what}: dropout must follow a layer and be its only reader")
                kept = (1.0 - target.dropout) * (1.0 - stage.dropout)
                fused[name] = replace(target, dropout=1.0 - kept if target.dropout else stage.dropout)
                alias[stage.name] = name
            case "activation":
                host = _host(before, fused, raw, alone, alias)
                if host:
                    fused[host] = replace(fused[host], activation=stage.activation)
                    alias[stage.name] = name
                else:
                    fused[stage.name] = replace(stage, sources=sources)
                    alias[stage.name] = stage.name
            case "reshape" if stage.shape == (fused[name].shape if name in fused else input_shape):
                alias[stage.name] = name
            case _:
                fused[stage.name] = replace(stage, sources=sources)
                alias[stage.name] = stage.name
    topology = Topology(input_shape, tuple(fused.values()), alias[output])
    _check_names(topology)
    return topology


def _live(raw: Mapping[str, Stage], output: str) -> list[Stage]:
    """The stages that the output depends on, in order; a layer that it does not depend on is an error."""
    needed = {output}
    for stage in reversed(list(raw.values())):
        if stage.name in needed:
            needed.update(stage.sources)
    if output != INPUT:
        readers = [s.name for s in raw.values() if output in s.sources and s.module is not None]
        if readers:
            raise UnsupportedModelError(f"layer {output!r}: is the output and also read by {', '.join(readers)}")
    unread = [stage.name for stage in raw.values() if stage.name not in needed and stage.module is not None]
    if unread:
        raise UnsupportedModelError(f"layer {', '.join(unread)}: its output is never used; remove the layer")
    return [stage for stage in raw.values() if stage.name in needed]


def _host(
    name: str,
    fused: Mapping[str, Stage],
    raw: Mapping[str, Stage],
    alone: Callable[[str], bool],
    alias: Mapping[str, str],
) -> str:
    """The stage that an activation of value ``name`` joins, through stages that only move it; '' when none can.

    ReLU commutes with moving, picking and repeating elements, and with maxima; zeros padded stay zeros. Every value on
    the way back must have one reader, or somebody would read the activation who asked for what was before it.
    """
    while name in raw and alone(name):
        own = alias[name]
        if own not in fused:
            return ""
        stage = fused[own]
        if name == own and stage.kind not in PASSING:
            return own if stage.kind in _QUANTIZED and not stage.activation else ""
        name = raw[name].sources[0]
    return ""


def _check_names(topology: Topology) -> None:
    """No two values of the integer network may have one name; layers' own names are looked at first."""
    layers = [INPUT, *(identifier(stage.name) for stage in topology.layers)]
    values = [INPUT, *(value for stage in topology.stages for value in stage.values)]
    for names in (layers, values):
        for name in names:
            if names.count(name) > 1:
                raise UnsupportedModelError(f"layers whose names become the same identifier {name!r}; rename one")
