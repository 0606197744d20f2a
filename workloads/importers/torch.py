"""Torch modules as networks: `from_torch(module, inputs)`.  Torch is imported when it is called, and only here.

The module is exported by `torch.export`, which gives its operators with the shapes of their results; each is given the
name that ONNX has for it, and from there on both importers are one.  Parameters are what the module says they are.
Theory and limits: docs/importers_onnx.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from importlib import import_module
from typing import Any

from workloads.graph import Shape
from workloads.graph_network import GraphNetwork
from workloads.importers.onnx_model import Declared, OnnxModel, OnnxNode, Stored
from workloads.importers.torch_operators import HANDLERS, RENAMED
from workloads.importers.tracing import Tensor, Traced, dividing
from workloads.importers.walk import Walk

#: Operators that are named one by one when a module has others.
SHOWN = 20
#: Data types as ONNX numbers them: real or whole numbers is all that matters here.
REAL, WHOLE = 1, 7


def from_torch(
    module: Any, inputs: Any, *, name: str = "", keywords: Mapping[str, Any] | None = None, sequence: int = 0,
    loss: bool = True,
) -> GraphNetwork:  # fmt: skip
    """The network of a torch module.

    inputs     its positional arguments for one sample (a tensor, or a tuple of them), or a function that makes them
               for so many tokens: then the network has any length
    sequence   tokens of a sample (0: 1, or the length of the first input where that holds whole numbers); what
               `inputs` is called with
    keywords   keyword arguments of its forward
    loss       softmax and cross-entropy of the first result where a linear layer makes it
    A module of the meta device needs no memory.  In training mode dropout is counted, in evaluation mode it is not;
    parameters without `requires_grad` are not trained.
    """
    torch = _torch()
    if not isinstance(module, torch.nn.Module):
        raise ValueError(f"module: found {type(module).__name__}, allowed: a torch.nn.Module")
    if callable(inputs) and not sequence:
        raise ValueError("sequence: found 0, allowed: the tokens of a sample, with which `inputs` is called")
    name = name or type(module).__name__.lower()
    first = _arguments(torch, inputs, sequence)
    program = _program(torch, module, first, keywords or {}, name)
    tokens = sequence or _tokens(first[0])
    again = (module, inputs, keywords or {}) if callable(inputs) else None
    build = TorchBuild(name, tokens, program.digest, loss, again is not None, program, again)
    heads = sorted(number for number in build.graph(tokens).heads if number > 1)
    shape = tuple(first[0].shape)
    sample = "image" if len(shape) in (4, 5) else "sequence" if tokens > 1 else "row"
    return GraphNetwork(
        name, build, sequence=tokens, sample=sample, source=f"torch module {type(module).__qualname__}",
        tensor_divides=dividing(heads),
    )  # fmt: skip


def _torch() -> Any:
    try:
        return import_module("torch")
    except ImportError:
        raise ValueError("a torch module needs torch 2.5 or later: pip install torch") from None


def _arguments(torch: Any, inputs: Any, sequence: int) -> tuple[Any, ...]:
    """Positional arguments, checked: tensors, of one sample where they are images."""
    made = inputs(sequence) if callable(inputs) else inputs
    made = made if isinstance(made, tuple) else tuple(made) if isinstance(made, list) else (made,)
    problems = []
    for at, one in enumerate(made):
        if isinstance(one, torch.Tensor) and one.dim() in (4, 5) and one.shape[0] != 1:
            problems.append(f"inputs[{at}]: found shape {tuple(one.shape)}, allowed: one sample, (1, ...)")
    if not made or not isinstance(made[0], torch.Tensor):
        found = type(made[0]).__name__ if made else "none"
        problems.append(f"inputs: found {found}, allowed: a tensor, or a tuple of them")
    if problems:
        raise ValueError("; ".join(problems))
    return made


def _tokens(first: Any) -> int:
    """Tokens of a sample of whole numbers; 1 of others."""
    return 1 if first.is_floating_point() or first.dim() < 2 else max(int(size) for size in first.shape[:2])


@dataclass(frozen=True)
class Program:
    """A module's operators under ONNX's names, with the sizes of all tensors."""

    model: OnnxModel
    sizes: dict[str, Tensor]
    inputs: dict[str, Shape]
    digest: str


@dataclass(frozen=True)
class TorchBuild:
    """Makes the graph of a module.

    any_length   another number of tokens can be exported: of the module, function of inputs and keywords in `again`
    """

    name: str
    sequence: int
    digest: str
    loss: bool
    any_length: bool
    program: Program = field(compare=False, repr=False)
    again: tuple[Any, Any, Any] | None = field(default=None, compare=False, repr=False)

    def __call__(self, sequence: int) -> Traced:
        """The graph for samples of so many tokens; a module that was exported for one length has no other."""
        return self.graph(sequence)

    def graph(self, sequence: int) -> Traced:
        """As called."""
        program = self.program
        if sequence != self.sequence and self.sequence > 1:
            if self.again is None:
                raise ValueError(
                    f"{self.name}: sequence: found {sequence}, allowed: {self.sequence} (give `inputs` as a function "
                    "of the number of tokens for any length)"
                )
            module, inputs, keywords = self.again
            torch = _torch()
            program = _program(torch, module, _arguments(torch, inputs, sequence), keywords, self.name)
        try:
            return Walk(program.model, self.name, program.inputs, sizes=program.sizes).run(self.loss)
        except ValueError as error:
            raise ValueError(f"{self.name}: {error}") from None


@contextmanager
def _plain(torch: Any) -> Iterator[None]:
    """Attention as its products, not as the one kernel of inference."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


