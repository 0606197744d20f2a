"""A network that is not in the table."""

import dse
from dse.present.text.plan import plan_text

network = dse.DecoderTransformer(
    name="mine", layers=40, hidden=5120, heads=40, kv_heads=8, ffn=13824, vocabulary=128000,
    gated=True, positions="rotary", norm="rmsnorm", biases="none", tied=False, dropout=False,
)
report = dse.plan(network, "h100-sxm", devices=64, global_batch=512, sequence=4096)
print(plan_text(report))
