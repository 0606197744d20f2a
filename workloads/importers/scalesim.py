"""A SCALE-Sim topology CSV as a network: its convolutions or matrix products, one after the other.

Two formats, told apart by their number of columns (names in the first line do not matter):

    Layer name, IFMAP Height, IFMAP Width, Filter Height, Filter Width, Channels, Num Filter, Strides
    Layer, M, N, K                                  an (M, K) by (K, N) product

A file has layers and nothing between them: no padding (sizes include it), no pooling, no sums, no activations.  Layers
are taken as a chain, so that all but the first pass a gradient on.  Multiply-adds equal SCALE-Sim's.
Source: https://github.com/scalesim-project/scale-sim-v2, README and topologies/.
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from pathlib import Path

from workloads.graph import Graph, Shape, Value
from workloads.graph_network import GraphNetwork
from workloads.importers.imported import Imported
from workloads.importers.network_operators import Counted
from workloads.importers.reading import LARGEST_SIZE, Fault, FileError, file_text, shown
from workloads.layers.convolution import Conv
from workloads.layers.dense import Linear

#: Layers of one file.
MOST_LAYERS = 2_000
#: Columns of the two formats, after the name of the layer.
CONVOLUTION = ("IFMAP height", "IFMAP width", "filter height", "filter width", "channels", "num filter", "strides")
PRODUCT = ("M", "N", "K")


@dataclass(frozen=True)
class Layer:
    """A row: its name and its numbers."""

    name: str
    sizes: tuple[int, ...]


@dataclass(frozen=True)
class Chain:
    """Builds the graph of the layers of a file; equal files are equal networks."""

    name: str
    layers: tuple[Layer, ...]

    def __call__(self, sequence: int) -> Graph:
        """The layers in their order; what lies between two of them costs nothing."""
        graph = Graph(self.name)
        add: Callable[[Graph, Value | None, Layer], Value] = (
            _convolution if len(self.layers[0].sizes) == len(CONVOLUTION) else _product
        )
        last: Value | None = None
        for number, layer in enumerate(self.layers):
            with graph.cell(f"{number} {layer.name}"):
                last = add(graph, last, layer)
        return graph


def load(path: str | Path) -> Imported:
    """The network of a topology file."""
    return read(file_text(path, what="a SCALE-Sim topology CSV"), Path(path).stem, str(path))


def read(text: str, name: str = "topology", path: str = "") -> Imported:
    """The network of a topology; FileError names every cell that is wrong, by line and column."""
    faults: list[Fault] = []
    layers, notes = _rows(text, faults, path)
    if not layers and not faults:
        faults.append(Fault("", "no layer", "at least one line under the headings"))
    if faults:
        raise FileError(path, faults)
    notes = ["layers form a chain; padding, pooling, sums and activations are not in the file", *notes]
    source = "; ".join(["SCALE-Sim topology", *notes])
    return Imported(GraphNetwork(name, Chain(name, tuple(layers)), 1, "image", source), 1, tuple(notes))


def _rows(text: str, faults: list[Fault], path: str) -> tuple[list[Layer], list[str]]:
    """Layers of a text, and what of it is not read."""
    layers: list[Layer] = []
    beyond: set[str] = set()
    columns: tuple[str, ...] = ()
    reader = csv.reader(text.splitlines(), skipinitialspace=True)
    heading: list[str] = []
    try:
        for row in reader:
            cells = [cell.strip() for cell in row]
            while cells and not cells[-1]:
                cells.pop()
            if not cells:
                continue
            if not heading:
                heading = cells
                columns = _columns(cells, reader.line_num, faults)
                continue
            if not columns:
                break
            layers += _layer(cells, columns, reader.line_num, faults)
            beyond.update(cell for cell in cells[len(columns) + 1 :] if cell not in ("", "1:1"))
            if len(layers) > MOST_LAYERS or len(faults) > 50:
                faults.append(Fault("", f"more than {MOST_LAYERS} layers", f"at most {MOST_LAYERS}"))
                break
    except csv.Error as error:
        faults.append(Fault("", f"no valid CSV ({error})", "commas between cells", line=reader.line_num))
    notes = [f"columns after {columns[-1]} are not read: {', '.join(sorted(beyond)[:5])}"] if beyond else []
    return layers, notes


def _columns(heading: list[str], line: int, faults: list[Fault]) -> tuple[str, ...]:
    """Which format the first line announces."""
    known = {len(CONVOLUTION) + 1: CONVOLUTION, len(PRODUCT) + 1: PRODUCT}
    if all(_number(cell) is not None for cell in heading[1:]) and len(heading) > 1:
        faults.append(Fault("", "numbers in the first line", "headings: Layer name, ...", line=line))
    if len(heading) > len(CONVOLUTION) + 1:
        return CONVOLUTION
    if len(heading) == len(PRODUCT) + 2:
        return PRODUCT
    if len(heading) not in known:
        allowed = f"8 columns (Layer name, {', '.join(CONVOLUTION)}) or 4 (Layer, M, N, K)"
        faults.append(Fault("", f"{len(heading)} columns", allowed, line=line))
        return ()
    return known[len(heading)]


def _layer(cells: list[str], columns: tuple[str, ...], line: int, faults: list[Fault]) -> list[Layer]:
    """A row as a layer; nothing where it is wrong."""
    if len(cells) < len(columns) + 1:
        allowed = f"{len(columns) + 1}: Layer name, {', '.join(columns)}"
        faults.append(Fault("", f"{len(cells)} cells", allowed, line=line))
        return []
    before = len(faults)
    sizes = []
    for name, cell in zip(columns, cells[1:], strict=False):
        number = _number(cell)
        if number is None or not 1 <= number <= LARGEST_SIZE:
            faults.append(Fault(name, shown(cell), "a whole number >= 1, at most 1e9", line=line))
        sizes.append(number or 1)
    if len(faults) == before and columns == CONVOLUTION:
        for axis, at in (("height", 0), ("width", 1)):
            if sizes[at + 2] > sizes[at]:
                found = f"{sizes[at + 2]} on an IFMAP of {sizes[at]}"
                faults.append(Fault(f"filter {axis}", found, "no larger than it", line=line))
    return [Layer(cells[0][:100], tuple(sizes))] if len(faults) == before else []


def _number(cell: str) -> int | None:
    return int(cell) if cell.isascii() and cell.isdecimal() and len(cell) <= 18 else None


def _from(graph: Graph, last: Value | None, shape: Shape) -> Value:
    """The input of a layer: data for the first, for others the result before it in the shape that the layer wants."""
    if last is None:
        return graph.input(shape)
    same = last.shape[0] == shape[0]
    return graph.add(Counted(shape, mixing="channels" if same else "whole"), last, name="between layers")


def _convolution(graph: Graph, last: Value | None, layer: Layer) -> Value:
    """Results a side = ceil((input - filter) / stride) + 1, as SCALE-Sim rounds."""
    height, width, *kernel, channels, filters, stride = layer.sizes
    reached = tuple(
        -(-(size - taps) // stride) * stride + taps for size, taps in zip((height, width), kernel, strict=True)
    )
    x = _from(graph, last, (channels, *reached))
    return graph.add(Conv(filters, tuple(kernel), stride, bias=False), x, name=layer.name)


def _product(graph: Graph, last: Value | None, layer: Layer) -> Value:
    """Rows times a matrix of weights."""
    rows, columns, inner = layer.sizes
    return graph.add(Linear(columns, bias=False), _from(graph, last, (rows, inner)), name=layer.name)


def multiply_adds(network: GraphNetwork) -> int:
    """Multiply-adds of all layers, by hand from the columns: an oracle for tests and people."""
    assert isinstance(network.build, Chain)
    total = 0
    for layer in network.build.layers:
        if len(layer.sizes) == len(PRODUCT):
            total += prod(layer.sizes)
            continue
        height, width, rows, columns, channels, filters, stride = layer.sizes
        positions = (-(-(height - rows) // stride) + 1) * (-(-(width - columns) // stride) + 1)
        total += positions * rows * columns * channels * filters
    return total
