"""Messages of the collectives of a step: ranks, distance and bytes of one call in every situation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dse.evaluation.memory import Memory
from dse.evaluation.situations import Situations
from dse.evaluation.stages import Stages
from workloads.operators import Block
from workloads.precision import Training


@dataclass(frozen=True)
class Message:
    """What one call of a collective sends in each situation: ranks, distance between them, bytes of the full tensor."""

    size: Any
    distance: Any
    message: Any


@dataclass(frozen=True)
class Part:
    """A message and the collective that sends it; copies: of a token in an all-to-all that sends it once to a rank."""

    kind: str
    message: Message
    copies: int = 1

    @property
    def sent(self) -> Any:
        """Bytes one of n ranks sends of a tensor of S bytes, whatever the algorithm.

        All-reduce 2 (n - 1)/n S; point to point S; else (n - 1)/n S.  Of k copies of a row to random ranks
        n (1 - (1 - 1/n)^k) cross once each.
        """
        n, size = self.message.size, self.message.message
        if self.kind == "point_to_point":
            return size
        if self.copies > 1:
            size = size / self.copies * (n * (1.0 - (1.0 - 1.0 / n) ** self.copies))
        share = (n - 1.0) / n
        return (2.0 if self.kind == "all_reduce" else 1.0) * share * size


@dataclass(frozen=True)
class Messages:
    """What the collectives of a step send.  None: no plan of the batch has it.

    exchange        a block's boundary over the tensor axis                                      [passes]
    keys            keys and values of a block over the context axis                             [passes]
    tokens          rows that one rank sends to experts                                          [passes]
    layer, layer_experts, lead, ends   weights (in parameters) that ZeRO-3 gathers and ZeRO-2 reduces for a body
                    layer outside and inside its experts, for a leading layer, and for embedding and head
                    together                                                                     [passes]
    transfer        a boundary sent to the next stage                                            [transfers]
    gradients       dense parameters of a stage                                                  [reductions]
    experts         parameters of its routed experts                                             [reductions]
    rows            rows of sparse tables that all copies of a piece updated, gathered by each   [reductions]
    tied            a tied embedding's gradient between first and last stage                     [reductions]
    """

    exchange: Message
    keys: Message | None
    tokens: Message | None
    layer: Message | None
    layer_experts: Message | None
    lead: Message | None
    ends: Message | None
    transfer: Message
    gradients: Message
    experts: Message | None
    rows: Message | None
    tied: Message

    def reduced_once(self, gradient_bytes: float) -> Any:
        """Bytes of gradients one device reduces after its last backward pass, dense, of experts and of touched rows.

        Buckets are filled from all of them; `rows` counts the rows of every rank, of which a device owns one share.
        """
        held = self.gradients.message * gradient_bytes
        if self.experts is not None:
            held = held + self.experts.message * gradient_bytes
        if self.rows is not None:
            held = held + self.rows.message / self.rows.size
        return held

    def rejoined(self, at: dict[str, Any]) -> Message:
        """A boundary that was cut for a transfer, gathered over the tensor axis; `at` the columns of transfers."""
        cuts = (at["tensor"] / at["sharing"] > 1) & (at["pipeline"] > 1)
        return Message(at["tensor"], at["tensor_distance"], self.transfer.message * cuts)


def pass_messages(at: dict[str, Any], blocks: dict[str, Block], training: Training) -> dict[str, Any]:
    """What a block's pass sends: boundary, keys and values, routed rows, weights that ZeRO splits."""
    body, t = blocks["body"], at["tensor"]
    samples = at["micro_batch"] / at["context"]
    exchanged = (body.exchanged or body.boundary) * training.activation_bytes
    exchange = Message(t, at["distance"], samples * exchanged)
    keys = tokens = layer = layer_experts = lead = ends = None
    if np.any(at["context"] > 1):
        groups = np.maximum(np.ceil(body.group_count / t), 1.0)
        width = body.context_exchange / body.group_count * training.activation_bytes
        keys = Message(at["context"], at["context_distance"], at["micro_batch"] * width * groups)
    if np.any(at["expert"] > 1):
        # tensor ranks hold different tokens with sequence parallelism, and where experts are whole
        cut = np.where((at["sequence_parallel"] > 0) | (at["expert_tensor"] == 0), t, 1.0)
        tokens = Message(
            at["expert"], at["expert_distance"], samples * (body.routed * training.activation_bytes) / cut
        )
    if np.any((at["zero_stage"] >= 2) | (at["hosted"] > 0)):
        outside = blocks["first"].dense_parameters(t) + blocks["last"].dense_parameters(t)
        outside = outside - blocks["last"].shared_on_device(t)
        split = (at["group"], at["group_distance"])
        layer, ends = Message(*split, body.dense_parameters(t)), Message(*split, outside)
        if blocks["lead"].count:
            lead = Message(*split, blocks["lead"].dense_parameters(t))
        if body.parameters_expert and not body.sparse:
            held = body.expert_parameters(t, at["expert"], at["expert_tensor"])
            layer_experts = Message(at["expert_group"], at["expert_group_distance"], held)
    return {
        "exchange": exchange, "keys": keys, "tokens": tokens, "layer": layer, "layer_experts": layer_experts,
        "lead": lead, "ends": ends,
    }


