"""A configuration file is read exactly, or refused with every fault, its place, and what is allowed."""

from __future__ import annotations

import ast
import pickle
import random
from dataclasses import fields
from math import prod
from pathlib import Path

import pytest

from dse.base.errors import ConfigError, Problem
from dse.base.units import parse
from dse.inputs.spec import ALL_DEVICES, CHIP_LINKS, Catalog, Constraint, SearchSpec
from dse.inputs.yaml.hardware import ChipSearch, ClusterSearch, StackSection
from dse.inputs.yaml.load import json_schema, load_design, load_search
from dse.inputs.yaml.tree import shipped_searches
from hw_models.chip import Chip
from hw_models.cluster import Cluster, Tier
from hw_models.stack import Stack
from workloads.plan import Plan
from workloads.precision import Training
from workloads.transformer import DecoderTransformer

GOOD = """\
name: prime
workload: {network: small, sequence: 1021, global_batch: 64}
training: {precision: bf16, optimizer: adam, gradient_bytes: 4, attention: fused}
stack: fast
chip:
  base: seven
  process: 7nm
  array_count: [3, 5, 7]
  clock: {from: 0.8 GHz, to: 1.6 GHz, steps: 5}
  dataflow: [ws, os]
  double_buffered: true
  shared_sram: 64 MiB
  link_bandwidth: 400 Gb/s
cluster:
  devices: [8, 16]
  tiers:
    - {size: 8, topology: switch, bandwidth: chip links, latency: 1 us}
    - {size: all, topology: fat_tree, bandwidth: 50 GB/s, latency: 5 us, oversubscription: 2}
plan:
  tensor: {from: 1, to: 8, factor: 2}
  recompute: [none, full]
  sequence_parallel: [true, false]
  zero_stage: 1
constraints:
  die_area: "<= 826 mm2"
  mfu: ">= 40 %"
objectives: [throughput, energy_per_token]
presets: [seven]
search: {mode: nested, sampler: tpe, budget: 1e2, seed: 0, timeout: 5 min}
"""

DESIGN = """\
name: one
workload: {network: small, sequence: 1021, global_batch: 64}
chip: {base: seven, clock: 1.1 GHz, dataflow: os}
cluster:
  devices: 48
  tiers: [{size: 8}, {size: all, topology: fat_tree, bandwidth: 50 GB/s}]
plan: {tensor: 4, pipeline: 3, recompute: full}
"""

SMALL = DecoderTransformer(name="small", layers=2, hidden=64, heads=4, ffn=256, vocabulary=997)


def pod(devices: int) -> Cluster:
    if devices > 32:
        raise ValueError(f"devices: found {devices}, allowed: at most 32")
    return Cluster(devices=devices, tiers=(Tier(size=4), Tier(size=max(devices, 4))), name="pod")


