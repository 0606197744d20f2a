"""ONNX models as networks: `load(path)`; which operators are read: `coverage()`.

Nothing but sizes is taken from the file: a model whose weights were stripped, or lie in files that are not there, is as
good.  Theory and limits: docs/importers_onnx.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from workloads.graph import Shape
from workloads.graph_network import GraphNetwork
from workloads.importers.onnx_file import checked, read
from workloads.importers.onnx_model import FLOATING, Declared, OnnxModel
from workloads.importers.onnx_operators import COPIES, COSTS, MADE, REDUCTIONS, SEVERAL, UNARY, VIEWS, WHOLE, supported
from workloads.importers.tracing import Traced, dividing
from workloads.importers.walk import Walk, without_sequences

#: Operators that are named one by one when a model has others.
SHOWN = 20
#: Tokens of the graph that is made to see whether a model of any length can be read.
TRIAL = 128
#: Words in the name of an open dimension that say it counts tokens or samples.
SEQUENCE_WORDS, BATCH_WORDS = ("seq", "token", "length", "time"), ("batch", "bs", "n", "b")


def load(
    path: str | Path, dimensions: Mapping[str, int] | None = None, *, frozen: Sequence[str] = (), loss: bool = True
) -> GraphNetwork:
    """The network in an ONNX file.

    dimensions   sizes of dimensions that the file leaves open, by name ("sequence" stands for the one that counts
                 tokens).  The batch is one sample; the number of tokens may stay open: a network of any length
    frozen       patterns of names of tensors that are not trained (a fixed table of positions)
    loss         softmax and cross-entropy of the first result where a linear layer makes it; the file has no loss
    """
    return network(read(path), Path(path).stem, dimensions, frozen=frozen, loss=loss)


def network(
    model: OnnxModel, name: str, dimensions: Mapping[str, int] | None = None, *, frozen: Sequence[str] = (),
    loss: bool = True,
) -> GraphNetwork:  # fmt: skip
    """The network of a model that was read."""
    model = replace(model, nodes=without_sequences(model))
    problems = _unsupported(model)
    build = OnnxBuild(model, name, tuple(sorted((dimensions or {}).items())), tuple(frozen), loss)
    problems += build.missing()
    if problems:
        raise ValueError(f"{name}: " + "; ".join(problems))
    build.check()
    heads = sorted(number for number in build(build.trial).heads if number > 1)  # an error now, not in a search
    return GraphNetwork(
        name, build, sequence=build.sequence, sample=build.sample,
        source=f"ONNX file, {model.producer or 'no producer'}", tensor_divides=dividing(heads),
    )  # fmt: skip


@dataclass(frozen=True)
class Summary:
    """What an import found.

    parameters   that are trained;   stored   numbers of all tensors of real numbers that the file declares
    operators    how many nodes of each kind
    """

    opset: int
    parameters: int
    stored: int
    macs: int
    operators: dict[str, int]


def summary(path: str | Path, dimensions: Mapping[str, int] | None = None, *, frozen: Sequence[str] = ()) -> Summary:
    """Counts of a file."""
    model = read(path)
    found = network(model, Path(path).stem, dimensions, frozen=frozen)
    graph = found.graph(getattr(found.build, "trial", found.sequence))
    operators: dict[str, int] = {}
    for node in model.nodes:
        operators[node.op] = operators.get(node.op, 0) + 1
    stored = sum(tensor.elements for tensor in model.stored.values() if tensor.floating)
    return Summary(model.opset, graph.parameters, stored, graph.macs, dict(sorted(operators.items())))


def _unsupported(model: OnnxModel) -> list[str]:
    """One sentence with every kind of node that is not read."""
    known = supported()
    found: dict[str, list[str]] = {}
    for node in model.nodes:
        if node.domain or node.op not in known:
            found.setdefault(f"{node.domain}::{node.op}" if node.domain else node.op, []).append(node.name)
    if not found:
        return []
    listed = [f"{op} ({len(names)}, first {names[0]!r})" for op, names in sorted(found.items())]
    more = f" and {len(listed) - SHOWN} other kinds" if len(listed) > SHOWN else ""
    return [f"operators that cannot be read: {', '.join(listed[:SHOWN])}{more}"]


@dataclass(frozen=True)
class OnnxBuild:
    """Makes the graph of a model for samples of so many tokens."""

    model: OnnxModel = field(compare=False, repr=False)
    name: str
    dimensions: tuple[tuple[str, int], ...]
    frozen: tuple[str, ...] = ()
    loss: bool = True
    digest: str = ""
    made: dict[int, Traced] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        stored = [(one.name, one.shape, one.type, one.known) for one in self.model.stored.values()]
        content = repr((self.model.nodes, self.model.inputs, self.model.outputs, stored))
        object.__setattr__(self, "digest", sha256(content.encode()).hexdigest())

    def __getstate__(self) -> dict[str, Any]:
        """What goes to other processes: the graph is made again there."""
        return {**self.__dict__, "made": {}}

    def __call__(self, sequence: int) -> Traced:
        """The graph; a model of a fixed length has no other."""
        if self.sample == "sequence" and not self._open() and sequence != self.sequence:
            raise ValueError(
                f"{self.name}: sequence: found {sequence}, allowed: {self.sequence} (exported for that length)"
            )
        if sequence not in self.made:
            self.made.clear()  # one is enough: a network is asked for one length again and again
            self.made[sequence] = self.graph(sequence)
        return self.made[sequence]

    @property
    def data(self) -> list[Declared]:
        """Inputs that are no weights (files of early versions list weights among inputs)."""
        return [one for one in self.model.inputs if one.name not in self.model.stored]

    @property
    def sample(self) -> str:
        """What a sample is called, by its first input."""
        first = self.data[0]
        if first.type in FLOATING and len(first.shape or ()) in (4, 5):
            return "image"
        return "row" if len(first.shape or ()) == 2 and first.type in FLOATING else "sequence"

    @property
    def sequence(self) -> int:
        """Tokens of a sample; 1 for images and rows, and where the number is open."""
        if self.sample != "sequence" or self._is_open():
            return 1
        shape = self._sizes(self.data[0], None)
        return max(shape[:2], default=1)

    @property
    def trial(self) -> int:
        """Tokens of the graph that shows whether the model can be read."""
        return TRIAL if self._is_open() else self.sequence

    def missing(self) -> list[str]:
        """Sentences on what must be known of its inputs."""
        if not self.data:
            return ["found no input that is data"]
        wrong = [f"input {one.name!r} has no shape" for one in self.data if one.shape is None]
        wrong += [f"dimension {key}: found {size!r}, allowed: a whole number >= 1" for key, size in self.dimensions
                  if isinstance(size, bool) or not isinstance(size, int) or size < 1]  # fmt: skip
        open_ = dict.fromkeys(
            self._label(one, axis) for one in self.data for axis, size in enumerate(one.shape or ())
            if self._size(one, axis, TRIAL) == 0
        )  # fmt: skip
        if open_:
            wrong.append(f"dimensions that the file leaves open: {', '.join(open_)}: give each, such as "
                         f"dimensions={{{next(iter(open_))!r}: 128}}")  # fmt: skip
        known = {self._label(one, axis) for one in self.data for axis, size in enumerate(one.shape or ())
                 if isinstance(size, str)}  # fmt: skip
        unused = [key for key, _ in self.dimensions if key not in known and key != "sequence"]
        if unused:
            allowed = ", ".join(sorted(known)) or "none is open"
            wrong.append(f"dimensions: found {', '.join(unused)}, allowed: {allowed}")
        return wrong

    def check(self) -> None:
        """Refuses sizes that no tensor has, with the name of the model."""
        try:
            for one in self.data:
                self._sizes(one, self.trial if self.sample == "sequence" else None)
        except ValueError as error:
            raise ValueError(f"{self.name}: {error}") from None

    def _label(self, one: Declared, axis: int) -> str:
        size = (one.shape or ())[axis]
        return size if isinstance(size, str) and size else f"{one.name}.{axis}"

    def _open(self) -> bool:
        """Whether the number of tokens is left open."""
        return any(isinstance(size, str) and self._counts_tokens(self._label(one, axis))
                   for one in self.data for axis, size in enumerate(one.shape or ()))  # fmt: skip

    def _is_open(self) -> bool:
        """Whether the number of tokens is open, and was not given."""
        given = {key for key, _ in self.dimensions}
        labels = {self._label(one, axis) for one in self.data for axis, size in enumerate(one.shape or ())
                  if isinstance(size, str) and self._counts_tokens(self._label(one, axis))}  # fmt: skip
        return self.sample == "sequence" and bool(labels) and not given & (labels | {"sequence"})

    def _counts_tokens(self, label: str) -> bool:
        if any(word in label.lower() for word in SEQUENCE_WORDS):
            return True
        open_ = {self._label(one, axis) for one in self.data for axis, size in enumerate(one.shape or ())
                 if isinstance(size, str) and axis > 0}  # fmt: skip
        return self.sample == "sequence" and open_ == {label}

    def _size(self, one: Declared, axis: int, sequence: int | None) -> int:
        """Size of an axis of an input, 0 where it is not known."""
        size = (one.shape or ())[axis]
        image = len(one.shape or ()) in (4, 5) and one.type in FLOATING
        if isinstance(size, int):
            return 1 if image and axis == 0 else size
        label, given = self._label(one, axis), dict(self.dimensions)
        tokens = self._counts_tokens(label)
        if tokens and sequence is not None:
            return sequence
        if label in given:
            return given[label]
        if tokens:
            return given.get("sequence", 0)
        return 1 if axis == 0 or label.lower() in BATCH_WORDS or "batch" in label.lower() else 0

    def _sizes(self, one: Declared, sequence: int | None) -> Shape:
        sizes = tuple(self._size(one, axis, sequence) for axis in range(len(one.shape or ())))
        if any(size < 1 for size in sizes):
            raise ValueError(f"input {one.name!r}: found sizes {sizes}, allowed: numbers >= 1")
        return checked(sizes, one.name)

    def graph(self, sequence: int) -> Traced:
        """The graph for samples of so many tokens."""
        tokens = sequence if self.sample == "sequence" else None
        try:
            shapes = {one.name: self._sizes(one, tokens) for one in self.data}
            return Walk(self.model, self.name, shapes, frozen=self.frozen).run(self.loss)
        except ValueError as error:
            raise ValueError(f"{self.name}: {error}") from None


def coverage() -> str:
    """The operators that are read, as a table of docs/importers_onnx.md."""
    groups = (
        ("matrix products", ("Attention", "Conv", "ConvTranspose", "Einsum", "GRU", "Gemm", "LSTM", "MatMul", "RNN")),
        ("pooling and norms", tuple(op for op in COSTS if op.endswith(("Pool", "Normalization")) or op == "LRN")),
        ("element-wise, one input", tuple(UNARY)),
        ("element-wise, several inputs", tuple(SEVERAL)),
        ("reductions", (*REDUCTIONS, "Softmax", "LogSoftmax", "Hardmax")),
        ("copies", (*COPIES, "Resize", "Upsample", "Gather", "GatherElements", "GatherND", "ScatterElements",
                    "ScatterND")),
        ("views: no work", (*(op for op in VIEWS if op not in ("Shape", "Size")), "Dropout")),
        ("shapes, whole numbers, truth values: no work", (*WHOLE, *MADE)),
    )  # fmt: skip
    rows = [f"| {title} | {', '.join(sorted(set(ops)))} |" for title, ops in groups]
    return "\n".join(["| what | operators of the standard domain |", "|---|---|", *rows])


__all__ = ["OnnxBuild", "Summary", "coverage", "load", "network", "summary"]
