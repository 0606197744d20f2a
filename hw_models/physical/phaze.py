"""Area of the tensor-core and vector-core template of Phaze and WHAM at 22 nm, as published, and its design space.

Not here: HBM, links and NoC, which the template does not pay for, so that its areas do not compare with those of
other technologies. Constants: data/technology.csv (phaze22nm) and data/phaze22nm.csv. Theory: docs/models/phaze.md.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from hw_models.chip import Chip
from hw_models.tables import number, table
from hw_models.technology import Technology, technology

#: Name of the technology: the process of its chips, its rows in the technology table, its table of memories.
TEMPLATE = "phaze22nm"
#: Bytes of the units of size in the table of memories.
_BYTES = {"KiB": 2**10, "MiB": 2**20}
#: Ranges of the published space: cores of a kind, and width or depth of a core.
CORES, SIDES = (1, 2**12), (2, 2**8)
#: Multiply-adds or lanes for each KiB of a core's buffer.
_PER_KIB = 64


@cache
def memory_areas(memory: str) -> tuple[np.ndarray, np.ndarray]:
    """Sizes [B], ascending, and areas [m2] of the memories that exist: `core` buffers or the `global` buffer."""
    rows = [row for row in table(TEMPLATE) if row["memory"] == memory]
    sizes = np.array([float(number(row["size"])) * _BYTES[row["size_unit"]] for row in rows])
    areas = np.array([float(number(row["area"])) for row in rows])
    for column in (sizes, areas):
        column.setflags(write=False)
    return sizes, areas


def core_buffer(elements: Any) -> Any:
    """Buffer of one core [B], shape (N,): max(1, elements / 64) KiB for the multiply-adds or lanes it has."""
    return np.maximum(1.0, np.asarray(elements, dtype=float) / _PER_KIB) * _BYTES["KiB"]


def phaze_area(
    tensor_cores: Any, width: Any, depth: Any, *, vector_cores: Any, vector_width: Any, buffer_bytes: Any
) -> Any:
    """Area of a die of the template [m2], shape: broadcast.

    A = a_pe n w d + a_lane v x + L2(w d) n + L2(x) v + GLB(b)
    n tensor cores of w x d multiply-adds, v vector cores of x lanes, b global buffer [B]; a_pe, a_lane area of a
    multiply-add and of a lane [m2]; L2(e) area of a core's buffer of max(1, e / 64) KiB; GLB area of the buffer.
    Valid: whole n, v in 1..4096, whole w, d, x in 2..256, memories of the table, nothing in between is guessed:
    a single number out of these is a ValueError that names what exists, a column gives inf there (no die holds it).
    Ignores HBM, links, NoC, controllers, yield.        [Phaze, ICML 2024, recovered from its 29,360 designs]"""
    constants = technology(TEMPLATE)
    blocks = area_of_blocks(
        tensor_cores, width, depth, vector_cores=vector_cores, vector_width=vector_width, buffer_bytes=buffer_bytes,
        mac_area=constants.mac_area, lane_area=constants.vector_lane_area,
    )
    return blocks["arrays"] + blocks["vector"] + blocks["local_sram"] + blocks["shared_sram"]


def area_of_blocks(
    tensor_cores: Any, width: Any, depth: Any, *, vector_cores: Any, vector_width: Any, buffer_bytes: Any,
    mac_area: Any, lane_area: Any,
) -> dict[str, Any]:
    """The terms of `phaze_area` [m2] by block: arrays, vector, local_sram (all buffers of cores), shared_sram."""
    elements = np.asarray(width) * np.asarray(depth)
    asked = (
        ("tensor_cores", tensor_cores, CORES), ("width", width, SIDES), ("depth", depth, SIDES),
        ("vector_cores", vector_cores, CORES), ("vector_width", vector_width, SIDES),
    )
    memories = (
        ("width x depth / 64 (buffer of a tensor core)", core_buffer(elements), "core"),
        ("vector_width / 64 (buffer of a vector core)", core_buffer(vector_width), "core"),
        ("buffer_bytes", buffer_bytes, "global"),
    )
    ranges = [_in_range(value, bounds) for _, value, bounds in asked]
    found = [_memory_area(size, memory) for _, size, memory in memories]
    _require(
        [(name, value, f"a whole number from {low} to {high}") for name, value, (low, high) in asked]
        + [(name, size, _sizes(memory)) for name, size, memory in memories],
        [*ranges, *(np.isfinite(area) for area in found)],
    )
    in_space: Any = True
    for good in ranges:
        in_space = in_space & good
    tensor_buffer, vector_buffer, buffer = found
    return {
        "arrays": np.where(in_space, tensor_cores * elements * mac_area, np.inf),
        "vector": vector_cores * np.asarray(vector_width) * lane_area,
        "local_sram": tensor_buffer * tensor_cores + vector_buffer * vector_cores,
        "shared_sram": buffer,
    }


def template_blocks(chip: Chip, constants: Technology) -> dict[str, Any]:
    """Blocks of the die of a systolic chip read as the template [m2], a scalar or (N,) each.

    array_count tensor cores of width array_columns and depth array_rows; vector_lanes in vector cores as wide as
    the arrays; shared_sram is the global buffer.  The cores' buffers follow from the arrays, not from local_sram.
    Lanes that fill no whole number of vector cores are out of the template, as in `phaze_area`.
    Spare cores, NoC, HBM, links and the rest of the die are free, as in the source."""
    if chip.compute != "systolic":
        raise ValueError(f"compute: found {chip.compute!r} with process {TEMPLATE}, allowed: systolic")
    constants.need("area", "mac_area", "vector_lane_area")
    return area_of_blocks(
        chip.array_count, chip.array_columns, chip.array_rows,
        vector_cores=chip.vector_lanes / np.asarray(chip.array_columns, dtype=float),
        vector_width=chip.array_columns, buffer_bytes=chip.shared_sram,
        mac_area=constants.mac_area, lane_area=constants.vector_lane_area,
    )


def is_template(constants: Technology) -> bool:
    """Whether a technology is the template, with any memory generation beside it."""
    return constants.name.partition("+")[0] == TEMPLATE


def largest_area() -> float:
    """Area budget of the published space [m2]: 8 tensor cores of 128 x 128, 2 vector cores of 128, 128 MiB."""
    return float(phaze_area(8, 128, 128, vector_cores=2, vector_width=128, buffer_bytes=128 * _BYTES["MiB"]))


def phaze_space() -> dict[str, np.ndarray]:
    """The published space, keyword arguments of `phaze_area` as columns (75712,): powers of two of every size.

    1..4096 tensor cores of 2..256 x 2..256, 1..4096 vector cores as wide as the tensor cores, 2..128 MiB."""
    cores, sides = _powers(*CORES), _powers(*SIDES)
    axes = np.meshgrid(cores, sides, sides, cores, memory_areas("global")[0], indexing="ij")
    tensor_cores, width, depth, vector_cores, buffer_bytes = (axis.reshape(-1) for axis in axes)
    return {
        "tensor_cores": tensor_cores, "width": width, "depth": depth,
        "vector_cores": vector_cores, "vector_width": width, "buffer_bytes": buffer_bytes,
    }


def is_valid(area: Any, tensor_cores: Any, vector_cores: Any, *, least_share: float = 0.3) -> Any:
    """Whether the source keeps a design of its space: least_share A_max <= A <= A_max, shape: broadcast.

    A_max is `largest_area`.  A single tensor core or a single vector core waives the lower bound.
    least_share 0.3 is the pruning of the source [Phaze, ICML 2024]: it saves search time, it is no law."""
    budget = largest_area()
    waived = np.equal(tensor_cores, CORES[0]) | np.equal(vector_cores, CORES[0])
    return (area <= budget) & (waived | (area >= least_share * budget))


def _powers(low: int, high: int) -> np.ndarray:
    return np.array([2.0**i for i in range(high.bit_length()) if low <= 2**i <= high])


def _in_range(value: Any, bounds: tuple[int, int]) -> Any:
    column = np.asarray(value, dtype=float)
    return (column >= bounds[0]) & (column <= bounds[1]) & (column == np.floor(column))


def _memory_area(size: Any, memory: str) -> Any:
    """Area [m2] of a memory of exactly `size` bytes; inf for a size that the table lacks."""
    sizes, areas = memory_areas(memory)
    column = np.asarray(size, dtype=float)
    at = np.minimum(np.searchsorted(sizes, column), len(sizes) - 1)
    return np.where(sizes[at] == column, areas[at], np.inf)


def _sizes(memory: str) -> str:
    """The sizes that exist, in the unit of the table."""
    rows = [row for row in table(TEMPLATE) if row["memory"] == memory]
    unit = rows[0]["size_unit"]
    return f"{', '.join(row['size'] for row in rows)} {unit}"


def _require(asked: list[tuple[str, Any, str]], good: list[Any]) -> None:
    """Raise ValueError that names every single number out of the template; a column is left to its infinities."""
    bad = [
        f"{name}: found {_shown(value, allowed)}, allowed: {allowed}"
        for (name, value, allowed), fine in zip(asked, good, strict=True)
        if np.ndim(fine) == 0 and not fine
    ]
    if bad:
        raise ValueError(f"{TEMPLATE}: " + "; ".join(bad))


def _shown(value: Any, allowed: str) -> str:
    """A number in the unit of what is allowed."""
    unit = allowed.rpartition(" ")[2]
    return f"{float(value) / _BYTES[unit]:g} {unit}" if unit in _BYTES else f"{float(value):g}"
