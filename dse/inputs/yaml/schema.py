"""The format of a configuration file: what each section may hold, derived from the models' own fields.

It reads the tree that `dse.inputs.yaml.tree` makes of a file, converts units, and finds every fault of it; sections of
hardware are in `dse.inputs.yaml.hardware`.
Units, bounds and meanings of chip, cluster and stack fields are stated at those fields and only there.
"""

from __future__ import annotations

from dataclasses import MISSING, fields, replace
from typing import Annotated, Any, Literal, get_args, get_type_hints

from pydantic import (
    Field,
    PlainValidator,
    ValidationInfo,
    WithJsonSchema,
)

from dse.base.errors import listed, nearest
from dse.base.units import example, read_number
from dse.inputs.networks import as_network, is_network, names_file, read_network, refused_sequence, usual_sequence
from dse.inputs.registry import plugin_names
from dse.inputs.spec import (
    Catalog,
    Constraint,
    DesignSpec,
    SearchSettings,
    SearchSpec,
)
from dse.inputs.yaml.hardware import (
    CHIP,
    CLUSTER,
    STACK,
    ChipDesign,
    ChipSearch,
    ClusterDesign,
    ClusterSearch,
    StackSection,
    _chip_space,
    _cluster_space,
    made_chip,
    made_cluster,
    made_stack,
)
from dse.inputs.yaml.prices import price_faults
from dse.inputs.yaml.readers import (
    Choice,
    Fault,
    Flag,
    Invalid,
    Location,
    Metric,
    Named,
    Probed,
    Quantity,
    Reader,
    Rule,
    Sampler,
    Scalar,
    Text,
    refusal,
    scalar,
    wanted_metric,
)
from dse.inputs.yaml.sections import (
    Section,
    Shown,
    catalog_of,
    described_by,
    given,
    list_of,
    make_section,
    name_or_section,
    one,
    optional,
    optional_section,
    raise_faults,
    searched,
    several,
)
from hw_models.chip import Chip
from hw_models.stacks import on_device
from workloads.network import Workload
from workloads.plan import CHOICES, SWITCHES, Plan, data_degree
from workloads.precision import Training
from workloads.transformer import DecoderTransformer

__all__ = ["json_schema", "read_chip", "read_design", "read_search"]

NETWORK = Named("network", "networks", is_network, as_network, names_file, read_network)


# Workload, training and plan --------------------------------------------------------------------------------------


def _hinted(model: type, name: str) -> Choice | Flag | Quantity | Text:
    """A reader from a type hint: whole numbers, truth values, literals, texts."""
    hint = get_type_hints(model)[name]
    if hint is bool:
        return Flag()
    if hint is float:
        return Quantity("", low=0)
    if hint is int:
        return Quantity("", whole=True, low=0)
    return Choice(get_args(hint)) if get_args(hint) else Text()


def _probed(model: type, name: str) -> Reader:
    reader = _hinted(model, name)
    return reader if isinstance(reader, Text) else Probed(model, name, reader)


def _network_field(item: Any) -> tuple[Any, Any]:
    reader = _hinted(DecoderTransformer, item.name)
    required = item.default is MISSING and item.name != "name"
    if required:
        reader = COUNT
    return (one(reader), Field(description=item.name)) if required else optional(one(reader), item.name)


def _network(section: Section) -> DecoderTransformer:
    return DecoderTransformer(**({"name": "custom"} | given(section)))


def _plan_reader(name: str) -> Probed:
    if name in CHOICES:
        return Probed(Plan, name, Choice(CHOICES[name], numbered=True))
    if name in SWITCHES:
        return Probed(Plan, name, Flag(numbered=True))
    return Probed(Plan, name, Quantity("", whole=True, low=1 if refusal(Plan, name, 0) else 0))


