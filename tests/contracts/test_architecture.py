"""Imports run one way, names are defined where they are imported from, and formulas hold no constants."""

from __future__ import annotations

import ast
import importlib
import re
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import median

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("workloads", "hw_models", "dse")
STANDARD = set(sys.stdlib_module_names) | {"__future__"}

#: The floors of the house, lowest first: each imports only itself and those before it, in functions and for types too.
FLOORS = (
    "workloads", "hw_models", "dse.base", "dse.evaluation", "dse.simulation", "dse.exploration", "dse.inputs",
    "dse.problem", "dse.insight", "dse.evidence", "dse.present", "dse.record", "dse.api", "dse.command", "dse.testing",
)  # fmt: skip
#: Two floors side by side: hardware knows no network, and networks know no hardware.
APART = {("hw_models", "workloads")}
#: Packages from elsewhere that a floor may import; the longest matching prefix decides.
FOREIGN = {
    "workloads": {"numpy"},
    "workloads.importers": {"numpy", "*"},
    "hw_models": {"numpy", "scipy"},
    "dse.evaluation": {"numpy"},
    "dse.simulation": {"numpy"},
    "dse": {"numpy", "scipy"},
}
#: Packages that few files may import, and whether only inside a function.
RESERVED = {
    "yaml": (("dse/inputs/yaml/",), False),
    "pydantic": (("dse/inputs/yaml/",), False),
    "pydantic_core": (("dse/inputs/yaml/",), False),
    "optuna": (("dse/exploration/optuna_searcher.py",), False),
    "matplotlib": (("dse/present/figures/",), True),
    "pandas": (("dse/",), True),
}
#: Imports of our own modules inside functions, each with one of these words and why beside it.
LAZY, REASONS = 12, ("start-up:", "optional package:")
YAML_FILES = 1
#: Files directly in dse/: what `import dse` offers, and `python -m dse`.
TOP = {"__init__.py", "__main__.py", "py.typed"}
LONGEST, MEDIAN = 450, 150
#: Files over the limit, each with the reason why it is not cut.
LONG_FILES: dict[str, str] = {
    "dse/insight/account.py": "an account and a comparison of two, cut when operators and collectives are one list",
}
#: Folders of formulas: their numbers live in tables.
FORMULAS = ("compute", "memory", "network", "physical")


@dataclass(frozen=True)
class Import:
    """One imported module or name: `from module import name` or `import module` (name empty)."""

    file: Path
    line: int
    module: str
    name: str
    lazy: bool
    typing: bool = False

    def __str__(self) -> str:
        what = f"from {self.module} import {self.name}" if self.name else f"import {self.module}"
        return f"{self.file.relative_to(ROOT)}:{self.line}: {what}"


def files() -> list[Path]:
    return sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def is_module(name: str) -> bool:
    path = ROOT.joinpath(*name.split("."))
    return path.with_suffix(".py").is_file() or path.is_dir()


def is_package(name: str) -> bool:
    return (ROOT.joinpath(*name.split(".")) / "__init__.py").is_file()


@cache
def imports(path: Path) -> tuple[Import, ...]:
    found = []

    def walk(node: ast.AST, lazy: bool, typing: bool) -> None:
        for child in ast.iter_child_nodes(node):
            inside = lazy or isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
            types = typing or _typing_only(child)
            if isinstance(child, ast.Import):
                found.extend(Import(path, child.lineno, alias.name, "", lazy, typing) for alias in child.names)
            elif isinstance(child, ast.ImportFrom):
                assert child.level == 0, f"{path}:{child.lineno}: relative import; name the package"
                module = child.module or ""
                found.extend(Import(path, child.lineno, module, alias.name, lazy, typing) for alias in child.names)
            walk(child, inside, types)

    walk(tree(path), False, False)
    return tuple(found)


def _typing_only(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)


def every_import() -> list[Import]:
    return [item for path in files() for item in imports(path)]


def under(module: str, name: str) -> bool:
    return module == name or module.startswith(name + ".")


def floor(module: str) -> int | None:
    """The number of a module's floor; None for `dse` itself and for what is not ours."""
    return next((number for number, name in enumerate(FLOORS) if under(module, name)), None)


