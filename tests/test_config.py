"""Strict TOML: what is written is what is meant, or the error says where and offers the nearest key."""

from __future__ import annotations

import dataclasses
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from hawq_flow.config import ConfigError, DataConfig, Experiment, HlsStage, ModelConfig, RtlStage, load
from hawq_flow.numeric import Rounding
from hawq_flow.quant import QuantConfig
from hawq_flow.train import TrainConfig

MINIMAL = """
name = "toy"
[data]
source = "digits"
[model]
file = "model.py"
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "experiment.toml"
    path.write_text(text)
    return path


def refused(folder: Path, text: str, match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        load(written(folder, text))


def with_section(section: str, line: str) -> str:
    """The minimal experiment with a line more in a section ('' is the top)."""
    if not section:
        return line + "\n" + MINIMAL
    if f"[{section}]" in MINIMAL:
        return MINIMAL.replace(f"[{section}]", f"[{section}]\n{line}")
    return f"{MINIMAL}\n[{section}]\n{line}\n"


def test_defaults_are_the_dataclasses_own(tmp_path: Path) -> None:
    found = load(written(tmp_path, MINIMAL))
    assert isinstance(found, Experiment)
    assert (found.name, found.seed, found.folder) == ("toy", 0, tmp_path.resolve())
    assert (found.train, found.quant) == (TrainConfig(), QuantConfig())
    assert (found.data.source, found.model.file, dict(found.model.arguments)) == ("digits", "model.py", {})
    assert load(tmp_path) == found == load(str(tmp_path / "experiment.toml"))


def test_every_kind_of_value(tmp_path: Path) -> None:
    text = MINIMAL.replace(
        'file = "model.py"', 'file = "model.py"\narguments = { hidden = [64, 32], batch_norm = true }'
    )
    text = (
        "seed = 7\n"
        + text
        + """
