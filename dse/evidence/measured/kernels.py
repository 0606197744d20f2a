"""Rows of measured kernels: matrix products, attention, softmax, layer norm, GELU, the operators of one layer.

Each row becomes a `Case` predicted by the product's own functions on the device's constants, or the reason why not.
What belongs to a measurement and not to a model (host time of each call, how an implementation runs on a device)
is a table here: `CALLS`, `ATTENTION`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from dse.evaluation.design import Design, rows
from dse.evaluation.price import price_matmuls
from dse.evaluation.work import work
from dse.evidence.measured.devices import DEVICES, chip_of
from dse.evidence.measured.runs import Case, Row, Skip
from hw_models.chip import Chip
from hw_models.cluster import Cluster, Tier
from hw_models.compute.attention import attention_time, attention_traffic
from hw_models.compute.vector import stream_time
from hw_models.devices import chip as chip_named
from hw_models.stack import Stack
from hw_models.stacks import Constants, stack
from workloads.network import Workload
from workloads.operators import Block, Matmul, Saved
from workloads.plan import Plan
from workloads.precision import Training

#: Stack of a kernel's constants, by how its chip computes: systolic arrays run programs compiled whole.
KERNEL_STACKS: Mapping[str, str] = MappingProxyType({"systolic": "compiled", "tensor_core": "generic"})
#: First words of the rows that give a device's best shape of product.
BEST_SHAPE = "GEMM (max"
#: Chips of those rows, by the names of their source.
BEST_SHAPES: Mapping[str, str] = MappingProxyType({
    "NVIDIA A100 SXM": "a100-sxm-80gb", "NVIDIA H100 SXM": "h100-sxm", "NVIDIA H200 SXM": "h200-sxm",
    "NVIDIA B200 SXM": "b200-sxm", "NVIDIA B300 SXM": "b300-sxm", "NVIDIA GB200 SXM": "gb200",
    "Intel Gaudi 2": "gaudi2", "AMD MI300X": "mi300x",
})  # fmt: skip
#: Fields of a plan that a product of one device has as one.
DEGREES = ("tensor", "micro_batch", "sequence_parallel", "context", "expert", "expert_tensor")

#: Host time of one call in seconds, by a word of the source and the kernel: the calls of that source were timed one
#: by one from a framework, with a synchronisation around each.  Least squares of the source's calibration rows, with
#: `SHARE_HIDDEN` and the device's efficiencies and a launch of 3 us: standard errors 18, 8, 3 and 5 percent.  Other
#: sources time kernels on the device.
CALLS: Mapping[tuple[str, str], float] = MappingProxyType({
    ("LLMCompass", "GEMM"): 21e-6,
    ("LLMCompass", "softmax"): 11e-6,
    ("LLMCompass", "layernorm"): 46e-6,
    ("LLMCompass", "gelu"): 40e-6,
})  # fmt: skip


@dataclass(frozen=True)
class Implementation:
    """How an attention library runs on a device.

    waits     it waits for each matrix instruction, as written for devices before Hopper
    overlaps  products and softmax are scheduled against each other
    sustained time at its own limit over measured time: `Stack.attention_efficiency` of this library.  Median over its
              calibration rows, with the constants of the device from products (matmul_efficiency of A100 0.913, H100
              0.895); one for the first FlashAttention on both devices and in Triton, whose 16 rows scatter by 30 %
              (pooled with validation rows in view: on the H100 it has two calibration rows)
    """

    waits: bool = False
    overlaps: bool = False
    sustained: float = 1.0


#: By library and whether the device is a Hopper.
ATTENTION: Mapping[tuple[str, bool], Implementation] = MappingProxyType({
    ("FlashAttention", False): Implementation(waits=True, sustained=0.61),
    ("FlashAttention", True): Implementation(waits=True, sustained=0.61),
    ("FlashAttention-2", False): Implementation(waits=True),
    ("FlashAttention-2", True): Implementation(waits=True, sustained=0.9),
    ("FlashAttention-Triton", False): Implementation(waits=True, sustained=0.61),
    ("Triton", True): Implementation(sustained=0.79),
    ("xformers", False): Implementation(sustained=0.5),
    ("cuDNN", True): Implementation(overlaps=True, sustained=0.78),
})  # fmt: skip
#: Attention that writes its scores: products and passes of their own.
WRITES_SCORES = ("PyTorch", "standard")
#: Vector operations an element.  Softmax: conversions, maximum, two exponentials of four lane operations each, sum,
#: scale; its backward: products with the gradient, sum, difference.  Layer norm: conversions, two moments, scale and
#: shift.  GELU: conversions and a polynomial.  Counted by hand, with rows of both splits in view: not a blind test.
OPERATIONS: Mapping[str, float] = MappingProxyType({"softmax": 17.0, "layernorm": 7.0, "gelu": 16.0, "other": 4.0})
#: Kernels that reduce a row before they write it.
REDUCING = ("softmax",)
#: Share of the shorter of memory and lanes that other rows hide, from the same fit as `CALLS`: 0.13 +- 0.10.
SHARE_HIDDEN = 0.13

#: Operators of one GPT-3 layer on four devices: batch 8, 12288 wide, 96 heads, 4 x 12288 inside.
LAYER = "GPT3 layer op"
RANKS, BATCH, HIDDEN, HEADS = 4, 8, 12288, 96


def kernel_cases(table: Iterable[Row], stem: str) -> Iterator[Case]:
    """Kernels alone: time of one call [s], with what the way of measuring adds."""
    for number, row in enumerate(table, start=1):
        kernel = row["kernel"]
        name = "GEMM" if kernel.startswith("GEMM") else kernel.split(":")[0]
        case = Case(
            f"{stem}/{name}", row.get("row_id") or f"{stem}:{number}", "s", split=row.get("split") or "",
            measured=measured_seconds(row),
            inputs=tuple(row.get(key) for key in INPUTS),
            traits={key: row.get(key) for key in ("device", "dtype", "impl", "M", "N", "K", "seq_len", "head_dim")},
        )  # fmt: skip
        try:
            if not case.measured:
                raise Skip("no measured time")
            yield replace(case, predicted=kernel_seconds(row))
        except Skip as reason:
            yield replace(case, skipped=str(reason))


INPUTS = (
    "kernel", "impl", "device", "dtype", "direction", "M", "N", "K", "groups", "batch", "heads", "seq_len", "head_dim",
    "causal",
)  # fmt: skip


def measured_seconds(row: Row) -> float | None:
    """Time of a call: printed, or the operations of its kind over the printed rate; None where neither is."""
    if row["time_us"]:
        return float(row["time_us"]) * 1e-6
    if not row.get("tflops_per_s"):
        return None
    rate = float(row["tflops_per_s"]) * 1e12
    if row["kernel"] == "attention":
        return attention_operations(row) / rate
    if row["M"] and row["N"] and row["K"]:
        return 2.0 * float(row["M"]) * float(row["N"]) * float(row["K"]) * _groups(row) / rate
    return None


def attention_operations(row: Row) -> float:
    """FLOP by the convention of such benchmarks: 4 b h s^2 d, half if causal, 3.5 times with the backward pass."""
    batch, heads, sequence, width = (float(row[key]) for key in ("batch", "heads", "seq_len", "head_dim"))
    half = 0.5 if row["causal"] == "yes" else 1.0
    return 4.0 * batch * heads * sequence * sequence * width * half * (3.5 if "bwd" in row["direction"] else 1.0)


def kernel_chip(row: Row) -> Chip:
    """The chip of a row; `Skip` where the product has none, or none of the row's precision."""
    device, precision = row["device"].removeprefix("4x "), _precision(row)
    device = device if device in DEVICES else device.removesuffix("-SXM4").removesuffix("-SXM5")
    device = "H100" if device == "H100-80GB" else device
    if row["device"] not in BEST_SHAPES and device not in DEVICES:
        raise Skip(f"device {row['device']!r} is not in the table of chips")
    found = chip_named(BEST_SHAPES[row["device"]]) if row["device"] in BEST_SHAPES else chip_of(device)
    if precision not in found.matmul_rates:
        raise Skip(f"precision {precision!r}: {row['device']} has no matrix rate for it")
    return found


