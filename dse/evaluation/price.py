"""Prices of operators and of passes of a block: seconds and joules in every situation, without host and exchanges.

An operator takes as long as its slowest stream: arrays, shared SRAM, HBM or vector lanes. The device time of a
block is the sum of its kernels' with the gaps between them (one device stream).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dse.evaluation.design import Rows
from dse.evaluation.stages import PLACES
from dse.evaluation.work import Fused, Work, row_sum
from hw_models.chip import Chip
from hw_models.compute import matmul_time
from hw_models.compute.attention import attention_time, attention_traffic
from hw_models.compute.systolic import BEST, chosen_dataflow
from hw_models.compute.vector import lane_product_time, vector_time
from hw_models.memory.tiling import stream_traffic, traffic
from hw_models.physical.energy import local_bytes_per_mac, work_energy
from workloads.plan import FULL, PER_OPERATOR, SELECTIVE
from workloads.precision import BYTES

#: Bytes of an accumulator on chip: products of every precision are summed in fp32.
ACCUMULATOR_BYTES = 4
#: Share of the products outside attention that recomputation per operator repeats.
EVERY_SECOND = 0.5
#: Layers that may be recomputed.
REPEATED = ("lead", "body")


@dataclass(frozen=True)
class OperatorPrices:
    """Prices of the rows of a table of `Work`, (O, S) or (O, H, S).

    time       seconds of the slowest stream, without launch
    streams    seconds each stream alone would take
    sram, hbm  bytes from and to shared SRAM and HBM
    """

    time: np.ndarray
    streams: dict[str, np.ndarray]
    sram: np.ndarray
    hbm: np.ndarray


@dataclass(frozen=True)
class Priced:
    """Seconds and joules of one micro-batch on one device of the tensor axis, by block place, (S,) or (H, S).

    forward, backward   of a block; *_energy its dynamic energy
    again, again_energy what a layer repeats, by place and kind of recomputation; kinds that no plan uses are left out
    weights             the part of backward that is weight gradients (only where asked for)
    core                attention core of a layer, forward (only where asked for)
    """

    forward: dict[str, Any]
    backward: dict[str, Any]
    forward_energy: dict[str, Any]
    backward_energy: dict[str, Any]
    again: dict[str, dict[int, Any]]
    again_energy: dict[str, dict[int, Any]]
    weights: dict[str, Any]
    core: dict[str, Any]


def price_matmuls(rows: Rows, work: Work) -> OperatorPrices:
    """Time and traffic of the matrix products."""
    chip, stack = rows.chip, rows.stack
    sizes = (work.m, work.n, work.k, work.groups)
    # windows of a convolution overlap: as many bytes as the tensor they are cut from has
    read = (work.m if isinstance(work.distinct, float) else work.m * work.distinct, *sizes[1:])
    rate: Any = chip.matmul_rate(work.precisions[0]) if work.precisions else 1.0
    operand: Any = BYTES[rows.training.precision]
    if len(set(work.precisions)) > 1:
        shape = (-1, *([1] * (work.m.ndim - 1)))
        rate = np.array([chip.matmul_rate(precision) for precision in work.precisions]).reshape(shape)
        operand = np.array([float(BYTES[precision]) for precision in work.precisions]).reshape(shape)
    hbm = traffic(
        *read, capacity=chip.shared_sram, operand_bytes=operand,
        output_bytes=work.output_bytes, accumulator_bytes=ACCUMULATOR_BYTES,
    )
    sram = stream_traffic(
        *read, local_capacity=chip.local_sram,
        array_outputs=chip.arrays_per_core * chip.array_rows * chip.array_columns,
        operand_bytes=operand, output_bytes=work.output_bytes, accumulator_bytes=ACCUMULATOR_BYTES,
    )
    if not isinstance(work.distinct, float):
        whole = (work.m - read[0]) * work.n * work.groups * work.output_bytes
        hbm, sram = hbm + whole, sram + whole
    sustained = stack.matmul_efficiency * stack.sustained_clock
    if rows.training.precision == "fp32" and chip.compute == "tensor_core":
        lanes = stack.lane_efficiency
        if not isinstance(work.fast, float):  # transforms take what fed lanes gain: 1.56 of peak (Lavin & Gray 2016)
            lanes = np.where(work.fast > 1.0, np.minimum(lanes, 1.0), lanes)
        sustained = np.minimum(sustained * lanes, 1.0)
    streams = {
        "array": _less(_computed(chip, work, rows.training.precision, rate) / sustained, work.fast),
        "sram": sram / chip.shared_sram_bandwidth,
        "hbm": hbm / (chip.hbm_bandwidth * stack.memory_efficiency),
    }
    time = np.maximum(np.maximum(streams["array"], streams["sram"]), streams["hbm"])
    return OperatorPrices(time, streams, sram, hbm)


def array_bytes(rows: Rows, work: Work) -> tuple[Any, Any] | None:
    """Bytes between arrays and local SRAM of each product in its own dataflow, and of a multiply-add in the chip's.

    None where no array is configured for each product.  The products of fused attention are counted as the chip's.
    """
    chip, training = rows.chip, rows.training
    if chip.compute != "systolic" or not np.any(np.equal(chip.dataflow, BEST)):
        return None
    rate, operand = chip.matmul_rate(training.precision), training.operand_bytes
    flow = chosen_dataflow(chip, work.m, work.n, work.k, work.groups)
    each = local_bytes_per_mac(chip, rate=rate, operand_bytes=operand, dataflow=flow)
    macs = work.m * work.n * work.k * work.groups
    return macs * each, local_bytes_per_mac(chip, rate=rate, operand_bytes=operand)


def _computed(chip: Chip, work: Work, precision: str, rate: Any) -> Any:
    """Seconds of the products at peak rate: on the arrays, or on vector lanes where those may and are faster.

    A group of a depthwise convolution would fill one column of an array."""
    seconds = matmul_time(chip, work.m, work.n, work.k, work.groups, precision=precision, rate=rate)
    if work.lanes is None:
        return seconds
    lanes = lane_product_time(chip, work.m * work.n * work.k * work.groups, instructions=work.lanes)
    return np.minimum(seconds, lanes)


def _less(seconds: Any, gain: Any) -> Any:
    """Seconds of products whose transform multiplies `gain` times less; 1.0: none does."""
    return seconds if isinstance(gain, float) else seconds / gain


def price_vectors(rows: Rows, work: Work) -> OperatorPrices:
    """Time and traffic of the element-wise passes: the slower of HBM and vector lanes."""
    chip, stack = rows.chip, rows.stack
    moved = work.moved * stack.vector_passes
    if work.plain is not None:
        moved = np.where(work.plain, work.moved, moved)
    if work.pieces is not None:
        moved = moved * (1.0 + stack.eager * work.pieces)
    streams = {
        "vector": vector_time(chip, work.operations),
        "hbm": moved / (chip.hbm_bandwidth * stack.memory_efficiency),
    }
    return OperatorPrices(np.maximum(streams["vector"], streams["hbm"]), streams, moved, moved)


def price_attention(rows: Rows, fused: Fused) -> OperatorPrices:
    """Time and traffic of the fused attention kernels, in the format of activations."""
    chip, stack = rows.chip, rows.stack
    precision = "bf16" if rows.training.precision == "fp8" else rows.training.precision
    rate, element = chip.matmul_rate(precision), BYTES[precision]
    pipelined = rows.training.attention == "pipelined"
    if not pipelined:
        rate = rate * chip.synchronous_rate
    sustained = stack.matmul_efficiency * stack.sustained_clock * stack.attention_efficiency
    compute, moved = [], []
    for row, (sizes, backward) in enumerate(fused.shapes):
        shape = (fused.queries[row], fused.keys[row], fused.groups[row])
        width = (sizes.head_dim + sizes.value_dim) / 2.0  # the products of both widths alternate
        seconds = attention_time(
            chip, *shape, width, causal=sizes.causal, backward=backward, rate=rate, overlaps_softmax=pipelined
        )
        compute.append(seconds / sustained)
        moved.append(
            attention_traffic(
                *shape, width, key_value_share=sizes.key_value_heads / sizes.heads, backward=backward,
                element_bytes=element,
            )
        )
    hbm = np.stack(np.broadcast_arrays(*moved))
    streams = {
        "array": np.stack(np.broadcast_arrays(*compute)), "hbm": hbm / (chip.hbm_bandwidth * stack.memory_efficiency),
    }
    return OperatorPrices(np.maximum(streams["array"], streams["hbm"]), streams, hbm, hbm)


def price(
    rows: Rows, work: Work, *, repeats: frozenset[int], splits_backward: bool = False, splits_core: bool = False
) -> Priced:
    """Time and energy of every block's passes.

    repeats           the kinds of recomputation in the batch
    splits_backward   weight gradients are wanted apart (a schedule moves them)
    splits_core       the attention core is wanted apart (context ranks exchange behind it)
    """
    matmuls, vectors = price_matmuls(rows, work), price_vectors(rows, work)
    kernels = price_attention(rows, work.fused) if work.fused is not None else None

    def time(selection: tuple[str, str]) -> Any:
        products, passes, attention = work.members[selection]
        busy = row_sum(matmuls.time, products) + row_sum(vectors.time, passes)
        if kernels is not None:
            busy = busy + row_sum(kernels.time, attention)
        return busy + work.launches[selection] * rows.stack.kernel_launch

    moved_by_arrays = array_bytes(rows, work)

    def local_bytes(selection: tuple[str, str]) -> Any:
        if moved_by_arrays is None:
            return None
        products, _, attention = work.members[selection]
        each, plain = moved_by_arrays
        moved = row_sum(each, products)
        if work.fused is not None:
            moved = moved + row_sum(work.fused.macs, attention) * plain
        return np.where(np.equal(rows.chip.dataflow, BEST), moved / np.maximum(work.macs[selection], 1.0), plain)

    def energy(selection: tuple[str, str]) -> Any:
        products, passes, attention = work.members[selection]
        moved = row_sum(vectors.hbm, passes)
        sram, hbm = row_sum(matmuls.sram, products) + moved, row_sum(matmuls.hbm, products) + moved
        if kernels is not None:
            sram, hbm = sram + row_sum(kernels.sram, attention), hbm + row_sum(kernels.hbm, attention)
        return work_energy(
            rows.chip, rows.technology, precision=rows.training.precision, operand_bytes=rows.training.operand_bytes,
            macs=work.macs[selection], vector_operations=work.vector[selection], sram_bytes=sram, hbm_bytes=hbm,
            local_bytes=local_bytes(selection),
        )

    forward = {place: time((place, "forward")) for place in PLACES}
    forward_energy = {place: energy((place, "forward")) for place in PLACES}
    again: dict[str, dict[int, Any]] = {place: {} for place in REPEATED}
    again_energy: dict[str, dict[int, Any]] = {place: {} for place in REPEATED}
    for place in REPEATED:
        if SELECTIVE in repeats:
            again[place][SELECTIVE] = time((place, "core"))
            again_energy[place][SELECTIVE] = energy((place, "core"))
        if FULL in repeats:
            again[place][FULL], again_energy[place][FULL] = forward[place], forward_energy[place]
        if PER_OPERATOR in repeats:
            again[place][PER_OPERATOR] = time((place, "vectors")) + EVERY_SECOND * time((place, "products"))
            again_energy[place][PER_OPERATOR] = energy((place, "vectors")) + EVERY_SECOND * energy((place, "products"))
    return Priced(
        forward=forward,
        backward={place: time((place, "backward")) for place in PLACES},
        forward_energy=forward_energy,
        backward_energy={place: energy((place, "backward")) for place in PLACES},
        again=again,
        again_energy=again_energy,
        weights={place: time((place, "weights")) for place in PLACES} if splits_backward else {},
        core={place: time((place, "core")) for place in REPEATED} if splits_core else {},
    )
