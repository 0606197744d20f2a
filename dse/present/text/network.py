"""A network, layer by layer, as text: what `dse network show` prints."""

from __future__ import annotations

from collections.abc import Sequence

from dse.base.units import format_quantity
from dse.insight.network_report import PHASES, Layer, NetworkReport, Work, total
from dse.present.text.tables import columns_text, wrapped
from dse.present.text.words import in_bytes, join, percent, section

__all__ = ["network_text"]

WORDS = {
    "forward": "products forward", "input_gradient": "input gradients", "weight_gradient": "weight gradients",
    "passes_forward": "passes forward", "passes_backward": "passes backward",
}  # fmt: skip


def network_text(report: NetworkReport, *, operators: bool = False) -> str:
    """What it is, totals by phase, layers, and operators where they are wanted."""
    many = f"a micro-batch of {report.micro_batch:,} samples" if report.micro_batch > 1 else "one sample"
    intro = (
        f"{report.name}: {_count(report.parameters)} parameters; a sample is {_article(report.sample)}; "
        f"{in_bytes(float(report.kept))} kept for the backward pass of a sample."
    )
    forward = report.phase("forward").flops
    products = report.phase("forward", "input_gradient", "weight_gradient").flops
    times = f"Training computes {products / forward:.3f} times the products of the forward pass." if forward else ""
    return join(
        [
            wrapped(intro),
            wrapped(f"Source: {report.source}") if report.source else None,
            section(f"Phases of {many}", _phase_table(report)),
            wrapped(times, indent=2) if times else None,
            section(f"Layers, {many}", _layer_table(report.layers)),
            section("Operators", _operator_table(report.layers)) if operators else None,
        ]
    )


def _article(text: str) -> str:
    if text[:1].isdigit():
        return text
    return f"{'an' if text[:1] in 'aeiou' else 'a'} {text}"


def _count(number: float) -> str:
    """A number with its thousands, or short where it is long."""
    return f"{number:,.0f}" if number < 1e10 else f"{number / 1e9:,.2f} B"


def _intensity(work: Work) -> str:
    return "-" if work.intensity is None else f"{work.intensity:,.2f}"


def _phase_table(report: NetworkReport) -> str:
    everything = report.phase(*PHASES)
    rows = []
    for name in PHASES:
        work = report.phase(name)
        rows.append(
            [WORDS[name], format_quantity(work.flops, "FLOP"), in_bytes(work.moved), _intensity(work),
             percent(work.flops / everything.flops if everything.flops else None),
             percent(work.moved / everything.moved if everything.moved else None)]
        )  # fmt: skip
    return columns_text(["phase", "FLOP", "bytes", "FLOP/B", "of FLOP", "of bytes"], rows, indent=2)


def _layer_table(layers: Sequence[Layer]) -> str:
    rows = []
    for layer in layers:
        forward = layer.phase("forward", "passes_forward")
        back = layer.phase("input_gradient", "weight_gradient", "passes_backward")
        rows.append(
            [layer.name, str(layer.count), _count(layer.parameters), format_quantity(forward.flops, "FLOP"),
             format_quantity(back.flops, "FLOP"), in_bytes(forward.moved), in_bytes(back.moved), _intensity(forward),
             in_bytes(float(layer.kept))]
        )  # fmt: skip
    headings = [
        "layer",
        "times",
        "parameters",
        "forward",
        "backward",
        "bytes forward",
        "bytes backward",
        "FLOP/B",
        "kept",
    ]
    return columns_text(headings, rows, indent=2)


def _operator_table(layers: Sequence[Layer]) -> str:
    rows = []
    for layer in layers:
        for line in layer.operators:
            forward = line.phases["forward"] + line.phases["passes_forward"]
            back = total(line.phases[name] for name in PHASES if name not in ("forward", "passes_forward"))
            shape = "x".join(map(str, line.shape))
            rows.append(
                [layer.name, line.name, shape or line.size, _count(line.parameters),
                 format_quantity(forward.flops, "FLOP"), format_quantity(back.flops, "FLOP"),
                 in_bytes(forward.moved), _intensity(forward)]
            )  # fmt: skip
    return columns_text(
        ["layer", "operator", "result", "parameters", "forward", "backward", "bytes", "FLOP/B"], rows, indent=2
    )
