"""Fifty memory bandwidths in one call."""

import numpy as np

import dse

chip = dse.chips.h100_sxm()
bandwidths = chip.hbm_stack_bandwidth * np.geomspace(0.5, 2.0, 50)
design = dse.Design(
    dse.replace(chip, hbm_stack_bandwidth=bandwidths),
    dse.clusters.dgx_h100(64),
    dse.Plan(tensor=8, data=8, micro_batch=1),
    dse.networks.llama3_8b(global_batch=64),
)
result = dse.evaluate(design)
for bandwidth, step in zip(bandwidths[::7], result["step_time"][::7], strict=True):
    print(f"{5 * bandwidth / 1e12:.2f} TB/s: {step:.3f} s a step")
