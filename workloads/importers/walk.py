"""From nodes with ONNX's names to a graph: sizes, what is fused, what is a constant or a view, and what is work.

Both importers of foreign graphs end here: ONNX files, and torch modules after their operators got ONNX's names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from math import prod
from typing import Any

from workloads.graph import Counts, Operator, Shape
from workloads.importers import costs
from workloads.importers.native import candidate
from workloads.importers.onnx_file import checked
from workloads.importers.onnx_folding import folded
from workloads.importers.onnx_fusion import Fusion, Fusions
from workloads.importers.onnx_model import FLOATING, OnnxModel, OnnxNode, Stored
from workloads.importers.onnx_operators import (
    COSTS,
    MADE,
    SEVERAL,
    UNARY,
    WHOLE,
    attention_core,
    is_view,
    matrix_product,
)  # fmt: skip
from workloads.importers.onnx_shapes import results
from workloads.importers.tracing import Parameter, Tensor, Traced, Tracer, first_value, made_of
from workloads.layers.losses import CrossEntropy

#: What a malformed node makes Python raise.
MALFORMED = (ValueError, TypeError, IndexError, KeyError, AttributeError, OverflowError, ZeroDivisionError)
MOST_NODES = 50_000
#: Tensors of a list.
MOST_PARTS = 1024
#: Operators whose kernels take the elements of their inputs in any order.
ANY_ORDER = frozenset(("MatMul", "Gemm", "Attention", "Concat", *UNARY, *SEVERAL))
#: Operators through which a broadcast that nothing wrote out stays one (keys that heads share).
KEEP_COPIES = ("Expand", "Reshape", "Transpose", "Unsqueeze", "Squeeze", "Identity", "Cast", "Mul")


class Walk:
    """One walk over the nodes for sizes, one for what is fused, one that fills the graph.

    inputs   shapes of the data;  frozen   patterns of names that are not trained
    sizes    tensors by name where their sizes are known already
    """

    def __init__(
        self, model: OnnxModel, name: str, inputs: Mapping[str, Shape], *, frozen: Sequence[str] = (),
        sizes: Mapping[str, Tensor] | None = None,
    ) -> None:  # fmt: skip
        if len(model.nodes) > MOST_NODES:
            raise ValueError(f"found {len(model.nodes)} nodes, allowed: at most {MOST_NODES}")
        self.model, self.inputs, self.frozen = model, inputs, frozen
        self.tracer = Tracer(name)
        self.types = {one.name: one.type in FLOATING for one in model.inputs}
        self.given = sizes
        self.sizes: dict[str, Tensor] = {}
        self.live: set[str] = set()
        self.tensors: dict[str, Tensor] = {"": Tensor(())}

    def run(self, loss: bool) -> Traced:
        """The graph."""
        if self.given is None:
            self._infer()
        else:
            self._take(self.given)
        fusions = Fusions(self.model, self.sizes, frozenset(self.live)).all()
        deferred = {member for last, fusion in fusions.items() for member in fusion.members if member != last}
        for name, shape in self.inputs.items():
            self.tensors[name] = self.tracer.data(name, shape, floating=self.types[name])
        for name, stored in self.model.stored.items():
            self.tensors[name] = self._stored(name, stored)
        for number, node in enumerate(self.model.nodes):
            self._guard(node, self._emit, node, number in deferred, fusions.get(number))
        if loss:
            self._loss()
        return self.tracer.graph

    def _guard(self, node: OnnxNode, run: Any, *arguments: Any) -> None:
        """Runs a step of a node: whatever is wrong with it becomes one sentence with its name."""
        try:
            run(*arguments)
        except MALFORMED as error:
            said = str(error) if isinstance(error, ValueError) else f"malformed ({type(error).__name__}: {error})"
        else:
            return
        raise ValueError(f"{node.op} {node.name!r}: {said}")

    # Sizes -------------------------------------------------------------------------------------------------------

    def _infer(self) -> None:
        """Shapes of all tensors, numbers of small ones, and which are made of data."""
        for name, shape in self.inputs.items():
            self.sizes[name] = Tensor(shape, self.types[name])
            self.live.add(name)
        for name, stored in self.model.stored.items():
            self.sizes[name] = Tensor(stored.shape, stored.floating, known=stored.known, causal=stored.causal)
        for node in self.model.nodes:
            self._guard(node, self._infer_node, node)

    def _take(self, sizes: Mapping[str, Tensor]) -> None:
        """Sizes that are known already."""
        self.sizes = dict(sizes)
        self.live = set(self.inputs)
        for node in self.model.nodes:
            inputs = [self.sizes[name] if name else None for name in node.inputs]
            if any(name in self.live for name in node.inputs):
                self.live.update(name for name in node.outputs if self.sizes[name].known is None)
            elif _causal(node, inputs, True):
                self.sizes |= {name: replace(self.sizes[name], causal=True) for name in node.outputs}
            if node.op in KEEP_COPIES:
                first = self.sizes[node.outputs[0]]
                self.sizes[node.outputs[0]] = replace(first, copies=_copies(node, inputs, first.shape))

    def _infer_node(self, node: OnnxNode) -> None:
        absent = [name for name in node.inputs if name and name not in self.sizes]
        if absent:
            raise ValueError(f"it reads {', '.join(map(repr, absent))}, which nothing before it makes")
        inputs = [self.sizes[name] if name else None for name in node.inputs]
        shapes = [checked(shape, name) for shape, name in zip(results(node, inputs), node.outputs, strict=False)]
        # a cast to the type of another tensor takes nothing else of it
        sources = () if node.op in ("Shape", "Size") else node.inputs[: 1 if node.op == "CastLike" else None]
        live = any(name in self.live for name in sources)
        for at, (name, shape) in enumerate(zip(node.outputs, shapes, strict=False)):
            if name in self.sizes:
                raise ValueError(f"it makes {name!r}, which there is already")
            number = folded(node, inputs, shape) if at == 0 else None
            if number is not None and number.shape != shape:
                number = number.reshape(shape) if number.size == prod(shape) else None
            self.sizes[name] = Tensor(
                shape, _floating(node, inputs, at), known=number, causal=_causal(node, inputs, not live),
                copies=_copies(node, inputs, shape),
            )  # fmt: skip
            if live and number is None:
                self.live.add(name)

    # Nodes -------------------------------------------------------------------------------------------------------

    def _stored(self, name: str, stored: Stored) -> Tensor:
        """A tensor of the file: trained if it holds real numbers."""
        trained = stored.floating and stored.trained and not any(fnmatchcase(name, pattern) for pattern in self.frozen)
        one = (Parameter(name, stored.elements),) if trained and stored.elements else ()
        return Tensor(stored.shape, stored.floating, parameters=one, known=stored.known, causal=stored.causal)

    def _emit(self, node: OnnxNode, deferred: bool, fusion: Fusion | None) -> None:
        """The results of a node: constants, views, or a node of the graph."""
        inputs = [self.tensors[name] if name else None for name in node.inputs]
        shown = [self.sizes[name] for name in node.outputs if name in self.sizes]
        if not any(name in self.live for name in node.outputs):
            parameters = _passed_on(node, inputs)
            made = [replace(one, parameters=parameters if one.floating else ()) for one in shown]
        elif deferred or not shown[0].floating or (fusion is None and is_view(node, inputs)):
            made = [replace(one, value=first_value(inputs)) for one in shown]
        elif shown[0].elements == 0:
            raise ValueError(f"found a result of shape {shown[0].shape}, allowed: sizes >= 1")
        else:
            made = self._add(node, inputs, shown, fusion)
        self.tensors |= dict(zip(node.outputs, made, strict=False))

    def _add(
        self, node: OnnxNode, inputs: list[Tensor | None], shown: list[Tensor], fusion: Fusion | None
    ) -> list[Tensor]:
        """A node of the graph."""
        if fusion is not None:
            counts, tensors, kind = self._fused(node, fusion, shown[0].shape)
        elif node.op == "Transpose" and self._is_free(node):
            return [replace(one, value=first_value(inputs)) for one in shown]
        else:
            counts, tensors = COSTS[node.op](node, inputs, [one.shape for one in shown])
            tensors = self._without_constants(node.op, tensors)
            kind = node.op
            if counts.attention is not None:
                self.tracer.graph.heads.add(counts.attention.heads)
        like = self._native(node, counts, tensors)
        value = self.tracer.add(kind, counts, tensors, name=_module(tensors) or node.name, like=like)
        return [replace(one, value=value) for one in shown]

    def _native(self, node: OnnxNode, counts: Counts, tensors: Sequence[Tensor]) -> Operator | None:
        """One of our own operators that it may be."""
        shapes = [self.sizes[name].shape for name in node.inputs if name]
        biased = any(one.name == "bias" for one in counts.passes)
        try:
            return candidate(node, counts, shapes, biased)
        except MALFORMED:
            return None

    def _without_constants(self, op: str, tensors: list[Tensor]) -> list[Tensor]:
        """Constants of element-wise operators that are no parameters: single numbers, masks, what raw data meets (its
        mean and deviation), and factors that differ along several axes (rotations)."""
        if op not in ("Add", "Sub", "Mul", "Div", "Pow", "Max", "Min", "Where", "Sum", "Mean", "Concat", "Mod"):
            return tensors
        learned = any(self.tracer.trains(one) for one in tensors if not one.constant) or op == "Concat"

        def fixed(one: Tensor) -> bool:
            if one.elements == 1 or one.causal or not learned:
                return True
            return op in ("Mul", "Div", "Where") and sum(size > 1 for size in one.shape) > 1

        return [replace(one, parameters=()) if one.constant and fixed(one) else one for one in tensors]

    def _is_free(self, node: OnnxNode, depth: int = 0) -> bool:
        """Whether a transposed tensor is only read by kernels that take elements in any order, or is written transposed
        by an attention; others (a change of shape, a norm, a convolution) make it a copy."""
        shape = self.sizes[node.inputs[0]].shape
        order = node.attributes.get("perm") or ()
        moved = [axis for axis in order if 0 <= axis < len(shape) and shape[axis] > 1]
        if order and moved == sorted(moved):  # only axes of size 1 change places
            return True
        readers = self.readers().get(node.outputs[0], ())
        maker = self.makers().get(node.inputs[0])
        if maker is not None and maker.op in ("Reshape", "Identity"):
            maker = self.makers().get(maker.inputs[0])
        if maker is not None and maker.op in ("MatMul", "Attention") and len(self.sizes[node.inputs[0]].shape) > 3:
            return True
        return all(
            other.op in ANY_ORDER or (depth < 6 and self._keeps_order(other) and self._is_free(other, depth + 1))
            for other in readers
        )

    def _keeps_order(self, node: OnnxNode) -> bool:
        """Whether a node is a view of a transposed tensor: a reshape is one if only axes of size 1 come and go."""
        if node.op == "Reshape":
            before, after = (self.sizes[name].shape for name in (node.inputs[0], node.outputs[0]))
            return [size for size in before if size > 1] == [size for size in after if size > 1]
        views = ("Transpose", "Identity", "Slice", "Split", "Unsqueeze", "Squeeze", "Expand", "Cast", "Gather")
        return node.op in views

    def readers(self) -> dict[str, list[OnnxNode]]:
        """Nodes that read each tensor."""
        if not hasattr(self, "_readers"):
            self._readers: dict[str, list[OnnxNode]] = {}
            for node in self.model.nodes:
                for name in node.inputs:
                    self._readers.setdefault(name, []).append(node)
        return self._readers

    def makers(self) -> dict[str, OnnxNode]:
        """The node that makes each tensor."""
        if not hasattr(self, "_makers"):
            self._makers = {name: node for node in self.model.nodes for name in node.outputs}
        return self._makers

    def _fused(self, node: OnnxNode, fusion: Fusion, shape: Shape) -> tuple[Any, list[Tensor], str]:
        """Counts of a group of nodes, what it reads, and its name."""
        tensors = [self.tensors[name] for name in fusion.inputs]
        if fusion.kind == "attention":
            scores = self.sizes[self.model.nodes[fusion.scores].outputs[0]].shape
            query, key, values, *rest = tensors
            heads = scores[-3] if len(scores) > 2 else 1
            self.tracer.graph.heads.add(heads)
            # a mask is the same for all heads, a bias that is trained differs
            biases = [one for one in rest if one.parameters and not one.causal and one.elements > 1
                      and len(one.shape) > 2 and heads > 1 and one.shape[-3] == heads]  # fmt: skip
            fed = [one for one in rest if one.value is not None and self.tracer.trains(one)]
            core = attention_core(query, key, values, (scores, shape), any(one.causal for one in rest))
            counts = costs.attention(shape, core, biased=bool(biases or fed))
            return counts, [query, key, values, *biases, *fed], "Attention"
        if fusion.kind == "bias":
            left, right, added = tensors
            product = matrix_product(left, right, shape)
            return replace(product, passes=(costs.bias(prod(shape)),)), tensors, "MatMul"
        if fusion.kind.endswith("norm"):
            tensors = [tensors[0], *(one for one in tensors[1:] if one.elements > 1)]
            return costs.normalised(fusion.kind, shape, rows=prod(shape[:-1])), tensors, fusion.kind
        return costs.activation(fusion.kind, shape), tensors, fusion.kind

    def _loss(self) -> None:
        """Softmax and cross-entropy of logits: a first result that a linear layer makes."""
        first = self.tensors.get(self.model.outputs[0]) if self.model.outputs else None
        if first is None or first.value is None or len(first.shape) < 2 or first.shape[-1] < 2:
            return
        made = self.tracer.graph.nodes[first.value.number].counts
        linear = made.mixing == "dense" and made.products and made.products[0].name == "linear"
        if linear and made.elements == first.elements:
            # rows of logits, whatever axes they have
            counts = CrossEntropy().counts((first.elements // first.shape[-1], first.shape[-1]))
            self.tracer.add("CrossEntropy", counts, [first], name="loss", like=CrossEntropy())


def _module(tensors: Sequence[Tensor]) -> str:
    """The module that an operator belongs to, by the path of its first parameter: layer1.0.conv1.weight."""
    names = [one.parameters[0].name for one in tensors if one.parameters]
    path, dot, _ = names[0].rpartition(".") if names else ("", "", "")
    return path if dot and "::" not in path and "/" not in path else ""


def _passed_on(node: OnnxNode, inputs: Sequence[Tensor | None]) -> tuple[Parameter, ...]:
    """Parameters that a tensor made of constants holds: tables of sines and comparisons hold none."""
    if node.op in ("Sin", "Cos") or node.op in WHOLE or node.op in MADE:
        return ()
    if node.op == "DequantizeLinear" and inputs and inputs[0] is not None:
        return inputs[0].parameters or (Parameter(node.inputs[0], inputs[0].elements),)
    return made_of([one for one in inputs if one is not None and one.floating])


def _floating(node: OnnxNode, inputs: Sequence[Tensor | None], at: int) -> bool:
    """Whether a result holds real numbers."""
    op = node.op
    if op in WHOLE or (at == 1 and op in ("TopK", "MaxPool", "Dropout")):
        return False
    if op == "Cast":
        return node.attributes.get("to", 1) in FLOATING
    if op in ("Constant", "ConstantOfShape"):
        stored = next((value for value in node.attributes.values() if isinstance(value, Stored)), None)
        return stored.floating if stored is not None else not {"value_int", "value_ints"} & set(node.attributes)
    if op in ("DequantizeLinear", "QuantizeLinear", "RandomNormal", "RandomUniform"):
        return True
    source = 1 if op == "Where" else 2 if op == "OneHot" else 0
    tensor = inputs[source] if source < len(inputs) else None
    return True if tensor is None else tensor.floating


def _causal(node: OnnxNode, inputs: Sequence[Tensor | None], constant: bool) -> bool:
    """Whether a result is a mask that hides later positions: made by Trilu, or by comparing rows with columns."""
    if not constant:
        return node.op in ("And", "Where", "Add") and any(one is not None and one.causal for one in inputs)
    if node.op == "Trilu":
        return True
    present = [one for one in inputs if one is not None]
    if node.op in ("Greater", "Less", "GreaterOrEqual", "LessOrEqual") and len(present) == 2:
        a, b = (one.shape[-2:] for one in present)
        if len(a) == len(b) == 2 and 1 in a and 1 in b and a != b:
            return True
    carries = ("Cast", "Where", "And", "Or", "Not", "Add", "Mul", "Sub", "Expand", "Reshape", "Unsqueeze", "Squeeze",
               "Slice", "Identity", "Concat", "Gather", "Min", "Max")  # fmt: skip
    return node.op in carries and any(one.causal for one in present)


def _copies(node: OnnxNode, inputs: Sequence[Tensor | None], shape: Shape) -> int:
    """How often a view shows each element of what it is a view of."""
    first = inputs[0] if inputs else None
    if first is None or node.op not in KEEP_COPIES:
        return 1
    if node.op == "Expand" and first.elements:
        return first.copies * (prod(shape) // first.elements)
    return first.copies if prod(shape) == first.elements else 1


def without_sequences(model: OnnxModel) -> tuple[OnnxNode, ...]:
    """Nodes with lists of tensors taken apart: SplitToSequence and SequenceAt become Split and Identity."""
    if not any(node.op == "SplitToSequence" for node in model.nodes):
        return model.nodes
    numbers = {name: stored.known for name, stored in model.stored.items()}
    numbers |= {node.outputs[0]: folded(node, (), (1,)) for node in model.nodes if node.op == "Constant"}

    def number(name: str) -> int | None:
        array = numbers.get(name)
        return None if array is None or array.size != 1 else int(array.reshape(-1)[0])

    parts: dict[str, int] = {}
    for node in model.nodes:
        at = number(node.inputs[1]) if node.op == "SequenceAt" else None
        if at is not None:
            parts[node.inputs[0]] = max(parts.get(node.inputs[0], 0), at + 1)
    found = []
    for node in model.nodes:
        if node.op == "SplitToSequence" and len(node.inputs) == 2 and node.attributes.get("keepdims", 1):
            each = number(node.inputs[1])
            names = tuple(f"{node.outputs[0]}#{at}" for at in range(min(parts.get(node.outputs[0], 0), MOST_PARTS)))
            if each is not None and each > 0:
                settings = {"axis": node.attributes.get("axis", 0), "each": each}
                node = replace(node, op="Split", inputs=node.inputs[:1], outputs=names, attributes=settings)
            elif numbers.get(node.inputs[1]) is not None:
                node = replace(node, op="Split", outputs=names)
        elif node.op == "SequenceAt":
            at = number(node.inputs[1])
            if at is not None and at >= 0:
                node = replace(node, op="Identity", inputs=(f"{node.inputs[0]}#{at}",))
        found.append(node)
    return tuple(found)