def _program(torch: Any, module: Any, inputs: tuple[Any, ...], keywords: Mapping[str, Any], name: str) -> Program:
    """The module exported and translated."""
    message = ""
    try:
        with _plain(torch), torch.no_grad():
            exported = torch.export.export(module, inputs, dict(keywords))
    except Exception as error:  # torch.export raises many kinds, of which some are private
        message = f"{type(error).__name__}: {str(error).strip()[:400]}"
    if message:
        raise ValueError(f"{name}: torch.export cannot export it: {message}")
    return _Translation(torch, module, exported, name).run()


class _Translation:
    """An exported program under ONNX's names."""

    def __init__(self, torch: Any, module: Any, exported: Any, name: str) -> None:
        self.torch, self.exported, self.name = torch, exported, name
        self.nodes: list[OnnxNode] = []
        self.sizes: dict[str, Tensor] = {}
        self.stored: dict[str, Stored] = {}
        self.inputs: dict[str, Shape] = {}
        self.declared: list[Declared] = []
        self.names: dict[Any, str | tuple[str, ...]] = {}
        self.unknown: dict[str, list[str]] = {}
        # a tensor under two names (tied weights) is one parameter
        one: dict[int, str] = {}
        self.parameters: dict[str, tuple[str, bool]] = {}
        for path, tensor in module.named_parameters(remove_duplicate=False):
            self.parameters[path] = (one.setdefault(id(tensor), path), bool(tensor.requires_grad))

    def run(self) -> Program:
        """The program."""
        signature = self.exported.graph_signature
        paths = dict(signature.inputs_to_parameters)
        users = set(signature.user_inputs)
        outputs: tuple[str, ...] = ()
        for node in self.exported.graph.nodes:
            if node.op == "placeholder":
                self._placeholder(node, paths, users)
            elif node.op == "output":
                outputs = self._results(node)
        outputs = self._walk(self.exported.graph_module) or outputs
        if self.unknown:
            listed = [f"{op} ({len(names)}, first {names[0]!r})" for op, names in sorted(self.unknown.items())]
            more = f" and {len(listed) - SHOWN} other kinds" if len(listed) > SHOWN else ""
            raise ValueError(f"{self.name}: operators that cannot be read: {', '.join(listed[:SHOWN])}{more}")
        model = OnnxModel(tuple(self.nodes), self.stored, tuple(self.declared), outputs, {}, "torch")
        content = repr((model.nodes, sorted((key, tensor.shape) for key, tensor in self.sizes.items()),
                        sorted((one.name, one.trained) for one in self.stored.values())))  # fmt: skip
        return Program(model, self.sizes, self.inputs, sha256(content.encode()).hexdigest())

    def _walk(self, module: Any) -> tuple[str, ...]:
        """All operators of a graph; the names of its results."""
        for node in module.graph.nodes:
            if node.op == "get_attr":
                value = getattr(module, node.target, None)
                if isinstance(value, self.torch.Tensor):
                    self.names[node] = self.constant(node.name, tuple(value.shape), real=value.is_floating_point())
                else:
                    self.names[node] = (node.target,)  # a graph within, which its operator calls
            elif node.op == "call_function":
                self._call(module, node)
            elif node.op == "output":
                return self._results(node)
        return ()

    def _results(self, node: Any) -> tuple[str, ...]:
        """Names of the tensors that a graph gives."""
        flat = node.args[0] if isinstance(node.args[0], (list, tuple)) else (node.args[0],)
        found = [self.names.get(one) for one in flat if hasattr(one, "op")]
        return tuple(one for one in found if isinstance(one, str))

    def _placeholder(self, node: Any, paths: Mapping[str, str], users: set[str]) -> None:
        """A parameter, a buffer or an input."""
        value = node.meta.get("val")
        if not isinstance(value, self.torch.Tensor):
            self.names[node] = ()
            return
        shape = tuple(int(size) for size in value.shape)
        real = bool(value.is_floating_point())
        if node.name in paths:
            path, trained = self.parameters.get(paths[node.name], (paths[node.name], True))
            self.names[node] = path
            self.stored[path] = Stored(path, shape, REAL if real else WHOLE, trained=trained)
            self.sizes[path] = Tensor(shape, real)
        elif node.name in users:
            self.names[node] = node.name
            self.inputs[node.name] = shape
            self.declared.append(Declared(node.name, REAL if real else WHOLE, shape))
            self.sizes[node.name] = Tensor(shape, real)
        else:
            self.names[node] = self.constant(node.name, shape, real=real)

    # What handlers use -------------------------------------------------------------------------------------------

    def constant(self, name: str, shape: Shape, *, real: bool = True) -> str:
        """A tensor that is neither data nor trained."""
        if name in self.sizes:
            name = f"{name} {len(self.sizes)}"
        self.stored[name] = Stored(name, shape, REAL if real else WHOLE, trained=False)
        self.sizes[name] = Tensor(shape, real)
        return name

    def operand(self, value: Any) -> str:
        """The name of an argument; numbers become constants, nothing the empty name."""
        if value is None:
            return ""
        if hasattr(value, "op"):
            found = self.names[value]
            return found if isinstance(found, str) else found[0] if found else ""
        return self.constant(f"number {len(self.sizes)}", (), real=isinstance(value, float))

    def shape(self, name: str) -> Shape:
        """The shape of a tensor by its name."""
        return self.sizes[name].shape

    def results(self, node: Any) -> list[tuple[Shape, bool]]:
        """Shapes of a node's results, and whether they are real numbers."""
        value = node.meta.get("val")
        flat = value if isinstance(value, (list, tuple)) else [value]
        return [
            (tuple(int(size) for size in one.shape), bool(one.is_floating_point()))
            if isinstance(one, self.torch.Tensor) else ((), False) for one in flat
        ]  # fmt: skip

    def emit(self, op: str, inputs: Sequence[str], shape: Shape, **attributes: Any) -> str:
        """A node between others."""
        name = f"{op.lower()} {len(self.nodes)}"
        real = any(self.sizes[one].floating for one in inputs if one)
        self.nodes.append(OnnxNode(op, name, tuple(inputs), (name,), attributes))
        self.sizes[name] = Tensor(shape, real)
        return name

    def finish(self, node: Any, op: str, inputs: Sequence[str], **attributes: Any) -> None:
        """The node that gives a torch node's results."""
        shown = self.results(node)
        several = isinstance(node.meta.get("val"), (list, tuple))
        names = tuple(f"{node.name}.{at}" for at in range(len(shown))) if several else (node.name,)
        self.add(op, node.name, inputs, names, shown, **attributes)
        self.names[node] = names if several else names[0]

    def add(
        self, op: str, name: str, inputs: Sequence[str], outputs: tuple[str, ...], shown: list[tuple[Shape, bool]],
        **attributes: Any,
    ) -> None:  # fmt: skip
        """A node with all its results."""
        for output, (shape, real) in zip(outputs, shown, strict=True):
            self.sizes[output] = Tensor(shape, real)
        self.nodes.append(OnnxNode(op, name, tuple(inputs), outputs, attributes))

    def _call(self, module: Any, node: Any) -> None:
        """One operator."""
        target = node.target
        if getattr(target, "__name__", "") == "getitem":
            found = self.names[node.args[0]]
            self.names[node] = found[node.args[1]] if isinstance(found, tuple) else found
            return
        graph = self._inner(module, node)
        if graph is not None:
            return
        schema = getattr(target, "_schema", None)
        name = schema.name.removeprefix("aten::").strip("_") if schema is not None else str(target)
        shown = node.meta.get("val")
        if shown is None or isinstance(shown, (int, float, bool)):
            self.names[node] = ()  # an assertion, or a number
        elif name in HANDLERS:
            HANDLERS[name](self, node)
        elif name in RENAMED:
            inputs = [self.operand(one) for one in node.args if one is None or hasattr(one, "op")]
            self.finish(node, RENAMED[name], [one for one in inputs if one])
        else:
            self.unknown.setdefault(name, []).append(node.name)
            self.finish(node, "Identity", [])

    def _inner(self, module: Any, node: Any) -> tuple[str, ...] | None:
        """A graph within the graph (what runs without gradients, or in another precision), put in its place."""
        if "wrap_with" not in str(node.target):
            return None
        at = next(i for i, one in enumerate(node.args) if getattr(one, "op", "") == "get_attr")
        inner = getattr(module, node.args[at].target)
        places = [one for one in inner.graph.nodes if one.op == "placeholder"]
        for place, given in zip(places, node.args[at + 1 :], strict=True):
            self.names[place] = self.names[given] if hasattr(given, "op") else self.operand(given)
        found = self._walk(inner)
        self.names[node] = found
        return found
