"""The format of a configuration file: what each section may hold, derived from the models' own fields.

It reads the plain tree that `dse.config` makes of a file, converts units, and finds every fault of it.
Units, bounds and meanings of chip, cluster and stack fields are stated at those fields and only there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, dataclass, fields, replace
from fractions import Fraction
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal, get_args, get_type_hints

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PlainValidator,
    ValidationError,
    ValidationInfo,
    WithJsonSchema,
    create_model,
    model_validator,
)
from pydantic_core import InitErrorDetails, PydanticCustomError

from dse.config_readers import (
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
    Row,
    Sampler,
    Scalar,
    Text,
    refusal,
    scalar,
)
from dse.errors import listed, nearest, shorten
from dse.spec import (
    ALL_DEVICES,
    CHIP_LINKS,
    Catalog,
    ClusterSpace,
    Constraint,
    DesignSpec,
    SearchSettings,
    SearchSpec,
)
from dse.units import example, read_number
from hw_models.chip import Chip
from hw_models.cluster import Cluster, Tier
from hw_models.stack import ALGORITHMS, Stack
from workloads.network import Network, Workload
from workloads.plan import CHOICES, SWITCHES, Plan
from workloads.precision import Precision, Training
from workloads.transformer import DecoderTransformer

__all__ = ["faults_of", "json_schema", "read_design", "read_search"]

#: Most values that a list or a range may hold; exact geometric ranges stay quick up to here.
MOST_VALUES = 1_000
#: Short forms that users of other tools write, for the nearest match of an unknown key.
SHORT_FORMS: Mapping[str, str] = MappingProxyType(
    {
        "tp": "tensor",
        "pp": "pipeline",
        "dp": "data",
        "sp": "sequence_parallel",
        "vpp": "interleave",
        "mbs": "micro_batch",
        "gbs": "global_batch",
        "batch": "global_batch",
        "seq": "sequence",
        "zero": "zero_stage",
        "dtype": "precision",
        "model": "network",
        "frequency": "clock",
        "gpus": "devices",
        "preset": "base",
        "trials": "budget",
    }
)


def faults_of(error: ValidationError) -> list[Fault]:
    """The faults that a validation found, in order."""
    found = []
    for item in error.errors(include_url=False, include_input=False):
        context = item.get("ctx", {})
        if "found" in context:
            found.append(Fault(**context, location=tuple(item["loc"])))
        elif item["type"] != "missing":
            found.append(Fault("this", item["msg"], location=tuple(item["loc"])))
    return found


def _raise(faults: list[Fault]) -> None:
    """Hand faults to the validation library, which adds the outer part of their places."""
    if not faults:
        return
    details = [
        InitErrorDetails(
            type=PydanticCustomError(
                "fault",
                "{found}",
                {"found": f.found, "allowed": f.allowed, "nearest": f.nearest, "hint": f.hint, "at_key": f.at_key},
            ),
            loc=f.location,
            input=None,
        )
        for f in faults
    ]
    raise ValidationError.from_exception_data("configuration", details)


@dataclass(frozen=True)
class Shown:
    """JSON Schema of a field, made when it is asked for: a search is read without it."""

    make: Callable[[], dict[str, Any]]

    def __get_pydantic_json_schema__(self, core_schema: Any, handler: Any) -> dict[str, Any]:
        return self.make()


# Shapes around a leaf: one value, a list or range of them, a name or a section -------------------------------------


def _catalog(info: ValidationInfo) -> Catalog:
    return info.context if isinstance(info.context, Catalog) else Catalog()


def one(reader: Reader) -> Any:
    """A field that takes one value."""

    def validate(value: Any, info: ValidationInfo) -> Any:
        try:
            return reader.read(value, _catalog(info))
        except Invalid as error:
            _raise([error.fault])

    return Annotated[Any, PlainValidator(validate), WithJsonSchema(reader.schema)]


def several(reader: Reader) -> Any:
    """A field that takes one value or a list of different ones."""
    return _many(reader, ranges=False)


def searched(reader: Reader) -> Any:
    """A field that takes one value (fixed), a list, or where it is a number a range."""
    return _many(reader, ranges=isinstance(reader.inner if isinstance(reader, Probed) else reader, Quantity))


def _many(reader: Reader, *, ranges: bool) -> Any:
    def validate(value: Any, info: ValidationInfo) -> tuple[Any, ...]:
        values, faults = _values(value, reader, _catalog(info), ranges=ranges)
        _raise(faults)
        return values

    shapes = [reader.schema, {"type": "array", "items": reader.schema, "minItems": 1, "uniqueItems": True}]
    if ranges:
        shapes.append(_range_schema(reader.schema))
    return Annotated[Any, PlainValidator(validate), WithJsonSchema({"anyOf": shapes})]


def _values(value: Any, reader: Reader, catalog: Catalog, *, ranges: bool) -> tuple[tuple[Any, ...], list[Fault]]:
    """The values of a field that may be searched, and what is wrong with them."""
    shapes = f"{reader.allowed}, or a list of such" + (" or a range {from, to, steps}" if ranges else "")
    if isinstance(value, dict):
        if not ranges:
            return (), [Fault("a mapping", shapes)]
        assert isinstance(reader, (Quantity, Probed))
        return _range(value, reader)
    items = value if isinstance(value, list) else [value]
    if not items or len(items) > MOST_VALUES:
        return (), [Fault("an empty list" if not items else f"{len(items)} values", f"1 to {MOST_VALUES} values")]
    found: dict[Any, int] = {}
    faults = []
    for i, item in enumerate(items):
        place: Location = (i,) if isinstance(value, list) else ()
        try:
            read = reader.read(item, catalog)
            if read in found:
                raise Invalid(f"{item.shown()} again", "each value once", hint=f"it is item {found[read] + 1} too")
            found[read] = i
        except Invalid as error:
            faults.append(error.fault.under(*place))
    return tuple(found), faults


RANGE_STEPS = {
    "steps": Quantity("", whole=True, low=2, high=MOST_VALUES),
    "factor": Quantity(""),
}


def _range(value: dict[str, Any], reader: Quantity | Probed) -> tuple[tuple[Any, ...], list[Fault]]:
    """The values of {from, to, steps} (equal distances), {from, to, step} or {from, to, factor} (equal ratios)."""
    names = ("from", "to", "steps", "step", "factor")
    faults = [_unknown(key, names, "range") for key in value if key not in names]
    ways = [name for name in ("steps", "step", "factor") if name in value]
    faults += [Fault("nothing", "this field is required", location=(name,)) for name in names[:2] if name not in value]
    if len(ways) != 1:
        faults.append(Fault(" and ".join(ways) or "no steps", "one of steps, step and factor beside from and to"))
    exact: dict[str, Fraction] = {}
    for name, item in value.items():
        if name in names:
            part = RANGE_STEPS.get(name, reader)
            try:
                leaf = scalar(item, part.allowed)
                exact[name] = part.exact(leaf)
                part.finish(exact[name], leaf.shown())
            except Invalid as error:
                faults.append(error.fault.under(name))
    if faults:
        return (), faults
    if exact["to"] <= exact["from"]:
        return (), [Fault(value["to"].shown(), f"more than from, which is {value['from'].shown()}", location=("to",))]
    if ways[0] == "factor" and exact["factor"] <= 1:
        return (), [Fault(value["factor"].shown(), "a number > 1", location=("factor",))]
    points = list(_points(exact["from"], exact["to"], **{ways[0]: exact[ways[0]]}))
    if len(points) > MOST_VALUES:
        return (), [Fault(f"more than {MOST_VALUES} values", f"at most {MOST_VALUES} values")]
    try:
        return tuple(reader.finish(point, f"the value {float(point):g} of the range") for point in points), []
    except Invalid as error:
        return (), [error.fault]


def _points(
    start: Fraction,
    stop: Fraction,
    *,
    steps: Fraction | None = None,
    step: Fraction | None = None,
    factor: Fraction | None = None,
) -> Iterator[Fraction]:
    """Exact values of a range, one more than is allowed at most."""
    if steps is not None:
        yield from (start + (stop - start) * i / (int(steps) - 1) for i in range(int(steps)))
        return
    point = start
    for _ in range(MOST_VALUES + 1):
        if point > stop:
            return
        yield point
        point = point + step if step is not None else point * (factor or 1)


def _range_schema(item: dict[str, Any]) -> dict[str, Any]:
    number = {"type": "number", "exclusiveMinimum": 0}
    properties = {"from": item, "to": item, "steps": {"type": "integer", "minimum": 2}, "step": item, "factor": number}
    return {"type": "object", "properties": properties, "required": ["from", "to"], "additionalProperties": False}


# Sections ---------------------------------------------------------------------------------------------------------

#: Place of a section in the file -> its keys, to say where a misplaced key belongs.
KEYS: dict[str, tuple[str, ...]] = {}


class Section(BaseModel):
    """A mapping with known keys. Every fault of it is found, not only the first."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)
    place: ClassVar[str] = ""

    @classmethod
    def cross_checks(cls, data: dict[str, Any]) -> list[Fault]:
        """Faults between keys, of the section as written."""
        return []

    @model_validator(mode="wrap")
    @classmethod
    def _all_faults(cls, data: Any, handler: Any, info: ValidationInfo) -> Any:
        if not isinstance(data, dict):
            found = data.shown() if isinstance(data, Scalar) else "a list"
            _raise([Fault(found, f"a mapping with some of {', '.join(cls.model_fields)}")])
        faults = [_unknown(key, tuple(cls.model_fields), cls.place) for key in data if key not in cls.model_fields]
        required = [name for name, field in cls.model_fields.items() if field.is_required()]
        faults += [Fault("nothing", "this field is required", location=(n,)) for n in required if n not in data]
        faults += cls.cross_checks(data)
        section = None
        try:
            section = handler({key: value for key, value in data.items() if key in cls.model_fields})
        except ValidationError as error:
            faults += faults_of(error)
        _raise(faults)
        return section


