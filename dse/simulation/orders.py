"""The order in which a stage runs its passes, written down for every schedule.

Sources: GPipe (arXiv 1811.06965), 1F1B and interleaved 1F1B (arXiv 2104.04473, figures 3 and 4), ZB-H1
(arXiv 2401.10241, section 2.3).
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["FORWARD", "BACKWARD", "WEIGHTS", "Pass", "passes_of"]

FORWARD, BACKWARD, WEIGHTS = "forward", "backward", "weights"


class Pass(NamedTuple):
    """A pass of one micro-batch through a chunk of a stage."""

    kind: str
    chunk: int
    micro_batch: int


def passes_of(schedule: str, stage: int, pipeline: int, micro_batches: int, chunks: int = 1) -> list[Pass]:
    """The passes of a stage in order; `weights` apart from `backward` only in a zero-bubble schedule."""
    if chunks > 1:
        return _interleaved(stage, pipeline, micro_batches, chunks)
    if schedule == "gpipe":
        every = range(micro_batches)
        return [Pass(FORWARD, 0, i) for i in every] + [Pass(BACKWARD, 0, i) for i in every]
    # a stage holds as many micro-batches as there are stages from it on
    ahead = min(pipeline - stage - 1, micro_batches)
    order = _alternate(
        [Pass(FORWARD, 0, i) for i in range(micro_batches)], [Pass(BACKWARD, 0, i) for i in range(micro_batches)], ahead
    )
    return order if schedule == "1f1b" else _with_weights(order, stage, micro_batches)


def _alternate(forward: list[Pass], backward: list[Pass], ahead: int) -> list[Pass]:
    """`ahead` forwards, then one forward and one backward in turn, then the backwards that are left."""
    order = forward[:ahead]
    for i in range(len(forward) - ahead):
        order += [forward[ahead + i], backward[i]]
    return order + backward[len(forward) - ahead :]


def _interleaved(stage: int, pipeline: int, micro_batches: int, chunks: int) -> list[Pass]:
    """Chunks in turn, `pipeline` micro-batches each."""
    turns = [
        (chunk, i)
        for start in range(0, micro_batches, pipeline)
        for chunk in range(chunks)
        for i in range(start, min(start + pipeline, micro_batches))
    ]
    ahead = min(2 * (pipeline - stage - 1) + (chunks - 1) * pipeline, len(turns))
    return _alternate(
        [Pass(FORWARD, chunk, i) for chunk, i in turns],
        [Pass(BACKWARD, chunks - 1 - chunk, i) for chunk, i in turns],
        ahead,
    )


def _with_weights(order: list[Pass], stage: int, micro_batches: int) -> list[Pass]:
    """ZB-H1: weight gradients `stage` micro-batches after the backward pass, so that no stage holds more than p."""
    found: list[Pass] = []
    for item in order:
        found.append(item)
        if item.kind == BACKWARD and item.micro_batch >= stage:
            found.append(Pass(WEIGHTS, 0, item.micro_batch - stage))
    return found + [Pass(WEIGHTS, 0, i) for i in range(max(micro_batches - stage, 0), micro_batches)]
