"""Seconds, counts and bytes of one kernel: a matrix product, an element-wise pass, fused attention.

A kernel takes as long as its slowest stream: t = max(array, shared SRAM, HBM, lanes).
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from math import ceil, floor, frexp, inf, sqrt
from typing import Any

ACCUMULATOR = 4.0  # bytes of a partial sum
BYTES = {"fp32": 4.0, "tf32": 4.0, "bf16": 2.0, "fp16": 2.0, "fp8": 1.0}

# Constants of the models of tensor cores and of attention kernels (sources: docs/models/tensor_core.md, attention.md).
STEP, FEED, LATENCY, EXPOSED = 16.0, 64.0, 1000.0, 0.5
ATTENTION_TILE, HEAD_STEP, LOCAL_FEED, HIDDEN, EXPONENTIAL = 128.0, 32.0, 128.0, 0.5, 4.0
TILES = (
    (256, 128, 1), (128, 256, 1), (128, 128, 1), (128, 64, 1), (64, 128, 1), (64, 64, 1),
    (128, 128, 2), (128, 128, 4), (128, 128, 0), (64, 64, 0),
)  # fmt: skip


@dataclass(frozen=True)
class Work:
    """What kernels take and move on one device.

    seconds      without the gaps between kernels; launches: how many gaps
    macs         multiply-adds on arrays; operations: on vector lanes
    local, sram, hbm   bytes between arrays and local SRAM, cores and shared SRAM, chip and HBM
    """

    seconds: float = 0.0
    launches: float = 0.0
    macs: float = 0.0
    operations: float = 0.0
    local: float = 0.0
    sram: float = 0.0
    hbm: float = 0.0

    def __add__(self, other: Work) -> Work:
        return Work(*(getattr(self, one.name) + getattr(other, one.name) for one in fields(self)))

    def __rmul__(self, times: float) -> Work:
        return Work(*(times * getattr(self, one.name) for one in fields(self)))


@dataclass(frozen=True)
class Device:
    """The rates of one chip under one stack, for one number format."""

    chip: Any
    stack: Any
    training: Any

    @property
    def hbm(self) -> float:
        """Sustained bytes a second of HBM."""
        return self.chip.hbm_stacks * self.chip.hbm_stack_bandwidth * self.stack.memory_efficiency

    @property
    def peak_hbm(self) -> float:
        return self.chip.hbm_stacks * self.chip.hbm_stack_bandwidth

    @property
    def lanes(self) -> float:
        """Lane operations a second."""
        return self.chip.vector_lanes * self.chip.clock

    @property
    def cores(self) -> float:
        return self.chip.array_count / self.chip.arrays_per_core

    @property
    def core_macs(self) -> float:
        """Multiply-adds a cycle of a core at the base format."""
        return self.chip.arrays_per_core * self.chip.array_rows * self.chip.array_columns

    @property
    def sram(self) -> float:
        """Bytes a second of shared SRAM: its own, or what its network or banks let through if that is less.

        crossbar n w f; ring min(n, 8) w f; mesh min(n, 4 sqrt n) w f; banks b w_b f
        """
        chip = self.chip
        found, link = chip.shared_sram_bandwidth, chip.noc_width * chip.clock
        if chip.noc:
            ports = {1: self.cores, 2: min(self.cores, 8.0), 3: min(self.cores, 4.0 * sqrt(self.cores))}[chip.noc]
            found = min(found, ports * link)
        if chip.sram_banks:
            found = min(found, chip.sram_banks * chip.sram_bank_width * chip.clock)
        return float(found)


# Bytes of a blocked product ------------------------------------------------------------------------------------------


def blocked_bytes(
    m: float, n: float, k: float, groups: float, *, capacity: float, operand: float, result: float
) -> float:
    """Bytes a product moves through a buffer whose half keeps a tile: Q = groups (reads k operand + m n result).

    An output tile of a x b accumulators reads ceil(N/b) M + ceil(M/a) N rows and columns; a panel of p whole rows of
    the smaller operand reads each of them once and the other ceil(M/p) times.  Of the sides a: the whole dimension,
    half of it, and the two powers of two around the square tile.
    """
    short, long = min(m, n), max(m, n)
    half = capacity / 2.0
    cells = max(floor(half / ACCUMULATOR), 1)
    below = 2.0 ** (frexp(sqrt(cells))[1] - 1)

    def whole(size: float) -> float:
        return floor(size) if size >= 1.0 else 0.5  # a tile without a whole row costs more than any that has one

    reads = [ceil(short / side) * long + ceil(long / whole(cells / side)) * short
             for side in (below, 2.0 * below, short)]  # fmt: skip
    reads.append(2.0 * long + ceil(long / whole(cells / ceil(short / 2.0))) * short)
    reads.append(short + ceil(short / whole(half / operand / k)) * long)
    return groups * (min(reads) * k * operand + m * n * result)


# Cycles of arrays ----------------------------------------------------------------------------------------------------


def systolic_cycles(chip: Any, m: float, n: float, k: float, groups: float) -> tuple[float, int]:
    """(cycles, dataflow) of `groups` products on all arrays; a flexible chip takes the fastest, os before ws before is.

    On the array lie (M, N), (K, N) or (K, M); the third dimension T streams.  F = groups ceil(S_r/R) ceil(S_c/C) folds.
    rounds    whole folds, P at a time; those of the last round cut along T
    wrapped   one stream of F T vectors cut into P equal lengths
    Both end with the fill R + C - 2 (+ R to load what is stationary).
    """
    flows = (0, 1, 2) if chip.dataflow == 3 else (int(chip.dataflow),)
    return min((_in_dataflow(chip, flow, m, n, k, groups), flow) for flow in flows)


def _in_dataflow(chip: Any, flow: int, m: float, n: float, k: float, groups: float) -> float:
    rows, columns, arrays = chip.array_rows, chip.array_columns, chip.array_count
    on_rows, on_columns, stream = ((m, n, k), (k, n, m), (k, m, n))[flow]
    outputs = flow == 0
    fill = rows + columns - 2.0 + (0.0 if outputs else rows)
    folds = ceil(on_rows / rows) * ceil(on_columns / columns) * groups

    full_rounds = ceil(folds / arrays) - 1
    pieces = floor(arrays / (folds - full_rounds * arrays))  # arrays that share a fold of the last round
    whole = max(stream, rows) if chip.double_buffered else max(stream + fill, rows)
    uncut = min(stream, rows) if outputs else 0.0  # the reduce-scatter of partial sums takes as long again
    rounds = full_rounds * whole + uncut + ceil((stream - uncut) / pieces)

    length = ceil(folds * stream / arrays)
    between = floor(max(length - 2.0, 0.0) / stream)
    if chip.double_buffered:
        ends = length - between * stream
        swaps = between * max(rows - stream, 0.0) + max(rows - 0.5 * ends, 0.0)
    else:
        swaps = (between + 1.0) * fill
    sharing = ceil(arrays / folds) + 1.0
    exchanged = floor(2.0 * rows * (1.0 - 1.0 / sharing)) if outputs else 0.0
    return min(rounds, length + swaps + exchanged) + fill


def tile_seconds(device: Device, m: float, n: float, k: float, groups: float, rate: float) -> float:
    """Seconds of tensor cores: waves of output tiles, the best tile of a library, and stores nothing hides."""
    chip = device.chip
    cores = max(floor(device.cores), 1)
    aside = chip.tiles_per_core - 1.0
    best = inf
    for height, width, pieces in TILES:
        tiles = ceil(m / height) * ceil(n / width) * groups
        split = pieces or max(floor(cores / tiles), 1)
        waves = ceil(tiles * pieces / cores) if pieces else ceil(tiles / cores)
        operands = min(height, width) + max(height, width) / chip.cores_per_tile
        step = max(height * width * STEP / device.core_macs, operands * STEP * 2.0 / FEED)
        end = height * width * (2.0 if pieces == 1 else 8.0) / FEED + LATENCY
        cycles = waves * (ceil(k / STEP / split) / rate * step + end * (1.0 - aside)) + end * aside
        best = min(best, cycles)
    return best / chip.clock + m * n * groups * 2.0 * EXPOSED * (1.0 - aside) / device.peak_hbm


def local_bytes_per_mac(chip: Any, flow: int, *, rate: float, operand: float) -> float:
    """Bytes between an array and local SRAM a multiply-add: x/C + x/R (outputs stay) or x/C + 2 y/(R r)."""
    held = operand / chip.array_rows if flow == 0 else 2.0 * ACCUMULATOR / (chip.array_rows * rate)
    return operand / chip.array_columns + held


# Kernels -------------------------------------------------------------------------------------------------------------


def matmul(
    device: Device, m: float, n: float, k: float, groups: float, *, precision: str, result: float, launches: float
) -> Work:
    """One matrix product; `result` bytes an element of what it writes."""
    chip, stack, training = device.chip, device.stack, device.training
    rate, flow = chip.matmul_rates[precision], int(chip.dataflow)
    if chip.compute == "systolic":
        cycles, flow = systolic_cycles(chip, m, n, k, groups)
        seconds = cycles / (chip.clock * rate)
    else:
        seconds = tile_seconds(device, m, n, k, groups, rate)
    sustained = stack.matmul_efficiency * stack.sustained_clock
    if training.precision == "fp32" and chip.compute == "tensor_core":
        sustained = min(sustained * stack.lane_efficiency, 1.0)
    operand = BYTES[precision]
    hbm = blocked_bytes(m, n, k, groups, capacity=chip.shared_sram, operand=operand, result=result)
    cells = 2.0 * chip.arrays_per_core * chip.array_rows * chip.array_columns * ACCUMULATOR
    local = max(chip.local_sram, cells)
    sram = blocked_bytes(m, n, k, groups, capacity=local, operand=operand, result=result)
    macs = m * n * k * groups
    each = local_bytes_per_mac(
        chip, flow, rate=chip.matmul_rates[training.precision], operand=BYTES[training.precision]
    )
    return Work(
        seconds=max(seconds / sustained, sram / device.sram, hbm / device.hbm), launches=launches, macs=macs,
        local=macs * each, sram=sram, hbm=hbm,
    )  # fmt: skip


def vector(device: Device, elements: float, *, moved: float, operations: float, pieces: float, launches: float) -> Work:
    """One element-wise pass: `moved` bytes and `operations` an element.

    A stack moves `vector_passes` times the bytes of one fused kernel, and where it runs composites piece by piece
    (`eager`) those of all `pieces`.
    """
    stack = device.stack
    hbm = elements * moved * stack.vector_passes * (1.0 + stack.eager * (pieces - 1.0))
    work = elements * operations
    return Work(max(work / device.lanes, hbm / device.hbm), launches, operations=work, sram=hbm, hbm=hbm)


def attention(device: Device, sizes: Any, *, heads: float, queries: float, keys: float, backward: bool) -> Work:
    """One fused attention kernel over `heads` heads x samples, `queries` x `keys` scores each."""
    chip, stack, training = device.chip, device.stack, device.training
    precision = "bf16" if training.precision == "fp8" else training.precision
    pipelined = training.attention == "pipelined"
    rate = chip.matmul_rates[precision] * (1.0 if pipelined else chip.synchronous_rate)
    width = (sizes.head_dim + sizes.value_dim) / 2.0
    model = _systolic_attention if chip.compute == "systolic" else _tiled_attention
    seconds = model(device, queries, keys, heads, width, bool(sizes.causal), backward, rate, pipelined)
    if backward:
        seconds += heads * queries * width * (3.0 * 2.0 + 8.0) / device.peak_hbm
    seconds /= stack.matmul_efficiency * stack.sustained_clock * stack.attention_efficiency

    element, share = BYTES[precision], sizes.key_value_heads / sizes.heads
    if backward:
        hbm = heads * width * (queries * (2.0 * element + 4.0) + 4.0 * element * share * keys)
        hbm += heads * queries * width * (3.0 * element + 8.0)
    else:
        hbm = heads * width * element * (2.0 * queries + 2.0 * share * keys)
    products = 3.0 * sizes.head_dim + 2.0 * sizes.value_dim if backward else sizes.head_dim + sizes.value_dim
    macs = heads * queries * keys * products * (0.5 if sizes.causal else 1.0)
    each = local_bytes_per_mac(
        chip, int(chip.dataflow), rate=chip.matmul_rates[training.precision], operand=BYTES[training.precision]
    )
    return Work(max(seconds, hbm / device.hbm), 2.0 if backward else 1.0, macs, 0.0, macs * each, hbm, hbm)


def _hidden(backward: bool, pipelined: bool) -> float:
    """Share of the shorter of products and softmax behind the longer: by chance forward, by design half of the rest."""
    chance = 0.0 if backward else HIDDEN
    return chance + (1.0 - chance) / 2.0 if pipelined else chance


def _tiled_attention(
    device: Device, queries: float, keys: float, heads: float, width: float, causal: bool, backward: bool,
    rate: float, pipelined: bool,
) -> float:  # fmt: skip
    """Each core walks a tile of queries (backward: of keys) along the other axis."""
    chip, tile = device.chip, ATTENTION_TILE
    cores = max(floor(device.cores), 1)
    width = ceil(width / HEAD_STEP) * HEAD_STEP
    kept, walked = (keys, queries) if backward else (queries, keys)
    units, full = ceil(kept / tile) * heads, ceil(walked / tile) * tile
    waves = ceil(units / cores)
    mean, walk = full, waves * full
    if causal:
        mean = full - max(walked - tile, 0.0) / 2.0
        walk = min(walk, max(units / cores * mean + full / 2.0, full))
    scores = walk * tile
    products, operations = (5.0, 6.0) if backward else (2.0, 4.0)
    matrix = scores * products * width / (device.core_macs * rate)
    softmax = scores / chip.exponentials_per_core + units * mean * tile * operations / chip.vector_lanes
    if backward:
        softmax += scores * (8.0 / LOCAL_FEED + 4.0 * width / (tile * FEED))
    share = _hidden(backward, pipelined)
    if pipelined:
        share += (1.0 - share) * (chip.tiles_per_core - 1.0)
    seconds = (matrix + softmax - share * min(matrix, softmax) + waves * LATENCY) / chip.clock
    if pipelined:
        return seconds
    return seconds + kept * heads * width * (8.0 if backward else 4.0) / device.peak_hbm


def _systolic_attention(
    device: Device, queries: float, keys: float, heads: float, width: float, causal: bool, backward: bool,
    rate: float, pipelined: bool,
) -> float:  # fmt: skip
    """The products one after another on the arrays, the softmax on the lanes beside them."""
    chip = device.chip

    def seconds(m: float, n: float, k: float) -> float:
        return systolic_cycles(chip, m, n, k, heads)[0] / (chip.clock * rate)

    matrix = seconds(queries, keys, width) + seconds(queries, width, keys)
    if backward:
        matrix += seconds(queries, keys, width) + 2.0 * seconds(keys, width, queries)
    walked = keys
    if causal:
        walked = keys - max(keys - chip.array_rows, 0.0) / 2.0
        matrix *= walked / keys
    softmax = heads * queries * walked * (EXPONENTIAL + (6.0 if backward else 4.0)) / device.lanes
    return matrix + softmax - _hidden(backward, pipelined) * min(matrix, softmax)