def _unknown(key: str, names: tuple[str, ...], place: str) -> Fault:
    """An unknown key: the nearest valid one, or the section that it belongs to."""
    short = SHORT_FORMS.get(key.lower(), "")
    longer = [name for name in names if key.lower().replace("-", "_").startswith(f"{name}_")]
    near = short if short in names else max(longer, key=len) if longer else nearest(key, names)
    homes = [home for home, keys in KEYS.items() if key in keys or (short and short in keys)]
    hint = "" if near or not homes else f"it belongs to {' or '.join(home or 'the top of the file' for home in homes)}"
    where = f" of {place}" if place else ""
    return Fault(f'the unknown key "{shorten(key)}"', f"the keys{where}: {', '.join(names)}", near, hint, (key,), True)


def given(section: BaseModel) -> dict[str, Any]:
    """The fields that the file gave."""
    return {name: getattr(section, name) for name in type(section).model_fields if name in section.model_fields_set}


def _section(name: str, place: str, entries: Mapping[str, Any], base: type[Section] = Section) -> type[Section]:
    made: type[Section] = create_model(name, __base__=base, **dict(entries))
    made.place = place
    KEYS.setdefault(place, tuple(made.model_fields))
    return made


def _optional(kind: Any, meaning: str) -> Any:
    return (kind, Field(default=None, description=meaning))