CATALOG = Catalog(
    networks={"small": SMALL, "tiny": lambda: SMALL},
    chips={"seven": Chip(name="seven", array_count=7, hbm_stacks=5), "eleven": Chip(name="eleven", links=11)},
    clusters={"pod": pod},
    stacks={"fast": Stack(name="fast", kernel_launch=1e-6), "generic": Stack(kernel_launch=3e-6)},
    processes=("7nm", "5nm"),
    memories=("hbm2e", "hbm3"),
    metric_units={
        "throughput": "token/s",
        "energy_per_token": "J",
        "die_area": "m2",
        "tdp": "W",
        "mfu": "",
        "cost": "USD",
    },
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "x.yaml"


def search(file: Path, text: str | bytes) -> SearchSpec:
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    return load_search(file, CATALOG)


def problems(file: Path, text: str | bytes) -> list[Problem]:
    with pytest.raises(ConfigError) as error:
        search(file, text)
    assert str(error.value).count("\n") + 1 == len(error.value.problems), "one line a fault"
    return error.value.problems


def with_line(old: str, new: str) -> str:
    assert GOOD.count(old) == 1, old
    return GOOD.replace(old, new)


# Good files -------------------------------------------------------------------------------------------------------


def test_every_value_of_a_search_is_read_in_base_units(file: Path) -> None:
    spec = search(file, GOOD)
    assert spec.name == "prime" and spec.path == str(file) and spec.text == GOOD
    assert [(w.network, w.sequence, w.global_batch) for w in spec.workloads] == [(SMALL, 1021, 64)]
    assert spec.training == Training(precision="bf16", gradient_bytes=4)
    assert spec.stack == Stack(name="fast", kernel_launch=1e-6)
    assert spec.chip["array_count"] == (3, 5, 7)
    assert spec.chip["clock"] == (0.8e9, 1e9, 1.2e9, 1.4e9, 1.6e9)
    assert spec.chip["dataflow"] == (1, 0) and spec.chip["double_buffered"] == (1,)
    assert spec.chip["shared_sram"] == (64 * 2**20,) and spec.chip["link_bandwidth"] == (50e9,)
    assert spec.chip["hbm_stacks"] == (5,), "from the base"
    assert spec.chip_base.name == "seven" and spec.chip_base.array_count == 3
    assert spec.cluster.values["devices"] == (8, 16)
    assert [tier["size"] for tier in spec.cluster.tiers] == [(8,), (ALL_DEVICES,)]
    assert [tier["bandwidth"] for tier in spec.cluster.tiers] == [(CHIP_LINKS,), (50e9,)]
    assert spec.cluster.tiers[1]["oversubscription"] == (2.0,)
    assert spec.plan == {"tensor": (1, 2, 4, 8), "recompute": (0, 2), "sequence_parallel": (1, 0), "zero_stage": (1,)}
    assert spec.constraints == (Constraint("die_area", "<=", 0.000826), Constraint("mfu", ">=", 0.4))
    assert spec.objectives == ("throughput", "energy_per_token")
    assert [chip.name for chip in spec.presets] == ["seven"]
    assert (spec.search.sampler, spec.search.budget, spec.search.timeout) == ("tpe", 100, 300.0)
    assert spec.search.inner_objective == "throughput", "the first objective unless another is named"


def test_every_combination_of_chip_values_makes_a_chip(file: Path) -> None:
    spec = search(file, GOOD)
    assert set(spec.chip) == {item.name for item in fields(Chip)} - {"name", "matmul_rates"}
    for name, values in spec.chip.items():
        for value in values:
            Chip(**{name: value})


def test_a_design_is_read_as_models(file: Path) -> None:
    file.write_text(DESIGN)
    spec = load_design(file, CATALOG)
    assert (spec.chip.clock, spec.chip.dataflow, spec.chip.array_count) == (1.1e9, 0, 7)
    assert spec.cluster.devices == 48 and spec.cluster.tiers[1].size == 48
    assert spec.plan == Plan(tensor=4, pipeline=3, data=4, recompute=2), "the data axis takes the devices that are left"


def test_a_design_may_leave_its_plan_open(file: Path) -> None:
    file.write_text(DESIGN.replace("plan: {tensor: 4, pipeline: 3, recompute: full}\n", ""))
    assert load_design(file, CATALOG).plan is None


def test_a_list_is_refused_where_a_design_has_one_value(file: Path) -> None:
    file.write_text(
        DESIGN.replace("tensor: 4", "tensor: [4, 8]").replace("1.1 GHz", "{from: 1 GHz, to: 2 GHz, steps: 2}")
    )
    with pytest.raises(ConfigError) as error:
        load_design(file, CATALOG)
    assert [(p.field, p.found) for p in error.value.problems] == [
        ("chip.clock", "a mapping"),
        ("plan.tensor", "a list"),
    ]


def test_names_alone_are_enough_for_chip_stack_and_network(file: Path) -> None:
    text = "name: x\nworkload: {network: tiny, sequence: 8, global_batch: 8}\nobjectives: throughput\n"
    spec = search(file, text + "chip: seven\ncluster: {base: pod, devices: [16, 32]}\n")
    assert prod(len(values) for values in spec.chip.values()) == 1
    assert [tier["size"] for tier in spec.cluster.tiers] == [(4,), (ALL_DEVICES,)]
    assert spec.workloads[0].network is SMALL


def test_a_file_that_names_no_stack_gets_the_generic_one(file: Path) -> None:
    assert search(file, with_line("stack: fast\n", "")).stack == Stack(kernel_launch=3e-6)
    changed = search(
        file, with_line("stack: fast", "stack: {base: fast, step_overhead: 7 ms, algorithms: [ring]}")
    ).stack
    assert (changed.kernel_launch, changed.step_overhead, changed.algorithms) == (1e-6, 7e-3, ("ring",))


def test_a_number_of_devices_that_the_base_refuses_is_a_fault(file: Path) -> None:
    text = GOOD[: GOOD.index("cluster:")] + "cluster: {base: pod, devices: [16, 64]}\n" + GOOD[GOOD.index("plan:") :]
    (problem,) = problems(file, text)
    assert problem.field == "cluster.devices" and "at most 32" in problem.allowed


def test_several_workloads_and_a_network_given_by_its_sizes(file: Path) -> None:
    sizes = "{layers: 3, hidden: 96, heads: 6, ffn: 384, vocabulary: 1009, kv_heads: 2, gated: on, tied: off}"
    text = with_line(
        "workload: {network: small, sequence: 1021, global_batch: 64}",
        f"workloads:\n  - {{network: small, sequence: 7, global_batch: 8, weight: 0.25}}\n"
        f"  - network: {sizes}\n    sequence: 11\n    global_batch: 16\n",
    )
    first, second = search(file, text).workloads
    assert first.weight == 0.25 and second.weight == 1.0
    assert (second.network.gated, second.network.tied, second.network.kv_heads) == (True, False, 2)


@pytest.mark.parametrize("constraints", ["constraints: {}\n", "constraints: null\n", "constraints:\n", ""])
def test_no_constraints_in_any_spelling_are_no_constraints(file: Path, constraints: str) -> None:
    text = GOOD.replace('constraints:\n  die_area: "<= 826 mm2"\n  mfu: ">= 40 %"\n', constraints)
    assert search(file, text) == search(
        file, GOOD.replace(GOOD[GOOD.index("constraints:") : GOOD.index("objectives")], "")
    )
    assert search(file, text).constraints == ()


@pytest.mark.parametrize("number", ["1e3", "1.0e3", "1e+3", "1.0e+3", "1000", "1_000", "1000.0", "0.1e4"])
def test_scientific_notation_is_a_number_and_whole_where_it_is_whole(file: Path, number: str) -> None:
    budget = search(file, with_line("budget: 1e2", f"budget: {number}")).search.budget
    assert budget == 1000 and isinstance(budget, int)


@pytest.mark.parametrize("truth", ["true", "True", "on", "yes", "YES"])
def test_a_boolean_field_takes_every_yaml_boolean(file: Path, truth: str) -> None:
    assert search(file, with_line("double_buffered: true", f"double_buffered: {truth}")).chip["double_buffered"] == (1,)


@pytest.mark.parametrize("name", ["y", "n", '"on"', '"1e9"', "'null'", "2024-01-01"])
def test_texts_that_look_like_something_else_stay_texts(file: Path, name: str) -> None:
    assert search(file, with_line("name: prime", f"name: {name}")).name == name.strip("\"'")


def test_ranges_are_exact_and_hold_both_ends(file: Path) -> None:
    text = with_line("clock: {from: 0.8 GHz, to: 1.6 GHz, steps: 5}", "clock: {from: 0.1 GHz, to: 0.7 GHz, steps: 7}")
    assert search(file, text).chip["clock"] == tuple(float(f"0.{i}e9") for i in range(1, 8))
    text = with_line("array_count: [3, 5, 7]", "array_count: {from: 3, to: 100, factor: 3}")
    assert search(file, text).chip["array_count"] == (3, 9, 27, 81)
    text = with_line("shared_sram: 64 MiB", "shared_sram: {from: 0.5 MiB, to: 2 MiB, step: 512 KiB}")
    assert search(file, text).chip["shared_sram"] == tuple(i * 2.0**19 for i in (1, 2, 3, 4))


def test_a_number_is_read_to_the_same_bits_alone_in_a_list_and_in_a_range(file: Path) -> None:
    source = random.Random(3)
    for _ in range(7):
        value = f"{source.uniform(0.5, 3):.4f}"
        alone = search(file, with_line("{from: 0.8 GHz, to: 1.6 GHz, steps: 5}", f"{value} GHz")).chip["clock"]
        listed = search(file, with_line("{from: 0.8 GHz, to: 1.6 GHz, steps: 5}", f"[{value} GHz]")).chip["clock"]
        ranged = search(file, with_line("from: 0.8 GHz, to: 1.6 GHz", f"from: {value} GHz, to: 7 GHz")).chip["clock"]
        assert alone == listed == ranged[:1] == (parse(f"{value} GHz", "Hz"),)


def test_anchors_aliases_and_merge_keys_work(file: Path) -> None:
    text = with_line("    - {size: 8, topology", "    - &inner {size: 8, topology").replace(
        "    - {size: all,", "    - {<<: *inner, size: all,"
    )
    assert search(file, text) == search(file, GOOD)


def test_a_byte_order_mark_and_windows_line_ends_are_fine(file: Path) -> None:
    assert search(file, b"\xef\xbb\xbf" + GOOD.replace("\n", "\r\n").encode()) == search(file, GOOD)


def test_a_spec_holds_no_validation_objects_and_can_be_copied_to_another_process(file: Path) -> None:
    spec = search(file, GOOD)
    assert "pydantic" not in repr([type(value) for value in vars(spec).values()])
    for part in (spec.cluster, spec.chip, spec.plan, spec.constraints, spec.search):
        assert pickle.loads(pickle.dumps(part)) == part


# Faults inside a valid YAML file ----------------------------------------------------------------------------------

FAULTS = [
    # units
    ("shared_sram: 64 MiB", "shared_sram: 64", "chip.shared_sram", ["64 without a unit", "in B", "80 GB"]),
    ("shared_sram: 64 MiB", "shared_sram: 64 mm2", "chip.shared_sram", ["64 mm2", "in m2", "in B"]),
    ("400 Gb/s", "400gb/s", "chip.link_bandwidth", ["400gb/s", "ambiguous", "Gb (bits)", "GB (bytes)"]),
    ("400 Gb/s", "0 B/s", "chip.link_bandwidth", ["0 B/s", "> 0 in B/s"]),
    ("400 Gb/s", "-1 GB/s", "chip.link_bandwidth", ["-1 GB/s", "> 0 in B/s"]),
    ("400 Gb/s", ".nan", "chip.link_bandwidth", [".nan", "> 0 in B/s"]),
    ("400 Gb/s", ".inf", "chip.link_bandwidth", [".inf", "> 0 in B/s"]),
    ("400 Gb/s", "-.INF", "chip.link_bandwidth", ["-.INF", "> 0 in B/s"]),
    ("400 Gb/s", "~", "chip.link_bandwidth", ["nothing (null)", "> 0 in B/s"]),
    ("400 Gb/s", "true", "chip.link_bandwidth", ["true", "> 0 in B/s", "boolean is not a number"]),
    ("400 Gb/s", "1e300 PB/s", "chip.link_bandwidth", ["1e300 PB/s", "too large"]),
    ("bandwidth: 50 GB/s", "bandwidth: chip-links", "cluster.tiers[1].bandwidth", ["did you mean chip links"]),
    ("latency: 1 us", "latency: -1 us", "cluster.tiers[0].latency", ["-1 us", ">= 0 in s"]),
    ("timeout: 5 min", "timeout: 300", "search.timeout", ["300 without a unit", "in s"]),
    # numbers
    ("zero_stage: 1", "zero_stage: 2.5", "plan.zero_stage", ["2.5", "a whole number"]),
    ("zero_stage: 1", "zero_stage: 4", "plan.zero_stage", ["4", "0 to 3"]),
    ("array_count: [3, 5, 7]", "array_count: 2.5", "chip.array_count", ["2.5", "a whole number >= 1"]),
    ("array_count: [3, 5, 7]", "array_count: 1.5e0", "chip.array_count", ["1.5e0", "a whole number >= 1"]),
    ("array_count: [3, 5, 7]", "array_count: '8'", "chip.array_count", ['the text "8"', "remove the quotes"]),
    ("array_count: [3, 5, 7]", "array_count: yes", "chip.array_count", ["found yes", "boolean is not a number"]),
    ("array_count: [3, 5, 7]", "array_count: 010", "chip.array_count", ["010", "leading zeros"]),
    ("array_count: [3, 5, 7]", "array_count: 0x10", "chip.array_count", ["0x10", "a whole number >= 1"]),
    ("array_count: [3, 5, 7]", "array_count: 1:30", "chip.array_count", ["1:30", "a whole number >= 1"]),
    ("array_count: [3, 5, 7]", "array_count: 1 GHz", "chip.array_count", ["1 GHz", "in Hz", "a whole number >= 1"]),
    ("sequence: 1021", "sequence: null", "workload.sequence", ["nothing (null)", "a whole number >= 1"]),
    ("sequence: 1021", "sequence: 0", "workload.sequence", ["found 0", "a whole number >= 1"]),
    ("budget: 1e2", "budget: -1e2", "search.budget", ["-1e2", ">= 1"]),
    ("seed: 0", "seed: -1", "search.seed", ["-1", ">= 0"]),
    ("gradient_bytes: 4", "gradient_bytes: 3", "training.gradient_bytes", ["found 3", "2, 4"]),
    ("stack: fast", "stack: {memory_efficiency: 1.5}", "stack.memory_efficiency", ["1.5", "> 0 and <= 1"]),
    # lists and ranges
    ("array_count: [3, 5, 7]", "array_count: []", "chip.array_count", ["an empty list"]),
    ("array_count: [3, 5, 7]", "array_count: [3, 5, 3]", "chip.array_count[2]", ["3 again", "item 1"]),
    ("array_count: [3, 5, 7]", "array_count: [3, [5]]", "chip.array_count[1]", ["a list", "a whole number"]),
    (
        "array_count: [3, 5, 7]",
        "array_count: {from: 1, to: 4}",
        "chip.array_count",
        ["no steps", "steps, step and factor"],
    ),
    ("array_count: [3, 5, 7]", "array_count: {from: 1, steps: 4}", "chip.array_count.to", ["required"]),
    ("array_count: [3, 5, 7]", "array_count: {from: 4, to: 1, steps: 4}", "chip.array_count.to", ["more than from"]),
    (
        "array_count: [3, 5, 7]",
        "array_count: {from: 1, to: 4, steps: 3}",
        "chip.array_count",
        ["2.5", "a whole number"],
    ),
    (
        "array_count: [3, 5, 7]",
        "array_count: {from: 1, to: 4, stesp: 4, step: 1}",
        "chip.array_count.stesp",
        ["did you mean step?"],
    ),
    ("array_count: [3, 5, 7]", "array_count: {from: 1, to: 9, factor: 1}", "chip.array_count.factor", ["a number > 1"]),
    ("array_count: [3, 5, 7]", "array_count: {from: 1, to: 1e9, step: 1}", "chip.array_count", ["more than 1000"]),
    ("dataflow: [ws, os]", "dataflow: {from: 0, to: 1, steps: 2}", "chip.dataflow", ["a mapping", "os, ws, is"]),
    # texts and choices
    ("dataflow: [ws, os]", "dataflow: wss", "chip.dataflow", ["wss", "os, ws, is", "did you mean ws?"]),
    ("name: prime", "name: Off", "name", ["found Off", "boolean", '"Off"']),
    ("name: prime", "name: 17", "name", ["found 17", '"17"']),
    ("name: prime", "name: ''", "name", ['found ""', "a text"]),
    ("recompute: [none, full]", "recompute: on", "plan.recompute", ["found on", "none, selective, full", '"on"']),
    ("precision: bf16", "precision: NO", "training.precision", ["found NO", "bf16", '"NO"']),
    ("precision: bf16", "precision: int3", "training.precision", ["int3", "bf16"]),
    (
        "sequence_parallel: [true, false]",
        "sequence_parallel: 1",
        "plan.sequence_parallel",
        ["found 1", "true or false"],
    ),
    ("sequence_parallel: [true, false]", "sequence_parallel: 'on'", "plan.sequence_parallel", ["remove the quotes"]),
    ("process: 7nm", "process: 8nm", "chip.process", ["8nm", "7nm, 5nm", "did you mean 7nm?"]),
    ("sampler: tpe", "sampler: nsga3", "search.sampler", ["nsga3", "did you mean nsga2?"]),
    # names
    ("network: small", "network: smal", "workload.network", ['"smal"', "small, tiny", "did you mean small?"]),
    ("network: small", "network: 'nowhere_17:x'", "workload.network", ["ModuleNotFoundError"]),
    ("network: small", "network: 'fractions:Fraction'", "workload.network", ["returns a Fraction"]),
    ("network: small", "network: 'math:pi'", "workload.network", ["a float", "a network"]),
    ("network: small", "network: {layers: 2}", "workload.network.hidden", ["required"]),
    ("base: seven", "base: sevn", "chip.base", ["sevn", "did you mean seven?"]),
    ("presets: [seven]", "presets: [seven, eight]", "presets[1]", ["eight", "seven, eleven"]),
    ("presets: [seven]", "presets: [seven, seven]", "presets[1]", ["again"]),
    ("stack: fast", "stack: fats", "stack", ["fats", "did you mean fast?"]),
    ("stack: fast", "stack: [fast]", "stack", ["a list", "or a mapping"]),
    # goals
    (
        'die_area: "<= 826 mm2"',
        "die_area: 826 mm2",
        "constraints.die_area",
        ["826 mm2", '"<= 826 mm2" or ">= 826 mm2"'],
    ),
    ('die_area: "<= 826 mm2"', 'die_area: "< 826 mm2"', "constraints.die_area", ["< 826 mm2", '"<= 826 mm2"']),
    ('die_area: "<= 826 mm2"', 'die_area: "<= 826"', "constraints.die_area", ["826 without a unit", "in m2"]),
    ('die_area: "<= 826 mm2"', 'die_area: "<= 826 W"', "constraints.die_area", ["826 W", "in m2"]),
    ('die_area: "<= 826 mm2"', "die_area: ~", "constraints.die_area", ["nothing (null)"]),
    (
        'die_area: "<= 826 mm2"',
        'dye_area: "<= 826 mm2"',
        "constraints.dye_area",
        ["dye_area", "did you mean die_area?"],
    ),
    ("objectives: [throughput, energy_per_token]", "objectives: [thruput]", "objectives[0]", ["thruput", "throughput"]),
    ("objectives: [throughput, energy_per_token]", "objectives: []", "objectives", ["an empty list"]),
    (
        "objectives: [throughput, energy_per_token]",
        "objectives: cost",
        "cluster.usd_per_device_hour",
        ["a price", "cost"],
    ),
    # keys
    ("zero_stage: 1", "tensor_paralell: 8", "plan.tensor_paralell", ["unknown key", "plan", "did you mean tensor?"]),
    ("zero_stage: 1", "micro-batch: 8", "plan.micro-batch", ["unknown key", "did you mean micro_batch?"]),
    ("zero_stage: 1", "tp: 8", "plan.tp", ["unknown key", "did you mean tensor?"]),
    ("  shared_sram: 64 MiB", "  tensor: 8", "chip.tensor", ["unknown key", "it belongs to plan"]),
    ("  shared_sram: 64 MiB", "  tp: 8", "chip.tp", ["unknown key", "it belongs to plan"]),
    ("seed: 0", "on: 0", "search", ["the key on, a boolean", '"on" in quotes']),
    ("seed: 0", "17: 0", "search", ["the key 17, a number", '"17" in quotes']),
    ("zero_stage: 1", "tensor: 4", "plan.tensor", ['the key "tensor" again', "line 20 and on line 23"]),
    ("topology: switch,", "topology: switch, topology: ring,", "cluster.tiers[0].topology", ["again", "line 17"]),
    # structure
    (
        "stack: fast",
        "stack: fast\nworkloads: [{network: small, sequence: 1, global_batch: 1}]",
        "workloads",
        ["workload and workloads", "one of them"],
    ),
    ("stack: fast", "plan_b: 3", "plan_b", ["unknown key", "did you mean plan?"]),
    (
        "search: {mode: nested, sampler: tpe, budget: 1e2, seed: 0, timeout: 5 min}",
        "search: 3",
        "search",
        ["a mapping"],
    ),
    ("presets: [seven]", "presets: {a: 1}", "presets", ["a mapping"]),
    # cluster
    ("{size: 8, topology", "{topology", "cluster.tiers[0].size", ["nothing", "required"]),
    ("size: 8,", "size: all,", "cluster.tiers[0].size", ['"all"', "only the last tier"]),
    ("size: all,", "size: 12,", "cluster.tiers[1].size", ["12", "a multiple of the tier inside it, 8"]),
    ("size: all,", "size: 8,", "cluster.tiers[1].size", ["8", "all, or a number >="]),
    ("topology: switch", "topology: mesh", "cluster.tiers[0].topology", ["mesh", "torus2d"]),
    # tags
    ("name: prime", "name: !!python/name:os.system x", "name", ["the tag", "without tags"]),
    ("name: prime", "name: !secret x", "name", ["the tag !secret", "without tags"]),
]


@pytest.mark.parametrize(
    ("old", "new", "field", "words"), FAULTS, ids=[f"{case[2]}: {case[1]}"[:70] for case in FAULTS]
)
def test_a_fault_says_file_line_field_found_and_allowed(
    file: Path, old: str, new: str, field: str, words: list[str]
) -> None:
    text = with_line(old, new)
    found = [problem for problem in problems(file, text) if problem.field == field]
    assert len(found) == 1, problems(file, text)
    said = str(found[0])
    line = GOOD[: GOOD.index(old)].count("\n") + 1
    assert said.startswith(f"{file}:{found[0].line}:{found[0].column}: {field}: found ")
    if field != "cluster.usd_per_device_hour":
        assert line <= found[0].line <= line + new.count("\n") + 1
    assert "; allowed: " in said
    for word in words:
        assert word in said


def test_the_column_points_at_the_value_and_for_an_unknown_key_at_the_key(file: Path) -> None:
    (problem,) = problems(file, with_line("clock: {from: 0.8 GHz,", "clock: {from: 0.8 GB,"))
    assert (problem.line, problem.column) == (9, 17)
    (problem,) = problems(file, with_line("  zero_stage: 1", "  zero: 1"))
    assert (problem.line, problem.column, problem.nearest) == (23, 3, "zero_stage")


def test_all_faults_of_a_file_come_at_once_from_top_to_bottom(file: Path) -> None:
    text = GOOD
    for old, new in [
        ("network: small", "network: smal"),
        ("optimizer: adam", "optimiser: adam"),
        ("array_count: [3, 5, 7]", "array_count: [0, 2.5, 7]"),
        ("400 Gb/s", "400gb/s"),
        ("devices: [8, 16]", "devices: ~"),
        ("topology: switch", "topology: mesh"),
        ("latency: 5 us", "latency: 5"),
        ("zero_stage: 1", "zero_stage: 1\n  zero_stage: 0"),
        ('"<= 826 mm2"', '"<= 826 W"'),
        ("objectives: [throughput,", "objectives: [latency,"),
        ("seed: 0", "seed: -1, off: 3"),
    ]:
        text = text.replace(old, new)
    found = problems(file, text)
    assert [(p.line, p.field) for p in found] == [
        (2, "workload.network"),
        (3, "training.optimiser"),
        (8, "chip.array_count[0]"),
        (8, "chip.array_count[1]"),
        (13, "chip.link_bandwidth"),
        (15, "cluster.devices"),
        (17, "cluster.tiers[0].topology"),
        (18, "cluster.tiers[1].latency"),
        (24, "plan.zero_stage"),
        (26, "constraints.die_area"),
        (28, "objectives[0]"),
        (30, "search.seed"),
        (30, "search"),
    ]


def test_missing_sections_are_all_named(file: Path) -> None:
    found = problems(file, "name: x\n")
    assert {p.field for p in found} == {"workload", "chip", "cluster", "objectives"}
    assert all("required" in p.allowed for p in found)


def test_an_unsupported_precision_names_those_of_the_chip(file: Path) -> None:
    text = with_line("  process: 7nm", "  matmul_rates: {bf16: 1, fp32: 0.25}").replace(
        "precision: bf16", "precision: fp8"
    )
    (problem,) = problems(file, text)
    assert (problem.line, problem.field) == (3, "training.precision") and "bf16, fp32" in problem.allowed


def test_sizes_that_do_not_fit_together_are_said_at_the_network(file: Path) -> None:
    sizes = "{layers: 1, hidden: 7, heads: 3, ffn: 4, vocabulary: 5}"
    (problem,) = problems(file, with_line("network: small", f"network: {sizes}"))
    assert problem.field == "workload.network" and "hidden % heads" in problem.found


def test_very_many_faults_are_counted_instead_of_listed(file: Path) -> None:
    found = problems(file, GOOD + "".join(f"k{i}: 1\n" for i in range(500)))
    assert len(found) == 101 and "400 more faults" in str(found[-1])


# Files that cannot be read at all ---------------------------------------------------------------------------------

BOMB = "a: &a [1,1,1,1,1,1,1,1,1]\n" + "".join(
    f"{chr(98 + i)}: &{chr(98 + i)} [{','.join([f'*{chr(97 + i)}'] * 9)}]\n" for i in range(9)
)
UNREADABLE = [
    ("", 0, 0, ["config is empty"]),
    ("# only a comment\n", 0, 0, ["config is empty"]),
    ("---\n...\n", 0, 0, ["config is empty"]),
    ("null\n", 0, 0, ["config is empty"]),
    ("name: x\nchip:\n\tbase: y\n", 3, 1, ["a tab", "spaces"]),
    ("name: [x\nchip: 3\n", 1, 7, ["an unclosed [", "its closing ]"]),
    ("name: {x: 3\nchip: 3\n", 1, 7, ["an unclosed {", "its closing }"]),
    ("name: {x: 3 y: 4}\n", 1, 14, ["a comma or the closing }"]),
    ('name: "x\nchip: 3\n', 1, 7, ["an unclosed quote"]),
    ('name: "\\q"\n', 1, 9, ["unknown escape"]),
    ("- name: x\n", 1, 1, ["a list at the top", "a mapping"]),
    ("only text\n", 1, 1, ['"only text" at the top', "a mapping"]),
    ("name: a\n---\nname: b\n", 3, 1, ["a second document", "one document"]),
    ("chip:\n    a: 1\n  b: 2\n", 3, 3, ["indentation"]),
    ("name: a: b\n", 1, 8, ["needs quotes"]),
    ("tdp: >= 5 W\n", 1, 7, ["needs quotes", '">= 5 W"']),
    ("name: %x\n", 1, 7, ["needs quotes"]),
    ("name: *nobody\n", 1, 7, ["undefined alias", "nobody"]),
    ("name: &a [*a]\n", 1, 7, ["an alias inside its own anchor"]),
    (BOMB, 1, None, ["more than 20000 values", "fewer aliases"]),
    ("a: " + "[" * 100 + "]" * 100, 1, None, ["nested too deeply"]),
    ("[" * 900, 0, 0, ["nested too deeply"]),
    ("name: é\n".encode("latin-1"), 1, 7, ["0xe9", "UTF-8"]),
    ("name: x\n".encode("utf-16"), 1, 0, ["UTF-16", "save the file as UTF-8"]),
    ("name: x\n".encode("utf-16-le"), 1, 0, ["UTF-16", "save the file as UTF-8"]),
    (b"name: a\0b\n", 1, 8, ["U+0000"]),
    (b"#" * 200_001, 0, 0, ["more than 200000 bytes"]),
]


@pytest.mark.parametrize(
    ("content", "line", "column", "words"), UNREADABLE, ids=[repr(case[0])[:40] for case in UNREADABLE]
)
def test_a_file_that_is_not_one_yaml_mapping_is_one_problem_with_its_place(
    file: Path, content: str | bytes, line: int, column: int | None, words: list[str]
) -> None:
    (problem,) = problems(file, content)
    assert problem.file == str(file) and problem.line == line
    assert column is None or problem.column == column
    for word in words:
        assert word in str(problem)


def test_a_directory_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="found a directory; allowed: a YAML file"):
        load_search(tmp_path, CATALOG)