def ours(module: str) -> bool:
    return module.split(".")[0] in PACKAGES


def target(item: Import) -> str:
    """The module that an import reaches."""
    full = f"{item.module}.{item.name}" if item.name else item.module
    return full if item.name and is_module(full) else item.module


def permitted(item: Import) -> bool:
    """Whether an import points to its own floor or a lower one, or to a package that its floor may have."""
    reached, own = target(item), module_name(item.file)
    if ours(reached):
        here, there = floor(own), floor(reached)
        if here is None:  # dse/__init__.py and dse/__main__.py
            return True
        return there is not None and there <= here and (FLOORS[here], FLOORS[there]) not in APART
    top = reached.split(".")[0]
    allowed = FOREIGN[max((name for name in FOREIGN if under(own, name)), key=len)]
    return top in STANDARD or top in RESERVED or "*" in allowed or top in allowed


def test_every_import_points_down_in_functions_and_for_types_too() -> None:
    wrong = [str(item) for item in every_import() if not permitted(item)]
    assert not wrong, "\n".join(wrong)


def test_every_module_stands_on_a_floor() -> None:
    alone = [module_name(path) for path in files() if floor(module_name(path)) is None]
    assert sorted(alone) == ["dse", "dse.__main__"]
    assert {path.name for path in (ROOT / "dse").iterdir() if path.is_file()} <= TOP


def test_the_rule_of_imports_would_notice_a_wrong_arrow() -> None:
    def found(file: str, module: str, name: str = "") -> bool:
        return permitted(Import(ROOT / file, 1, module, name, False))

    assert not found("workloads/plan.py", "hw_models.chip", "Chip")
    assert not found("workloads/plan.py", "scipy")
    assert not found("hw_models/chip.py", "workloads.plan", "Plan")
    assert not found("hw_models/chip.py", "dse.evaluation", "evaluate")
    assert not found("dse/base/units.py", "dse")
    assert not found("dse/evaluation/price.py", "dse.exploration.plans", "divisors")
    assert not found("dse/exploration/run.py", "dse.inputs.yaml.load", "load_search")
    assert not found("dse/insight/tornado.py", "dse.present.text.design", "tornado_text")
    assert not found("dse/record/write.py", "dse.api.search", "SearchReport")
    assert not found("dse/evaluation/price.py", "scipy.special")
    assert found("dse/exploration/run.py", "dse.evaluation.evaluate", "evaluate")
    assert found("dse/command/search.py", "dse.api.search", "search")


def rings(arrows: dict[str, set[str]]) -> list[list[str]]:
    """Groups of modules that reach each other (strongly connected components of two or more, or a loop), sorted."""
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found = []

    def visit(name: str) -> None:
        number[name] = low[name] = len(number)
        stack.append(name)
        for other in sorted(arrows[name]):
            if other not in number:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], number[other])
        if low[name] == number[name]:
            group = stack[stack.index(name) :]
            del stack[stack.index(name) :]
            if len(group) > 1 or name in arrows[name]:
                found.append(sorted(group))

    for name in sorted(arrows):
        if name not in number:
            visit(name)
    return sorted(found)


def test_no_modules_import_each_other_in_a_ring_of_any_length() -> None:
    """Imports inside functions and for types count: who needs whom is a matter of design, not of time."""
    arrows = {module_name(path): set[str]() for path in files()}
    for item in every_import():
        own, reached = module_name(item.file), target(item)
        if reached in arrows and reached != own:
            arrows[own].add(reached)
    found = rings(arrows)
    assert not found, "\n".join(" <-> ".join(ring) for ring in found)