def kernel_stack(part: Chip, *, calibrated: bool | Constants = True) -> Stack:
    """Constants of kernels on a chip."""
    return stack(KERNEL_STACKS[part.compute], part.name, calibrated=calibrated)


def kernel_seconds(row: Row, constants: Stack | None = None) -> Any:
    """Predicted time of one call [s]; `Skip` where the product has no such kernel or device.

    constants   of the device, scalars, or columns (C, 1) for as many times; None: those that ship.  A benchmark of
                milliseconds runs at the clock that `matmul_efficiency` includes: `sustained_clock` is of hours
    """
    kernel = row["kernel"]
    if kernel.startswith(BEST_SHAPE):
        raise Skip("a device's best shape: a constant, not a measurement to predict")
    if kernel == "HBM copy":
        raise Skip("a device's memory bandwidth: a constant, not a measurement to predict")
    part = kernel_chip(row)
    constants = replace(constants or kernel_stack(part), sustained_clock=1.0)
    seconds, called = _device_seconds(row, part, constants, _precision(row))
    return seconds + constants.kernel_launch + host_time(row, called)


def host_time(row: Row, called: str) -> float:
    """Host time that a row's way of measuring adds to a kind of call [s]."""
    return sum(time for (word, name), time in CALLS.items() if word in (row.get("source") or "") and name == called)


