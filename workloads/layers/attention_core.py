"""The attention core S = Q K^T, P = softmax(S), O = P V: its two products, its softmax and what it keeps.

Sizes are for one sample and the whole model.  Theory: docs/models/workloads.md.
"""

from __future__ import annotations

from workloads.operators import Attention, Matmul, Vector


def core_matmuls(core: Attention) -> tuple[Matmul, Matmul]:
    """Scores S = Q K^T and context O = P V, a product a head."""
    queries, keys, heads = core.queries, core.keys, core.heads
    return (
        Matmul(
            "scores", queries, keys, core.head_dim, groups=heads, split="groups", weight=False, core=True
        ),
        Matmul(
            "context", queries, core.value_dim, keys, groups=heads, split="groups", weight=False, core=True,
        ),
    )  # fmt: skip


def softmax(drops: bool, core: Attention) -> Vector:
    """Scale, mask and softmax as one kernel, dropout a second one.

    A causal softmax reads the half of the scores that is not masked, and writes all of them; so does its gradient.
    Apart: scale, mask, softmax, and the kernels of dropout.
    """
    mask = 0.5 if drops else 0.0
    seen = 0.5 if core.causal else 1.0
    dropout = 1.0 if drops else 0.0
    return Vector(
        "softmax", core.heads * core.queries * core.keys, reads=seen + dropout, writes=1.0 + dropout + mask,
        backward_reads=2.0 * seen + dropout + mask, backward_writes=1.0 + dropout, operations=6, backward_operations=4,
        split="tensor", core=True, pieces=2.5 if drops else 2.0,
    )  # fmt: skip


def kept_scores(drops: bool, core: Attention) -> tuple[int, int]:
    """Bytes that a materialized core keeps, and of them those of its one-byte dropout mask.

    Softmax output (2 B a score), dropout mask (1) and dropout output (2); without dropout the first is the last.
    [Korthikanti et al. 2022, arXiv 2205.05198, section 4.1: 5 a s^2 b]
    """
    scores = core.heads * core.queries * core.keys
    return (5 * scores, scores) if drops else (2 * scores, 0)