def test_a_missing_file_shows_what_there_is(tmp_path: Path) -> None:
    (tmp_path / "gpt3.yaml").write_text(GOOD)
    with pytest.raises(ConfigError, match=r"no such file.*did you mean .*gpt3\.yaml\?"):
        load_search(tmp_path / "gpt3.yml", CATALOG)
    with pytest.raises(ConfigError, match="no such file.*did you mean quickstart?"):
        load_search("quikstart", CATALOG)
    with pytest.raises(ConfigError, match="no such file"):
        load_search("no\0where", CATALOG)


# Shipped searches, schema, architecture ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["quickstart", "gpt3_175b", "enumerable"])
def test_a_shipped_search_loads_by_its_bare_name_from_any_folder(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert name in shipped_searches()
    spec = load_search(name)
    assert prod(len(values) for values in spec.chip.values()) > 100 and spec.objectives


def test_the_main_search_asks_what_it_is_documented_to_ask() -> None:
    spec = load_search("gpt3_175b")
    (workload,) = spec.workloads
    assert (workload.network.name, workload.sequence, workload.global_batch) == ("gpt3-175b", 2048, 1536)
    assert spec.cluster.values["devices"] == (1024,) and spec.cluster.tiers[0]["size"] == (8,)
    assert spec.chip["process"] == ("7nm",)
    assert spec.constraints == (Constraint("die_area", "<=", 0.000826), Constraint("tdp", "<=", 700.0))
    assert spec.objectives == ("throughput", "energy_per_token", "die_area")


def test_the_enumerable_search_has_a_few_thousand_chips() -> None:
    assert 2_000 <= prod(len(values) for values in load_search("enumerable").chip.values()) <= 20_000


def test_the_schema_knows_every_field_of_the_models_with_its_unit() -> None:
    for section, model in ((ChipSearch, Chip), (ClusterSearch, Cluster), (StackSection, Stack)):
        described = section.model_json_schema()["properties"]
        for item in fields(model):
            assert item.name in described
            if item.metadata.get("unit"):
                assert f"[{item.metadata['unit']}]" in described[item.name]["description"]


def test_every_link_bandwidth_says_that_it_is_per_direction() -> None:
    for model in (Chip, Tier):
        for item in fields(model):
            if item.metadata.get("unit") == "B/s" and ("link" in item.name or model is Tier):
                assert "per direction" in item.metadata["meaning"]


def test_the_schema_is_plain_json_and_names_every_section() -> None:
    schema = json_schema()
    assert {"name", "chip", "cluster", "plan", "constraints", "objectives"} <= set(schema["properties"])
    assert schema["additionalProperties"] is False
    assert "plan" in json_schema("design")["properties"] and "search" not in json_schema("design")["properties"]


def test_yaml_is_read_in_one_module_only() -> None:
    root = Path(__file__).parents[2]
    readers = []
    for package in ("dse", "hw_models", "workloads", "searches"):
        for path in sorted((root / package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
                names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
                if any(name.split(".")[0] == "yaml" for name in names):
                    readers.append(str(path.relative_to(root)))
    assert readers == [str(Path("dse") / "inputs" / "yaml" / "tree.py")]