def _described(meta: Mapping[str, Any]) -> str:
    return str(meta.get("meaning", "")) + (f" [{meta['unit']}]" if meta.get("unit") else "")


def _reader(model: type, name: str, meta: Mapping[str, Any]) -> Reader:
    """How a field of a model is read, from what the field says about itself."""
    if (model, name) in SPECIAL:
        return SPECIAL[model, name]
    if "allowed" in meta:
        return Choice(meta["allowed"])
    if meta.get("names") == ("false", "true"):
        return Flag(numbered=True)
    if meta.get("names"):
        return Choice(meta["names"], numbered=True)
    if "unit" in meta:
        return Quantity(meta["unit"], meta["whole"], meta["low"], meta["high"])
    return Text()


#: Fields whose text means more than their metadata can say.
SPECIAL: dict[tuple[type, str], Reader] = {
    (Chip, "process"): Row("processes"),
    (Chip, "hbm"): Row("memories"),
    (Tier, "size"): Quantity("", whole=True, low=1, words=(("all", ALL_DEVICES),)),
    (Tier, "bandwidth"): Quantity("B/s", words=(("chip links", CHIP_LINKS),)),
}


def _model_fields(model: type, shape: Callable[[Reader], Any], skip: tuple[str, ...] = ()) -> dict[str, Any]:
    """Section entries for the fields of a hardware model; texts that name it are never searched."""
    entries = {}
    for item in fields(model):
        if item.name not in skip:
            wrap = one if item.name in ("name", "source") else shape
            entries[item.name] = _optional(wrap(_reader(model, item.name, item.metadata)), _described(item.metadata))
    return entries


