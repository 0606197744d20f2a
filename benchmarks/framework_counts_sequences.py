"""Parameters and multiply-adds of sequence, speech and recommendation networks as frameworks count them.

Run where torch and transformers are installed (nothing else needs them):
`python benchmarks/framework_counts_sequences.py` replaces the rows of these networks in
`workloads/data/graph_counts.csv`.  Models are made without memory (device "meta") from their configurations;
multiply-adds are half of what torch.utils.flop_counter counts in a forward pass of one sample.  Networks that neither
package has are written here from their papers, out of the framework's own layers.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

TABLE = Path(__file__).resolve().parent.parent / "workloads" / "data" / "graph_counts.csv"
COLUMNS = ("name", "parameters", "macs", "tolerance", "reason", "input", "source", "made_by")
TORCH = f"torch {torch.__version__.split('+')[0]}"
BOTH = f"transformers {transformers.__version__}, {TORCH}"


def counted(model: nn.Module, run: Callable[[], Any]) -> tuple[int, int]:
    """Parameters (shared ones once) and multiply-adds of `run`."""
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        run()
    return sum(one.numel() for one in model.parameters()), counter.get_total_flops() // 2


def tokens(number: int, samples: int = 1) -> torch.Tensor:
    """Indices without values."""
    return torch.zeros(samples, number, dtype=torch.long, device="meta")


def eager(kind: Any, config: Any) -> Any:
    """A model whose attention is written out, so that its products are counted."""
    config._attn_implementation = "eager"
    return kind(config).eval()


def berts() -> Iterator[tuple[str, int, int, str, str]]:
    for name, layers, hidden, heads in (("bert-base", 12, 768, 12), ("bert-large", 24, 1024, 16)):
        config = transformers.BertConfig(
            num_hidden_layers=layers, hidden_size=hidden, num_attention_heads=heads, intermediate_size=4 * hidden
        )
        model = eager(transformers.BertForPreTraining, config)

        def run(model: Any = model) -> None:
            read = model.bert(tokens(512))
            model.cls(read.last_hidden_state[:, :80], read.pooler_output)

        yield (name, *counted(model, run), "512 tokens, 80 of them predicted", f"{BOTH}, BertForPreTraining")


def translators() -> Iterator[tuple[str, int, int, str, str]]:
    for name, layers, hidden, heads, ffn in (("t5-base", 12, 768, 12, 3072), ("t5-large", 24, 1024, 16, 4096)):
        config = transformers.T5Config(
            d_model=hidden, num_layers=layers, num_decoder_layers=layers, num_heads=heads, d_ff=ffn, vocab_size=32128
        )
        model = eager(transformers.T5ForConditionalGeneration, config)

        def run(model: Any = model) -> None:
            model(input_ids=tokens(512), decoder_input_ids=tokens(114))

        yield (name, *counted(model, run), "512 and 114 tokens", f"{BOTH}, T5ForConditionalGeneration")
    model = eager(transformers.BartForConditionalGeneration, transformers.BartConfig())
    found = counted(model, lambda: model(input_ids=tokens(512), decoder_input_ids=tokens(512)))
    yield ("bart-large", *found, "512 and 512 tokens", f"{BOTH}, BartForConditionalGeneration")


class Translator(nn.Module):
    """Vaswani's transformer out of the framework's layers, one table."""

    def __init__(self, hidden: int, heads: int, vocabulary: int, first: bool) -> None:
        super().__init__()
        sizes = {"dim_feedforward": 4 * hidden, "batch_first": True, "norm_first": first, "dropout": 0.1}
        last = (lambda: nn.LayerNorm(hidden)) if first else (lambda: None)
        self.table = nn.Embedding(vocabulary, hidden)
        self.encoder = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(hidden, heads, **sizes), 6, last(), enable_nested_tensor=False
        )
        self.decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(hidden, heads, **sizes), 6, last())

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return self.decoder(self.table(target), self.encoder(self.table(source))) @ self.table.weight.T


def transformers_of_torch() -> Iterator[tuple[str, int, int, str, str]]:
    for name, sizes in (
        ("transformer-base", (512, 8, 37000, False)), ("transformer-big", (1024, 16, 33712, True)),
    ):  # fmt: skip
        model = Translator(*sizes)
        yield (name, *counted(model, lambda model=model: model(tokens(32), tokens(32))), "32 and 32 tokens",
               f"{TORCH}, torch.nn")  # fmt: skip


def lstm_macs(layer: nn.LSTM, steps: int) -> int:
    """Multiply-adds of a recurrent layer, which the counter does not see: every weight once a step."""
    return steps * sum(one.numel() for name, one in layer.named_parameters() if name.startswith("weight"))


class Recurrent(nn.Module):
    """Base of networks with recurrent layers: adds up their multiply-adds."""

    macs = 0

    def over(self, layer: nn.LSTM, x: torch.Tensor) -> torch.Tensor:
        self.macs += lstm_macs(layer, x.shape[1])
        return x.new_empty(x.shape[0], x.shape[1], layer.hidden_size * (1 + layer.bidirectional))


class Gnmt(Recurrent):
    """GNMT version 2."""

    def __init__(self, layers: int, hidden: int = 1024, vocabulary: int = 32320) -> None:
        super().__init__()
        self.table = nn.Embedding(vocabulary, hidden)
        self.encoder = nn.ModuleList(
            nn.LSTM(hidden * (2 if at == 1 else 1), hidden, bidirectional=not at) for at in range(layers)
        )
        self.decoder = nn.ModuleList(nn.LSTM(hidden * (2 if at else 1), hidden) for at in range(layers))
        self.query, self.key = nn.Linear(hidden, hidden, bias=False), nn.Linear(hidden, hidden, bias=False)
        self.vector, self.bias, self.scale = (nn.Parameter(torch.zeros(size)) for size in (hidden, hidden, 1))
        self.head = nn.Linear(hidden, vocabulary)

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        x = self.table(source)
        for layer in self.encoder:
            x = self.over(layer, x)
        y = self.over(self.decoder[0], self.table(target))
        self.query(y), self.key(x)
        context = torch.bmm(y.new_empty(y.shape[0], y.shape[1], x.shape[1]), x)
        for layer in self.decoder[1:]:
            y = self.over(layer, torch.cat((y, context), 2))
        return self.head(y)


class Transducer(Recurrent):
    """RNN-T as in the MLPerf benchmark."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.after = nn.LSTM(240, 1024, 2), nn.LSTM(2048, 1024, 3)
        self.table, self.prediction = nn.Embedding(1023, 512), nn.LSTM(512, 512, 2)
        self.left, self.right, self.joint = nn.Linear(1024, 512), nn.Linear(512, 512), nn.Linear(512, 1024)

    def forward(self, frames: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        x = self.over(self.before, frames)
        x = x.new_empty(1, -(-x.shape[1] // 2), 2048)
        x = self.left(self.over(self.after, x))
        y = self.table(labels)
        y = self.right(self.over(self.prediction, y.new_empty(1, y.shape[1] + 1, 512)))
        return self.joint(x[:, :, None] + y[:, None])


def recurrent_ones() -> Iterator[tuple[str, int, int, str, str]]:
    for layers in (4, 8):
        gnmt = Gnmt(layers)
        parameters, macs = counted(gnmt, lambda gnmt=gnmt: gnmt(tokens(32), tokens(32)))
        yield (f"gnmt-{layers}", parameters, macs + gnmt.macs, "32 and 32 tokens",
               f"{TORCH}, torch.nn (each weight of a recurrent layer once a step)")  # fmt: skip
    model = Transducer()
    parameters, macs = counted(model, lambda: model(torch.empty(1, 557, 240), tokens(66)))
    yield ("rnn-t", parameters, macs + model.macs, "1670 frames, 66 labels",
           f"{TORCH}, torch.nn (each weight of a recurrent layer once a step)")  # fmt: skip


class Speech(nn.Module):
    """Jasper (dense residuals) or QuartzNet (own residual, separable)."""

    def __init__(self, blocks: list[tuple[int, int]], separable: bool, epilogue: tuple[int, int]) -> None:
        super().__init__()
        self.separable = separable
        first = blocks[0][1]
        self.prologue = self.unit(64, 256, first, stride=2)
        self.bodies, self.links, inputs, width = nn.ModuleList(), nn.ModuleList(), [], 256
        for filters, kernel in blocks:
            inputs = [width] if separable else [*inputs, width]
            self.bodies.append(
                nn.Sequential(*(self.unit(width if not at else filters, filters, kernel) for at in range(5)))
            )
            self.links.append(nn.ModuleList(self.unit(one, filters, 1, plain=True) for one in inputs))
            width = filters
        filters, kernel = epilogue
        self.epilogue = nn.Sequential(
            self.unit(width, filters, kernel, dilation=2), self.unit(filters, 1024, 1, plain=True),
            nn.Conv1d(1024, 29, 1),
        )  # fmt: skip

    def unit(self, inputs: int, filters: int, kernel: int, *, stride: int = 1, dilation: int = 1,
             plain: bool = False) -> nn.Sequential:  # fmt: skip
        pad = kernel // 2 * dilation
        sizes = {"stride": stride, "padding": pad, "dilation": dilation, "bias": False}
        if self.separable and not plain:
            parts = [
                nn.Conv1d(inputs, inputs, kernel, groups=inputs, **sizes),
                nn.Conv1d(inputs, filters, 1, bias=False),
            ]
        else:
            parts = [nn.Conv1d(inputs, filters, kernel, **sizes)]
        return nn.Sequential(*parts, nn.BatchNorm1d(filters))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x, inputs = self.prologue(x), []
        for body, links in zip(self.bodies, self.links, strict=True):
            inputs = [x] if self.separable else [*inputs, x]
            x = body(x) + sum(link(one) for link, one in zip(links, inputs, strict=True))
        return self.epilogue(x)


def listeners() -> Iterator[tuple[str, int, int, str, str]]:
    jasper = [(f, k) for f, k in ((256, 11), (384, 13), (512, 17), (640, 21), (768, 25)) for _ in range(2)]
    quartz = [(f, k) for f, k in ((256, 33), (256, 39), (512, 51), (512, 63), (512, 75)) for _ in range(3)]
    for name, model in (
        ("jasper-10x5", Speech(jasper, False, (896, 29))), ("quartznet-15x5", Speech(quartz, True, (512, 87))),
    ):  # fmt: skip
        found = counted(model.eval(), lambda model=model: model(torch.empty(1, 64, 1670)))
        yield (name, *found, "64 x 1670 frames", f"{TORCH}, torch.nn")


class Clicks(nn.Module):
    """DLRM with dot interaction, or with low-rank cross layers."""

    def __init__(self, rows: tuple[int, ...], columns: int, crosses: int = 0) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(size, 128, mode="sum") for size in rows)
        self.bottom, self.crosses = self.mlp((13, 512, 256, 128)), nn.ModuleList()
        width = (len(rows) + 1) * 128 if crosses else columns
        for _ in range(crosses):
            self.crosses.append(nn.Sequential(nn.Linear(width, 512, bias=False), nn.Linear(512, width)))
        self.top = self.mlp((width, 1024, 1024, 512, 256, 1))

    def mlp(self, sizes: tuple[int, ...]) -> nn.Sequential:
        return nn.Sequential(*(nn.Linear(a, b) for a, b in zip(sizes, sizes[1:], strict=False)))

    def forward(self, dense: torch.Tensor) -> torch.Tensor:
        x = self.bottom(dense)
        both = x.new_empty(1, len(self.tables) + 1, 128)
        if self.crosses:
            x = both.flatten(1)
            for cross in self.crosses:
                x = cross(x)
            return self.top(x)
        torch.bmm(both, both.transpose(1, 2))
        return self.top(x.new_empty(1, self.top[0].in_features))


def recommenders() -> Iterator[tuple[str, int, int, str, str]]:
    sys.path.insert(0, str(TABLE.parent.parent.parent))
    from workloads.networks.recommendation import CRITEO_3, CRITEO_15, CRITEO_40M, CRITEO_MULTI

    for name, rows, columns, crosses in (
        ("dlrm-small", CRITEO_15, 480, 0), ("dlrm-large", CRITEO_3, 480, 0), ("dlrm-criteo-40m", CRITEO_40M, 479, 0),
        ("dlrm-dcnv2", CRITEO_MULTI, 0, 3),
    ):  # fmt: skip
        model = Clicks(rows, columns, crosses)
        found = counted(model, lambda model=model: model(torch.empty(1, 13)))
        yield (name, *found, "13 numbers, 26 categories", f"{TORCH}, torch.nn")


def mambas() -> Iterator[tuple[str, int, int, str, str]]:
    for name, layers, hidden in (
        ("130m", 24, 768), ("370m", 48, 1024), ("780m", 48, 1536), ("1.3b", 48, 2048), ("2.7b", 64, 2560),
    ):  # fmt: skip
        config = transformers.Mamba2Config(
            num_hidden_layers=layers, hidden_size=hidden, num_heads=hidden // 32, head_dim=64, state_size=128,
            n_groups=1, vocab_size=50288, tie_word_embeddings=True, use_bias=False, use_conv_bias=True,
        )  # fmt: skip
        model = transformers.Mamba2ForCausalLM(config)
        yield (f"mamba2-{name}", sum(one.numel() for one in model.parameters()), 0, "", f"{BOTH}, Mamba2ForCausalLM")


def patched() -> Iterator[tuple[str, int, int, str, str]]:
    import torchvision

    version = f"torchvision {torchvision.__version__.split('+')[0]}"
    for name, kind in (("vit-b16", torchvision.models.vit_b_16), ("vit-l16", torchvision.models.vit_l_16)):
        model = kind().eval()
        # in training mode attention is written out, so that its products are counted
        found = counted(model, lambda model=model: model.train()(torch.empty(1, 3, 224, 224)))
        yield (name, *found, "3 x 224 x 224",
               f"{version}, {TORCH}, torchvision.models.{kind.__name__}")  # fmt: skip


class RelativeLayer(nn.Module):
    """A layer of Transformer-XL; positions come projected, as they are for all samples of a batch at once."""

    def __init__(self, hidden: int, heads: int, ffn: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out, self.positions = (nn.Linear(hidden, times * hidden, bias=False) for times in (3, 1, 1))
        self.up, self.down = nn.Linear(hidden, ffn), nn.Linear(ffn, hidden)
        self.norms = nn.ModuleList(nn.LayerNorm(hidden) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        length, hidden = x.shape
        made = self.qkv(x.new_empty(2 * length, hidden))
        query, key, value = (one.unflatten(1, (self.heads, -1)).transpose(0, 1) for one in made.chunk(3, 1))
        query = query[:, -length:]
        scores = query @ key.transpose(1, 2) + query @ torch.empty_like(key).transpose(1, 2)
        x = self.norms[0](x + self.out((scores @ value).transpose(0, 1).flatten(1)))
        return self.norms[1](x + self.down(self.up(x)))


class TransformerXl(nn.Module):
    """Transformer-XL with adaptive embedding and softmax; clusters hold given numbers of a segment's tokens."""

    def __init__(self, layers: int, hidden: int, heads: int, ffn: int, words: list[int], divide: int) -> None:
        super().__init__()
        widths = [hidden // divide**at for at in range(len(words))]
        self.layers = nn.ModuleList(RelativeLayer(hidden, heads, ffn) for _ in range(layers))
        self.vectors = nn.Parameter(torch.zeros(2, hidden))
        self.tables = nn.ParameterList(
            nn.Parameter(torch.zeros(number, width)) for number, width in zip(words, widths, strict=True)
        )
        self.widen = nn.ModuleList(nn.Linear(width, hidden, bias=False) for width in widths if divide > 1)
        self.biases = nn.Parameter(torch.zeros(sum(words)))
        self.tails = nn.Linear(hidden, len(words) - 1)
        self.head = nn.Linear(hidden, hidden, bias=False) if divide > 1 else None

    def forward(self, rows: list[int]) -> torch.Tensor:
        for number, widen in zip(rows, self.widen, strict=False):
            widen(torch.empty(number, widen.in_features))
        x = torch.empty(sum(rows), self.vectors.shape[1])
        for layer in self.layers:
            x = layer(x)
        x_head = self.head(x) if self.head else x
        x_head @ torch.cat((self.tables[0], self.tails.weight)).T
        for at, number in enumerate(rows[1:], start=1):
            tail = x[:number] @ self.widen[at].weight if self.head else x[:number]
            tail @ self.tables[at].T
        return x


def relative_ones() -> Iterator[tuple[str, int, int, str, str]]:
    words = [19997, 20000, 160000, 67738]
    for name, sizes, rows, divide in (
        ("transformer-xl-base", (16, 512, 8, 2048), [185, 3, 4, 0], 1),
        ("transformer-xl-large", (18, 1024, 16, 4096), [369, 7, 7, 1], 4),
    ):  # fmt: skip
        model = TransformerXl(*sizes, words, divide)
        found = counted(model, lambda model=model, rows=rows: model(rows))
        yield (name, *found, f"{sum(rows)} tokens and as many before, by cluster {' '.join(map(str, rows))}",
               f"{TORCH}, torch.nn")  # fmt: skip


#: Counts that were printed, where no package here has the network: parameters, tolerance and its reason, source.
PRINTED = (
    ("stable-diffusion-1", 859520000, 0.00001, "printed in millions to two places",
     "CompVis/stable-diffusion, printed when the network is made: DiffusionWrapper has 859.52 M params"),
)  # fmt: skip


def rows() -> Iterator[dict[str, Any]]:
    """A row a network."""
    torch.set_default_device("meta")
    for family in (
        berts,
        translators,
        transformers_of_torch,
        recurrent_ones,
        listeners,
        recommenders,
        mambas,
        patched,
        relative_ones,
    ):
        for name, parameters, macs, size, source in family():
            made_by, _, model = source.rpartition(", ")
            yield dict(zip(COLUMNS, (name, parameters, macs or "", 0.0, "", size, model, made_by), strict=True))
    for name, parameters, tolerance, reason, source in PRINTED:
        yield dict(zip(COLUMNS, (name, parameters, "", tolerance, reason, "", source, "printed"), strict=True))


def main() -> None:
    """Replace the rows of these networks in the table."""
    found = {row["name"]: row for row in rows()}
    with TABLE.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        columns, kept = reader.fieldnames or COLUMNS, [row for row in reader if row["name"] not in found]
    with TABLE.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows([*kept, *found.values()])


if __name__ == "__main__":
    main()