[train]
epochs = 3
lr = 1            # an integer where a float is meant
[quant]
rounding = "half_up"
per_channel = false
input_observer = "percentile"
[plans]
homogeneous = [5, 3]
[sensitivity]
method = "exact"
[allocate]
bops = 123456
weight_bits_total = 99
fixed = { fc1 = 8, "layers.0" = 6 }
tied = [["fc1", "fc2"], ["fc3", "head"]]
[hls]
part = "xc7"
"""
    )
    found = load(written(tmp_path, text))
    assert found.seed == 7
    assert dict(found.model.arguments) == {"hidden": [64, 32], "batch_norm": True}
    assert found.train.lr == 1.0
    assert isinstance(found.train.lr, float)
    assert found.quant.rounding is Rounding.HALF_UP
    assert not found.quant.per_channel
    assert found.plans.homogeneous == (5, 3)
    assert found.allocate.bops == 123456.0
    assert (found.allocate.weight_bits_total, found.allocate.mean_bits) == (99, None)
    assert dict(found.allocate.fixed) == {"fc1": 8, "layers.0": 6}
    assert found.allocate.tied == (("fc1", "fc2"), ("fc3", "head"))
    assert found.hls.part == "xc7"


def test_the_shipped_experiments_are_valid() -> None:
    files = sorted((Path(__file__).parent.parent / "experiments").glob("*/experiment.toml"))
    assert files
    for file in files:
        experiment = load(file)
        assert (experiment.folder / experiment.model.file).is_file()


@pytest.mark.parametrize(
    ("section", "line", "match"),
    [
        ("", "sed = 1", r"experiment\.toml: unknown key 'sed'; did you mean 'seed'\?"),
        ("train", "epoch = 1", r"experiment\.toml: train: unknown key 'epoch'; did you mean 'epochs'\?"),
        ("quant", "multiplierbits = 8", r"quant: unknown key 'multiplierbits'; did you mean 'multiplier_bits'\?"),
        ("quant", "zzzz = 8", "quant: unknown key 'zzzz'; known keys: per_channel, multiplier_bits"),
        ("trian", "epochs = 1", r"unknown key 'trian'; did you mean 'train'\?"),
        ("", 'folder = "/tmp"', "unknown key 'folder'; it is the folder the file lies in"),
        ("hls", "clock = 5", r"hls: unknown key 'clock'"),
    ],
)
def test_unknown_keys_offer_the_nearest(tmp_path: Path, section: str, line: str, match: str) -> None:
    refused(tmp_path, with_section(section, line), match)


@pytest.mark.parametrize(
    ("section", "line", "match"),
    [
        ("", 'seed = "1"', "seed: found '1'; expected int"),
        ("", "seed = 1.0", "seed: found 1.0; expected int"),
        ("", "seed = true", "seed: found True; expected int"),
        ("", "train = 3", "train: found 3; expected a section"),
        ("", "train = [1]", r"train: found \[1\]; expected a section"),
        ("train", "lr = true", "train: lr: found True; expected float"),
        ("train", 'lr = "fast"', "train: lr: found 'fast'; expected float"),
        ("train", "device = 1", "train: device: found 1; expected str"),
        ("quant", "per_channel = 1", "quant: per_channel: found 1; expected bool"),
        ("quant", 'rounding = "up"', "quant: rounding: found 'up'; expected one of 'half_even', 'floor', 'half_up'"),
        ("quant", 'input_observer = "max"', "input_observer: found 'max'; expected one of 'minmax', 'moving_average'"),
        ("plans", "homogeneous = 8", "plans: homogeneous: found 8; expected a list"),
        ("plans", 'homogeneous = [8, "6"]', r"plans: homogeneous\[1\]: found '6'; expected int"),
        ("plans", "homogeneous = [8, true]", r"plans: homogeneous\[1\]: found True; expected int"),
        ("allocate", "tied = [[1]]", r"allocate: tied\[0\]\[0\]: found 1; expected str"),
        ("allocate", "fixed = [1]", r"allocate: fixed: found \[1\]; expected a table"),
        ("allocate", 'fixed = { fc1 = "8" }', "allocate: fixed.fc1: found '8'; expected int"),
        ("allocate", 'bops = "0.6"', "allocate: bops: found '0.6'; expected float or a table"),
        ("allocate", 'bops = { small = "0.4" }', "allocate: bops.small: found '0.4'; expected float"),
        ("allocate", "weight_bits_total = 1.5", "allocate: weight_bits_total: found 1.5; expected int"),
        (
            "sensitivity",
            'method = "fast"',
            "sensitivity: method: found 'fast'; expected one of 'auto', 'exact', 'sketch'",
        ),
        ("firmware", 'backends = ["Quartus"]', r"firmware: backends\[0\]: found 'Quartus'; expected one of 'Vitis'"),
    ],
)
def test_wrong_types_are_refused_with_their_place(tmp_path: Path, section: str, line: str, match: str) -> None:
    refused(tmp_path, with_section(section, line), match)


@pytest.mark.parametrize(
    ("section", "line", "match"),
    [
        ("train", "epochs = -1", r"experiment\.toml: train: train: epochs -1; expected 0 or more"),
        ("qat", "lr = -1.0", "qat: train: lr -1.0; expected a positive number"),
        ("qat", "lr = nan", "qat: lr: found nan; expected a finite number"),
        ("train", "freeze = 2.0", "freeze 2.0; expected a fraction"),
        ("quant", "multiplier_bits = 25", "quant: multiplier_bits 25; expected 1 to 24"),
        ("quant", "percentile = 10.0", "quant: percentile 10.0; expected above 50"),
        ("hls", 'backend = "Quartus"', "hls: HlsConfig: backend 'Quartus'; expected one of"),
        ("hls", "reuse_factor = 0", "reuse_factor 0"),
    ],
)
def test_values_out_of_range_are_refused_by_their_section(tmp_path: Path, section: str, line: str, match: str) -> None:
    refused(tmp_path, with_section(section, line), match)


@pytest.mark.parametrize(
    ("section", "line", "match"),
    [
        ("plans", "homogeneous = []", "plans: homogeneous is empty; expected at least one width"),
        ("plans", "homogeneous = [8, 1]", "plans: homogeneous 1; expected 2 to 24 bits"),
        ("plans", "homogeneous = [8, 8]", "plans: homogeneous 8 named twice"),
        ("plans", "input_bits = 25", "plans: input_bits 25; expected 2 to 24 bits"),
        ("plans", "output_bits = 0", "plans: output_bits 0; expected 2 to 24 bits"),
        ("allocate", "weight_bits = [1, 2]", "allocate: weight_bits 1; expected 2 to 24 bits"),
        ("allocate", "activation_bits = []", "allocate: activation_bits is empty"),
        ("allocate", "bops = 0.0", "allocate: bops of plan 'mixed' 0.0; expected above 0"),
        ("allocate", "bops = { small = -1 }", "bops of plan 'small' -1.0; expected above 0"),
        ("allocate", "bops = {}", "allocate: bops is an empty table; name at least one mixed plan"),
        ("allocate", "mean_bits = -1.0", "allocate: mean_bits -1.0; expected above 0"),
        ("sensitivity", "samples = -1", "sensitivity: samples -1; expected 0 or more"),
        ("firmware", "vectors = -1", "firmware: vectors -1; expected 1 or more"),
    ],
)
def test_widths_and_budgets_are_checked_before_the_first_stage(
    tmp_path: Path, section: str, line: str, match: str
) -> None:
    """A run that would fail at its third stage fails at its first line instead."""
    refused(tmp_path, with_section(section, line), match)


def test_sections_that_are_left_out_leave_their_stage_out(tmp_path: Path) -> None:
    found = load(written(tmp_path, MINIMAL))
    assert found.firmware is None
    assert (found.firmware_plans, found.firmware_backends) == ([], [])
    assert found.mixed_names == ["mixed"]
    found = load(written(tmp_path, MINIMAL + "\n[firmware]"))
    assert (found.firmware_plans, found.firmware_backends) == (["int8", "mixed"], ["Vitis", "Vivado"])
    found = load(written(tmp_path, MINIMAL + "\n[plans]\nmixed = false\n[firmware]"))
    assert (found.mixed_names, found.plan_names) == ([], ["int8", "int6", "int4"])
    assert found.firmware_plans == ["int8"]
    refused(
        tmp_path,
        MINIMAL + '\n[plans]\nmixed = false\n[firmware]\nplans = ["mixed"]',
        "firmware: plans names 'mixed'; There are int8, int6, int4",
    )


def test_data_of_any_shape(tmp_path: Path) -> None:
    lines = 'shape = [1, 8, 8]\nstandardize = "channel"\nnormal = ["3"]\nsamples = 5\nclasses = 2\nfolder = "f"'
    text = with_section("data", lines) + '\n[train]\nloss = "mse"\n[qat]\nloss = "mse"'
    data = load(written(tmp_path, text)).data
    assert (data.shape, data.standardize, data.normal) == ((1, 8, 8), "channel", ("3",))
    assert (data.samples, data.classes, data.folder) == (5, 2, "f")


@pytest.mark.parametrize(
    ("section", "line", "match"),
    [
        ("data", 'standardize = "pixel"', "standardize: found 'pixel'; expected one of 'source', 'feature', 'channel'"),
        ("data", "shape = [1, 8.0]", r"data: shape\[1\]: found 8.0; expected int"),
        ("train", 'loss = "mae"', "train: loss: found 'mae'; expected one of 'cross_entropy', 'mse'"),
        ("train", 'loss = "mse"', r"qat: loss 'cross_entropy', but the float network's is 'mse'; give \[train\] and"),
        (
            "data",
            'normal = ["3"]',
            "data: normal is given, but the loss is 'cross_entropy'; anomalies are found by rec",
        ),
        ("plans", "mixed = 0", "plans: mixed: found 0; expected bool"),
        ("", "firmware = 3", "firmware: found 3; expected a section"),
    ],
)
def test_losses_and_shapes_are_checked(tmp_path: Path, section: str, line: str, match: str) -> None:
    refused(tmp_path, with_section(section, line), match)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        (MINIMAL.replace('name = "toy"', ""), "key 'name' is missing; it has no default"),
        (MINIMAL.replace('[data]\nsource = "digits"', ""), "key 'data' is missing"),
        (MINIMAL.replace('source = "digits"', ""), "data: key 'source' is missing; it has no default"),
        (MINIMAL.replace('file = "model.py"', ""), "model: key 'file' is missing"),
        ("", "key 'name' is missing"),
    ],
)
def test_missing_keys_are_named(tmp_path: Path, text: str, match: str) -> None:
    refused(tmp_path, text, match)


def test_files_that_are_no_toml(tmp_path: Path) -> None:
    refused(tmp_path, "name = = 3", r"experiment\.toml: not valid TOML: .*line 1")
    refused(tmp_path, MINIMAL + '\nname = "twice"\nname = "x"', "not valid TOML")
    (tmp_path / "experiment.toml").write_bytes(b"name = '\xff\xfe'")
    with pytest.raises(ConfigError, match="not valid TOML"):
        load(tmp_path)
    with pytest.raises(ConfigError, match=r"nope\.toml: no such file; give an experiment's TOML, or the folder"):
        load(tmp_path / "nope.toml")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match=r"empty/experiment\.toml: no such file"):
        load(tmp_path / "empty")


def test_experiments_are_values(tmp_path: Path) -> None:
    found = load(written(tmp_path, MINIMAL))
    with pytest.raises(AttributeError, match="cannot assign"):
        found.seed = 3  # type: ignore[misc]


def test_the_documented_values_are_the_defaults_or_called_examples(tmp_path: Path) -> None:
    page = (Path(__file__).parent.parent / "docs" / "configuration.md").read_text()
    text = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)[0]
    load(written(tmp_path, text.replace('normal = ["healthy"]', "normal = []")))  # which needs another loss than shown
    shown = tomllib.loads(text)
    told, section = set(), ""
    for line in text.splitlines():
        section = line.split("]")[0].strip("[") if line.startswith("[") else section
        if re.search(r"# (example|required)", line):
            told.add((section, line.split(" =")[0]))
    base = Experiment("", tmp_path, DataConfig(""), ModelConfig(""), firmware=HlsStage(), rtl=RtlStage())
    sections = {name: keys for name, keys in shown.items() if isinstance(keys, dict)}
    nested = {f"rtl.{name}": keys for name, keys in shown["rtl"].items() if isinstance(keys, dict)}
    for section, keys in (sections | nested).items():
        default: Any = base
        for name in section.split("."):
            default = getattr(default, name)
        for key, value in keys.items():
            held = getattr(default, key)
            held = list(held) if isinstance(held, tuple) else getattr(held, "value", held)  # an enum by its text
            if f"{section}.{key}" in nested:
                continue
            if key == "bops":
                assert (value, default.named_budgets) == (0.6, {"mixed": 0.6})
            elif (section, key) not in told:
                assert value == held, f"[{section}] {key}: the default is {held!r}; mark the value shown as an example"
            else:
                assert value != held, f"[{section}] {key}: called an example, but it is the default"
        if section != "qat":  # [train] and [qat] are one dataclass, written in two parts
            written_down = set(keys) | (set(shown["qat"]) if section == "train" else set())
            fields = {field.name for field in dataclasses.fields(default)} - {"backend"}
            assert fields == written_down, f"[{section}]: undocumented or unknown keys"
