"""The public face: what `dse` exports is what it says, costs nothing to import, and the contracts hold."""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import dse
from dse.exploration.searchers import ExhaustiveSearcher, QuasiRandomSearcher, RandomSearcher
from dse.testing import contracts as testing
from hw_models import compute
from hw_models import devices as device_table
from hw_models.network import collectives
from hw_models.network.collective_time import collective_time
from workloads import published
from workloads.operators import Matmul


def test_every_public_name_exists_and_every_home_is_public() -> None:
    for name in dse.__all__:
        assert getattr(dse, name) is not None
    assert sorted(dse.__all__) == sorted({*dse._HOMES, "__version__"})
    assert set(dse.__all__) <= set(dir(dse))


def test_no_public_name_is_also_a_module() -> None:
    modules = {module.name for module in pkgutil.iter_modules(dse.__path__)}
    assert not modules & set(dse.__all__)
    assert callable(dse.validate) and callable(dse.plan) and callable(dse.search) and callable(dse.evaluate)


@pytest.mark.parametrize("package", ["hw_models", "workloads", "hw_models.compute", "hw_models.network", "searches"])
def test_all_of_a_package_names_what_it_has(package: str) -> None:
    module = importlib.import_module(package)
    for name in getattr(module, "__all__", []):
        assert hasattr(module, name), f"{package}.{name}"


def test_a_misspelt_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(AttributeError, match="did you mean evaluate"):
        _ = dse.evalute  # type: ignore[attr-defined]


def test_importing_dse_imports_no_library() -> None:
    heavy = "numpy", "scipy", "pandas", "optuna", "matplotlib", "pydantic", "yaml"
    code = "import sys, dse, dse.command.main; dse.command.main.parser(); "
    code += f"print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "[]", "")


@pytest.mark.parametrize("presets", [dse.networks, dse.chips, dse.clusters, dse.stacks], ids=repr)
def test_a_preset_is_the_same_by_attribute_and_by_name(presets: Any) -> None:
    assert len(presets) == len(dir(presets)) > 2
    for name, attribute in zip(presets, dir(presets), strict=False):
        assert name in presets and attribute.isidentifier()
    by_item = {presets[name] for name in presets}
    assert by_item == {getattr(presets, attribute) for attribute in dir(presets)}


def test_presets_make_models() -> None:
    assert dse.networks.gpt3_175b() == dse.Workload(published.network("gpt3-175b"), 2048, 1024)
    assert dse.networks["llama3-70b"](4096, 512).tokens == 4096 * 512
    assert dse.chips.h100_sxm() == device_table.chip("h100-sxm")
    assert dse.clusters.dgx_h100(64).devices == 64
    assert dse.stacks.compiled().name == "compiled"


def test_an_unknown_preset_names_the_nearest() -> None:
    with pytest.raises(AttributeError, match="h100_sxm"):
        _ = dse.chips.h100_smx
    with pytest.raises(KeyError, match="gpt3-175b"):
        dse.networks["gpt3-175"]
    assert not hasattr(dse.chips, "nothing_like_this")


def test_fifty_chips_are_one_call() -> None:
    bandwidths = np.geomspace(2e11, 2e12, 50)
    chip = dse.replace(dse.chips.a100_sxm_80gb(), hbm_stack_bandwidth=bandwidths)
    design = dse.Design(chip, dse.clusters.dgx_a100(64), dse.Plan(tensor=8, data=8), dse.networks.gpt3_6_7b())
    result = dse.evaluate(design)
    times = result["step_time"]
    assert len(result) == 50 and np.all(np.diff(times) <= 0) and times[0] > times[-1]


def test_a_chip_of_the_user_is_searched_and_evaluated_like_a_built_in() -> None:
    mine = dse.Chip(name="mine", array_count=16, hbm_stacks=6)
    design = dse.Design(mine, dse.Cluster(devices=8), dse.Plan(data=8), dse.networks.gpt3_1_3b(global_batch=64))
    assert dse.evaluate(design).value("step_time") > 0


# Contracts: every built-in passes, and something that breaks a law does not ------------------------------------------


@pytest.mark.parametrize("name", sorted(compute.MODELS))
def test_every_matrix_engine_keeps_the_contract(name: str) -> None:
    testing.check_compute(compute.MODELS[name].matmul_time)


@pytest.mark.parametrize("name", device_table.names())
def test_every_chip_keeps_the_contract(name: str) -> None:
    chip = device_table.chip(name)
    testing.check_compute(compute.matmul_time, chip, precision=next(iter(chip.matmul_rates)))


@pytest.mark.parametrize("name", published.names())
def test_every_network_keeps_the_contract(name: str) -> None:
    testing.check_network(published.network(name))


