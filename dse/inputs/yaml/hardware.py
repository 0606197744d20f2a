"""Sections of hardware in a configuration: chip, cluster and stack."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any, get_args

from pydantic import (
    Field,
    PlainValidator,
    WithJsonSchema,
)

from dse.base.errors import shorten
from dse.inputs.spec import (
    ALL_DEVICES,
    Catalog,
    ClusterSpace,
)
from dse.inputs.yaml.readers import (
    Choice,
    Fault,
    Invalid,
    Named,
    Quantity,
    Reader,
)
from dse.inputs.yaml.sections import (
    Make,
    Section,
    given,
    list_of,
    make_section,
    model_entries,
    one,
    optional,
    raise_faults,
    searched,
    several,
    unknown_key,
)
from hw_models.chip import Chip
from hw_models.cluster import Cluster, Tier
from hw_models.stack import ALGORITHMS, Stack
from workloads.precision import Precision

__all__ = [
    "CHIP", "CLUSTER", "STACK", "ChipDesign", "ChipSearch", "ClusterDesign", "ClusterSearch", "StackSection",
    "made_chip", "made_cluster", "made_stack",
]  # fmt: skip

CHIP = Named("chip", "chips", lambda item: isinstance(item, Chip))
#: A cluster, or a function from a number of devices to one.
CLUSTER = Named("cluster", "clusters", lambda item: isinstance(item, Cluster) or callable(item))
STACK = Named("stack", "stacks", lambda item: isinstance(item, Stack))


def _rates(value: Any) -> Mapping[str, float]:
    """Matrix rates by precision."""
    allowed = ", ".join(get_args(Precision))
    if not isinstance(value, dict) or not value:
        raise_faults([Fault("no mapping", f"a mapping from a precision ({allowed}) to a number > 0")])
    rates, faults = {}, []
    for key, item in value.items():
        if key not in get_args(Precision):
            faults.append(unknown_key(key, get_args(Precision), "chip.matmul_rates"))
            continue
        try:
            rates[key] = float(Quantity("").read(item, Catalog()))
        except Invalid as error:
            faults.append(error.fault.under(key))
    raise_faults(faults)
    return rates


RATES = Annotated[
    Any,
    PlainValidator(_rates),
    WithJsonSchema({"type": "object", "additionalProperties": {"type": "number", "exclusiveMinimum": 0}}),
]


def _chip_section(name: str, shape: Callable[[Reader], Any]) -> type[Section]:
    entries = {"base": optional(one(CHIP), "the chip to start from")} | model_entries(Chip, shape, ("matmul_rates",))
    rates = _meta(Chip, "matmul_rates").get(
        "meaning", "matrix rate by precision, relative to the multiply-adds a cycle"
    )
    return make_section(name, "chip", entries | {"matmul_rates": optional(RATES, rates)})


def _meta(model: type, name: str) -> Mapping[str, Any]:
    return next(item.metadata for item in fields(model) if item.name == name)


def _number(value: Any) -> Any:
    """A value of a built-in as a plain Python value."""
    return value.item() if hasattr(value, "item") else value


@dataclass(frozen=True)
class ChipSpace:
    """Fields of a chip -> values, and the chip of the first ones."""

    base: Chip
    choices: Mapping[str, tuple[Any, ...]]


def _chip_space(section: Section) -> ChipSpace:
    values = given(section)
    base = values.pop("base", Chip())
    fixed = {"matmul_rates": values.pop("matmul_rates", base.matmul_rates), "name": values.pop("name", base.name)}
    names = [item.name for item in fields(Chip) if item.name not in fixed]
    choices = {name: values.get(name, (_number(getattr(base, name)),)) for name in names}
    first = replace(base, **fixed, **{name: choice[0] for name, choice in choices.items()})
    return ChipSpace(first, choices)


def made_chip(section: Section) -> Chip:
    values = given(section)
    base: Chip = values.pop("base", Chip())
    return replace(base, **values)


class ClusterSection(Section):
    """A cluster: one that is known by name, or devices in tiers."""

    @classmethod
    def cross_checks(cls, data: dict[str, Any]) -> list[Fault]:
        """Without a base the section says everything."""
        if "base" in data:
            return []
        missing = [name for name in ("devices", "tiers") if name not in data]
        return [Fault("nothing", "this field is required (or give a base)", location=(name,)) for name in missing]


def _cluster_section(name: str, shape: Callable[[Reader], Any], make: Make) -> type[Section]:
    topology = _meta(Tier, "topology")
    entries = model_entries(Tier, shape) | {"topology": optional(one(Choice(topology["allowed"])), topology["meaning"])}
    entries["size"] = (entries["size"][0], Field(description=entries["size"][1].description))
    tier = make_section("Tier" + name, "cluster.tiers", entries)
    outer = {"base": optional(one(CLUSTER), "the cluster to start from")} | model_entries(Cluster, shape, ("tiers",))
    outer["tiers"] = optional(list_of(tier, make, "tiers, innermost first"), "levels of the network")
    return make_section(name, "cluster", outer, ClusterSection)


def _tier_choices(section: Section) -> Mapping[str, tuple[Any, ...]]:
    values = given(section)
    default = {item.name: values.get(item.name, item.default) for item in fields(Tier)}
    return {name: value if isinstance(value, tuple) else (value,) for name, value in default.items()}


def _base_cluster(base: Any, devices: tuple[int, ...]) -> Cluster | None:
    """The cluster that `base` stands for, with room for every number of devices; the last tier holds them all."""
    if base is None or isinstance(base, Cluster):
        return base
    if not devices:
        raise_faults([Fault("nothing", "this field is required beside this base", location=("devices",))])
    for count in devices:
        try:
            made = base(count)
        except Exception as error:  # the user's own code may run here: whatever it raises is about this number
            raise_faults([Fault(f"{count}, which the base refuses", shorten(str(error)), location=("devices",))])
        if not isinstance(made, Cluster):
            allowed = "a cluster, or a function from a number of devices to one"
            raise_faults([Fault(f"something that makes a {type(made).__name__}", allowed, location=("base",))])
    largest: Cluster = base(max(devices))
    return largest


def _cluster_space(section: Section) -> ClusterSpace:
    values = given(section)
    base = _base_cluster(values.pop("base", None), values.get("devices", ()))
    start = base or Cluster()
    tiers = values.pop("tiers", None)
    if not tiers:
        plain = [{item.name: (_number(getattr(tier, item.name)),) for item in fields(Tier)} for tier in start.tiers]
        plain[-1]["size"] = (ALL_DEVICES,)
        tiers = tuple(plain)
    names = {"name": values.pop("name", start.name), "source": values.pop("source", start.source)}
    numbers = [item.name for item in fields(Cluster) if item.name not in ("name", "source", "tiers")]
    choices = {name: values.get(name, (_number(getattr(start, name)),)) for name in numbers}
    raise_faults(_nesting_faults(choices["devices"], [tier["size"] for tier in tiers]))
    return ClusterSpace(values=choices, tiers=tiers, **names)


def _nesting_faults(devices: tuple[int, ...], sizes: list[tuple[int, ...]]) -> list[Fault]:
    """Tiers of fixed size must nest, and the last one must hold every device."""
    faults = []
    last = len(sizes) - 1
    for i, size in enumerate(sizes):
        place = ("tiers", i, "size")
        inner = sizes[i - 1] if i else (1,)
        if ALL_DEVICES in size:
            if i < last:
                faults.append(Fault('"all"', "a number of devices: only the last tier holds all", location=place))
        elif len(size) == len(inner) == 1 and inner != (ALL_DEVICES,) and (size[0] % inner[0] or size[0] < inner[0]):
            faults.append(Fault(str(size[0]), f"a multiple of the tier inside it, {inner[0]}", location=place))
        elif i == last and max(size) < max(devices):
            found = str(max(size))
            faults.append(
                Fault(found, f"all, or a number >= the devices of the cluster, {max(devices)}", location=place)
            )
    return faults


def made_cluster(section: Section) -> Cluster:
    values = given(section)
    chosen = (values["devices"],) if "devices" in values else ()
    base = _base_cluster(values.pop("base", None), chosen)
    devices = values.get("devices") or (base.devices if base else 1)
    if "tiers" in values:
        raise_faults(_nesting_faults((devices,), [(tier["size"],) for tier in values["tiers"]]))
        whole = [tier | ({"size": devices} if tier["size"] == ALL_DEVICES else {}) for tier in values["tiers"]]
        values["tiers"] = tuple(Tier(**tier) for tier in whole)
    elif base:
        inner = base.tiers[-2].size if len(base.tiers) > 1 else 1
        values["tiers"] = (*base.tiers[:-1], replace(base.tiers[-1], size=max(devices, inner)))
    return replace(base, **values) if base else Cluster(**values)


def made_stack(section: Section) -> Stack:
    values = given(section)
    base: Stack = values.pop("base", Stack(name="custom"))
    return replace(base, **values)


ChipSearch = _chip_section("ChipSearch", searched)
ChipDesign = _chip_section("ChipDesign", one)
ClusterSearch = _cluster_section("ClusterSearch", searched, _tier_choices)
ClusterDesign = _cluster_section("ClusterDesign", one, given)
StackSection = make_section(
    "StackSection",
    "stack",
    {"base": optional(one(STACK), "the stack to start from")}
    | model_entries(Stack, one, ("algorithms",))
    | {"algorithms": optional(several(Choice(ALGORITHMS)), _meta(Stack, "algorithms")["meaning"])},
)
