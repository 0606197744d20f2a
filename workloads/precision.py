"""How many bytes a number takes, and what the optimizer keeps of each parameter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Precision = Literal["fp32", "tf32", "bf16", "fp16", "fp8"]

#: Bytes a stored element. tf32 is a compute mode whose operands are stored as fp32.
BYTES: dict[str, float] = {"fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2, "fp8": 1, "int8": 1, "int4": 0.5}

#: Bytes of an element of an embedding table whose rows are updated one by one: fp32, so that it needs no master copy.
TABLE_BYTES = 4.0
#: Bytes of optimizer state of such tables: of an element, and of a row (row-wise Adagrad: one number a row).
TABLE_STATE: dict[str, tuple[float, float]] = {
    "adam": (8.0, 0.0), "momentum": (4.0, 0.0), "rowwise_adagrad": (0.0, 4.0), "sgd": (0.0, 0.0)
}  # fmt: skip
#: Bytes of the smallest piece of memory that is read or written: a sector.
SECTOR_BYTES = 32.0

#: Bytes an activation is kept in: an fp8 recipe keeps bf16 activations between operators.
ACTIVATION_BYTES: dict[str, float] = {"fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2, "fp8": 2}


@dataclass(frozen=True)
class Training:
    """How a step is computed: number formats, optimizer, attention kernel.

    precision        operands of the matrix products
    scaling          of fp8 operands: one scale a "tensor", or one a "row" (and a column for the transposed use)
    weight_casts     of fp8 weights: in every "pass", or "once" a step, kept between micro-batches or written by the
                     update (Transformer Engine)
    dispatch         rows to experts of other devices: one for every "copy" (NCCL all-to-all), or a "token" crosses
                     once to each node and device that wants it (DeepEP)
    gradient_bytes   bytes a gradient is accumulated and reduced in (2 or 4)
    optimizer        adam: fp32 master weights and two moments (12 B); momentum: master and one (8 B);
                     sgd: master only (4 B).  In pure fp32 the master is the weight itself.
    table_optimizer  of embedding tables whose rows are updated one by one: "same" as `optimizer`, or "adam" (two
                     moments of every element, 8 B), "momentum" (one, 4 B), "rowwise_adagrad" (one number a row, 4 B;
                     FBGEMM, TorchRec), "sgd" (nothing).  Rows are fp32 and their own master.  State is kept of every
                     row; a step reads and writes that of the rows it touches
    attention        "fused" keeps scores on chip (FlashAttention-1, -2); "pipelined" also runs the softmax of one tile
                     behind the products of another (FlashAttention-3, cuDNN); "materialized" writes scores to memory
    convolution      "direct", or "winograd": fp32 convolutions of 3 x 3 taps and stride 1 multiply 2.25 times less
                     (cuDNN does, tensor cores do not)
    layout           of images: "channels_last" (NHWC), or "channels_first" (NCHW), which is converted for tensor-core
                     convolutions: operands before, results after
    cross_entropy    "fused" reads logits once a pass; "materialized" writes every step of the loss to memory
    """

    precision: Precision = "bf16"
    gradient_bytes: int = 4
    optimizer: Literal["adam", "momentum", "sgd"] = "adam"
    attention: Literal["fused", "pipelined", "materialized"] = "fused"
    cross_entropy: Literal["fused", "materialized"] = "fused"
    scaling: Literal["tensor", "row"] = "tensor"
    weight_casts: Literal["pass", "once"] = "pass"
    dispatch: Literal["copy", "token"] = "copy"
    convolution: Literal["direct", "winograd"] = "direct"
    layout: Literal["channels_last", "channels_first"] = "channels_last"
    table_optimizer: Literal["same", "adam", "momentum", "rowwise_adagrad", "sgd"] = "same"

    def __post_init__(self) -> None:
        allowed = {
            "precision": ("fp32", "tf32", "bf16", "fp16", "fp8"),
            "gradient_bytes": (2, 4),
            "optimizer": ("adam", "momentum", "sgd"),
            "attention": ("fused", "pipelined", "materialized"),
            "cross_entropy": ("fused", "materialized"),
            "scaling": ("tensor", "row"),
            "weight_casts": ("pass", "once"),
            "dispatch": ("copy", "token"),
            "convolution": ("direct", "winograd"),
            "layout": ("channels_last", "channels_first"),
            "table_optimizer": ("same", *TABLE_STATE),
        }
        problems = [
            f"{name}: found {getattr(self, name)!r}, allowed: {', '.join(map(str, values))}"
            for name, values in allowed.items()
            if getattr(self, name) not in values
        ]
        if problems:
            raise ValueError("; ".join(problems))

    @property
    def weight_bytes(self) -> float:
        """Bytes of a weight used by the products (fp8 recipes keep bf16 weights)."""
        return ACTIVATION_BYTES[self.precision]

    @property
    def activation_bytes(self) -> float:
        """Bytes of an activation kept between operators."""
        return ACTIVATION_BYTES[self.precision]

    @property
    def operand_bytes(self) -> float:
        """Bytes of an operand as the array reads it."""
        return BYTES[self.precision]

    @property
    def cast_bytes(self) -> float:
        """Bytes moved to turn an element into fp8, used as it is and transposed.

        tensor  read once and written twice; its scale comes with the kernel that made it (or from the step before)
        row     for each of the two uses: read for the largest of a row, read again, written
        """
        wide, narrow = ACTIVATION_BYTES["fp8"], BYTES["fp8"]
        return wide + 2.0 * narrow if self.scaling == "tensor" else 2.0 * (2.0 * wide + narrow)

    @property
    def state_bytes(self) -> int:
        """Bytes of optimizer state a parameter, beside weight and gradient."""
        moments = {"adam": 8, "momentum": 4, "sgd": 0}[self.optimizer]
        return (0 if self.is_own_master else 4) + moments

    @property
    def table_state_bytes(self) -> tuple[float, float]:
        """Bytes of optimizer state of an element, and of a row, of an embedding table, beside its weight."""
        return TABLE_STATE[self.optimizer if self.table_optimizer == "same" else self.table_optimizer]

    def row_state_moved(self, width: float) -> float:
        """Bytes of state read and written to update a row of `width` elements: whole sectors of memory."""
        element, row = self.table_state_bytes
        state = element * width + row
        return 2.0 * max(state, SECTOR_BYTES) if state else 0.0

    @property
    def is_own_master(self) -> bool:
        """Weights are fp32 already: the optimizer keeps no other copy."""
        return self.weight_bytes == 4
