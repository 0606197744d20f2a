"""One design, and where its time goes."""

import dse

design = dse.Design(
    dse.chips.a100_sxm_80gb(),
    dse.clusters.dgx_a100(64),
    dse.Plan(tensor=8, pipeline=8, micro_batch=1, sequence_parallel=True, recompute="selective"),
    dse.networks.gpt3_175b(global_batch=64),
)
print(dse.evaluate(design).explain())
