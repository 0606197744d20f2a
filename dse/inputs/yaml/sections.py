"""Building blocks of the file format: fields of one or many values, sections of known keys, and how they report faults.

Nothing here says what a file holds; `dse.inputs.yaml.schema` puts these blocks together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from fractions import Fraction
from types import MappingProxyType
from typing import Annotated, Any, ClassVar

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

from dse.base.errors import nearest, shorten
from dse.inputs.spec import (
    ALL_DEVICES,
    CHIP_LINKS,
    Catalog,
)
from dse.inputs.yaml.readers import (
    Choice,
    Fault,
    Flag,
    Invalid,
    Location,
    Named,
    Probed,
    Quantity,
    Reader,
    Row,
    Scalar,
    Text,
    scalar,
)
from hw_models.chip import Chip
from hw_models.cluster import Tier

__all__ = [
    "Make",
    "Section",
    "Shown",
    "catalog_of",
    "described_by",
    "faults_of",
    "given",
    "list_of",
    "make_section",
    "model_entries",
    "name_or_section",
    "one",
    "optional",
    "optional_section",
    "raise_faults",
    "searched",
    "several",
    "unknown_key",
]

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
        "cp": "context",
        "ep": "expert",
        "etp": "expert_tensor",
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


def raise_faults(faults: list[Fault]) -> None:
    """Hand faults to the validation library, which adds the outer part of their places."""
    if not faults:
        return
    details = [
        InitErrorDetails(
            type=PydanticCustomError(
                "fault",
                "{found}",
                {
                    "found": f.found, "allowed": f.allowed, "nearest": f.nearest, "hint": f.hint, "at_key": f.at_key,
                    "problems": f.problems,
                },
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


def catalog_of(info: ValidationInfo) -> Catalog:
    return info.context if isinstance(info.context, Catalog) else Catalog()


def one(reader: Reader) -> Any:
    """A field that takes one value."""

    def validate(value: Any, info: ValidationInfo) -> Any:
        try:
            return reader.read(value, catalog_of(info))
        except Invalid as error:
            raise_faults([error.fault])

    return Annotated[Any, PlainValidator(validate), WithJsonSchema(reader.schema)]


def several(reader: Reader) -> Any:
    """A field that takes one value or a list of different ones."""
    return _many(reader, ranges=False)


def searched(reader: Reader) -> Any:
    """A field that takes one value (fixed), a list, or where it is a number a range."""
    return _many(reader, ranges=isinstance(reader.inner if isinstance(reader, Probed) else reader, Quantity))


def _many(reader: Reader, *, ranges: bool) -> Any:
    def validate(value: Any, info: ValidationInfo) -> tuple[Any, ...]:
        values, faults = _values(value, reader, catalog_of(info), ranges=ranges)
        raise_faults(faults)
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
    faults = [unknown_key(key, names, "range") for key in value if key not in names]
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
            raise_faults([Fault(found, f"a mapping with some of {', '.join(cls.model_fields)}")])
        faults = [unknown_key(key, tuple(cls.model_fields), cls.place) for key in data if key not in cls.model_fields]
        required = [name for name, field in cls.model_fields.items() if field.is_required()]
        faults += [Fault("nothing", "this field is required", location=(n,)) for n in required if n not in data]
        faults += cls.cross_checks(data)
        section = None
        try:
            section = handler({key: value for key, value in data.items() if key in cls.model_fields})
        except ValidationError as error:
            faults += faults_of(error)
        raise_faults(faults)
        return section


def unknown_key(key: str, names: tuple[str, ...], place: str) -> Fault:
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


def make_section(name: str, place: str, entries: Mapping[str, Any], base: type[Section] = Section) -> type[Section]:
    made: type[Section] = create_model(name, __base__=base, **dict(entries))
    made.place = place
    KEYS.setdefault(place, tuple(made.model_fields))
    return made


def optional(kind: Any, meaning: str) -> Any:
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
    (Chip, "power_cap"): Quantity("W", low=0, words=(("none", 0.0),)),
    (Tier, "size"): Quantity("", whole=True, low=1, words=(("all", ALL_DEVICES),)),
    (Tier, "bandwidth"): Quantity("B/s", words=(("chip links", CHIP_LINKS),)),
}


def model_entries(model: type, shape: Callable[[Reader], Any], skip: tuple[str, ...] = ()) -> dict[str, Any]:
    """Section entries for the fields of a hardware model; texts that name it are never searched."""
    entries = {}
    for item in fields(model):
        if item.name not in skip:
            wrap = one if item.name in ("name", "source") else shape
            entries[item.name] = optional(wrap(_reader(model, item.name, item.metadata)), _described(item.metadata))
    return entries


Make = Callable[[Any], Any]


def described_by(section: type[Section], make: Make, value: Any, context: Any) -> Any:
    """The object that a section describes; what its model refuses is a fault of the section."""
    read = section.model_validate(value, context=context)
    try:
        return make(read)
    except ValidationError:
        raise
    except ValueError as error:
        raise_faults([Fault(f'"{shorten(str(error))}"', f"values of {section.place} that fit together")])


def optional_section(section: type[Section], make: Make) -> Any:
    """An optional section; null leaves it out, as if it were not there."""

    def validate(value: Any, info: ValidationInfo) -> Any:
        null = isinstance(value, Scalar) and value.kind == "null"
        return make(section.model_construct()) if null else described_by(section, make, value, info.context)

    return Annotated[
        Any, PlainValidator(validate), Shown(lambda: {"anyOf": [section.model_json_schema(), {"type": "null"}]})
    ]


def name_or_section(reader: Named, section: type[Section], make: Make) -> Any:
    """A field that takes the name of an object, or a section that describes one (from a `base`, if it has that key)."""

    def validate(value: Any, info: ValidationInfo) -> Any:
        if isinstance(value, dict):
            return described_by(section, make, value, info.context)
        try:
            if isinstance(value, list):
                raise Invalid("a list", f"{reader.allowed}, or a mapping")
            found = reader.read(value, catalog_of(info))
        except Invalid as error:
            raise_faults([error.fault])
        return make(section.model_construct({"base"}, base=found)) if "base" in section.model_fields else found

    return Annotated[
        Any, PlainValidator(validate), Shown(lambda: {"anyOf": [reader.schema, section.model_json_schema()]})
    ]


def list_of(section: type[Section], make: Make, meaning: str) -> Any:
    """A list, at least one long, of sections."""

    def validate(value: Any, info: ValidationInfo) -> tuple[Any, ...]:
        if not isinstance(value, list) or not value:
            found = value.shown() if isinstance(value, Scalar) else "a mapping" if value else "an empty list"
            raise_faults([Fault(found, f"a list of {meaning}, at least one")])
        return _each(value, lambda item: described_by(section, make, item, info.context))

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
    raise_faults(faults)
    return tuple(found)
