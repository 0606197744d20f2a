"""Makes tests/data/onnx/: ONNX models of real networks without their weights, and counts.csv from the framework itself.

    python benchmarks/make_onnx_samples.py [folder] [name ...]

Needs torch, torchvision, transformers, onnx and onnxscript (made with torch 2.14.1, torchvision 0.29.1, transformers
5.24.0, onnx 1.23.2, onnxscript 0.7.2), which nothing else here needs.  Models are built from their classes with random
weights: nothing is downloaded.

Weights are stripped by saying that they lie in a file that does not exist (`data_location: EXTERNAL`): dimensions and
types stay, as do tensors of at most 64 numbers, of 1024 whole numbers (shapes, axes) and masks of 16384 truth values.
Documentation strings and exporter metadata are removed.

counts.csv: parameters are `sum(p.numel() for p in module.parameters())`, MACs half of what
torch.utils.flop_counter.FlopCounterMode counts in one forward pass of one sample.
"""

from __future__ import annotations

import csv
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

KEPT_FLOATS, KEPT_WHOLE, KEPT_MASK = 64, 1024, 2**14


@dataclass
class Sample:
    """A network: how it is made, what goes in, and how it is exported.

    optimize   the exporter folds constants (batch norm into convolutions, tables of relative positions)
    """

    make: Callable[[], Any]
    inputs: Callable[[], tuple[Any, ...]]
    source: str
    dynamo: bool = True
    opset: int = 18
    optimize: bool = True
    open_axes: dict[str, dict[int, str]] = field(default_factory=dict)


def image(size: int = 224, channels: int = 3) -> Callable[[], tuple[Any, ...]]:
    def make() -> tuple[Any, ...]:
        import torch

        return (torch.zeros(1, channels, size, size),)

    return make


def tokens(number: int = 128) -> Callable[[], tuple[Any, ...]]:
    def make() -> tuple[Any, ...]:
        import torch

        return (torch.zeros(1, number, dtype=torch.int64),)

    return make


def vision(name: str, **changes: Any) -> Callable[[], Any]:
    def make() -> Any:
        import torchvision

        return torchvision.models.get_model(name, weights=None, **changes)

    return make


