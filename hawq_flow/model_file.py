"""The user's model file: a Python file with ``build(**arguments) -> nn.Module``, loaded without leaving traces.

It may import the files beside it. What ``build`` draws from torch's, numpy's and Python's global generators is decided
by the seed, and the generators are left as they were.
"""

from __future__ import annotations

import ast
import contextlib
import importlib.metadata
import importlib.util
import inspect
import random
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from hawq_flow.store import file_digest


class ModelError(ValueError):
    """A model file that cannot be used; the text names the file, what is wrong, and what was expected."""


def build(path: Path, arguments: Mapping[str, Any], seed: int) -> nn.Module:
    """The network that ``build(**arguments)`` of the file at ``path`` returns; the same seed, the same weights.

    Raises
    ------
    ModelError
        If the file is missing or cannot be imported, has no build(), refuses the arguments, fails, or returns
        something else than an nn.Module.
    """
    if not path.is_file():
        raise ModelError(f"model: {path} does not exist; 'model.file' is relative to the experiment's folder")
    spec = importlib.util.spec_from_file_location(f"hawq_flow_model_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise ModelError(f"model: {path} is no Python file; expected one that ends in .py")
    module = importlib.util.module_from_spec(spec)
    with _beside(path.parent), _seeded(seed):
        try:
            spec.loader.exec_module(module)
        except Exception as error:  # it is the user's code: anything may come out of it
            raise ModelError(f"model: {path} cannot be imported: {type(error).__name__}: {error}") from error
        function = getattr(module, "build", None)
        if not callable(function):
            raise ModelError(f"model: {path} has no function build(); it must return an nn.Module")
        try:
            inspect.signature(function).bind(**arguments)
        except TypeError as error:
            raise ModelError(f"model: build() of {path} refused 'model.arguments': {error}") from error
        try:
            model = function(**arguments)
        except Exception as error:
            raise ModelError(f"model: build() of {path} failed: {type(error).__name__}: {error}") from error
    if not isinstance(model, nn.Module):
        raise ModelError(f"model: build() of {path} returned {type(model).__name__}; expected an nn.Module")
    return model


def sources(path: Path) -> dict[str, str]:
    """SHA-256 of a model file and of the files beside it that it imports, directly or not, by name."""
    return _walk(path)[0]


def packages(path: Path) -> dict[str, str]:
    """Versions of the installed packages that a model file and the files beside it import, by the package's name.

    A package that is imported and not installed has the version "absent": what lies beyond it is unknown. The standard
    library and torch (which every artifact of torch names) are left out.
    """
    found: dict[str, str] = {}
    for top in sorted(_walk(path)[1]):
        if top in sys.stdlib_module_names or top == "torch" or top == "__future__":
            continue
        try:
            found[top] = importlib.metadata.version(top)
        except importlib.metadata.PackageNotFoundError:  # sklearn is distributed as scikit-learn
            names = importlib.metadata.packages_distributions().get(top, [])
            found[top] = ", ".join(importlib.metadata.version(name) for name in sorted(set(names))) or "absent"
    return found


def _walk(path: Path) -> tuple[dict[str, str], set[str]]:
    """(digests of the file and of what it imports beside it, names of the other packages they import)."""
    if not path.is_file():
        raise ModelError(f"model: {path} does not exist; 'model.file' is relative to the experiment's folder")
    found: dict[str, str] = {}
    others: set[str] = set()
    waiting = [path]
    while waiting:
        file = waiting.pop()
        name = file.relative_to(path.parent).as_posix()
        if name in found:
            continue
        found[name] = file_digest(file)
        try:
            tree = ast.parse(file.read_bytes())
        except (SyntaxError, ValueError):
            continue  # importing it will say so, with the place
        for node in ast.walk(tree):
            modules = []
            if isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                modules = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            for module in modules:
                base = path.parent.joinpath(*module.split("."))
                beside = [f for f in (base.with_suffix(".py"), base / "__init__.py") if f.is_file()]
                waiting += beside
                top = module.partition(".")[0]
                if not beside and not (path.parent / top).is_dir() and not (path.parent / f"{top}.py").is_file():
                    others.add(top)
    return dict(sorted(found.items())), others


@contextlib.contextmanager
def _beside(folder: Path) -> Iterator[None]:
    """Let the model file import the files beside it, afresh, and leave nothing of them behind."""
    modules = set(sys.modules)
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        for name in set(sys.modules) - modules:
            file = getattr(sys.modules[name], "__file__", None)
            if file and Path(file).is_relative_to(folder):
                del sys.modules[name]


@contextlib.contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Seed every generator that a build() may draw from, and restore them."""
    states = random.getstate(), np.random.get_state()  # noqa: NPY002 - the generator that a user's code draws from
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed % 2**32)  # noqa: NPY002
        try:
            yield
        finally:
            random.setstate(states[0])
            np.random.set_state(states[1])  # noqa: NPY002
