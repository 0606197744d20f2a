"""Imports run one way, names are defined where they are imported from, and formulas hold no constants."""

from __future__ import annotations

import ast
import importlib
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("workloads", "hw_models", "dse")
STANDARD = set(sys.stdlib_module_names) | {"__future__"}

#: What each layer may import beside the standard library and itself; the longest matching prefix decides.
ALLOWED = {
    "workloads": {"numpy"},
    "workloads.importers": {"numpy", "*"},
    "hw_models": {"numpy", "scipy"},
    "dse.evaluation": {"numpy", "workloads", "hw_models"},
    "dse.exploration": {"numpy", "scipy", "workloads", "hw_models", "dse.evaluation", "dse.base.files"},
    "dse": {"numpy", "scipy", "workloads", "hw_models", "dse"},
}
#: Packages that few files may import, and whether only inside a function.
RESERVED = {
    "yaml": (("dse/config",), False),
    "pydantic": (("dse/config", "dse/schema"), False),
    "pydantic_core": (("dse/config", "dse/schema"), False),
    "optuna": (("dse/exploration/optuna_searcher.py",), False),
    "matplotlib": (("dse/plots",), True),
    "pandas": (("dse/",), True),
}
YAML_FILES = 1
LONGEST = 600
#: Files over the limit, each with the reason why it is not cut.
LONG_FILES: dict[str, str] = {}
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

    def walk(node: ast.AST, lazy: bool) -> None:
        for child in ast.iter_child_nodes(node):
            inside = (
                lazy or isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)) or _typing_only(child)
            )
            if isinstance(child, ast.Import):
                found.extend(Import(path, child.lineno, alias.name, "", lazy) for alias in child.names)
            elif isinstance(child, ast.ImportFrom):
                assert child.level == 0, f"{path}:{child.lineno}: relative import; name the package"
                found.extend(Import(path, child.lineno, child.module or "", alias.name, lazy) for alias in child.names)
            walk(child, inside)

    walk(tree(path), False)
    return tuple(found)


def _typing_only(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)


def every_import() -> list[Import]:
    return [item for path in files() for item in imports(path)]


def layer(module: str) -> str:
    return max((name for name in ALLOWED if module == name or module.startswith(name + ".")), key=len)


def target(item: Import) -> str:
    """The module that an import reaches."""
    full = f"{item.module}.{item.name}" if item.name else item.module
    return full if item.name and is_module(full) else item.module


def permitted(item: Import) -> bool:
    reached, own = target(item), layer(module_name(item.file))
    top = reached.split(".")[0]
    if top in STANDARD or top in RESERVED or "*" in ALLOWED[own]:
        return True
    if own == "dse.exploration" and reached == "dse":
        return False
    if own != "dse" and (reached == own or reached.startswith(own + ".")):
        return True
    return any(reached == name or reached.startswith(name + ".") for name in ALLOWED[own])


def test_every_import_points_down() -> None:
    wrong = [str(item) for item in every_import() if not permitted(item)]
    assert not wrong, "\n".join(wrong)


def test_the_rule_of_imports_would_notice_a_wrong_arrow() -> None:
    def found(file: str, module: str, name: str = "") -> bool:
        return permitted(Import(ROOT / file, 1, module, name, False))

    assert not found("workloads/plan.py", "hw_models.chip", "Chip")
    assert not found("workloads/plan.py", "scipy")
    assert not found("hw_models/chip.py", "workloads.plan", "Plan")
    assert not found("hw_models/chip.py", "dse.evaluation", "evaluate")
    assert not found("dse/evaluation/price.py", "dse.exploration.plans", "divisors")
    assert not found("dse/evaluation/price.py", "dse.inputs.yaml.load", "load")
    assert not found("dse/exploration/run.py", "dse.inputs.yaml.load", "load")
    assert found("dse/exploration/run.py", "dse.evaluation.evaluate", "evaluate")
    assert found("dse/cli.py", "dse.exploration.run", "run")


def test_reserved_packages_are_imported_where_they_may_be() -> None:
    wrong = []
    for item in every_import():
        package = item.module.split(".")[0]
        if package in RESERVED:
            places, lazily = RESERVED[package]
            here = item.file.relative_to(ROOT).as_posix()
            if not here.startswith(places) or (lazily and not item.lazy):
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
    bound |= {item.name for item in imports(path) if item.name and not item.lazy and item.module.startswith(package)}
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


def test_no_file_is_too_long() -> None:
    long = {
        path.relative_to(ROOT).as_posix(): count
        for path in files()
        if (count := path.read_text(encoding="utf-8").count("\n")) > LONGEST
    }
    unexplained = {name: count for name, count in long.items() if name not in LONG_FILES}
    assert not unexplained, f"over {LONGEST} lines: {unexplained}"
    assert set(LONG_FILES) <= set(long), "a reason for a file that is short enough"


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