def segmentation() -> Any:
    import torch
    import torchvision

    class Plain(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = torchvision.models.get_model("deeplabv3_mobilenet_v3_large", weights=None, weights_backbone=None)

        def forward(self, image: Any) -> Any:
            return self.net(image)["out"]

    return Plain()


def transformer(kind: str, **changes: Any) -> Callable[[], Any]:
    """A model of transformers from its default configuration, its result a plain tensor."""

    def make() -> Any:
        import torch
        import transformers

        config_class, model_class = {
            "bert": (transformers.BertConfig, transformers.BertForSequenceClassification),
            "distilbert": (transformers.DistilBertConfig, transformers.DistilBertModel),
            "gpt2": (transformers.GPT2Config, transformers.GPT2LMHeadModel),
            "t5": (transformers.T5Config, transformers.T5EncoderModel),
            "llama": (transformers.LlamaConfig, transformers.LlamaForCausalLM),
        }[kind]

        class Plain(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.net = model_class(config_class(attn_implementation="eager", **changes))

            def forward(self, input_ids: Any, attention_mask: Any = None) -> Any:
                more = {"use_cache": False} if kind in ("gpt2", "llama") else {}
                return self.net(input_ids, attention_mask=attention_mask, return_dict=True, **more)[0]

        return Plain()

    return make


def recurrent(kind: str) -> Callable[[], Any]:
    """A word-level language model: embedding, two recurrent layers, a linear layer."""

    def make() -> Any:
        import torch

        class Model(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.table = torch.nn.Embedding(10000, 200)
                self.layers = getattr(torch.nn, kind)(200, 256, num_layers=2, batch_first=True,
                                                      bidirectional=kind == "GRU")  # fmt: skip
                self.head = torch.nn.Linear(512 if kind == "GRU" else 256, 10000)

            def forward(self, words: Any) -> Any:
                return self.head(self.layers(self.table(words))[0])

        return Model()

    return make


def unet() -> Any:
    """A U-Net of Ronneberger et al. 2015 with padded convolutions and batch norm, 32 to 512 channels."""
    import torch
    from torch import nn

    def pair(before: int, after: int) -> nn.Sequential:
        layers = []
        for channels in (before, after):
            layers += [nn.Conv2d(channels, after, 3, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU()]
        return nn.Sequential(*layers)

    class UNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            widths = (32, 64, 128, 256, 512)
            self.down = nn.ModuleList(pair(a, b) for a, b in zip((3, *widths), widths, strict=False))
            self.up = nn.ModuleList(nn.ConvTranspose2d(2 * w, w, 2, stride=2) for w in widths[-2::-1])
            self.join = nn.ModuleList(pair(2 * w, w) for w in widths[-2::-1])
            self.head = nn.Conv2d(widths[0], 2, 1)

        def forward(self, x: Any) -> Any:
            kept = []
            for number, layer in enumerate(self.down):
                x = layer(x if not number else nn.functional.max_pool2d(x, 2))
                kept.append(x)
            for up, join, skip in zip(self.up, self.join, kept[-2::-1], strict=True):
                x = join(torch.cat([up(x), skip], 1))
            return self.head(x)

    return UNet()


OPEN_TEXT = {"input_ids": {0: "batch", 1: "sequence"}}
TV, HF, OWN = "torchvision.models", "transformers, default configuration", "this script"
SAMPLES: dict[str, Sample] = {
    "resnet18": Sample(vision("resnet18"), image(), TV, dynamo=False, opset=13, open_axes={"x": {0: "batch"}}),
    "resnet50": Sample(vision("resnet50"), image(), TV, optimize=False),
    "resnext50_32x4d": Sample(vision("resnext50_32x4d"), image(), TV, optimize=False),
    "mobilenet_v2": Sample(vision("mobilenet_v2"), image(), TV, dynamo=False, opset=11),
    "mobilenet_v3_large": Sample(vision("mobilenet_v3_large"), image(), TV, optimize=False),
    "efficientnet_b0": Sample(vision("efficientnet_b0"), image(), TV, optimize=False),
    "vgg16": Sample(vision("vgg16"), image(), TV),
    "alexnet": Sample(vision("alexnet"), image(), TV, dynamo=False, opset=9),
    "googlenet": Sample(vision("googlenet", aux_logits=False, init_weights=False), image(), TV, optimize=False),
    "inception_v3": Sample(
        vision("inception_v3", aux_logits=False, init_weights=False), image(299), TV, optimize=False
    ),
    "densenet121": Sample(vision("densenet121"), image(), TV, optimize=False),
    "squeezenet1_0": Sample(vision("squeezenet1_0"), image(), TV),
    "shufflenet_v2_x1_0": Sample(vision("shufflenet_v2_x1_0"), image(), TV, optimize=False),
    "regnet_y_400mf": Sample(vision("regnet_y_400mf"), image(), TV, optimize=False),
    "convnext_tiny": Sample(vision("convnext_tiny"), image(), TV),
    "vit_b_16": Sample(vision("vit_b_16"), image(), TV),
    "swin_t": Sample(vision("swin_t"), image(), TV, optimize=False),
    "deeplabv3_mobilenet": Sample(segmentation, image(), TV, optimize=False),
    "unet": Sample(unet, image(128), OWN, optimize=False),
    "bert_base": Sample(transformer("bert"), tokens(), HF, open_axes=OPEN_TEXT),
    "distilbert": Sample(transformer("distilbert"), tokens(), HF, dynamo=False, opset=17),
    "gpt2": Sample(transformer("gpt2"), tokens(), HF, open_axes=OPEN_TEXT),
    "t5_small_encoder": Sample(transformer("t5"), tokens(), HF),
    "llama_small": Sample(
        transformer("llama", hidden_size=512, intermediate_size=1408, num_hidden_layers=4, num_attention_heads=8,
                    num_key_value_heads=2, vocab_size=8192), tokens(), "transformers, sizes of this script",
    ),
    "lstm": Sample(recurrent("LSTM"), tokens(35), OWN),
    "gru": Sample(recurrent("GRU"), tokens(35), OWN, dynamo=False, opset=17),
}  # fmt: skip


def export(sample: Sample, module: Any, inputs: tuple[Any, ...], path: Path) -> None:
    """The module as an ONNX file with its weights."""
    import torch

    options: dict[str, Any] = {"opset_version": sample.opset, "dynamo": sample.dynamo}
    if sample.open_axes:
        names = list(sample.open_axes)
        options["input_names"] = names
        if sample.dynamo:
            options["dynamic_shapes"] = tuple(
                {axis: torch.export.Dim(name, min=1, max=512) if name != "batch" else torch.export.Dim(name)
                 for axis, name in axes.items()} for axes in sample.open_axes.values()
            )  # fmt: skip
        else:
            options["dynamic_axes"] = sample.open_axes
    if sample.dynamo:
        options |= {"external_data": False, "optimize": sample.optimize}
    else:  # otherwise batch norm is folded into convolutions
        options |= {"training": torch.onnx.TrainingMode.PRESERVE, "do_constant_folding": False}
    torch.onnx.export(module, inputs, str(path), **options)


def strip(path: Path, into: Path) -> None:
    """The same model without its weights."""
    import onnx

    model = onnx.load(str(path))
    for tensor in model.graph.initializer:
        _strip(tensor)
    for node in model.graph.node:
        node.doc_string = ""
        del node.metadata_props[:]
        for attribute in node.attribute:
            if attribute.HasField("t"):
                _strip(attribute.t)
    del model.graph.value_info[:]
    del model.graph.metadata_props[:]
    del model.metadata_props[:]
    model.doc_string = model.graph.doc_string = ""
    for value in [*model.graph.input, *model.graph.output]:
        value.doc_string = ""
        del value.metadata_props[:]
    into.write_bytes(model.SerializeToString())


def _strip(tensor: Any) -> None:
    import onnx

    elements = 1
    for size in tensor.dims:
        elements *= size
    real = tensor.data_type in (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.DOUBLE)
    tensor.doc_string = ""
    del tensor.metadata_props[:]
    if elements <= (KEPT_FLOATS if real else KEPT_MASK if tensor.data_type == onnx.TensorProto.BOOL else KEPT_WHOLE):
        return
    for name in ("raw_data", "float_data", "double_data", "int32_data", "int64_data", "uint64_data"):
        tensor.ClearField(name)
    tensor.data_location = onnx.TensorProto.EXTERNAL
    entry = tensor.external_data.add()
    entry.key, entry.value = "location", "stripped"


def counted(module: Any, inputs: tuple[Any, ...]) -> tuple[int, int]:
    """Parameters, and MACs of a forward pass."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    parameters = sum(parameter.numel() for parameter in module.parameters())
    # plain kernels, so that recurrent layers and attention are seen as their products
    torch.backends.mha.set_fastpath_enabled(False)
    plain = torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH)
    with torch.no_grad(), torch.backends.mkldnn.flags(enabled=False), plain, FlopCounterMode(display=False) as counter:
        module(*inputs)
    return parameters, counter.get_total_flops() // 2


def _write(table: Path, rows: dict[str, dict[str, str]]) -> None:
    with table.open("w", newline="") as file:
        heading = ["model", "parameters", "macs", "exporter", "opset", "source"]
        writer = csv.DictWriter(file, heading, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows[name] for name in SAMPLES if name in rows)


def main(folder: str = "tests/data/onnx", *names: str) -> None:
    import torch

    warnings.filterwarnings("ignore")
    into = Path(folder)
    into.mkdir(parents=True, exist_ok=True)
    table = into / "counts.csv"
    rows = {row["model"]: row for row in csv.DictReader(table.open())} if table.exists() else {}
    scratch = into / "with_weights.tmp"
    for name in names or SAMPLES:
        sample = SAMPLES[name]
        torch.manual_seed(0)
        module, inputs = sample.make().eval(), sample.inputs()
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.uniform_(0.01, 0.02)  # exporters merge tensors that are equal, such as biases of zero
        parameters, macs = counted(module, inputs)
        try:
            export(sample, module, inputs, scratch)
            strip(scratch, into / f"{name}.onnx")
        except Exception as error:
            print(f"{name}: {type(error).__name__}: {str(error)[:300]}", flush=True)
            continue
        finally:
            scratch.unlink(missing_ok=True)
        rows[name] = {
            "model": name, "parameters": str(parameters), "macs": str(macs),
            "exporter": "dynamo" if sample.dynamo else "torchscript", "opset": str(sample.opset),
            "source": sample.source,
        }  # fmt: skip
        print(name, parameters, macs, (into / f"{name}.onnx").stat().st_size, flush=True)
        _write(table, rows)


if __name__ == "__main__":
    main(*sys.argv[1:])
