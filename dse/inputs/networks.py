"""Files and objects that stand for a network: what `--network` and `workload.network` take beside a built-in name.

    config.json (Hugging Face)   model.yaml, model.json (this product's own format)   topology.csv (SCALE-Sim)
    model.onnx                   application.json (Calculon)                          a folder with a config.json

Importers are in `workloads.importers`; which formats with which limits: docs/importers.md.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dse.base.errors import ConfigError, Problem, nearest
from dse.inputs.registry import resolve
from workloads.graph import Graph
from workloads.graph_network import GraphNetwork
from workloads.importers import calculon, huggingface, network_file, onnx, scalesim
from workloads.importers.imported import Imported
from workloads.importers.reading import FileError, read_json
from workloads.network import Network
from workloads.published import default_sequence
from workloads.published import names as network_names
from workloads.published import network as network_named

__all__ = [
    "SUFFIXES", "as_network", "import_network", "is_network", "load_network", "named_network", "names_file", "notes_of",
    "read_network", "refused_sequence", "usual_sequence",
]  # fmt: skip

#: Endings of files that may hold a network.
SUFFIXES = (".json", ".yaml", ".yml", ".csv", ".onnx")
#: What files said beside their network (tokens a sample, notes), by network; the last ones.
_SAID: dict[Network, Imported] = {}
KEPT = 64


def names_file(name: str, folder: str = "") -> bool:
    """Whether a name of a network is meant as a file: by its ending, by a slash, or as a folder with a config.json."""
    if Path(name).suffix.lower() in SUFFIXES:
        return True
    return "/" in name and ":" not in name or _is_model_folder(Path(folder) / name)


def _is_model_folder(path: Path) -> bool:
    """Whether a folder holds a Hugging Face configuration."""
    try:
        return (path / "config.json").is_file()
    except (OSError, ValueError):  # no name that the system takes
        return False


def load_network(path: str | Path) -> Network:
    """The network of a file: ONNX, Hugging Face config.json, this product's YAML or JSON, SCALE-Sim CSV, Calculon JSON.

    ConfigError lists every fault of the file.
    """
    return import_network(path).network


def read_network(name: str, folder: str) -> Network:
    """The network of the file that a configuration in `folder` names."""
    return import_network(name, folder).network


def import_network(path: str | Path, folder: str = "") -> Imported:
    """The network of a file with what its importer says beside; a relative path is seen from `folder`."""
    file = Path(folder) / path
    try:
        found = _imported(file)
    except FileError as error:
        raise ConfigError([_problem(error, fault, {}) for fault in error.faults]) from None
    if len(_SAID) >= KEPT:
        _SAID.clear()
    _SAID[found.network] = found
    return found


def notes_of(network: Network) -> tuple[str, ...]:
    """What the file of a network says that is counted otherwise or left out."""
    return _SAID[network].notes if network in _SAID else ()


def _imported(file: Path) -> Imported:
    if _is_absent(file):
        raise ConfigError([_missing(file)])
    suffix = file.suffix.lower()
    if suffix in (".yaml", ".yml"):
        return _yaml(file)
    if suffix == ".csv":
        return scalesim.load(file)
    if suffix == ".onnx":
        return _onnx(file)
    if _is_model_folder(file):
        return huggingface.load(file)
    tree = read_json(file, "a network as JSON, or a folder with a Hugging Face config.json")
    if network_file.is_network(tree):
        return network_file.read(tree, str(file))
    return calculon.load(file) if calculon.is_application(tree) else huggingface.load(file)


def _is_absent(file: Path) -> bool:
    """Whether nothing is there; a path that the system refuses is said by what reads it."""
    try:
        return not file.exists()
    except (OSError, ValueError):
        return False


def _missing(file: Path) -> Problem:
    """A path where nothing is: networks beside it and built-in ones are candidates."""
    folder = file.parent
    beside = sorted(item.name for item in folder.iterdir() if item.suffix in SUFFIXES) if folder.is_dir() else []
    near = nearest(file.name, beside) or nearest(file.stem, network_names())
    return Problem("no such file", f"a network as a file ({', '.join(SUFFIXES)})", file=str(file), nearest=near)


def _onnx(file: Path) -> Imported:
    try:
        found = onnx.load(file)
    except FileError:
        raise
    except (ValueError, OSError, ImportError) as error:
        what = str(error).removeprefix(f"{file.name}: ").removeprefix(f"{file.stem}: ")
        said = f"a model that cannot be read ({what})"
        raise ConfigError([Problem(said, "an ONNX model", file=str(file))]) from None
    return Imported(found, found.sequence)


def _yaml(file: Path) -> Imported:
    """A network of a YAML file, its faults with their lines."""
    from dse.inputs.yaml.tree import plain_file  # start-up: yaml and pydantic, for YAML files alone

    tree, places = plain_file(file)
    try:
        return network_file.read(tree, str(file))
    except FileError as error:
        problems = [_problem(error, fault, places) for fault in error.faults]
        raise ConfigError(sorted(problems, key=lambda problem: (problem.line, problem.column))) from None


def _problem(error: FileError, fault: Any, places: Mapping[str, tuple[int, int]]) -> Problem:
    """A fault of an importer as a problem of a file, at the line of its field or of what holds that."""
    field = fault.field
    while field and field not in places:
        field = field[: max(field.rfind("."), field.rfind("["), 0)]
    line, column = places.get(field, (fault.line, 0))
    return Problem(
        fault.found, fault.allowed, field=fault.field, file=error.path, line=line, column=column,
        nearest=fault.nearest, hint=fault.hint,
    )  # fmt: skip


# Objects -----------------------------------------------------------------------------------------------------------


def is_network(item: Any) -> bool:
    """Whether an object is a network, not a class of them."""
    return isinstance(item, Network) and not isinstance(item, type)


def as_network(item: Any, name: str) -> Any:
    """A network of a graph, or of a function from tokens a sample to a graph; anything else as it is."""
    if isinstance(item, Graph):
        return GraphNetwork(item.name or name, Same(item))
    if _takes_sequence(item):
        return GraphNetwork(name.rpartition(":")[2], item, sample="sequence")
    return item


@dataclass(frozen=True, eq=False)
class Same:
    """A graph that is already built."""

    graph: Graph

    def __call__(self, sequence: int) -> Graph:
        """The graph, whatever the sequence."""
        return self.graph


def _takes_sequence(item: Any) -> bool:
    """Whether an object is a function with one argument that must be given, and is said to return a graph."""
    if not callable(item) or isinstance(item, type) or is_network(item):
        return False
    try:
        parameters = inspect.signature(item).parameters.values()
    except (TypeError, ValueError):
        return False
    needed = [one for one in parameters if one.default is one.empty and one.kind is one.POSITIONAL_OR_KEYWORD]
    return len(needed) == 1


def usual_sequence(network: Any) -> int:
    """Tokens a sample as published or imported; 1 for images and rows; 0 where it must be given."""
    if isinstance(network, GraphNetwork):
        return 0 if network.has_length and network.sequence == 1 else network.sequence
    if network in _SAID:
        return _SAID[network].sequence
    name = getattr(network, "name", "")
    return default_sequence(name) if name in network_names() else 0


def refused_sequence(network: Any, sequence: int) -> str:
    """What is allowed in place of so many tokens where a sample has no length; "" where they are as good as any."""
    if not isinstance(network, GraphNetwork) or network.has_length or sequence == 1:
        return ""
    one = f"a sample of {network.name} is one {network.sample}"
    return f'1, or none: {one} (a GraphNetwork of tokens: sample="sequence")'


def named_network(name: str) -> tuple[Any, int]:
    """A built-in network, a file, `module:attribute` or a plug-in; with the tokens a sample that it says, 0: none."""
    if name in network_names():
        return network_named(name), default_sequence(name)
    if names_file(name):
        found = import_network(name)
        return found.network, found.sequence
    item = as_network(resolve("network", name, {known: None for known in network_names()}), name)
    if not is_network(item):
        raise ConfigError(
            [Problem(f"{type(item).__name__}", "a network, a graph, or a function that makes one", field=name)]
        )
    return item, int(getattr(item, "sequence", 0))
