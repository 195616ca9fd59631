"""What every stage of a run starts from: the experiment, its data, its float network and that network's layers."""

from __future__ import annotations

import dataclasses
import math
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from hawq_flow import data, model_file, quality
from hawq_flow.config import Experiment
from hawq_flow.flow.making import FlowError, Maker
from hawq_flow.quality import Loss
from hawq_flow.reporter import Reporter
from hawq_flow.topology import Topology, read
from hawq_flow.train import TrainConfig


class Inputs(Maker):
    """The inputs of one run of an experiment.

    Parameters
    ----------
    experiment:
        The configuration.
    out:
        The run's folder; None takes ``run`` in the experiment's folder.
    reporter:
        Told what happens.
    """

    def __init__(self, experiment: Experiment, out: Path | None = None, reporter: Reporter | None = None) -> None:
        super().__init__(out if out is not None else experiment.folder / "run", reporter)
        self.experiment = experiment

    @cached_property
    def split(self) -> data.Split:
        """The data set."""
        section = self.experiment.data
        return data.load(
            section.source,
            root=self.experiment.folder,
            features=list(section.features) or None,
            label=section.label or None,
            val_fraction=section.val_fraction,
            test_fraction=section.test_fraction,
            seed=section.seed,
            shape=section.shape or None,
            standardize=None if section.standardize == "source" else section.standardize,
            normal=section.normal,
            samples=section.samples,
            classes=section.classes,
            folder=section.folder or None,
        )

    @cached_property
    def standardization(self) -> data.Standardization:
        """Fitted on the training part."""
        return self.split.standardization()

    @cached_property
    def standardized(self) -> dict[str, NDArray[np.float64]]:
        """Standardized samples of train, val and test."""
        parts = {"train": self.split.train, "val": self.split.val, "test": self.split.test}
        return {name: self.standardization.apply(part.x) for name, part in parts.items()}

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one sample."""
        return self.split.shape

    @property
    def loss(self) -> Loss:
        """What every network is trained on."""
        return self.experiment.train.loss

    @property
    def measure(self) -> str:
        """Name of the measure of quality: accuracy, or explained_variance of an autoencoder."""
        return quality.MEASURES[self.loss]

    @property
    def _model_file(self) -> Path:
        return (self.experiment.folder / self.experiment.model.file).resolve()

    @property
    def _model_depends(self) -> dict[str, Any]:
        """What the float network's definition depends on."""
        return {
            "sources": model_file.sources(self._model_file),
            "packages": model_file.packages(self._model_file),
            "arguments": dict(self.experiment.model.arguments),
            "seed": self.experiment.seed,
        }

    def fresh_model(self) -> nn.Module:
        """The float network, freshly built: the same seed, the same weights."""
        return model_file.build(self._model_file, self.experiment.model.arguments, self.experiment.seed)

    @cached_property
    def topology(self) -> Topology:
        """The model's layers."""
        topology = read(self.fresh_model(), self.input_shape)
        elements, classes = math.prod(topology.output_shape), self.split.classes
        if self.loss == "mse":
            if elements != math.prod(self.input_shape):
                raise FlowError(
                    f"model: outputs of shape {topology.output_shape} for inputs of shape {self.input_shape}; with "
                    "loss 'mse' a network reconstructs its input: give it as many outputs in [model] arguments"
                )
            return topology
        if len(classes) < 2:
            raise FlowError(
                f"data: {self.split.source} is unlabelled; a classifier needs classes: set loss = 'mse' in [train] and "
                "[qat] for a network that reconstructs its input"
            )
        # A network that is not trained may keep the outputs it was published with.
        spare = self.experiment.train.epochs == 0 and self.experiment.qat.epochs == 0 and elements > len(classes)
        if len(topology.output_shape) != 1:
            raise FlowError(
                f"model: outputs of shape {topology.output_shape} for {len(classes)} classes; expected "
                f"({len(classes)},), a vector of one value a class: add nn.Flatten() at the model's end"
                + ("" if elements == len(classes) else f", and give it {len(classes)} outputs, not {elements}")
            )
        if not (elements == len(classes) or spare):
            raise FlowError(
                f"model: {elements} outputs for {len(classes)} classes ({', '.join(classes)}); "
                "set the model's number of outputs in [model] arguments"
            )
        return topology

    def _seeded(self, config: TrainConfig) -> TrainConfig:
        return dataclasses.replace(config, seed=config.seed + self.experiment.seed)