def reduction_messages(
    reductions: Situations, at: dict[str, Any], held: Memory, found: Stages, blocks: dict[str, Block],
    training: Training,
) -> dict[str, Any]:  # fmt: skip
    """Parameters whose gradients are reduced, of the stage with most of them, and a tied embedding's gradient."""
    pick = reductions.pick
    shared = blocks["last"].shared_on_device(at["tensor"])
    has_last = pick(found.has_last)
    experts = rows = None
    if blocks["body"].sparse:
        # a piece's rows are read for the samples of all its expert peers: as many elements as of one device's samples
        touched = at["samples"] * (float(blocks["body"].touched) * training.gradient_bytes)
        rows = Message(at["expert_ranks"], at["expert_distance"], at["expert_ranks"] * touched)
    elif blocks["body"].parameters_expert:
        experts = Message(at["expert_ranks"], at["expert_distance"], pick(held.expert))
    return {
        "gradients": Message(at["ranks"], at["distance"], pick(held.dense)),
        "experts": experts,
        "rows": rows,
        "tied": Message(
            1.0 + has_last,
            at["pipeline_distance"] * np.maximum(at["pipeline"] - 1.0, 1.0),
            has_last * (shared * training.gradient_bytes),
        ),
    }


def once_a_step(sent: Message, stage: Any, group: Any, training: Training) -> tuple[list[Part], list[Part]]:
    """Gradients reduced once a step, and weights gathered after the update; `sent` counts parameters.

    ZeRO-1 scatters inside its group, then all-reduces the parts between groups; ZeRO-2 and 3 have reduced in the
    passes, and ZeRO-3 gathers there too.
    """
    split = np.where(stage == 1, group, 1.0)
    gradients = sent.message * (training.gradient_bytes * (stage < 2))
    reduced = Part("all_reduce", Message(sent.size / split, sent.distance * split, gradients / split))
    if not np.any(stage >= 1):  # saves a third of the calls of plans without ZeRO; same bits
        return [reduced], []
    scattered = Part("reduce_scatter", Message(split, sent.distance, gradients))
    weights = sent.message * (training.weight_bytes * ((stage == 1) | (stage == 2)))
    return [scattered, reduced], [Part("all_gather", Message(group, sent.distance, weights))]


def in_passes(
    sent: Message, at: dict[str, Any], copies: Any, training: Training, pieces: Any = 1.0
) -> tuple[list[Part], list[Part]]:
    """What ZeRO-3 gathers for a pass and ZeRO-2 and 3 reduce after it, one of `pieces`; `sent` counts parameters.

    Between groups that hold copies the parts are all-reduced.
    """
    weights = sent.message / pieces * (training.weight_bytes * (at["zero_stage"] >= 3))
    gradients = sent.message / pieces * (training.gradient_bytes * (at["zero_stage"] >= 2))
    fetch = [Part("all_gather", Message(sent.size, sent.distance, weights))]
    reduce = [Part("reduce_scatter", Message(sent.size, sent.distance, gradients))]
    if np.any(copies > 1):
        reduce.append(Part("all_reduce", Message(copies, sent.distance * sent.size, gradients / sent.size)))
    return fetch, reduce
