"""Groups of ONNX operators that frameworks run as one kernel: attention, biases, activations and norms written out.

A file of an older operator set has no Gelu, and attention is nearly always two products with a softmax between them; to
price each step as a pass of its own would charge what no training run pays.  Theory: docs/importers_onnx.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from workloads.importers.onnx_model import OnnxModel, OnnxNode
from workloads.importers.tracing import Tensor

#: Operators that stand between the scores and their softmax, or between it and the second product.
BETWEEN = frozenset(("Add", "Sub", "Mul", "Div", "Where", "Cast", "Reshape", "Identity", "Dropout", "Max", "Min",
                     "Clip", "Squeeze", "Unsqueeze"))  # fmt: skip
AFTER = frozenset(("Cast", "Where", "Identity", "Dropout", "Reshape", "Mul"))
#: Operators of one element-wise kernel, and of one norm.
POINTWISE = frozenset(("Add", "Sub", "Mul", "Div", "Pow", "Erf", "Tanh", "Sigmoid", "HardSigmoid", "Clip", "Softplus",
                       "Relu", "Exp", "Neg", "Identity", "Cast", "Min", "Max"))  # fmt: skip
NORM = frozenset(("Add", "Sub", "Mul", "Div", "Pow", "Sqrt", "Reciprocal", "ReduceMean", "Cast", "Identity"))
#: Steps that are looked through, and readers of one tensor.
FAR, WIDE = 12, 64


@dataclass(frozen=True)
class Fusion:
    """Nodes that run as one; the last of them stands for all.

    kind     "attention", "bias", or the name of an activation or norm
    members  numbers of its nodes;  inputs   names of what it reads, data first
    scores   of attention: the node of the scores' product
    """

    kind: str
    members: frozenset[int]
    inputs: tuple[str, ...]
    scores: int = -1


class Fusions:
    """Finds them. tensors: shapes of all results; live: names of those made of data."""

    def __init__(self, model: OnnxModel, tensors: Mapping[str, Tensor], live: frozenset[str]) -> None:
        self.nodes = model.nodes
        self.tensors, self.live = tensors, live
        self.maker: dict[str, int] = {}
        self.users: dict[str, list[int]] = {}
        for number, node in enumerate(model.nodes):
            for name in node.outputs:
                self.maker[name] = number
            for name in dict.fromkeys(node.inputs):
                self.users.setdefault(name, []).append(number)
        self.results = frozenset(model.outputs)
        self.found: dict[int, Fusion] = {}
        self.taken: set[int] = set()

    def all(self) -> dict[int, Fusion]:
        """Every fusion by its last node."""
        for find in (self._attention, self._bias, self._norm, self._activation):
            for number, node in enumerate(self.nodes):
                if number not in self.taken:
                    fusion = find(number, node)
                    if fusion is not None and not fusion.members & self.taken:
                        self.found[max(fusion.members)] = fusion
                        self.taken |= fusion.members
        return self.found

    def _only_user(self, number: int) -> int | None:
        """The node that alone reads the first result of a node."""
        name = self.nodes[number].outputs[0]
        users = self.users.get(name, [])
        return users[0] if len(users) == 1 and name not in self.results else None

    def _live_inputs(self, node: OnnxNode) -> list[str]:
        return [name for name in dict.fromkeys(node.inputs) if name in self.live]

    # Attention ---------------------------------------------------------------------------------------------------

    def _attention(self, number: int, node: OnnxNode) -> Fusion | None:
        """Scores, softmax, context: from the softmax backwards and forwards."""
        if node.op != "Softmax" or node.inputs[0] not in self.live:
            return None
        rank = len(self.tensors[node.outputs[0]].shape)
        if node.attributes.get("axis", -1) not in (-1, rank - 1):
            return None
        before = self._scores(node.inputs[0], 0)
        after = self._context(number)
        if before is None or after is None:
            return None
        scores, *_ = before
        first, second = self.nodes[scores], self.nodes[after[-1]]
        query, scaled_query = self._unscaled(first.inputs[0])
        key, scaled_key = self._unscaled(first.inputs[1])
        members = frozenset((*before, number, *after, *scaled_query, *scaled_key))
        inner = {name for member in members for name in self.nodes[member].outputs}
        outer = [name for member in sorted(members) for name in self.nodes[member].inputs if name not in inner]
        values = second.inputs[1]
        rest = [name for name in dict.fromkeys(outer) if name and name not in (query, key, values)]
        return Fusion("attention", members, (query, key, values, *rest), scores)

    def _scores(self, name: str, depth: int) -> list[int] | None:
        """Nodes from the product of two tensors of data to the tensor `name`, the product first."""
        number = self.maker.get(name)
        if number is None or depth > FAR or number in self.taken or len(self.users.get(name, ())) != 1:
            return None
        node = self.nodes[number]
        if node.op == "MatMul":
            return [number] if len(self._live_inputs(node)) == 2 and len(self.tensors[name].shape) > 2 else None
        if node.op not in BETWEEN:
            return None
        for source in dict.fromkeys(node.inputs[1:] if node.op == "Where" else node.inputs):
            if source in self.live:
                found = self._scores(source, depth + 1)
                if found is not None:
                    return [*found, number]
        return None

    def _context(self, number: int) -> list[int] | None:
        """Nodes from the softmax to the product with the values, which is the last."""
        found: list[int] = []
        for _ in range(FAR):
            users = self.users.get(self.nodes[number].outputs[0], [])
            guards = [user for user in users if self.nodes[user].op == "IsNaN"]  # rows that are masked out whole
            rest = [user for user in users if user not in guards]
            if len(rest) != 1 or rest[0] in self.taken:
                return None
            found += [*guards, rest[0]]
            node = self.nodes[rest[0]]
            if node.op == "MatMul":
                right = node.inputs[1]
                return found if self.nodes[number].outputs[0] == node.inputs[0] and right in self.live else None
            if node.op not in AFTER:
                return None
            number = rest[0]
        return None

    def _unscaled(self, name: str) -> tuple[str, list[int]]:
        """A query or key before it was scaled by a number, and the node that did it."""
        number = self.maker.get(name)
        if number is None or self._only_user(number) is None or number in self.taken:
            return name, []
        node = self.nodes[number]
        if node.op in ("Mul", "Div") and len(self._live_inputs(node)) == 1:
            other = [source for source in node.inputs if source not in self.live]
            if len(other) == 1 and self.tensors[other[0]].elements == 1:
                return self._live_inputs(node)[0], [number]
        return name, []

    # Others ------------------------------------------------------------------------------------------------------

    def _bias(self, number: int, node: OnnxNode) -> Fusion | None:
        """A vector added to a product with a weight."""
        if node.op != "MatMul" or len(self._live_inputs(node)) != 1:
            return None
        user = self._only_user(number)
        if user is None or user in self.taken or self.nodes[user].op != "Add":
            return None
        added = [name for name in self.nodes[user].inputs if name != node.outputs[0]]
        if len(added) != 1 or added[0] in self.live:
            return None
        vector, result = self.tensors[added[0]], self.tensors[node.outputs[0]]
        if not result.shape or vector.elements != result.shape[-1] or vector.shape[-1:] != result.shape[-1:]:
            return None
        return Fusion("bias", frozenset((number, user)), (*node.inputs, added[0]))

    def _activation(self, number: int, node: OnnxNode) -> Fusion | None:
        """Element-wise operators of one tensor and numbers."""
        if node.op not in ("Erf", "Tanh", "Sigmoid", "HardSigmoid", "Clip"):
            return None

        def fits(name: str) -> bool:
            return self.tensors[name].elements == 1

        region = self._region(number, POINTWISE, fits)
        if region is None:
            return None
        source, members = region
        ops = [self.nodes[member].op for member in members]
        kind = {"Erf": "gelu", "Sigmoid": "silu"}.get(node.op, "hardswish")
        if node.op == "Tanh":
            kind = "mish" if "Softplus" in ops else "gelu" if ops.count("Mul") > 2 else "function"
        elif "Mul" not in ops:
            kind = "hardsigmoid" if node.op in ("Clip", "HardSigmoid") else "function"
        return Fusion(kind, frozenset(members), (source,))

    def _norm(self, number: int, node: OnnxNode) -> Fusion | None:
        """A norm of rows, with its scale and shift."""
        if node.op != "Sqrt":
            return None

        def fits(name: str) -> bool:
            return self.tensors[name].elements == 1 or len(self.tensors[name].shape) == 1

        region = self._region(number, NORM, fits)
        if region is None:
            return None
        source, members = region
        ops = [self.nodes[member].op for member in members]
        if "ReduceMean" not in ops:
            return None
        inner = {name for member in members for name in self.nodes[member].outputs}
        outer = [name for member in members for name in self.nodes[member].inputs if name and name not in inner]
        rest = [name for name in dict.fromkeys(outer) if name != source]
        return Fusion("layer norm" if "Sub" in ops else "rms norm", frozenset(members), (source, *rest))

    def _region(
        self, number: int, allowed: frozenset[str], fits: Callable[[str], bool]
    ) -> tuple[str, list[int]] | None:
        """The largest group of allowed operators around a node that reads one tensor of data and gives one."""
        for source in reversed(list(self._sources(number, allowed))):
            members = self._closure(source, allowed, fits)
            # without the last of them, as long as more than one result is read outside
            while number in members and len(members) > 1 and not self._gives_one(members):
                members.discard(max(members))
            if number in members and len(members) > 1:
                shapes = (self.tensors[source].shape, self.tensors[self.nodes[max(members)].outputs[0]].shape)
                if shapes[0] == shapes[1]:
                    return source, sorted(members)
        return None

    def _sources(self, number: int, allowed: frozenset[str]) -> Iterable[str]:
        """Tensors before a node, nearest first, as long as operators are allowed."""
        seen: dict[str, None] = {}
        level = [number]
        for _ in range(6):
            names = [name for one in level for name in self._live_inputs(self.nodes[one])]
            seen |= dict.fromkeys(names)
            if len(seen) > WIDE:
                break
            level = [
                self.maker[name] for name in dict.fromkeys(names)
                if name in self.maker and self.nodes[self.maker[name]].op in allowed
                and self.maker[name] not in self.taken
            ]  # fmt: skip
        return seen

    def _closure(self, source: str, allowed: frozenset[str], fits: Callable[[str], bool]) -> set[int]:
        """Nodes that follow from `source` and constants alone."""
        inside, members = {source}, set[int]()
        waiting = list(self.users.get(source, ())[:WIDE])
        while waiting and len(members) < 4 * FAR:
            number = waiting.pop(0)
            node = self.nodes[number]
            if number in members or number in self.taken or node.op not in allowed or len(node.outputs) != 1:
                continue
            live = self._live_inputs(node)
            constants = [name for name in node.inputs if name and name not in self.live]
            if node.op != "ReduceMean" and not all(fits(name) for name in constants):
                continue
            if all(name in inside for name in live):
                members.add(number)
                inside.add(node.outputs[0])
                waiting += self.users.get(node.outputs[0], ())[:WIDE]
        return members

    def _gives_one(self, members: set[int]) -> bool:
        """Whether nothing outside reads what is made inside, the last result apart."""
        last = max(members)
        for number in members - {last}:
            name = self.nodes[number].outputs[0]
            if name in self.results or any(user not in members for user in self.users.get(name, ())):
                return False
        return True