def _rates(value: Any) -> Mapping[str, float]:
    """Matrix rates by precision."""
    allowed = ", ".join(get_args(Precision))
    if not isinstance(value, dict) or not value:
        _raise([Fault("no mapping", f"a mapping from a precision ({allowed}) to a number > 0")])
    rates, faults = {}, []
    for key, item in value.items():
        if key not in get_args(Precision):
            faults.append(_unknown(key, get_args(Precision), "chip.matmul_rates"))
            continue
        try:
            rates[key] = float(Quantity("").read(item, Catalog()))
        except Invalid as error:
            faults.append(error.fault.under(key))
    _raise(faults)
    return rates


RATES = Annotated[
    Any,
    PlainValidator(_rates),
    WithJsonSchema({"type": "object", "additionalProperties": {"type": "number", "exclusiveMinimum": 0}}),
]


Make = Callable[[Any], Any]


def _made(section: type[Section], make: Make, value: Any, context: Any) -> Any:
    """The object that a section describes; what its model refuses is a fault of the section."""
    read = section.model_validate(value, context=context)
    try:
        return make(read)
    except ValidationError:
        raise
    except ValueError as error:
        _raise([Fault(f'"{shorten(str(error))}"', f"values of {section.place} that fit together")])


def _part(section: type[Section], make: Make) -> Any:
    """An optional section; null leaves it out, as if it were not there."""

    def validate(value: Any, info: ValidationInfo) -> Any:
        null = isinstance(value, Scalar) and value.kind == "null"
        return make(section.model_construct()) if null else _made(section, make, value, info.context)

    return Annotated[
        Any, PlainValidator(validate), Shown(lambda: {"anyOf": [section.model_json_schema(), {"type": "null"}]})
    ]


def _or_name(reader: Named, section: type[Section], make: Make) -> Any:
    """A field that takes the name of an object, or a section that describes one (from a `base`, if it has that key)."""

    def validate(value: Any, info: ValidationInfo) -> Any:
        if isinstance(value, dict):
            return _made(section, make, value, info.context)
        try:
            if isinstance(value, list):
                raise Invalid("a list", f"{reader.allowed}, or a mapping")
            found = reader.read(value, _catalog(info))
        except Invalid as error:
            _raise([error.fault])
        return make(section.model_construct({"base"}, base=found)) if "base" in section.model_fields else found

    return Annotated[
        Any, PlainValidator(validate), Shown(lambda: {"anyOf": [reader.schema, section.model_json_schema()]})
    ]


def _list_of(section: type[Section], make: Make, meaning: str) -> Any:
    """A list, at least one long, of sections."""

    def validate(value: Any, info: ValidationInfo) -> tuple[Any, ...]:
        if not isinstance(value, list) or not value:
            found = value.shown() if isinstance(value, Scalar) else "a mapping" if value else "an empty list"
            _raise([Fault(found, f"a list of {meaning}, at least one")])
        return _each(value, lambda item: _made(section, make, item, info.context))

    return Annotated[
        Any,
        PlainValidator(validate),
        Shown(lambda: {"type": "array", "items": section.model_json_schema(), "minItems": 1}),
    ]


def _each(items: list[Any], read: Callable[[Any], Any]) -> tuple[Any, ...]:
    """`read` of every item; the faults of all of them."""
    found, faults = [], []
    for i, item in enumerate(items):
        try:
            found.append(read(item))
        except ValidationError as error:
            faults += [fault.under(i) for fault in faults_of(error)]
    _raise(faults)
    return tuple(found)


NETWORK = Named("network", "networks", lambda item: isinstance(item, Network) and not isinstance(item, type))
CHIP = Named("chip", "chips", lambda item: isinstance(item, Chip))
#: A cluster, or a function from a number of devices to one.
CLUSTER = Named("cluster", "clusters", lambda item: isinstance(item, Cluster) or callable(item))
STACK = Named("stack", "stacks", lambda item: isinstance(item, Stack))


# Hardware ---------------------------------------------------------------------------------------------------------