COUNT = Quantity("", whole=True, low=1)
NetworkSection = make_section(
    "NetworkSection", "workload.network", {item.name: _network_field(item) for item in fields(DecoderTransformer)}
)
TrainingSection = make_section(
    "TrainingSection",
    "training",
    {item.name: optional(one(_probed(Training, item.name)), item.name) for item in fields(Training)},
)
PlanSearch = make_section(
    "PlanSearch",
    "plan",
    {n: optional(searched(_plan_reader(n)), n) for n in Plan.names()}
    | {"strategy": optional(one(Rule()), "a rule of your own for the plans that are looked at: module:attribute")},
)
PlanDesign = make_section("PlanDesign", "plan", {n: optional(one(_plan_reader(n)), n) for n in Plan.names()})
WorkloadSection = make_section(
    "WorkloadSection",
    "workload",
    {
        "network": (
            name_or_section(NETWORK, NetworkSection, _network),
            Field(description="a name, a file (config.json, model.yaml, model.onnx, ...), module:attribute, or sizes"),
        ),
        "sequence": optional(one(COUNT), "tokens a sample; as published where a network says it"),
        "global_batch": (one(COUNT), Field(description="samples an optimizer step")),
        "weight": optional(one(Quantity("")), "share in an objective over several workloads"),
    },
)


def _workload(section: Section) -> Workload:
    values = given(section)
    if not values.get("sequence"):
        values["sequence"] = usual_sequence(values["network"])
    if not values["sequence"]:
        allowed = "tokens a sample: the network does not say how long one is"
        raise_faults([Fault("nothing", allowed, location=("sequence",))])
    if allowed := refused_sequence(values["network"], values["sequence"]):
        raise_faults([Fault(str(values["sequence"]), allowed, location=("sequence",))])
    return Workload(**values)


def _training(section: Section) -> Training:
    return Training(**given(section))


# Goals and the search itself --------------------------------------------------------------------------------------


def _constraints(value: Any, info: ValidationInfo) -> tuple[Constraint, ...]:
    """Bounds on metrics; a metric may have several, in a list. Nothing, {} and null: no constraint."""
    if isinstance(value, Scalar) and value.kind == "null":
        return ()
    if not isinstance(value, dict):
        found = value.shown() if isinstance(value, Scalar) else "a list"
        raise_faults([Fault(found, 'a mapping from a metric to its bound, for example die_area: "<= 826 mm2"')])
    units = catalog_of(info).metric_units
    read: list[Constraint] = []
    faults: list[Fault] = []
    for metric, bounds in value.items():
        if metric not in units and ":" not in metric and metric not in plugin_names("metric"):
            allowed = f"metrics: {listed(units)}"
            faults.append(Fault(f'the unknown metric "{metric}"', allowed, nearest(metric, units), "", (metric,), True))
            continue
        try:
            named = wanted_metric(metric, catalog_of(info))
        except Invalid as error:
            faults.append(replace(error.fault, location=(metric,), at_key=True))
            continue
        unit = units[named] if isinstance(named, str) else named.unit
        for i, item in enumerate(bounds if isinstance(bounds, list) else [bounds]):
            try:
                read.append(_constraint(named, item, unit))
            except Invalid as error:
                faults.append(error.fault.under(metric, *((i,) if isinstance(bounds, list) else ())))
    raise_faults(faults)
    return tuple(read)


def _constraint(metric: Any, item: Any, unit: str) -> Constraint:
    bound = Quantity(unit, low=0)
    sample = example(unit)
    allowed = f'"<= {sample}" or ">= {sample}", a bound {bound.bounds}' + (f" in {unit}" if unit else "")
    leaf = scalar(item, allowed)
    relation, rest = leaf.text[:2], leaf.text[2:].strip()
    if leaf.kind != "text" or relation not in ("<=", ">="):
        raise Invalid(leaf.shown(), allowed)
    inner = Scalar("number" if read_number(rest) is not None else "text", rest)
    try:
        return Constraint(metric, "<=" if relation == "<=" else ">=", float(bound.read(inner, Catalog())))
    except Invalid as error:
        raise Invalid(error.fault.found, allowed, error.fault.nearest, error.fault.hint) from None


CONSTRAINTS = Annotated[
    Any,
    PlainValidator(_constraints),
    WithJsonSchema(
        {"type": ["object", "null"], "additionalProperties": {"type": "string", "pattern": "^[<>]= *[0-9.]"}}
    ),
]