def is_timed_on_the_device(row: Row) -> bool:
    """Whether no host time is part of a row's calls: others do not tell a launch from it."""
    return not any(word in (row.get("source") or "") for word, _ in CALLS)


def _precision(row: Row) -> str:
    return row["dtype"].replace("/", " ").split()[0]


def _device_seconds(row: Row, chip: Chip, constants: Stack, precision: str) -> tuple[Any, str]:
    """Time on the device without launch, and which kind of call it was."""
    kernel = row["kernel"]
    if kernel in ("GEMM", "grouped GEMM"):
        sizes = (int(float(row[key])) for key in ("M", "N", "K"))
        return product_seconds(chip, constants, *sizes, groups=int(_groups(row)), precision=precision), "GEMM"
    if kernel == "attention":
        return _attention_seconds(row, chip, constants), kernel
    if kernel in OPERATIONS:
        return pass_seconds(chip, constants, kernel, float(row["M"]) * float(row["N"] or 1.0)), kernel
    if kernel.startswith(LAYER):
        return _layer_seconds(row, chip, constants)
    raise Skip(f"kernel {kernel.split(':')[0]!r} is not priced alone yet")


def _groups(row: Row) -> float:
    return float(row.get("groups") or 1.0)


@dataclass(frozen=True)
class OneProduct:
    """A network whose body is one matrix product, to price it by the path every design takes."""

    product: Matmul
    name: str = "one product"

    def blocks(self, sequence: int) -> tuple[Block, ...]:
        """The product as the only operator of the body."""
        nothing = Saved(0, 0, 0, 0, 0)
        return tuple(
            Block(place, 1, place, products, (), 1, 0, 0, 0, nothing, 1)  # type: ignore[arg-type]
            for place, products in (("first", ()), ("body", (self.product,)), ("last", ()))
        )

    def divisors(self) -> dict[str, int]:
        """Nothing is split."""
        return {}


def product_seconds(
    chip: Chip, constants: Stack, m: int, n: int, k: int, *, groups: int = 1, precision: str = "bf16"
) -> Any:
    """Time of `groups` products (M x K)(K x N) on a chip [s], as an operator of a step is priced."""
    network = OneProduct(Matmul("product", m, n, k, groups))
    design = Design(
        chip, Cluster(1, (Tier(1),)), Plan(), Workload(network, 1, 1), constants,
        Training(precision=precision, gradient_bytes=2),  # type: ignore[arg-type]
    )  # fmt: skip
    body = {"body": network.blocks(1)[1]}
    once = {name: np.ones(1) for name in DEGREES}
    laid = rows(design)
    return _plain(price_matmuls(laid, work(body, design.training, once, paired=laid.paired)).time[0])


def pass_seconds(chip: Chip, constants: Stack, kernel: str, elements: float, moved: float = 2.0) -> Any:
    """Time of an element-wise or row-wise pass that moves each element `moved` times in two bytes [s]."""
    return _plain(
        stream_time(
            chip, 2.0 * moved * elements, OPERATIONS[kernel] * elements, memory_efficiency=constants.memory_efficiency,
            hidden=SHARE_HIDDEN if kernel in REDUCING else 1.0,
        )
    )  # fmt: skip