def _chip_section(name: str, shape: Callable[[Reader], Any]) -> type[Section]:
    entries = {"base": _optional(one(CHIP), "the chip to start from")} | _model_fields(Chip, shape, ("matmul_rates",))
    rates = _meta(Chip, "matmul_rates").get(
        "meaning", "matrix rate by precision, relative to the multiply-adds a cycle"
    )
    return _section(name, "chip", entries | {"matmul_rates": _optional(RATES, rates)})


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


def _chip(section: Section) -> Chip:
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
    entries = _model_fields(Tier, shape) | {
        "topology": _optional(one(Choice(topology["allowed"])), topology["meaning"])
    }
    entries["size"] = (entries["size"][0], Field(description=entries["size"][1].description))
    tier = _section("Tier" + name, "cluster.tiers", entries)
    outer = {"base": _optional(one(CLUSTER), "the cluster to start from")} | _model_fields(Cluster, shape, ("tiers",))
    outer["tiers"] = _optional(_list_of(tier, make, "tiers, innermost first"), "levels of the network")
    return _section(name, "cluster", outer, ClusterSection)


def _tier_choices(section: Section) -> Mapping[str, tuple[Any, ...]]:
    values = given(section)
    default = {item.name: values.get(item.name, item.default) for item in fields(Tier)}
    return {name: value if isinstance(value, tuple) else (value,) for name, value in default.items()}


def _base_cluster(base: Any, devices: tuple[int, ...]) -> Cluster | None:
    """The cluster that `base` stands for, with room for every number of devices; the last tier holds them all."""
    if base is None or isinstance(base, Cluster):
        return base
    if not devices:
        _raise([Fault("nothing", "this field is required beside this base", location=("devices",))])
    for count in devices:
        try:
            made = base(count)
        except Exception as error:  # the user's own code may run here: whatever it raises is about this number
            _raise([Fault(f"{count}, which the base refuses", shorten(str(error)), location=("devices",))])
        if not isinstance(made, Cluster):
            allowed = "a cluster, or a function from a number of devices to one"
            _raise([Fault(f"something that makes a {type(made).__name__}", allowed, location=("base",))])
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
    _raise(_nesting_faults(choices["devices"], [tier["size"] for tier in tiers]))
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


def _cluster(section: Section) -> Cluster:
    values = given(section)
    chosen = (values["devices"],) if "devices" in values else ()
    base = _base_cluster(values.pop("base", None), chosen)
    devices = values.get("devices") or (base.devices if base else 1)
    if "tiers" in values:
        _raise(_nesting_faults((devices,), [(tier["size"],) for tier in values["tiers"]]))
        whole = [tier | ({"size": devices} if tier["size"] == ALL_DEVICES else {}) for tier in values["tiers"]]
        values["tiers"] = tuple(Tier(**tier) for tier in whole)
    elif base:
        inner = base.tiers[-2].size if len(base.tiers) > 1 else 1
        values["tiers"] = (*base.tiers[:-1], replace(base.tiers[-1], size=max(devices, inner)))
    return replace(base, **values) if base else Cluster(**values)


def _stack(section: Section) -> Stack:
    values = given(section)
    base: Stack = values.pop("base", Stack(name="custom"))
    return replace(base, **values)


ChipSearch = _chip_section("ChipSearch", searched)
ChipDesign = _chip_section("ChipDesign", one)
ClusterSearch = _cluster_section("ClusterSearch", searched, _tier_choices)
ClusterDesign = _cluster_section("ClusterDesign", one, given)
StackSection = _section(
    "StackSection",
    "stack",
    {"base": _optional(one(STACK), "the stack to start from")}
    | _model_fields(Stack, one, ("algorithms",))
    | {"algorithms": _optional(several(Choice(ALGORITHMS)), _meta(Stack, "algorithms")["meaning"])},
)


# Workload, training and plan --------------------------------------------------------------------------------------


def _hinted(model: type, name: str) -> Choice | Flag | Quantity | Text:
    """A reader from a type hint: whole numbers, truth values, literals, texts."""
    hint = get_type_hints(model)[name]
    if hint is bool:
        return Flag()
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
    return (one(reader), Field(description=item.name)) if required else _optional(one(reader), item.name)


def _network(section: Section) -> DecoderTransformer:
    return DecoderTransformer(**({"name": "custom"} | given(section)))


