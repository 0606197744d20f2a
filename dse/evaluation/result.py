"""What an evaluation says: metrics and violations as columns, with unit and meaning of each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

#: Every metric: unit, meaning.  Times are of one step; per device where it says so.
METRICS: dict[str, tuple[str, str]] = {
    "step_time": ("s", "one optimizer step"),
    "throughput": ("token/s", "tokens trained a second by the whole cluster"),
    "samples_per_second": ("1/s", "samples trained a second by the whole cluster"),
    "mfu": ("", "model FLOP utilisation: forward and backward as computed (fused attention: half a causal square)"),
    "hfu": ("", "hardware FLOP utilisation: the same with recomputation"),
    "model_flops_rate": (
        "FLOP/s", "a device, as publications count: forward and backward, full attention squares (PaLM, Megatron)"
    ),
    "energy_per_step": ("J", "chips and links, whole cluster, PUE 1"),
    "energy_per_token": ("J", "chips and links, whole cluster, PUE 1"),
    "average_power": ("W", "energy over time, one device"),
    "peak_power": ("W", "all arrays, memories and links of one chip at once (its TDP)"),
    "die_area": ("m2", "logic die, HBM excluded"),
    "tdp": ("W", "peak sustained power of one chip with its HBM"),
    "chip_cost": ("USD", "making one packaged chip: dies, HBM, interposer, assembly, test; not what a vendor asks"),
    "cost_per_token": ("USD/token", "owning and running the cluster: chips, servers, electricity with PUE, building"),
    "carbon_embodied": ("kg", "CO2 of making one packaged chip"),
    "carbon_per_token": ("kg/token", "CO2 of electricity with PUE and of making the chips, spread over their life"),
    "die_yield": ("", "dies without a killing defect, of one die of the package"),
    "reticle_excess": ("", "area of one die over the largest a scanner exposes, less 1: can be made at <= 0"),
    "hbm_excess": ("", "bandwidth or capacity of an HBM stack over what its generation offers, less 1"),
    "throughput_per_tdp": ("token/J", "tokens a second over the TDP of all devices"),
    "throughput_per_area": ("token/s/m2", "tokens a second over the logic area of all devices"),
    "memory": ("B", "fullest device, with reserve and fragmentation"),
    "memory_weights": ("B", "weights on the fullest stage"),
    "memory_gradients": ("B", "gradients on the fullest stage"),
    "memory_optimizer": ("B", "optimizer state on the fullest stage"),
    "memory_activations": ("B", "activations in flight on the fullest stage"),
    "memory_logits": ("B", "logits and loss on the fullest stage"),
    "memory_buffers": ("B", "gathered weights and unreduced gradients of the layers at work (ZeRO-2, 3)"),
    "memory_reserve": ("B", "libraries, buffers and what the allocator cannot use"),
    "time_forward": ("s", "forward products and passes, mean over stages"),
    "time_backward": ("s", "input and weight gradients, mean over stages"),
    "time_recompute": ("s", "recomputed forward, mean over stages"),
    "time_tensor": ("s", "exposed tensor-parallel communication, mean over stages"),
    "time_context": ("s", "exposed exchange of keys and values between context ranks, mean over stages"),
    "time_expert": ("s", "routed rows sent to experts and back, mean over stages"),
    "time_shard": ("s", "exposed gathers and reductions of ZeRO-2 and 3 in the passes, mean over stages"),
    "time_host": ("s", "devices wait for the host that issues their work, mean over stages"),
    "time_bubble": ("s", "pipeline fill, drain, imbalance and transfers"),
    "time_data": ("s", "exposed data-parallel communication, tied embedding included"),
    "time_update": ("s", "optimizer"),
    "time_straggler": ("s", "waiting for the slowest device of the step"),
    "time_overhead": ("s", "once a step: loading, logging"),
    "energy_compute": ("J", "arrays, lanes and SRAM of the whole cluster, a step"),
    "energy_communication": ("J", "links and network of the whole cluster, a step"),
    "energy_static": ("J", "leakage and idle power of the whole cluster, a step"),
    "micro_batches": ("", "micro-batches a step on each device"),
    "communication_tensor": ("B", "sent by one device over the tensor axis, a step"),
    "communication_pipeline": ("B", "sent by one device to other stages, a step"),
    "communication_context": ("B", "sent by one device over the context axis, a step"),
    "communication_expert": ("B", "sent by one device over the expert axis, a step"),
    "communication_data": ("B", "sent by one device over the data axis, a step"),
}

#: Parts that add up to `step_time`.
TIME_PARTS = tuple(name for name in METRICS if name.startswith("time_"))
MEMORY_PARTS = tuple(name for name in METRICS if name.startswith("memory_"))
ENERGY_PARTS = ("energy_compute", "energy_communication", "energy_static")


@dataclass(frozen=True)
class Result:
    """Columns of one evaluation; a violation is feasible at <= 0.

    `result["step_time"]`, `result[3]` (one row), `len(result)`, `result.feasible`.
    """

    metrics: dict[str, np.ndarray]
    violations: dict[str, np.ndarray]
    shape: tuple[int, ...]
    design: Any = None

    def __len__(self) -> int:
        return int(np.prod(self.shape))

    def __iter__(self) -> Iterator[Result]:
        return (self[i] for i in range(len(self)))

    def column(self, name: str) -> np.ndarray:
        """A metric as a flat column (N,)."""
        if name not in self.metrics:
            raise KeyError(f"{name!r}: a result has {', '.join(self.metrics)}")
        return self._flat(self.metrics[name])

    def violation(self, name: str) -> np.ndarray:
        """A rule as a flat column (N,), feasible at <= 0."""
        if name not in self.violations:
            raise KeyError(f"{name!r}: the rules are {', '.join(self.violations)}")
        return self._flat(self.violations[name])

    def _flat(self, table: np.ndarray) -> np.ndarray:
        return np.broadcast_to(table, self.shape).reshape(-1)

    def __getitem__(self, which: int | str) -> Any:
        if isinstance(which, str):
            return self.column(which)
        if not -len(self) <= which < len(self):
            raise IndexError(f"row {which}: the result has {len(self)}")
        at = which % len(self)
        return Result(
            {name: self.column(name)[at : at + 1] for name in self.metrics},
            {name: self.violation(name)[at : at + 1] for name in self.violations},
            (1,),
            self.design,
        )

    def value(self, name: str) -> float:
        """A metric of a result of one row."""
        column = self.column(name)
        if column.size != 1:
            raise ValueError(f"{name}: the result has {column.size} rows; choose one, e.g. result[0]")
        return float(column[0])

    @property
    def feasible(self) -> np.ndarray:
        """True where no constraint is violated (N,)."""
        good: Any = np.ones(self.shape, dtype=bool)
        for values in self.violations.values():
            good = good & (values <= 0)
        return np.asarray(good).reshape(-1)

    def violated(self) -> dict[str, float]:
        """Violations above 0 of a result of one row."""
        return {name: float(self.violation(name)[0]) for name in self.violations if self.violation(name)[0] > 0}
