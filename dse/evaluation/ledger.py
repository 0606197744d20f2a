"""Every exchange of a step as one line: what it sends in one call, and how often a device calls it.

Bytes by axis, joules of communication and the list of collectives are folds over these lines.  No chip enters them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dse.evaluation.memory import Memory
from dse.evaluation.messages import Message, Messages, Part, in_passes, once_a_step
from dse.evaluation.situations import Situations
from dse.evaluation.stages import Stages
from workloads.operators import Block
from workloads.plan import FULL, PER_OPERATOR, Plan
from workloads.precision import Training

#: Parallel axes whose bytes are reported.
AXES = ("tensor", "pipeline", "context", "expert", "data")


@dataclass(frozen=True)
class Line:
    """One exchange of a step; columns at its cases (S,).

    name, axis   what is sent, and between which ranks
    call         its price: a field of `Traffic`
    cases        "passes" and "transfers" are called in every micro-batch, "reductions" once a step
    parts        messages of one call, in turn
    once         calls of a micro-batch on all stages together (passes) and at each boundary between stages (transfers);
                 calls of a step on the mean stage (reductions)
    again        further calls of every body layer that recomputes
    split        messages of one call where the stack cuts boundaries; None: the same
    fullest      bytes a micro-batch on the stage with most parameters (P,), which the data axis reports; None: the
                 mean of the stages, or a message that is that stage's already
    """

    name: str
    axis: str
    call: str
    cases: str
    parts: tuple[Part, ...]
    once: Any
    again: Any = 0.0
    split: tuple[Part, ...] | None = None
    fullest: Any = None


@dataclass(frozen=True)
class Ledger:
    """The lines of all plans of a layout, and what spreads their cases to the plans.

    hops       transfers of a micro-batch between all stages, forward and backward (P,)
    repeated   body layers of all stages that recompute (P,)
    """

    lines: tuple[Line, ...]
    passes: Situations
    transfers: Situations
    reductions: Situations
    micro_batches: Any
    pipeline: Any
    hops: Any
    repeated: Any

    def fold(self, value: Callable[[Line], Any], lines: tuple[Line, ...] | None = None) -> Any:
        """Sum over lines of value x calls of one device in a step, mean over stages; value (..., S), found (..., P).

        Sums are taken at the cases, of which there are far fewer than plans.
        """
        once: dict[str, Any] = {"passes": 0.0, "transfers": 0.0, "reductions": 0.0}
        again: Any = 0.0
        for line in self.lines if lines is None else lines:
            each = value(line)
            once[line.cases] = once[line.cases] + each * line.once
            if line.cases == "passes":
                again = again + each * line.again
        share = self.micro_batches / self.pipeline
        in_passes = self.passes.spread(once["passes"]) + self.repeated * self.passes.spread(again)
        moved = share * (in_passes + self.hops * self.transfers.spread(once["transfers"]))
        return moved + self.reductions.spread(once["reductions"])

    def sent(self, axis: str, *, splits: Any = 0.0) -> Any:
        """Bytes one device sends over an axis in a step, whatever the algorithm (P,); splits: a stack cuts boundaries.

        Mean over stages; over the data axis the stage with most parameters.
        """
        lines = tuple(line for line in self.lines if line.axis == axis)
        total = self.fold(lambda line: sent_in_call(line, splits), tuple(x for x in lines if x.fullest is None))
        for line in lines:
            if line.fullest is not None:
                total = total + self.micro_batches * line.fullest
        return total


def sent_in_call(line: Line, splits: Any = 0.0) -> Any:
    """Bytes one device sends in one call."""
    whole = _sent(line.parts)
    return whole if line.split is None else np.where(np.greater(splits, 0.0), _sent(line.split), whole)


def _sent(parts: tuple[Part, ...]) -> Any:
    total: Any = 0.0
    for part in parts:
        total = total + part.sent
    return total


def ledger(
    plan: Plan, blocks: dict[str, Block], training: Training, stages: Stages, held: Memory, messages: Messages,
    passes: Situations, at_pass: dict[str, Any], transfers: Situations, at_transfer: dict[str, Any],
    reductions: Situations, at_reduction: dict[str, Any],
) -> Ledger:  # fmt: skip
    """The lines of a step."""
    lines = (
        *_in_layers(blocks, training, messages, at_pass),
        *_of_weights(blocks, training, held, messages, passes, at_pass),
        *_between_stages(messages, at_transfer),
        *_after(training, messages, at_reduction),
    )
    return Ledger(
        lines, passes, transfers, reductions, stages.micro_batches, plan.pipeline,
        hops=2.0 * (plan.pipeline * plan.interleave - 1.0), repeated=stages.repeated_total,
    )  # fmt: skip


def _in_layers(
    blocks: dict[str, Block], training: Training, messages: Messages, at: dict[str, Any]
) -> list[Line]:
    """Boundaries over the tensor axis, keys and values over the context axis, routed rows over the expert axis.

    Boundaries: once forward, once backward (the embedding forward, the head backward).  Keys: forward, backward again,
    and their gradients.  Rows: to experts and back, twice.  Full recomputation repeats what is forward; per operator,
    sequence parallelism repeats the gathers: half an exchange.
    """
    body, lead = blocks["body"], blocks["lead"]
    full = np.where(at["recompute"] == FULL, 1.0, 0.0)
    repeats = full + 0.5 * ((at["recompute"] == PER_OPERATOR) & (at["sequence_parallel"] > 0))
    layers = float(2 * body.count * body.reductions + blocks["first"].reductions + blocks["last"].reductions)
    leading = float(lead.count * lead.reductions)
    found = [
        Line("block boundaries", "tensor", "exchange", "passes", (Part("all_reduce", messages.exchange),),
             layers + (2.0 + repeats) * leading, repeats * float(body.reductions))
    ]  # fmt: skip
    if messages.keys is not None:
        of_body, of_lead = (float(block.context_exchange > 0) for block in (body, lead))
        found.append(
            Line("keys and values", "context", "keys", "passes", (Part("all_gather", messages.keys),),
                 3.0 * body.count * of_body + (3.0 + full) * (lead.count * of_lead), full * of_body)
        )  # fmt: skip
    if messages.tokens is not None:
        of_body, of_lead = (float(block.routed > 0) for block in (body, lead))
        copies = copies_sent(blocks, training)
        found.append(
            Line("routed rows", "expert", "tokens", "passes", (Part("all_to_all", messages.tokens, copies),),
                 4.0 * body.count * of_body + (4.0 + 2.0 * full) * (lead.count * of_lead), 2.0 * full * of_body)
        )  # fmt: skip
    return found


def copies_sent(blocks: dict[str, Block], training: Training) -> int:
    """Copies of a token in an all-to-all that sends it once to each place (`Training.dispatch`), else 1."""
    return blocks["body"].experts_per_token if training.dispatch == "token" else 1


def _of_weights(
    blocks: dict[str, Block], training: Training, held: Memory, messages: Messages, passes: Situations,
    at: dict[str, Any],
) -> list[Line]:  # fmt: skip
    """What ZeRO-3 gathers and ZeRO-2 and 3 reduce in the passes: of a layer, and of embedding and head."""
    if messages.layer is None or messages.ends is None:
        return []
    fetches = 1.0 + at["reshard"]
    rest = held.dense - held.of_lead - held.of_ends
    of = [
        ("a layer", "", messages.layer, messages.layer_experts, float(blocks["body"].count), rest, held.expert),
        ("embedding and head", "_ends", messages.ends, None, 1.0, held.of_ends, 0.0),
    ]
    if messages.lead is not None:
        of.append(
            ("a leading layer", "_lead", messages.lead, None, float(blocks["lead"].count), held.of_lead, 0.0)
        )
    found = []
    for name, suffix, message, experts, count, dense, expert in of:
        parts = in_passes(message, at, at["copies"], training)
        most = [passes.spread(_sent(kind)) * dense for kind in _of_a_parameter(message, at, at["copies"], training)]
        if experts is not None:
            for i, more in enumerate(in_passes(experts, at, at["expert_copies"], training)):
                parts[i].extend(more)
            for i, kind in enumerate(_of_a_parameter(experts, at, at["expert_copies"], training)):
                most[i] = most[i] + passes.spread(_sent(kind)) * expert
        # embedding and head are gathered once for both passes
        number = count if suffix == "_ends" else count * fetches
        times = 1.0 if suffix == "_ends" else passes.spread(fetches)
        found += [
            Line(f"weights of {name}", "data", f"fetch{suffix}", "passes", tuple(parts[0]), number,
                 fullest=times * most[0]),
            Line(f"gradients of {name}", "data", f"reduce{suffix}", "passes", tuple(parts[1]), count,
                 fullest=most[1]),
        ]  # fmt: skip
    return found


def _of_a_parameter(
    message: Message, at: dict[str, Any], copies: Any, training: Training
) -> list[tuple[Part, ...]]:
    return [tuple(parts) for parts in in_passes(Message(message.size, message.distance, 1.0), at, copies, training)]


def _between_stages(messages: Messages, at: dict[str, Any]) -> list[Line]:
    """Boundaries between stages, each forward and backward; a stack that cuts them gathers them again."""
    whole, cut = messages.transfer, at["tensor"] / at["sharing"]  # nothing is left to cut with sequence parallelism
    part = Message(whole.size, whole.distance, whole.message / cut)
    nothing = Part("all_gather", Message(1.0, 1.0, 0.0))
    return [
        Line("stage outputs", "pipeline", "transfer", "transfers", (Part("point_to_point", whole),), 1.0,
             split=(Part("point_to_point", part),)),
        Line("stage outputs gathered", "tensor", "rejoin", "transfers", (nothing,), 1.0,
             split=(Part("all_gather", messages.rejoined(at)),)),
    ]  # fmt: skip


def _after(training: Training, messages: Messages, at: dict[str, Any]) -> list[Line]:
    """What follows the last backward pass: gradients and touched rows, updated weights, a tied embedding's gradient."""
    reduced, gathered = once_a_step(messages.gradients, at["stage"], at["group"], training)
    if messages.experts is not None:
        more, again = once_a_step(messages.experts, at["stage"], at["expert_group"], training)
        reduced, gathered = reduced + more, gathered + again
    if messages.rows is not None:
        reduced = [*reduced, Part("all_gather", messages.rows)]
    # the first and the last stage, of all
    return [
        Line("gradients", "data", "gradients", "reductions", tuple(reduced), 1.0),
        Line("updated weights", "data", "gather", "reductions", tuple(gathered), 1.0),
        Line("tied embedding", "pipeline", "tied", "reductions", (Part("all_reduce", messages.tied),),
             2.0 / at["pipeline"]),
    ]  # fmt: skip