def _plan_reader(name: str) -> Probed:
    if name in CHOICES:
        return Probed(Plan, name, Choice(CHOICES[name], numbered=True))
    if name in SWITCHES:
        return Probed(Plan, name, Flag(numbered=True))
    return Probed(Plan, name, Quantity("", whole=True, low=1 if refusal(Plan, name, 0) else 0))


COUNT = Quantity("", whole=True, low=1)
NetworkSection = _section(
    "NetworkSection", "workload.network", {item.name: _network_field(item) for item in fields(DecoderTransformer)}
)
TrainingSection = _section(
    "TrainingSection",
    "training",
    {item.name: _optional(one(_probed(Training, item.name)), item.name) for item in fields(Training)},
)
PlanSearch = _section("PlanSearch", "plan", {n: _optional(searched(_plan_reader(n)), n) for n in Plan.names()})
PlanDesign = _section("PlanDesign", "plan", {n: _optional(one(_plan_reader(n)), n) for n in Plan.names()})
WorkloadSection = _section(
    "WorkloadSection",
    "workload",
    {
        "network": (
            _or_name(NETWORK, NetworkSection, _network),
            Field(description="a name, module:attribute, or sizes"),
        ),
        "sequence": (one(COUNT), Field(description="tokens a sample")),
        "global_batch": (one(COUNT), Field(description="samples an optimizer step")),
        "weight": _optional(one(Quantity("")), "share in an objective over several workloads"),
    },
)


def _workload(section: Section) -> Workload:
    return Workload(**given(section))


def _training(section: Section) -> Training:
    return Training(**given(section))


# Goals and the search itself --------------------------------------------------------------------------------------


def _constraints(value: Any, info: ValidationInfo) -> tuple[Constraint, ...]:
    """Bounds on metrics; a metric may have several, in a list. Nothing, {} and null: no constraint."""
    if isinstance(value, Scalar) and value.kind == "null":
        return ()
    if not isinstance(value, dict):
        found = value.shown() if isinstance(value, Scalar) else "a list"
        _raise([Fault(found, 'a mapping from a metric to its bound, for example die_area: "<= 826 mm2"')])
    units = _catalog(info).metric_units
    read: list[Constraint] = []
    faults: list[Fault] = []
    for metric, bounds in value.items():
        if metric not in units:
            allowed = f"metrics: {listed(units)}"
            faults.append(Fault(f'the unknown metric "{metric}"', allowed, nearest(metric, units), "", (metric,), True))
            continue
        for i, item in enumerate(bounds if isinstance(bounds, list) else [bounds]):
            try:
                read.append(_constraint(metric, item, units[metric]))
            except Invalid as error:
                faults.append(error.fault.under(metric, *((i,) if isinstance(bounds, list) else ())))
    _raise(faults)
    return tuple(read)


def _constraint(metric: str, item: Any, unit: str) -> Constraint:
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
                found.append(reader.read(item, _catalog(info)))
                if names[i] in names[:i]:
                    raise Invalid(f'"{names[i]}" again', "each name once")
            except Invalid as error:
                faults.append(error.fault.under(*place))
        _raise(faults)
        return tuple(found)

    schema = {"type": "array", "items": reader.schema, "uniqueItems": True}
    return Annotated[
        Any, PlainValidator(validate), WithJsonSchema({"anyOf": [reader.schema, schema, {"type": "null"}]})
    ]


