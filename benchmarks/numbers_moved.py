"""Which numbers a change of the code moves: random designs priced before it and after it.

    python benchmarks/numbers_moved.py --write before.jsonl     the code before: draws designs and stores numbers
    python benchmarks/numbers_moved.py --against before.jsonl   the code after: prices the same, says what moved

Which code is priced is decided by PYTHONPATH: the package `dse` found first, whose place is printed.
A file is JSON lines: what it was made with, the constants of stacks and technologies, then a design a line with its
description, metrics and violations.  A later code builds a design from its description, never from the random stream.
`--old-constants` prices it with the constants stored, so that only formulas move; else with those of the later tables.

A number moved where |after - before| > 1e-12 max(|before|, |after|); its change is after / before - 1.
Designs cover what the product models and need not be feasible; violations are numbers like the others.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

if not any((Path(place or ".") / "dse" / "__init__.py").is_file() for place in sys.path[1:]):
    sys.path.append(str(Path(__file__).parents[1]))

import dse
from hw_models.stacks import stack as stack_on_device

#: Relative difference above which a number moved.
TOLERANCE = 1e-12
VERSION = 1

Description = dict[str, Any]


# Drawing designs.


def _pick(random: np.random.Generator, values: Sequence[Any]) -> Any:
    """One of some values."""
    return values[int(random.integers(len(values)))]


def _sometimes(random: np.random.Generator, share: float) -> bool:
    return bool(random.random() < share)


def _decoder(random: np.random.Generator) -> dict[str, Any]:
    """Fields of a decoder transformer: dense or routed, of any attention, with or without leading layers."""
    heads, width = int(_pick(random, (8, 12, 16, 32, 64))), int(_pick(random, (64, 128)))
    hidden = heads * width
    found: dict[str, Any] = {
        "name": "drawn", "layers": int(_pick(random, (4, 8, 12, 24, 32, 61))), "hidden": hidden, "heads": heads,
        "kv_heads": _pick(random, [k for k in (1, 2, 4, 8, heads) if heads % k == 0]),
        "ffn": hidden * int(_pick(random, (2, 3, 4))),
        "vocabulary": int(_pick(random, (32_000, 50_257, 128_256))), "gated": _sometimes(random, 0.5),
        "vocabulary_multiple": int(_pick(random, (1, 128))),
        "positions": _pick(random, ("learned", "rotary", "alibi")), "tied": _sometimes(random, 0.5),
        "norm": _pick(random, ("layernorm", "rmsnorm")), "dropout": _sometimes(random, 0.5),
        "biases": _pick(random, ("all", "qkv", "none")), "causal": _sometimes(random, 0.8),
        "qk_norm": _sometimes(random, 0.2), "max_sequence": 131_072,
    }  # fmt: skip
    if _sometimes(random, 0.2):
        # latent attention has as many heads of keys as of queries
        rank = {"key_value_rank": 512, "query_rank": int(_pick(random, (0, 1536))), "rotary_dim": 64}
        found |= rank | {"kv_heads": heads, "positions": "rotary", "qk_norm": False, "biases": "none"}
    if _sometimes(random, 0.4):
        found |= {
            "experts": int(_pick(random, (8, 16, 64))), "experts_per_token": int(_pick(random, (1, 2, 6))),
            "expert_ffn": hidden // int(_pick(random, (1, 2, 4))),
            "shared_ffn": int(_pick(random, (0, hidden))), "lead_layers": int(_pick(random, (0, 1, 3))),
        }  # fmt: skip
    elif _sometimes(random, 0.2):
        found |= {"parallel_block": True}
    return found


def _training(random: np.random.Generator, precisions: Sequence[str]) -> dict[str, Any]:
    """Number formats, optimizer, kernels and layouts; the formats are those the chip multiplies."""
    return {
        "precision": _pick(random, sorted(precisions)), "gradient_bytes": int(_pick(random, (2, 4))),
        "optimizer": _pick(random, ("adam", "adam", "momentum", "sgd")),
        "attention": _pick(random, ("fused", "pipelined", "materialized")),
        "cross_entropy": _pick(random, ("fused", "materialized")), "scaling": _pick(random, ("tensor", "row")),
        "weight_casts": _pick(random, ("pass", "once")), "dispatch": _pick(random, ("copy", "token")),
        "convolution": _pick(random, ("direct", "winograd")),
        "layout": _pick(random, ("channels_last", "channels_first")),
    }  # fmt: skip


def _plan(random: np.random.Generator) -> dict[str, Any]:
    """Degrees, schedule, sharding, recomputation and overlap; half of the plans keep to the plain axes."""
    data, context = int(_pick(random, (1, 1, 2, 4, 8, 16))), int(_pick(random, (1, 1, 1, 2, 4)))
    recompute = _pick(random, ("none", "selective", "full", "per_operator"))
    ranks = [degree for degree in (1, 2, 4, 8, 16) if data * context % degree == 0]
    parallel = _sometimes(random, 0.5)
    zero = int(_pick(random, (0, 1, 2, 3)))
    plan = {
        "tensor": int(_pick(random, (1, 1, 2, 4, 8, 6))), "pipeline": int(_pick(random, (1, 1, 2, 4, 8))),
        "data": data, "context": context, "context_ring": _sometimes(random, 0.5),
        "expert": int(_pick(random, ranks)), "expert_tensor": _sometimes(random, 0.7),
        "sequence_parallel": parallel, "micro_batch": int(_pick(random, (1, 1, 2, 4))),
        "schedule": _pick(random, ("gpipe", "1f1b", "1f1b", "zero_bubble")),
        "interleave": 1, "zero_stage": zero, "zero_group": int(_pick(random, (0, 0, *ranks))) if zero else 0,
        "reshard": _sometimes(random, 0.7), "offload": _pick(random, ("none", "none", "none", "optimizer", "all")),
        "recompute": recompute,
        "recompute_layers": int(_pick(random, (0, 0, 1, 3))) if recompute != "none" else 0,
        "overlap_data": _sometimes(random, 0.7), "overlap_tensor": parallel and _sometimes(random, 0.4),
        "overlap_expert": _sometimes(random, 0.3), "overlap_pipeline": _sometimes(random, 0.5),
        "split": _pick(random, ("uniform", "balanced")),
        "order": "-".join(random.permutation(["tensor", "data", "pipeline"]).tolist()),
    }  # fmt: skip
    if plan["schedule"] == "1f1b" and plan["pipeline"] > 1:
        plan["interleave"] = int(_pick(random, (1, 1, 2, 4)))
    return plan


def _chip_changes(random: np.random.Generator, chip: Any) -> dict[str, Any]:
    """A chip as it is sold, or with a power cap, network on chip, banks, several dies, another dataflow."""
    if _sometimes(random, 0.6):
        return {}
    changes: dict[str, Any] = {}
    if _sometimes(random, 0.4):
        changes["power_cap"] = float(_pick(random, (150.0, 300.0, 450.0, 700.0)))
    if _sometimes(random, 0.3):
        changes["noc"] = _pick(random, ("none", "crossbar", "ring", "mesh"))
    if _sometimes(random, 0.3):
        changes["sram_banks"] = int(_pick(random, (8, 32, 128)))
    if _sometimes(random, 0.3):
        changes["dies"] = int(_pick(random, (1, 2, 4)))
    if _sometimes(random, 0.3):
        changes["clock"] = float(chip.clock * _pick(random, (0.7, 1.2)))
    if chip.compute == "systolic":
        changes["dataflow"] = _pick(random, ("os", "ws", "is", "best"))
        changes["double_buffered"] = int(_pick(random, (0, 1)))
    return changes


class Names(NamedTuple):
    """Presets by name; networks of tokens are drawn more often than the rest, which they do not outnumber."""

    chips: tuple[str, ...]
    clusters: tuple[str, ...]
    stacks: tuple[str, ...]
    decoders: tuple[str, ...]
    others: tuple[str, ...]


def names() -> Names:
    """The presets of the code that is priced."""
    networks = {name: dse.networks[name]().network for name in sorted(dse.networks)}
    decoders = tuple(n for n, network in networks.items() if isinstance(network, dse.DecoderTransformer))
    others = tuple(name for name in networks if name not in decoders)
    return Names(tuple(sorted(dse.chips)), tuple(sorted(dse.clusters)), tuple(sorted(dse.stacks)), decoders, others)


def draw(random: np.random.Generator, known: Names, number: int) -> Description:
    """A description of a design; presets are dealt in turn, so that each of them is met."""
    chip_name = known.chips[number % len(known.chips)]
    chip = dse.chips[chip_name]()
    plan = _plan(random)
    if number % 5 < 2:
        network, sequence = {"decoder": _decoder(random)}, int(_pick(random, (1024, 2048, 8192, 32_768)))
    elif number % 5 < 3:
        network = {"preset": known.decoders[number // 5 % len(known.decoders)]}
        sequence = _pick(random, (None, 2048, 4096))
    else:
        network = {"preset": known.others[(number // 5 * 2 + number % 5 - 3) % len(known.others)]}
        sequence = None
    training = _training(random, tuple(chip.matmul_rates))
    if number % 5 >= 3:
        training["dispatch"] = "copy"  # tokens are routed in decoders alone
    micro_batches = int(plan["pipeline"] * _pick(random, (1, 2, 4)))
    odd = int(_pick(random, (0, 0, 0, 0, 0, 1)))
    return {
        "chip": {"preset": chip_name, "changes": _chip_changes(random, chip)},
        "cluster": {
            "preset": _pick(random, known.clusters),
            "devices": plan["tensor"] * plan["pipeline"] * plan["data"] * plan["context"] + odd,
        },
        "network": network, "sequence": sequence,
        "global_batch": plan["data"] * plan["micro_batch"] * micro_batches + odd,
        "stack": _pick(random, known.stacks), "training": training, "plan": plan,
    }  # fmt: skip


# Building designs from their descriptions.


def constants_of(design: Any) -> dict[str, dict[str, Any]]:
    """The constants of a design that are rows of tables, by where they belong."""
    technology = design.constants
    return {"stack": asdict(design.stack), "technology": asdict(technology)}


def _key(description: Description) -> dict[str, str]:
    """Names under which a file keeps the constants of a design."""
    chip = description["chip"]["preset"]
    return {"stack": f"{description['stack']} on {chip}", "technology": chip}


def build(description: Description, constants: Mapping[str, Mapping[str, Any]] | None = None) -> Any:
    """The design of a description.

    constants   stored rows, by kind and name, that replace those of the tables where the field still exists
    """
    found = description["chip"]
    chip = dse.replace(dse.chips[found["preset"]](), **found["changes"])
    cluster = dse.clusters[description["cluster"]["preset"]](description["cluster"]["devices"])
    batch, sequence = description["global_batch"], description["sequence"]
    if "decoder" in description["network"]:
        workload = dse.Workload(dse.DecoderTransformer(**description["network"]["decoder"]), sequence, batch)
    else:
        workload = dse.networks[description["network"]["preset"]](sequence=sequence, global_batch=batch)
    stack = stack_on_device(description["stack"], found["preset"])
    plan, training = dse.Plan(**description["plan"]), dse.Training(**description["training"])
    design = dse.Design(chip, cluster, plan, workload, stack, training)
    if constants is None:
        return design
    key = _key(description)
    return dse.replace(
        design,
        stack=_with(stack, constants["stack"][key["stack"]]),
        technology=_with(design.constants, constants["technology"][key["technology"]]),
    )


def _with(model: Any, stored: Mapping[str, Any]) -> Any:
    """A model with the stored values of the fields that it still has."""
    changes = {item.name: stored[item.name] for item in fields(model) if item.name in stored}
    return dse.replace(model, **{n: tuple(v) if isinstance(v, list) else v for n, v in changes.items()})


def numbers(design: Any) -> dict[str, dict[str, float]]:
    """Every metric and every violation of a design."""
    result = dse.evaluate(design)
    return {
        "metrics": {name: float(result.column(name)[0]) for name in result.metrics},
        "violations": {name: float(result.violation(name)[0]) for name in result.violations},
    }


# Writing a file.


def write(place: Path, count: int, seed: int) -> None:
    """Draw designs that can be evaluated, price them and store all."""
    random, known = np.random.default_rng(seed), names()
    constants: dict[str, dict[str, Any]] = {"stack": {}, "technology": {}}
    lines: list[dict[str, Any]] = []
    refused: Counter[str] = Counter()
    while len(lines) < count:
        if sum(refused.values()) > 20 * count + 100:
            raise SystemExit(f"too few designs can be evaluated: {refused.most_common(3)}")
        # a refusal deals the same presets again, with another plan and cluster
        description = draw(random, known, len(lines))
        try:
            design = build(description)
            lines.append({"design": description, **numbers(design)})
        except (ValueError, TypeError) as error:
            refused[f"{type(error).__name__}: {str(error).split(', allowed')[0][:60]}"] += 1
            continue
        for kind, name in _key(description).items():
            constants[kind].setdefault(name, constants_of(design)[kind])
    head = {"version": VERSION, "dse": dse.__version__, "seed": seed, "constants": constants}
    place.write_text("\n".join(json.dumps(line) for line in (head, *lines)) + "\n", encoding="utf-8")
    feasible = sum(all(value <= 0 for value in line["violations"].values()) for line in lines)
    print(f"{len(lines)} designs ({feasible} feasible) in {place}; {sum(refused.values())} draws could not be built")
    for reason, times in refused.most_common(5):
        print(f"  {times} x {reason}")


# Comparing with a file.


@dataclass(frozen=True)
class Moved:
    """One design that was priced again.

    changes   name of a metric, or "violation: rule" -> (before, after), where they differ
    gained, lost   names that only one of the two knows
    error     why it could not be built or evaluated; "": it could
    """

    number: int
    design: Description
    changes: dict[str, tuple[float, float]]
    gained: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    error: str = ""


def differs(before: float, after: float) -> bool:
    """Whether a number moved: by more than `TOLERANCE` of the larger one, or from or to what is no number."""
    if math.isnan(before) or math.isnan(after):
        return math.isnan(before) != math.isnan(after)
    if math.isinf(before) or math.isinf(after):
        return before != after
    return abs(after - before) > TOLERANCE * max(abs(before), abs(after))


def _flat(line: Mapping[str, Any]) -> dict[str, float]:
    return line["metrics"] | {f"violation: {name}": value for name, value in line["violations"].items()}


def compare(place: Path, *, old_constants: bool) -> list[Moved]:
    """Price the designs of a file again."""
    with place.open(encoding="utf-8") as lines:
        head = json.loads(next(lines))
        if head.get("version") != VERSION:
            raise SystemExit(f"{place}: version: found {head.get('version')!r}, allowed: {VERSION}")
        stored = head["constants"] if old_constants else None
        found = []
        for number, text in enumerate(lines):
            line = json.loads(text)
            before = _flat(line)
            try:
                after = _flat(numbers(build(line["design"], stored)))
            except Exception as error:  # noqa: BLE001 - whatever a later code says of a design it does not build
                said = f"{type(error).__name__}: {error}"
                found.append(Moved(number, line["design"], {}, error=said))
                continue
            both = {name: (before[name], after[name]) for name in before if name in after}
            found.append(
                Moved(
                    number, line["design"], {name: pair for name, pair in both.items() if differs(*pair)},
                    tuple(name for name in after if name not in before),
                    tuple(name for name in before if name not in after),
                )
            )  # fmt: skip
    return found


def table(found: Sequence[Moved]) -> list[str]:
    """A Markdown row for each number that moved, most designs first."""
    pairs: dict[str, list[tuple[float, float]]] = {}
    for item in found:
        for name, pair in item.changes.items():
            pairs.setdefault(name, []).append(pair)
    rows = ["| number | designs moved | mean change | largest change | from 0 |", "|---|---|---|---|---|"]
    for name, changed in sorted(pairs.items(), key=lambda item: (-len(item[1]), item[0])):
        ratios = [after / before - 1.0 for before, after in changed if before and math.isfinite(after / before)]
        mean = f"{sum(ratios) / len(ratios):+.2%}" if ratios else ""
        most = f"{max(ratios, key=abs):+.2%}" if ratios else ""
        share = f"{len(changed)} ({len(changed) / len(found):.1%})"
        rows.append(f"| {name} | {share} | {mean} | {most} | {sum(not before for before, _ in changed) or ''} |")
    return rows if pairs else []


def groups(found: Sequence[Moved]) -> list[tuple[tuple[str, ...], list[Moved]]]:
    """Designs by the set of numbers that moved, the largest group first."""
    by_set: dict[tuple[str, ...], list[Moved]] = {}
    for item in found:
        if item.changes:
            by_set.setdefault(tuple(sorted(item.changes)), []).append(item)
    return sorted(by_set.items(), key=lambda pair: (-len(pair[1]), pair[0]))


def show(found: Sequence[Moved], *, where: int | None, examples: int, most: int) -> None:
    """Print the table, the groups, what is new or gone, and what no longer builds."""
    moved = [item for item in found if item.changes]
    print(f"{len(moved)} of {len(found)} designs moved\n")
    print("\n".join(table(found)), end="\n\n" if moved else "")
    for at, (names_, members) in enumerate(groups(found)[: most if where is None else None]):
        if where not in (None, at):
            continue
        print(f"group {at}: {len(members)} designs, {len(names_)} numbers: {', '.join(names_)}")
        for item in members[:examples] if where is not None else []:
            print(f"  design {item.number}: {json.dumps(item.design)}")
            for name, (before, after) in item.changes.items():
                print(f"    {name}: {before!r} -> {after!r}" + (f" ({after / before - 1:+.3%})" if before else ""))
    for title, attribute in (("new", "gained"), ("gone", "lost")):
        counted = Counter(name for item in found for name in getattr(item, attribute))
        for name, count in counted.most_common():
            print(f"{title}: {name} ({count} designs)")
    errors = Counter(item.error for item in found if item.error)
    if errors:
        print(f"{sum(errors.values())} designs no longer build:")
        for error, count in errors.most_common():
            first = next(item.number for item in found if item.error == error)
            print(f"  {count} x {error} (first: design {first})")


def main(arguments: Sequence[str] | None = None) -> None:
    """Write a file, or compare with one."""
    reader = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    work = reader.add_mutually_exclusive_group(required=True)
    work.add_argument("--write", metavar="FILE", type=Path, help="draw designs, price them, store them")
    work.add_argument("--against", metavar="FILE", type=Path, help="price the designs of FILE and say what moved")
    reader.add_argument("--designs", type=int, default=2_000, help="designs to draw (default: 2000)")
    reader.add_argument("--seed", type=int, default=0, help="of the draw (default: 0)")
    reader.add_argument("--old-constants", action="store_true", help="stack and technology as they are in FILE")
    reader.add_argument("--where", metavar="GROUP", type=int, help="examples of a group of designs, with descriptions")
    reader.add_argument("--examples", type=int, default=3, help="examples to show (default: 3)")
    reader.add_argument("--groups", type=int, default=20, help="groups to list, largest first (default: 20)")
    options = reader.parse_args(arguments)
    print(f"dse {dse.__version__} in {Path(dse.__file__).parent}")
    start = time.process_time()
    if options.write:
        write(options.write, options.designs, options.seed)
    else:
        found = compare(options.against, old_constants=options.old_constants)
        show(found, where=options.where, examples=options.examples, most=options.groups)
    print(f"{time.process_time() - start:.0f} s of processor time")


if __name__ == "__main__":
    main()