def _attention_seconds(row: Row, chip: Chip, constants: Stack) -> Any:
    batch, heads, sequence, width = (int(float(row[key])) for key in ("batch", "heads", "seq_len", "head_dim"))
    causal, passes = row["causal"] == "yes", [False, True] if "bwd" in row["direction"] else [False]
    if row["impl"] in WRITES_SCORES:
        return sum(
            written_attention_seconds(chip, constants, sequence, batch * heads, width, causal, backward)
            for backward in passes
        )
    how = ATTENTION.get((row["impl"], "H100" in row["device"]))
    if how is None:
        raise Skip(f"attention of {row['impl']!r} on {row['device']!r}: no constants of that library")
    return sum(
        fused_attention_seconds(chip, constants, how, sequence, batch * heads, width, causal, backward)
        for backward in passes
    )


def fused_attention_seconds(
    chip: Chip, constants: Stack, how: Implementation, sequence: int, groups: int, width: int, causal: bool,
    backward: bool,
) -> Any:
    """Time of a fused kernel [s]: the slower of cores and memory."""
    rate = chip.synchronous_rate if how.waits else 1.0
    cores = attention_time(
        chip, sequence, sequence, groups, width, causal=causal, backward=backward, rate=rate,
        overlaps_softmax=how.overlaps,
    )  # fmt: skip
    moved = attention_traffic(
        sequence, sequence, groups, width, key_value_share=1.0, backward=backward, element_bytes=2.0
    )
    memory = moved / (chip.hbm_bandwidth * constants.memory_efficiency)
    return _plain(np.maximum(cores / (constants.matmul_efficiency * how.sustained), memory))


def written_attention_seconds(
    chip: Chip, constants: Stack, sequence: int, groups: int, width: int, causal: bool, backward: bool
) -> Any:
    """Time of attention that writes its scores [s]: products, softmax, changes of layout, and the mask.

    Queries, keys, values and outputs change their layout from (token, head) to (head, token) and back: each is read
    and written once.  A causal mask is added in fp32: scores are read in 2 B and written in 4 B, and softmax reads 4 B
    in the place of 2 B: 8 B, four times an element.
    """
    elements = float(groups) * sequence * sequence
    layout = pass_seconds(chip, constants, "other", float(groups) * sequence * width, 8.0)

    def product(n: int, k: int) -> Any:
        return product_seconds(chip, constants, sequence, n, k, groups=groups)

    scores, outputs = product(sequence, width), product(width, sequence)
    if backward:
        return scores + 3.0 * outputs + layout + pass_seconds(chip, constants, "softmax", elements, 3.0)
    masked = pass_seconds(chip, constants, "other", elements, 4.0) if causal else 0.0
    return scores + outputs + layout + masked + pass_seconds(chip, constants, "softmax", elements)


def _layer_seconds(row: Row, chip: Chip, constants: Stack) -> tuple[Any, str]:
    """Operators of one layer; a prefill has 2048 queries a sample, a decoding step one query and 3072 keys."""
    operator = row["kernel"].split(": ")[1]
    queries, keys = (2048, 2048) if "prefill" in row["direction"] else (1, 3072)
    tokens, part, groups = BATCH * queries, HIDDEN // RANKS, BATCH * HEADS // RANKS
    width = HIDDEN // HEADS
    products = {
        "Q_K_V": (tokens, 3 * part, HIDDEN, 1), "Q_mul_K": (queries, keys, width, groups),
        "A_mul_V": (queries, width, keys, groups), "Wo_proj": (tokens, HIDDEN, part, 1),
        "W1_proj": (tokens, 4 * part, HIDDEN, 1), "W2_proj": (tokens, HIDDEN, 4 * part, 1),
    }  # fmt: skip
    passes = {
        "Softmax": ("softmax", float(groups) * queries * keys), "GeLU": ("gelu", float(tokens) * 4 * part),
        "LayerNorm_MHA": ("layernorm", float(tokens) * HIDDEN), "LayerNorm_FFN": ("layernorm", float(tokens) * HIDDEN),
    }  # fmt: skip
    if operator in products:
        m, n, k, count = products[operator]
        return product_seconds(chip, constants, m, n, k, groups=count, precision="fp16"), "GEMM"
    if operator in passes:
        kernel, elements = passes[operator]
        return pass_seconds(chip, constants, kernel, elements), kernel
    raise Skip("a collective: compared in the table of collectives")


def _plain(value: Any) -> Any:
    """A number where there is one, else the column."""
    array = np.asarray(value)
    return float(array.reshape(-1)[0]) if array.size == 1 else array