LINKS = (
    "ring_reduce_scatter", "ring_all_gather", "ring_all_reduce", "halving_doubling_all_reduce", "tree_all_reduce",
    "double_tree_all_reduce", "all_to_all", "broadcast",
)  # fmt: skip


@pytest.mark.parametrize("name", LINKS)
def test_every_collective_keeps_the_contract(name: str) -> None:
    testing.check_link(getattr(collectives, name))


@pytest.mark.parametrize("topology", ["switch", "full", "ring", "torus2d", "torus3d", "fat_tree"])
def test_every_topology_keeps_the_contract(topology: str) -> None:
    def all_reduce(ranks: Any, message: Any, bandwidth: Any, *, latency: Any) -> Any:
        cluster = dse.Cluster(devices=ranks, tiers=(dse.Tier(ranks, topology, bandwidth, latency),))
        chip, stack = dse.Chip(), dse.Stack()
        return collective_time(cluster, chip, stack, "all_reduce", size=ranks, stride=1, message=message).time

    testing.check_link(all_reduce)


@pytest.mark.parametrize("kind", [RandomSearcher, QuasiRandomSearcher, ExhaustiveSearcher])
def test_every_plain_searcher_keeps_the_contract(kind: Any) -> None:
    testing.check_searcher(kind)


@pytest.mark.parametrize("sampler", ["nsga2", "tpe", "qmc"])
def test_every_optuna_searcher_keeps_the_contract(sampler: str) -> None:
    from dse.exploration.optuna_searcher import OptunaSearcher

    testing.check_searcher(lambda space: OptunaSearcher(space, 2, ["rule"], sampler=sampler, seed=3, presets=None))


def _no_latency_for_free(ranks: Any, message: Any, bandwidth: Any, *, latency: Any) -> Any:
    return latency + message / bandwidth


def _slower_with_bandwidth(ranks: Any, message: Any, bandwidth: Any, *, latency: Any) -> Any:
    return (ranks > 1) * message * bandwidth


def _mean_of_the_batch(ranks: Any, message: Any, bandwidth: Any, *, latency: Any) -> Any:
    return (ranks > 1) * message / bandwidth * (1 + 0 * ranks.size) + (message > 0) * (ranks > 1) * ranks.size


@pytest.mark.parametrize(
    ("link", "claim"),
    [
        (_no_latency_for_free, "zero bytes cost zero"),
        (_slower_with_bandwidth, "bandwidth is never slower"),
        (_mean_of_the_batch, "a batch equals its rows"),
        (lambda ranks, message, bandwidth, *, latency: message.sum() * 0.0, "columns of 101"),
    ],
)
def test_a_link_that_breaks_a_law_is_refused_by_name(link: Any, claim: str) -> None:
    with pytest.raises(AssertionError, match=claim):
        testing.check_link(link)


def test_an_engine_that_beats_the_peak_is_refused() -> None:
    def magic(chip: Any, m: Any, n: Any, k: Any, groups: Any, *, precision: str) -> Any:
        return m * n * k * groups / chip.peak_flops(precision)

    with pytest.raises(AssertionError, match="peak rate"):
        testing.check_compute(magic)


def test_a_searcher_that_repeats_itself_is_refused() -> None:
    class Stuck:
        def ask(self, n: int) -> Any:
            return np.zeros((1, 3), dtype=np.int64)

        def tell(self, rows: Any, values: Any, violations: Any) -> None:
            """Learns nothing."""

    with pytest.raises(AssertionError, match="asked twice"):
        testing.check_searcher(lambda space: Stuck())


class Half(Matmul):
    """A product that loses half of its columns when it is split."""

    def shard(self, tensor: Any, samples: Any) -> Any:
        m, n, k, groups = super().shard(tensor, samples)
        return m, np.where(np.asarray(tensor) > 1, n / 2, n), k, groups


class Leaky:
    name = "leaky"

    def divisors(self) -> dict[str, int]:
        return {"heads": 16}

    def blocks(self, sequence: int) -> Any:
        first, body, last = published.network("gpt2-medium").blocks(sequence)
        return first, replace(body, matmuls=(*body.matmuls, Half("half", 64, 64, 64, split="k"))), last


def test_a_network_that_loses_flop_when_it_is_split_is_refused() -> None:
    with pytest.raises(AssertionError, match="shards hold at least the FLOP of the whole"):
        testing.check_network(Leaky())


def test_something_that_is_no_network_is_refused() -> None:
    with pytest.raises(AssertionError, match="name, blocks, divisors"):
        testing.check_network("gpt3-175b")