def test_a_ring_would_be_noticed() -> None:
    assert rings({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [["a", "b", "c"]]
    assert rings({"a": {"b"}, "b": set(), "c": {"c"}}) == [["c"]]
    assert rings({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []


def reason_beside(item: Import) -> str:
    """What follows `start-up:` or `optional package:` in a comment on the line of an import, or "" without one."""
    line = item.file.read_text(encoding="utf-8").splitlines()[item.line - 1]
    return next((line.partition(f"# {word}")[2].strip() for word in REASONS if f"# {word}" in line), "")


def test_few_of_our_modules_are_imported_inside_functions_each_for_a_reason_beside_it() -> None:
    """Unit: import statements.  Optional packages from elsewhere are RESERVED."""
    lazy = {(item.file, item.line): item for item in every_import() if item.lazy and ours(item.module)}
    assert len(lazy) <= LAZY, "\n".join(map(str, lazy.values()))
    wrong = [str(item) for item in lazy.values() if len(reason_beside(item)) < 8]
    assert not wrong, f"say why ({' or '.join(REASONS)} ...) on the line of\n" + "\n".join(wrong)


def test_reserved_packages_are_imported_where_they_may_be() -> None:
    wrong = []
    for item in every_import():
        package = item.module.split(".")[0]
        if package in RESERVED:
            places, lazily = RESERVED[package]
            here = item.file.relative_to(ROOT).as_posix()
            if not here.startswith(places) or (lazily and not item.lazy and not item.typing):
                wrong.append(f"{item}: allowed in {', '.join(places)}{' inside a function' if lazily else ''}")
    assert not wrong, "\n".join(wrong)


def test_yaml_is_read_in_one_module() -> None:
    readers = {item.file.name for item in every_import() if item.module.split(".")[0] == "yaml"}
    assert len(readers) <= YAML_FILES, readers


def defined(path: Path) -> set[str]:
    """Names a module binds itself at its top level, imports excluded."""
    names: set[str] = set()

    def collect(body: list[ast.stmt]) -> None:
        for node in body:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                names.add(node.name)
            elif isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                names.update(leaf.id for aim in targets for leaf in ast.walk(aim) if isinstance(leaf, ast.Name))
            elif isinstance(node, (ast.If, ast.Try, ast.With)):
                collect(node.body + getattr(node, "orelse", []))
                for handler in getattr(node, "handlers", []):
                    collect(handler.body)
            elif isinstance(node, ast.TypeAlias if hasattr(ast, "TypeAlias") else ()):
                names.add(node.name.id)

    collect(tree(path).body)
    return names


def file_of(module: str) -> Path:
    path = ROOT.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def test_names_come_from_the_file_that_defines_them() -> None:
    """Also the rule that no module imports through the `__init__` of its own package."""
    wrong = []
    for item in every_import():
        top = item.module.split(".")[0]
        if not item.name or top != module_name(item.file).split(".")[0] or item.file.name == "__init__.py":
            continue
        if is_module(f"{item.module}.{item.name}"):
            continue
        source = file_of(item.module)
        if not source.is_file() or item.name not in defined(source):
            wrong.append(f"{item}: {source.relative_to(ROOT)} does not define it")
    assert not wrong, "\n".join(wrong)


def test_every_folder_of_modules_is_a_package() -> None:
    folders = {path.parent for path in files()}
    missing = sorted(str(folder.relative_to(ROOT)) for folder in folders if not (folder / "__init__.py").is_file())
    assert not missing, f"without __init__.py: {', '.join(missing)}"


@pytest.mark.parametrize("package", sorted(module_name(p) for p in files() if p.name == "__init__.py"))
def test_all_lists_exactly_the_public_names_of_a_package(package: str) -> None:
    """It names what exists, once each, and forgets nothing that the `__init__` defines or takes from its package."""
    path = file_of(package)
    module = importlib.import_module(package)
    bound = {name for name in defined(path) if not name.startswith("_")}
    now = [item for item in imports(path) if item.name and not item.lazy and not item.typing]
    bound |= {item.name for item in now if item.module.startswith(package)}
    if not bound and "__getattr__" not in defined(path):  # names that are imported when they are first used
        assert not getattr(module, "__all__", ())
        return
    listed = list(getattr(module, "__all__", ()))
    assert len(listed) == len(set(listed)), "a name twice"
    absent = [name for name in listed if not hasattr(module, name)]
    assert not absent, f"listed but missing: {absent}"
    forgotten = sorted(bound - set(listed))
    assert not forgotten, f"bound but not in __all__: {forgotten}"


def test_modules_list_only_names_that_exist() -> None:
    wrong = []
    for path in files():
        for node in tree(path).body:
            if isinstance(node, ast.Assign) and any(
                isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets
            ):
                if not isinstance(node.value, (ast.List, ast.Tuple)):
                    continue
                listed = [leaf.value for leaf in node.value.elts if isinstance(leaf, ast.Constant)]
                known = defined(path) | {item.name for item in imports(path)} | {"__version__"}
                lazy = "__getattr__" in known
                wrong += [f"{path.relative_to(ROOT)}: {name}" for name in listed if name not in known and not lazy]
    assert not wrong, "\n".join(wrong)


def lengths() -> dict[str, int]:
    """Lines of every module by its path."""
    return {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8").count("\n") for path in files()}


def test_no_file_is_too_long() -> None:
    long = {name: count for name, count in lengths().items() if count > LONGEST}
    unexplained = {name: count for name, count in long.items() if name not in LONG_FILES}
    assert not unexplained, f"over {LONGEST} lines: {unexplained}"
    assert set(LONG_FILES) <= set(long), "a reason for a file that is short enough"


def test_half_of_all_files_are_short() -> None:
    assert median(lengths().values()) <= MEDIAN


def physics_numbers(node: ast.AST) -> list[float]:
    """Numbers of a module-level value that could be physics: fractions and large ones, not small whole numbers."""
    return [
        leaf.value
        for leaf in ast.walk(node)
        if isinstance(leaf, ast.Constant)
        and isinstance(leaf.value, (int, float))
        and not isinstance(leaf.value, bool)
        and (leaf.value != int(leaf.value) or abs(leaf.value) > 1024)
    ]


def test_formula_modules_hold_no_physical_constant() -> None:
    """A constant of physics is an argument or a column of a table row, so that two designs can differ in it."""
    wrong = []
    for folder in FORMULAS:
        for path in sorted((ROOT / "hw_models" / folder).rglob("*.py")):
            for node in tree(path).body:
                if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
                    numbers = physics_numbers(node.value)
                    if numbers:
                        wrong.append(f"{path.relative_to(ROOT)}:{node.lineno}: {numbers}")
    assert not wrong, "\n".join(wrong)


def test_a_physical_constant_would_be_noticed() -> None:
    assert physics_numbers(ast.parse("x = 1.5e-12"))
    assert physics_numbers(ast.parse("x = {'a': 0.25}"))
    assert not physics_numbers(ast.parse("x = ((256, 128, 1), (64, 64, 4))"))


def test_physics_reduces_nothing_over_designs() -> None:
    """No sum, product or matrix product in formulas: their order, so their bits, would depend on the batch."""
    forbidden = {"sum", "dot", "einsum", "matmul", "prod", "cumsum", "mean"}
    wrong = []
    evaluation = sorted(ROOT.joinpath("dse", "evaluation").glob("*.py"))
    formulas = [path for folder in FORMULAS for path in sorted((ROOT / "hw_models" / folder).rglob("*.py"))]
    allowed = {("situations.py", "cumsum"), ("result.py", "prod")}
    for path in evaluation + formulas:
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
                wrong.append(f"{path.relative_to(ROOT)}:{node.lineno}: @")
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in forbidden:
                if (path.name, node.func.attr) not in allowed:
                    wrong.append(f"{path.relative_to(ROOT)}:{node.lineno}: {node.func.attr}")
    assert not wrong, "\n".join(wrong)


def test_the_map_of_the_house_names_files_that_exist() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    roots = (*PACKAGES, "tests", "docs")
    named = [name for name in re.findall(r"`([a-z_]+/[\w/.]*)`", text) if name.split("/")[0] in roots]
    assert len(named) > 60
    assert not [name for name in named if not (ROOT / name).exists()]


def test_no_test_file_imports_another() -> None:
    """What several test files share lies in tests/support."""
    paths = sorted((ROOT / "tests").rglob("test_*.py"))
    names = {path.stem for path in paths}
    wrong = []
    for path in paths:
        for node in ast.walk(tree(path)):
            found = [node.module] if isinstance(node, ast.ImportFrom) else []
            found += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            wrong += [f"{path.name}: {name}" for name in found if name in names]
    assert not wrong, wrong