def _named_list(reader: Reader) -> Any:
    """A list of names, or one name; null is none of them."""

    def validate(value: Any, info: ValidationInfo) -> tuple[Any, ...]:
        if value == [] or (isinstance(value, Scalar) and value.kind == "null"):
            return ()
        items = value if isinstance(value, list) else [value]
        names = [item.text if isinstance(item, Scalar) else "" for item in items]
        found, faults = [], []
        for i, item in enumerate(items):
            place: Location = (i,) if isinstance(value, list) else ()
            try:
                found.append(reader.read(item, catalog_of(info)))
                if names[i] in names[:i]:
                    raise Invalid(f'"{names[i]}" again', "each name once")
            except Invalid as error:
                faults.append(error.fault.under(*place))
        raise_faults(faults)
        return tuple(found)

    schema = {"type": "array", "items": reader.schema, "uniqueItems": True}
    return Annotated[
        Any, PlainValidator(validate), WithJsonSchema({"anyOf": [reader.schema, schema, {"type": "null"}]})
    ]


SettingsSection = make_section(
    "SettingsSection",
    "search",
    {
        "mode": optional(one(Choice(("auto", "nested", "joint", "exhaustive"))), "how hardware and plans are combined"),
        "sampler": optional(one(Sampler()), "who proposes hardware"),
        "budget": optional(one(COUNT), "hardware rows to look at"),
        "seed": optional(one(Quantity("", whole=True, low=0)), "of the sampler"),
        "inner_objective": optional(
            one(Metric()), "the plan of a chip that the sampler is told is best by this"
        ),
        "timeout": optional(one(Quantity("s")), "stop after this time [s]"),
    },
)


def _settings(section: Section) -> SearchSettings:
    return SearchSettings(**given(section))


# The file ---------------------------------------------------------------------------------------------------------


class FileSection(Section):
    """What searches and designs have in common."""

    @classmethod
    def cross_checks(cls, data: dict[str, Any]) -> list[Fault]:
        """A file has a workload or a list of them."""
        if ("workload" in data) != ("workloads" in data):
            return []
        if "workload" in data:
            return [Fault("workload and workloads", "one of them", location=("workloads",), at_key=True)]
        return [Fault("nothing", "this field is required (or workloads)", location=("workload",))]


def _file_entries(chip: Any, cluster: Any) -> dict[str, Any]:
    workloads = list_of(WorkloadSection, _workload, "workloads")
    return {
        "name": (one(Text()), Field(description="shown in results")),
        "workload": optional(_workload_shape(), "what is trained"),
        "workloads": optional(workloads, "what is trained, when it is more than one"),
        "training": optional(optional_section(TrainingSection, _training), "number formats, optimizer, attention"),
        "stack": optional(name_or_section(STACK, StackSection, made_stack), "the software: a name, or its fields"),
        "chip": (chip, Field(description="the chip: a name, or its fields")),
        "cluster": (cluster, Field(description="how chips are connected: a name, or devices and tiers")),
    }


def _workload_shape() -> Any:
    def validate(value: Any, info: ValidationInfo) -> Workload:
        made: Workload = described_by(WorkloadSection, _workload, value, info.context)
        return made

    return Annotated[Any, PlainValidator(validate), Shown(WorkloadSection.model_json_schema)]


SearchFile = make_section(
    "SearchFile",
    "",
    _file_entries(
        name_or_section(CHIP, ChipSearch, _chip_space), name_or_section(CLUSTER, ClusterSearch, _cluster_space)
    )
    | {
        "plan": optional(
            optional_section(PlanSearch, given), "values the plan may take; missing fields take their usual values"
        ),
        "constraints": optional(CONSTRAINTS, "bounds on metrics"),
        "objectives": (several(Metric()), Field(description="what is wanted, each in its own direction")),
        "presets": optional(_named_list(CHIP), "chips to start the search from"),
        "search": optional(optional_section(SettingsSection, _settings), "how the space is searched"),
    },
    FileSection,
)
DesignFile = make_section(
    "DesignFile",
    "",
    _file_entries(name_or_section(CHIP, ChipDesign, made_chip), name_or_section(CLUSTER, ClusterDesign, made_cluster))
    | {"plan": optional(optional_section(PlanDesign, given), "the parallel plan")},
    FileSection,
)


