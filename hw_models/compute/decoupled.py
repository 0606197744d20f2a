"""How many cycles a loop nest takes on an array whose loads, products and stores run decoupled behind a cache.

Not here: which loop nest is best (memory/tiling.py prices tilings by their bytes); arrays that are always fed
(systolic.py).  Theory: docs/models/systolic.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["DecoupledArray", "LoopNest", "execute_cycles", "load_cycles", "nest_cycles", "re_read_misses",
           "store_cycles"]  # fmt: skip


@dataclass(frozen=True)
class DecoupledArray:
    """A weight-stationary array with a scratchpad, accumulators, and a cache in front of DRAM.

    The defaults are the open generator Gemmini as published RTL runs of it were made [Genc et al. 2021, DAC,
    arXiv 1911.09925; RTL cycles: Hong et al. 2023, MICRO, DOSA]: 16 x 16 cells, int8 operands.
    size             rows and columns of the array, and bytes of a scratchpad row
    bus              bytes of a beat, a cycle each                               [B]
    request          longest request, one line of the cache                     [B]
    cache, ways      capacity of the cache and its associativity                [B]     [defaults of Chipyard]
    issue            cycles between two products (preload and compute) that the controller issues
    miss             cycles between two requests that miss: latency over requests in flight
    tile_overhead    cycles a tile spends on configuration and on the first latency
    serial_share     share of the shorter of load, product and store that the longest does not hide, because they
                     share one queue
    The last four were tuned to half of the published runs (7.2, 9.1, 255 and 0.31, rounded).
    """

    size: Any = 16
    bus: Any = 16
    request: Any = 64
    cache: Any = 512 * 1024
    ways: Any = 8
    issue: Any = 7.2
    miss: Any = 9.1
    tile_overhead: Any = 255.0
    serial_share: Any = 0.31


@dataclass(frozen=True)
class LoopNest:
    """One tile of a convolution or product on chip, and how often the outer loops repeat it.

    height, width    output pixels of a tile; a product has width = rows of the tile and height 1
    inputs, outputs  input and output channels of a tile (the product's K and N)
    kernel_height, kernel_width, stride    of the convolution; a product has 1, 1, 1
    pixel_tiles, output_tiles              outer loops over output pixels and output channels
    reduction_tiles  outer loops over input channels and kernel positions: outputs are stored after the last
    all_inputs       input words in all, all pixels and channels; 0: they are in the cache already
    Words are bytes (int8).  All broadcast.
    """

    height: Any
    width: Any
    inputs: Any
    outputs: Any
    kernel_height: Any = 1
    kernel_width: Any = 1
    stride: Any = 1
    pixel_tiles: Any = 1
    output_tiles: Any = 1
    reduction_tiles: Any = 1
    all_inputs: Any = 0

    @property
    def tiles(self) -> Any:
        """Tiles of the whole nest."""
        return np.asarray(self.pixel_tiles, dtype=float) * self.output_tiles * self.reduction_tiles

    @property
    def pixels_read(self) -> Any:
        """Input pixels of a tile, with the halo of the kernel."""
        high = (np.asarray(self.height, dtype=float) - 1.0) * self.stride + self.kernel_height
        return high * ((self.width - 1.0) * self.stride + self.kernel_width)

    @property
    def weight_rows(self) -> Any:
        """Rows of weights of a tile: one a channel and kernel position, each with all output channels of the tile."""
        return np.asarray(self.inputs, dtype=float) * self.kernel_height * self.kernel_width


def nest_cycles(array: DecoupledArray, nest: LoopNest) -> Any:
    """Cycles of a loop nest: tiles one behind the other, each as long as the slowest of load, products and store.

    t = n (max + s (load + products + store - max) + overhead) + (1 - s) (load + products + store - max)
    n tiles; s serial share.  The last term is the first load and the last store, which nothing hides.
    Valid for int8, output channels contiguous in memory.  Ignores DRAM banks (rows a power of two apart miss up to
    twice as dearly), requests shorter than a beat, outputs that share a cache line, and the order of outer loops.
    """
    load, store, products = load_cycles(array, nest), store_cycles(array, nest), execute_cycles(array, nest)
    longest = np.maximum(np.maximum(load, products), store)
    hidden = load + products + store - longest
    each = longest + array.serial_share * hidden + array.tile_overhead
    return nest.tiles * each + (1.0 - array.serial_share) * hidden


def execute_cycles(array: DecoupledArray, nest: LoopNest) -> Any:
    """Cycles of the products of one tile: max(pixels, issue x instructions) for each pair of channel blocks.

    An instruction multiplies up to `size` pixels of one output line with a block of size x size weights, a pixel a
    cycle.  Lines that are no multiple of `size` leave short instructions, which the controller's rate limits.
    """
    pixels = np.asarray(nest.height, dtype=float) * nest.width
    instructions = nest.height * np.ceil(np.asarray(nest.width, dtype=float) / array.size)
    positions = np.asarray(nest.kernel_height, dtype=float) * nest.kernel_width
    blocks = positions * np.ceil(np.asarray(nest.inputs) / array.size) * np.ceil(np.asarray(nest.outputs) / array.size)
    return blocks * np.maximum(pixels, array.issue * instructions)


def load_cycles(array: DecoupledArray, nest: LoopNest) -> Any:
    """Cycles to bring one tile's inputs and weights to the scratchpad, averaged over tiles.

    A request that hits takes its beats, one that misses at least `miss`.  Every tile is loaded anew.  What misses:
    each line once, and of the lines read again the share `re_read_misses` of the lines that meet in a set.
    The rows of a tile of weights lie a whole row of outputs apart, so that a power of two meets in few sets.
    """
    line = np.asarray(array.request, dtype=float)
    sets = array.cache / (line * array.ways)
    outputs = np.asarray(nest.outputs, dtype=float)
    pitch = outputs * nest.output_tiles / line
    requests_a = nest.pixels_read * np.ceil(np.asarray(nest.inputs, dtype=float) / line)
    requests_b = nest.weight_rows * np.ceil(outputs / line)
    others = (requests_a + np.asarray(nest.height) * nest.width * np.ceil(outputs / line)) / sets
    together = others + requests_b / sets
    strided = others + nest.weight_rows * _common_power(np.maximum(np.floor(pitch), 1.0), sets) / sets

    weights = nest.weight_rows * nest.reduction_tiles * pitch
    missed_a = _missed(nest.all_inputs / line, nest.tiles * requests_a, re_read_misses(together, array.ways))
    again = re_read_misses(np.maximum(strided, together), array.ways)
    missed_b = _missed(weights, nest.tiles * requests_b, again)
    beats_a = nest.pixels_read * np.ceil(np.asarray(nest.inputs, dtype=float) / array.bus)
    beats_b = nest.weight_rows * np.ceil(outputs / array.bus)
    return _requests(beats_a, requests_a, missed_a, array.miss) + _requests(beats_b, requests_b, missed_b, array.miss)


def store_cycles(array: DecoupledArray, nest: LoopNest) -> Any:
    """Cycles to store the outputs of one tile, a beat a cycle, averaged over the tiles of a reduction."""
    beats = np.asarray(nest.height, dtype=float) * nest.width * np.ceil(np.asarray(nest.outputs) / array.bus)
    return beats / nest.reduction_tiles


def re_read_misses(lines: Any, ways: Any) -> Any:
    """Share of lines that are gone when they are read again, `lines` of them meeting in a set in turn.

    m = 1 - ((w - 1/2) / lines)^2, 0 up to w - 1/2.
    With random replacement a line outlives m lines - evictions with probability (1 - 1/w)^(m lines), which is 1 - m;
    the closed form is within 0.06 of that root for w = 8.
    """
    fit = (np.asarray(ways) - 0.5) / np.maximum(lines, np.asarray(ways) - 0.5)
    return 1.0 - fit * fit


def _missed(distinct: Any, requests: Any, again: Any) -> Any:
    """Share of requests that miss: the first of each line, and the share `again` of the others."""
    first = np.minimum(distinct / requests, 1.0)
    return first + (1.0 - first) * again


def _requests(beats: Any, requests: Any, missed: Any, miss: Any) -> Any:
    return beats + missed * (np.maximum(requests * miss, beats) - beats)


def _common_power(stride: Any, sets: Any) -> Any:
    """Greatest common divisor of two whole numbers: rows `stride` lines apart use sets / gcd different sets."""
    return np.gcd(np.asarray(stride).astype(np.int64), np.asarray(sets).astype(np.int64)).astype(float)