SettingsSection = _section(
    "SettingsSection",
    "search",
    {
        "mode": _optional(
            one(Choice(("auto", "nested", "joint", "exhaustive"))), "how hardware and plans are combined"
        ),
        "sampler": _optional(one(Sampler()), "who proposes hardware"),
        "budget": _optional(one(COUNT), "hardware rows to look at"),
        "seed": _optional(one(Quantity("", whole=True, low=0)), "of the sampler"),
        "inner_objective": _optional(
            one(Metric(custom=True)), "the plan of a chip that the sampler is told is best by this"
        ),
        "timeout": _optional(one(Quantity("s")), "stop after this time [s]"),
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
    workloads = _list_of(WorkloadSection, _workload, "workloads")
    return {
        "name": (one(Text()), Field(description="shown in results")),
        "workload": _optional(_workload_shape(), "what is trained"),
        "workloads": _optional(workloads, "what is trained, when it is more than one"),
        "training": _optional(_part(TrainingSection, _training), "number formats, optimizer, attention"),
        "stack": _optional(_or_name(STACK, StackSection, _stack), "the software: a name, or its fields"),
        "chip": (chip, Field(description="the chip: a name, or its fields")),
        "cluster": (cluster, Field(description="how chips are connected: a name, or devices and tiers")),
    }


def _workload_shape() -> Any:
    def validate(value: Any, info: ValidationInfo) -> Workload:
        made: Workload = _made(WorkloadSection, _workload, value, info.context)
        return made

    return Annotated[Any, PlainValidator(validate), Shown(WorkloadSection.model_json_schema)]


SearchFile = _section(
    "SearchFile",
    "",
    _file_entries(_or_name(CHIP, ChipSearch, _chip_space), _or_name(CLUSTER, ClusterSearch, _cluster_space))
    | {
        "plan": _optional(_part(PlanSearch, given), "values the plan may take; a field that is missing takes all"),
        "constraints": _optional(CONSTRAINTS, "bounds on metrics"),
        "objectives": (several(Metric(custom=True)), Field(description="what is wanted, each in its own direction")),
        "presets": _optional(_named_list(CHIP), "chips to start the search from"),
        "search": _optional(_part(SettingsSection, _settings), "how the space is searched"),
    },
    FileSection,
)
DesignFile = _section(
    "DesignFile",
    "",
    _file_entries(_or_name(CHIP, ChipDesign, _chip), _or_name(CLUSTER, ClusterDesign, _cluster))
    | {"plan": _optional(_part(PlanDesign, given), "the parallel plan")},
    FileSection,
)


def _common(values: dict[str, Any], catalog: Catalog) -> dict[str, Any]:
    """One workload is a list of one; a file that names no stack gets the generic one."""
    workload = values.pop("workload", None)
    if "stack" not in values and "generic" in catalog.stacks:
        values["stack"] = STACK.read(Scalar("text", "generic"), catalog)
    return values | {"workloads": (workload,) if workload else values["workloads"]}


def read_search(data: Any, catalog: Catalog) -> SearchSpec:
    """The search that a plain tree of mappings, lists and scalars describes; ValidationError holds every fault."""
    values = _common(given(SearchFile.model_validate(data, context=catalog)), catalog)
    chip, cluster = values.pop("chip"), values["cluster"]
    _raise(_precision_faults(values, chip.base) + _price_faults(values, cluster, catalog))
    settings: SearchSettings = values.pop("search", None) or SearchSettings()
    if not settings.inner_objective:
        settings = replace(settings, inner_objective=values["objectives"][0])
    return SearchSpec(**values, chip=chip.choices, chip_base=chip.base, search=settings)


def read_design(data: Any, catalog: Catalog) -> DesignSpec:
    """The design that a plain tree describes; a data degree that is not given uses the devices that are left."""
    values = _common(given(DesignFile.model_validate(data, context=catalog)), catalog)
    _raise(_precision_faults(values, values["chip"]))
    plan = values.pop("plan", None)
    if plan:
        used = plan.get("tensor", 1) * plan.get("pipeline", 1)
        plan = Plan(**({"data": max(1, values["cluster"].devices // used)} | dict(plan)))
    return DesignSpec(**values, plan=plan or None)


def _precision_faults(values: dict[str, Any], chip: Chip) -> list[Fault]:
    precision = values.get("training", Training()).precision
    if precision in chip.matmul_rates:
        return []
    allowed = f"a precision of the chip {chip.name}: {', '.join(chip.matmul_rates)}"
    place = ("training", "precision") if "training" in values else ("chip",)
    return [Fault(f'"{precision}"', allowed, location=place)]


def _price_faults(values: dict[str, Any], cluster: ClusterSpace, catalog: Catalog) -> list[Fault]:
    """A metric in USD needs a price: without one it would be zero, which looks like the best of all."""
    wanted = {*values["objectives"], *(constraint.metric for constraint in values.get("constraints", ()))}
    paid = sorted(name for name in wanted if "USD" in catalog.metric_units.get(name, ""))
    if not paid or min(cluster.values["usd_per_device_hour"]) > 0:
        return []
    return [Fault("nothing", f"a price, which {', '.join(paid)} needs", location=("cluster", "usd_per_device_hour"))]


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