def _common(values: dict[str, Any], catalog: Catalog, chip: Chip) -> dict[str, Any]:
    """One workload is a list of one; a file that names no stack gets the generic one, with the chip's constants."""
    workload = values.pop("workload", None)
    if "stack" not in values and "generic" in catalog.stacks:
        values["stack"] = STACK.read(Scalar("text", "generic"), catalog)
    if "stack" in values:
        values["stack"] = on_device(values["stack"], chip.name, calibrated=catalog.constants or True)
    return values | {"workloads": (workload,) if workload else values["workloads"]}


def read_search(data: Any, catalog: Catalog) -> SearchSpec:
    """The search that a plain tree of mappings, lists and scalars describes; ValidationError holds every fault."""
    values = given(SearchFile.model_validate(data, context=catalog))
    chip, cluster = values.pop("chip"), values["cluster"]
    values = _common(values, catalog, chip.base)
    raise_faults(_precision_faults(values, chip.base) + price_faults(values, cluster, chip.choices, catalog))
    if "strategy" in (values.get("plan") or {}):
        values["plan"] = dict(values["plan"])
        values["strategy"] = values["plan"].pop("strategy")
    settings: SearchSettings = values.pop("search", None) or SearchSettings()
    if not settings.inner_objective:
        settings = replace(settings, inner_objective=values["objectives"][0])
    return SearchSpec(**values, chip=chip.choices, chip_base=chip.base, search=settings)


def read_design(data: Any, catalog: Catalog) -> DesignSpec:
    """The design that a plain tree describes; a data degree that is not given uses the devices that are left."""
    values = given(DesignFile.model_validate(data, context=catalog))
    values = _common(values, catalog, values["chip"])
    raise_faults(_precision_faults(values, values["chip"]))
    plan = values.pop("plan", None)
    if plan:
        others = {name: plan.get(name, 1) for name in ("tensor", "pipeline", "context")}
        plan = Plan(**({"data": int(data_degree(values["cluster"].devices, **others))} | dict(plan)))
    return DesignSpec(**values, plan=plan or None)


ChipFile = make_section(
    "ChipFile",
    "",
    {
        "name": optional(one(Text()), "shown in results"),
        "chip": (name_or_section(CHIP, ChipDesign, made_chip), Field(description="the chip: a name, or its fields")),
    },
)


def read_chip(data: Any, catalog: Catalog) -> Chip:
    """The chip of a plain tree: that of a design, or a `chip` alone."""
    if isinstance(data, dict) and not data.keys() <= {"name", "chip"}:
        return read_design(data, catalog).chip
    chip: Chip = given(ChipFile.model_validate(data, context=catalog))["chip"]
    return chip


def _precision_faults(values: dict[str, Any], chip: Chip) -> list[Fault]:
    precision = values.get("training", Training()).precision
    if precision in chip.matmul_rates:
        return []
    allowed = f"a precision of the chip {chip.name}: {', '.join(chip.matmul_rates)}"
    place = ("training", "precision") if "training" in values else ("chip",)
    return [Fault(f'"{precision}"', allowed, location=place)]


def json_schema(kind: Literal["search", "design"] = "search") -> dict[str, Any]:
    """JSON Schema of a configuration file, for editors."""
    model = SearchFile if kind == "search" else DesignFile
    schema: dict[str, Any] = _without_empty_defaults(model.model_json_schema())
    return {"$schema": "https://json-schema.org/draft/2020-12/schema"} | schema | {"title": f"dse {kind}"}


def _without_empty_defaults(schema: Any) -> Any:
    if isinstance(schema, dict):
        kept = {
            k: v
            for k, v in schema.items()
            if not (k == "default" and v is None) and not (k == "title" and isinstance(v, str))
        }
        return {key: _without_empty_defaults(value) for key, value in kept.items()}
    return [_without_empty_defaults(item) for item in schema] if isinstance(schema, list) else schema
