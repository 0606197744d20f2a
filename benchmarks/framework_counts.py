"""Parameters and multiply-adds of networks as frameworks count them: makes rows of workloads/data/graph_counts.csv.

    pip install torch torchvision timm transformers monai effdet     gigabytes: never done by tests
    python benchmarks/framework_counts.py                            every family
    python benchmarks/framework_counts.py images detectors           some

Parameters are `sum(p.numel() for p in model.parameters())`; multiply-adds are half of what torch's own
`torch.utils.flop_counter.FlopCounterMode` counts in one forward pass of one sample in training mode, on the meta
device: no weight is made, nothing is computed.  A row that is there is replaced, others stay.  A family is a function
that yields rows; networks that no package has are written in torch after their source (a second reading of it).
Language, speech and recommendation: framework_counts_sequences.py.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

TABLE = Path(__file__).resolve().parent.parent / "workloads" / "data" / "graph_counts.csv"


@dataclass(frozen=True)
class Row:
    """A row of the table; empty where nothing was counted.

    tolerance   relative, 0 is exact; reason: why it is not
    kept_elements, kept_bytes   what torch's autograd keeps of a sample beside parameters: floating-point elements, and
                bytes of indices and masks
    """

    name: str
    parameters: int | None
    macs: int | None
    input: str
    source: str
    made_by: str
    tolerance: float = 0.0
    reason: str = ""
    kept_elements: int | None = None
    kept_bytes: int | None = None


def counted(
    name: str,
    build: Callable[[], Any],
    *inputs: tuple[int, ...],
    source: str,
    made_by: str = "torchvision",
    **options: Any,
) -> Row:
    """A model by its builder and the shapes of its inputs (one sample, without the batch axis)."""
    import torch

    with torch.device("meta"):
        model = build().train()
        data = [torch.empty(2, *shape) for shape in inputs]
        macs = multiply_adds(model, *data) // 2
        elements, others = kept(model, *data)
    if made_by == "here":  # written for its products: passes between them are left out
        options |= {"kept_elements": None, "kept_bytes": None}
    else:
        options |= {"kept_elements": elements // 2, "kept_bytes": others // 2}
    shown = " + ".join("x".join(map(str, shape)) for shape in inputs)
    return Row(name, trained(model), macs, shown, source, _versions(made_by), **options)


def trained(model: Any) -> int:
    """Its parameters, shared ones once."""
    return sum(parameter.numel() for parameter in model.parameters())


def multiply_adds(model: Any, *inputs: Any) -> int:
    """Multiply-adds of one forward pass; inputs have a batch of 2, so that batch norm can run."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model(*inputs)
    return int(counter.get_total_flops()) // 2


def kept(model: Any, *inputs: Any) -> tuple[int, int]:
    """Floating-point elements, and bytes of others, that autograd keeps; a storage that several use counts once."""
    import torch

    held = {tensor.untyped_storage()._cdata for tensor in (*model.parameters(), *model.buffers())}
    found: dict[int, tuple[int, int]] = {}
    alive = []  # so that no storage is freed and its place used again

    def pack(tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        if storage._cdata not in held and storage._cdata not in found:
            floats = tensor.is_floating_point()
            size = storage.nbytes()
            found[storage._cdata] = (size // tensor.element_size(), 0) if floats else (0, size)
            alive.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        alive.append(model(*inputs))
    return sum(elements for elements, _ in found.values()), sum(size for _, size in found.values())


def _versions(made_by: str) -> str:
    from importlib.metadata import version

    names = dict.fromkeys([*(word for word in made_by.split(" + ") if word != "here"), "torch"])
    shown = ", ".join(f"{name} {version(name)}" for name in names)
    return f"written after its source, {shown}" if made_by == "here" else shown


# Image classifiers ------------------------------------------------------------------------------------------------

#: Name -> function of torchvision.models, positions of a square image.
TORCHVISION = {
    "resnet18": ("resnet18", 224), "resnet34": ("resnet34", 224), "resnet50": ("resnet50", 224),
    "resnet101": ("resnet101", 224), "resnet152": ("resnet152", 224), "resnext50-32x4d": ("resnext50_32x4d", 224),
    "resnext101-32x8d": ("resnext101_32x8d", 224), "wide-resnet50-2": ("wide_resnet50_2", 224),
    "alexnet": ("alexnet", 224), "vgg16": ("vgg16", 224), "vgg19": ("vgg19", 224), "vgg16-bn": ("vgg16_bn", 224),
    "vgg19-bn": ("vgg19_bn", 224), "squeezenet-1.0": ("squeezenet1_0", 224), "squeezenet-1.1": ("squeezenet1_1", 224),
    "densenet121": ("densenet121", 224), "densenet169": ("densenet169", 224), "mobilenet-v2": ("mobilenet_v2", 224),
    "mobilenet-v3-large": ("mobilenet_v3_large", 224), "mobilenet-v3-small": ("mobilenet_v3_small", 224),
    "efficientnet-b0": ("efficientnet_b0", 224), "efficientnet-b4": ("efficientnet_b4", 380),
    "efficientnet-v2-s": ("efficientnet_v2_s", 384), "shufflenet-v2-1.0": ("shufflenet_v2_x1_0", 224),
    "convnext-tiny": ("convnext_tiny", 224),
}  # fmt: skip


def images() -> Iterator[Row]:
    """Classifiers of torchvision and timm."""
    import torchvision.models as models

    for name, (function, size) in TORCHVISION.items():
        yield counted(name, getattr(models, function), (3, size, size), source=f"torchvision.models.{function}")
    for name, function, auxiliary, size in (
        ("googlenet-bn", "googlenet", True, 224), ("googlenet-bn-plain", "googlenet", False, 224),
        ("inception-v3", "inception_v3", True, 299), ("inception-v3-plain", "inception_v3", False, 299),
    ):  # fmt: skip
        yield counted(
            name, lambda f=function, a=auxiliary: getattr(models, f)(aux_logits=a, init_weights=False), (3, size, size),
            source=f"torchvision.models.{function}(aux_logits={auxiliary})",
        )  # fmt: skip
    yield counted(
        "resnext101-32x4d",
        lambda: models.ResNet(models.resnet.Bottleneck, [3, 4, 23, 3], groups=32, width_per_group=4),
        (3, 224, 224), source="torchvision.models.ResNet(Bottleneck, [3, 4, 23, 3], groups=32, width_per_group=4)",
    )  # fmt: skip
    for name, layers in (
        ("resnet50-v1", [3, 4, 6, 3]),
        ("resnet101-v1", [3, 4, 23, 3]),
        ("resnet152-v1", [3, 8, 36, 3]),
    ):
        yield counted(name, lambda n=layers: _early_stride(n), (3, 224, 224),
                      source="torchvision.models.ResNet with the stride moved from conv2 to conv1")  # fmt: skip
    yield from _timm()
    yield from _caffe()


def _early_stride(layers: list[int]) -> Any:
    """ResNet of the paper: the first 1 x 1 of a block has the stride."""
    import torchvision.models as models

    model = models.ResNet(models.resnet.Bottleneck, layers)
    for module in model.modules():
        if isinstance(module, models.resnet.Bottleneck):
            module.conv1.stride, module.conv2.stride = module.conv2.stride, (1, 1)
    return model


def _timm() -> Iterator[Row]:
    import timm

    yield counted("se-resnext101-32x4d", lambda: timm.create_model("legacy_seresnext101_32x4d"), (3, 224, 224),
                  source="timm legacy_seresnext101_32x4d", made_by="timm")  # fmt: skip
    for size, width, depth, image in (("b0", 1.0, 1.0, 224), ("b4", 1.4, 1.8, 380)):
        yield counted(f"efficientnet-widese-{size}", lambda w=width, d=depth: _wide_squeeze(w, d), (3, image, image),
                      source="torchvision EfficientNet, squeeze channels a quarter of the expanded ones")  # fmt: skip


def _wide_squeeze(width: float, depth: float) -> Any:
    from functools import partial

    import torch
    import torchvision.models.efficientnet as efficient
    from torchvision.ops.misc import SqueezeExcitation

    class Squeeze(SqueezeExcitation):
        def __init__(self, expanded: int, _squeezed: int, activation: Any = torch.nn.ReLU) -> None:
            super().__init__(expanded, max(1, expanded // 4), activation=activation)

    settings, last = efficient._efficientnet_conf("efficientnet_b0", width_mult=width, depth_mult=depth)
    for setting in settings:
        setting.block = partial(efficient.MBConv, se_layer=Squeeze)
    return efficient.EfficientNet(settings, dropout=0.2, last_channel=last)


def _caffe() -> Iterator[Row]:
    """Networks of Caffe's model zoo, layer by layer after their deploy and training files."""
    source = "Caffe, models/bvlc_alexnet/train_val.prototxt"
    yield counted("alexnet-two-towers", _two_towers, (3, 227, 227), source=source, made_by="here")
    for name, auxiliary in (("googlenet", True), ("googlenet-plain", False)):
        yield counted(name, lambda a=auxiliary: _googlenet(a), (3, 224, 224), made_by="here",
                      source="Caffe, models/bvlc_googlenet/train_val.prototxt")  # fmt: skip


def _two_towers() -> Any:
    from torch import nn

    layers: list[Any] = []
    for channels, filters, kernel, stride, padding, groups, pooled in (
        (3, 96, 11, 4, 0, 1, True), (96, 256, 5, 1, 2, 2, True), (256, 384, 3, 1, 1, 1, False),
        (384, 384, 3, 1, 1, 2, False), (384, 256, 3, 1, 1, 2, True),
    ):  # fmt: skip
        layers += [nn.Conv2d(channels, filters, kernel, stride, padding, groups=groups), nn.ReLU()]
        layers += [nn.MaxPool2d(3, 2)] if pooled else []
    layers += [nn.Flatten(), nn.Linear(9216, 4096), nn.Linear(4096, 4096), nn.Linear(4096, 1000)]
    return nn.Sequential(*layers)


def _googlenet(auxiliary: bool) -> Any:
    """torchvision's modules without batch norm, with 5 x 5 and the paper's auxiliary pools."""
    from importlib import import_module

    import torch
    from torch import nn

    google: Any = import_module("torchvision.models.googlenet")  # the package holds a function of that name

    class Plain(google.BasicConv2d):
        def __init__(self, inputs: int, outputs: int, **options: Any) -> None:
            super().__init__(inputs, outputs, **options)
            self.conv, self.bn = nn.Conv2d(inputs, outputs, **options), nn.Identity()

    class Module(google.Inception):
        def __init__(self, *sizes: int) -> None:
            super().__init__(*sizes, conv_block=Plain)
            reduced, wide = sizes[4], sizes[5]
            self.branch3 = nn.Sequential(
                Plain(sizes[0], reduced, kernel_size=1), Plain(reduced, wide, kernel_size=5, padding=2)
            )

    class Head(google.InceptionAux):
        def __init__(self, inputs: int, classes: int, **options: Any) -> None:
            super().__init__(inputs, classes, conv_block=Plain)

        def forward(self, x: Any) -> Any:
            x = self.conv(nn.functional.avg_pool2d(x, 5, 3))
            return self.fc2(self.fc1(torch.flatten(x, 1)))

    model = google.GoogLeNet(aux_logits=auxiliary, init_weights=False, blocks=[Plain, Module, Head])
    model.maxpool4 = nn.MaxPool2d(3, 2, ceil_mode=True)
    return model


# Detectors ---------------------------------------------------------------------------------------------------------


def detectors() -> Iterator[Row]:
    """Detectors: everything with a matrix product, on as many regions as are sampled while training."""
    import torch
    import torchvision.models as models
    from effdet import create_model

    with torch.device("meta"):
        model = models.detection.MaskRCNN(_extractor("resnet50"), 91).train()
        image, heads = torch.empty(2, 3, 800, 1344), model.roi_heads
        maps = list(model.backbone(image).values())
        macs = multiply_adds(model.backbone, image) + multiply_adds(model.rpn.head, maps)
        regions, masked = torch.empty(2 * 512, 256, 7, 7), torch.empty(2 * 128, 256, 14, 14)
        macs += multiply_adds(torch.nn.Sequential(heads.box_head, heads.box_predictor), regions)
        macs += multiply_adds(torch.nn.Sequential(heads.mask_head, heads.mask_predictor), masked)
    source = (
        "torchvision MaskRCNN on resnet50 with FrozenBatchNorm2d: backbone, proposal head, box head on 512 regions and "
        "mask head on 128"
    )
    yield Row("mask-rcnn-resnet50-fpn", trained(model), macs // 2, "3x800x1344", source, _versions("torchvision"))
    for name, backbone, size, classes, anchors, frozen in (
        ("retinanet-resnet50-fpn", "resnet50", (800, 1344), 91, 9, True),
        ("retinanet-resnext50-fpn", "resnext50_32x4d", (800, 800), 264, 9, True),
        ("ssd320-resnet50-fpn", "resnet50", (320, 320), 91, 6, False),
    ):
        with torch.device("meta"):
            whole = _retinanet(backbone, classes, anchors, frozen)
            image = torch.empty(2, 3, *size)
            macs = multiply_adds(whole.backbone, image)
            macs += multiply_adds(whole.head, list(whole.backbone(image).values()))
        yield Row(name, trained(whole), macs // 2, "x".join(map(str, (3, *size))),
                  f"torchvision RetinaNet on {backbone}: backbone and heads", _versions("torchvision"))  # fmt: skip
    untrained = {"pretrained": False, "pretrained_backbone": False}
    yield counted("efficientdet-d0", lambda: create_model("tf_efficientdet_d0", **untrained), (3, 512, 512),
                  source="effdet tf_efficientdet_d0", made_by="effdet")  # fmt: skip
    for name, backbone, maps_, norm, source in (
        ("ssd300-resnet50", "resnet50", 1024, True, "NVIDIA DeepLearningExamples, PyTorch/Detection/SSD/ssd/model.py"),
        ("ssd-resnet34", "resnet34", 256, False, "MLCommons training, single_stage_detector/ssd/ssd300.py"),
    ):
        yield counted(
            name, lambda b=backbone, m=maps_, n=norm: _ssd(b, m, n), (3, 300, 300), source=source, made_by="here"
        )


def _retinanet(backbone: str, classes: int, anchors: int, frozen: bool) -> Any:
    import torchvision.models as models
    from torchvision.ops.feature_pyramid_network import LastLevelP6P7

    extractor = _extractor(backbone, frozen, returned_layers=[2, 3, 4], extra_blocks=LastLevelP6P7(256, 256))
    head = models.detection.retinanet.RetinaNetHead(256, anchors, classes)
    sizes = models.detection.anchor_utils.AnchorGenerator(((32,) * (anchors // 3),) * 5, ((0.5, 1.0, 2.0),) * 5)
    return models.detection.RetinaNet(extractor, classes, anchor_generator=sizes, head=head).train()


def _extractor(backbone: str, frozen: bool = True, **options: Any) -> Any:
    """A backbone, all of its layers trained, and its pyramid; frozen: its norms are constants."""
    import torchvision.models as models
    from torchvision.models.detection.backbone_utils import _resnet_fpn_extractor
    from torchvision.ops.misc import FrozenBatchNorm2d

    norm = {"norm_layer": FrozenBatchNorm2d} if frozen else {}
    return _resnet_fpn_extractor(getattr(models, backbone)(**norm), 5, **options)


def _ssd(backbone: str, channels: int, norm: bool) -> Any:
    import torch
    import torchvision.models as models
    from torch import nn

    class Detector(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            body = list(getattr(models, backbone)().children())[:7]
            for module in (body[6][0].conv1, body[6][0].conv2, body[6][0].downsample[0]):
                module.stride = (1, 1)
            widths, inner = (channels, 512, 512, 256, 256, 256), (256, 256, 128, 128, 128)
            self.body = nn.Sequential(*body)
            self.added = nn.ModuleList()
            for number, (first, middle, last) in enumerate(zip(widths[:-1], inner, widths[1:], strict=True)):
                stride, padding = (2, 1) if number < 3 else (1, 0)
                layers = [
                    nn.Conv2d(first, middle, 1, bias=not norm),
                    nn.Conv2d(middle, last, 3, stride, padding, bias=not norm),
                ]
                if norm:
                    layers = [layers[0], nn.BatchNorm2d(middle), layers[1], nn.BatchNorm2d(last)]
                self.added.append(nn.Sequential(*layers))
            boxes = (4, 6, 6, 6, 4, 4)
            self.heads = nn.ModuleList(
                nn.Conv2d(w, n * (81 + 4), 3, padding=1) for w, n in zip(widths, boxes, strict=True)
            )

        def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
            maps = [self.body(x)]
            for layer in self.added:
                maps.append(layer(maps[-1]))
            return [head(each) for head, each in zip(self.heads, maps, strict=True)]

    return Detector()


# Segmentation -----------------------------------------------------------------------------------------------------


def segmentation() -> Iterator[Row]:
    """U-Nets of MONAI, and others after their source."""
    from monai.networks.nets import DynUNet

    levels = [32, 64, 128, 256, 320, 320]

    def dynamic(axes: int, channels: int, classes: int, filters: list[int]) -> Any:
        kernels, strides = [[3] * axes] * 6, [[1] * axes, *[[2] * axes] * 5]
        return DynUNet(axes, channels, classes, kernels, strides, strides[1:], filters=filters, trans_bias=True,
                       norm_name=("INSTANCE", {"affine": True}))  # fmt: skip

    source = "monai DynUNet as NVIDIA DeepLearningExamples, PyTorch/Segmentation/nnUNet, Task01"
    yield counted("nnunet-2d", lambda: dynamic(2, 4, 4, [32, 64, 128, 256, 512, 512]), (4, 192, 160), source=source,
                  made_by="monai")  # fmt: skip
    yield counted("nnunet-3d", lambda: dynamic(3, 4, 4, levels), (4, 128, 128, 128), source=source, made_by="monai")
    yield counted("unet3d", lambda: dynamic(3, 1, 3, levels), (1, 128, 128, 128), made_by="monai",
                  source="monai DynUNet, sizes of MLCommons training, image_segmentation/pytorch/model")  # fmt: skip
    examples = "NVIDIA DeepLearningExamples, TensorFlow/Segmentation"

    def medical() -> Any:
        from torch import nn

        model = dynamic(3, 4, 4, levels)
        model.output_block = nn.Conv3d(32, 4, 3, padding=1)
        return model

    yield counted("unet3d-medical", medical, (4, 128, 128, 128), made_by="monai",
                  source=f"monai DynUNet, sizes of {examples}/UNet_3D_Medical/model, last kernel 3")  # fmt: skip
    for name, kernel, read in (
        ("unet", 2, "Ronneberger et al. 2015, figure 1"), ("unet-medical", 3, f"{examples}/UNet_Medical/model"),
    ):  # fmt: skip
        yield counted(name, lambda k=kernel: _cropped_unet(k), (1, 572, 572), made_by="here", source=read)
    for name, filters in (
        ("unet-industrial", (32, 32, 64, 128, 256)),
        ("unet-industrial-original", (64, 128, 256, 512, 1024)),
    ):
        yield counted(name, lambda f=filters: _resized_unet(f), (1, 512, 512), made_by="here",
                      source=f"{examples}/UNet_Industrial/model")  # fmt: skip
    yield counted("vnet", lambda: _vnet(5, (2, 3, 3, 3), (3, 3, 2, 1), True, 2), (1, 128, 128, 64), made_by="here",
                  source="Milletari et al. 2016, figure 2")  # fmt: skip
    yield counted("vnet-nvidia", lambda: _vnet(3, (3, 3, 3), (3, 3), False, 3), (1, 32, 32, 32), made_by="here",
                  source=f"{examples}/VNet/model")  # fmt: skip


def _cropped_unet(up_kernel: int) -> Any:
    import torch
    from torch import nn

    def pair(inputs: int, outputs: int) -> Any:
        return nn.Sequential(nn.Conv2d(inputs, outputs, 3), nn.ReLU(), nn.Conv2d(outputs, outputs, 3), nn.ReLU())

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            widths = (64, 128, 256, 512, 1024)
            padding = (up_kernel - 1) // 2
            extra = 2 * padding + 2 - up_kernel
            self.down = nn.ModuleList(pair(a, b) for a, b in zip((1, *widths), widths, strict=False))
            self.up = nn.ModuleList(nn.ConvTranspose2d(2 * w, w, up_kernel, 2, padding, extra) for w in widths[-2::-1])
            self.after = nn.ModuleList(pair(2 * w, w) for w in widths[-2::-1])
            self.last = nn.Conv2d(64, 2, 1)

        def forward(self, x: Any) -> Any:
            skips = []
            for number, layer in enumerate(self.down):
                x = layer(nn.functional.max_pool2d(x, 2) if number else x)
                skips.append(x)
            for up, after, skip in zip(self.up, self.after, skips[-2::-1], strict=True):
                x = up(x)
                at = (skip.shape[-1] - x.shape[-1]) // 2
                x = after(torch.cat([x, skip[..., at : at + x.shape[-2], at : at + x.shape[-1]]], 1))
            return self.last(x)

    return Net()


def _resized_unet(widths: tuple[int, ...]) -> Any:
    import torch
    from torch import nn

    def conv(inputs: int, outputs: int, kernel: int = 3) -> Any:
        return nn.Conv2d(inputs, outputs, kernel, padding="same")

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.down = nn.ModuleList(
                nn.Sequential(conv(a, b), conv(b, b)) for a, b in zip((1, *widths), widths, strict=False)
            )
            self.bottom = conv(widths[4], widths[4] // 2, 2)
            before, self.up = widths[4] // 2, nn.ModuleList()
            for width in widths[3:0:-1]:
                half = width // 2
                convolved = (conv(before + width, width), conv(width, half))
                self.up.append(nn.Sequential(*convolved, nn.Upsample(scale_factor=2), conv(half, half, 2)))
                before = half
            self.last = nn.Sequential(
                conv(before + widths[0], widths[0]), conv(widths[0], widths[0]), conv(widths[0], 1, 1)
            )

        def forward(self, x: Any) -> Any:
            skips = []
            for number, layer in enumerate(self.down):
                x = layer(nn.functional.max_pool2d(x, 2) if number else x)
                skips.append(x)
            x = self.bottom(nn.functional.interpolate(x, scale_factor=2))
            for up, skip in zip(self.up, skips[3:0:-1], strict=True):
                x = up(torch.cat([x, skip], 1))
            return self.last(torch.cat([x, skips[0]], 1))

    return Net()


def _vnet(kernel: int, down: tuple[int, ...], up: tuple[int, ...], paper: bool, classes: int) -> Any:
    import torch
    from torch import nn

    def after(width: int) -> Any:
        return nn.PReLU(width) if paper else nn.Sequential(nn.BatchNorm3d(width), nn.ReLU())

    def stage(width: int, number: int) -> Any:
        layers: list[Any] = []
        for _ in range(number):
            layers += [nn.Conv3d(width, width, kernel, padding="same"), after(width)]
        return nn.Sequential(*layers)

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Sequential(nn.Conv3d(1, 16, kernel, padding="same"), after(16))
            self.down, self.down_stage = nn.ModuleList(), nn.ModuleList()
            width = 16
            for number in down:
                self.down.append(nn.Sequential(nn.Conv3d(width, 2 * width, 2, 2), after(2 * width)))
                width *= 2
                self.down_stage.append(stage(width, number))
            self.up, self.up_stage = nn.ModuleList(), nn.ModuleList()
            skip = width // 2
            for number in up:
                self.up.append(nn.Sequential(nn.ConvTranspose3d(width, skip, 2, 2), after(skip)))
                width = 2 * skip
                self.up_stage.append(stage(width, number))
                skip //= 2
            last = nn.Conv3d(32, classes, 1)
            if not paper:
                last = nn.Sequential(
                    nn.ConvTranspose3d(width, 16, 2, 2), after(16), nn.Conv3d(16, classes, kernel, padding="same")
                )
            self.last = last

        def forward(self, x: Any) -> Any:
            skips = [self.first(x) + x]
            for layer, each in zip(self.down, self.down_stage, strict=True):
                x = layer(skips[-1])
                skips.append(x + each(x))
            x = skips.pop()
            for layer, each in zip(self.up, self.up_stage, strict=True):
                x = torch.cat([layer(x), skips.pop()], 1)
                x = x + each(x)
            return self.last(x)

    return Net()


# The table --------------------------------------------------------------------------------------------------------

FAMILIES: dict[str, Callable[[], Iterator[Row]]] = {
    "images": images,
    "detectors": detectors,
    "segmentation": segmentation,
}


def write(rows: list[Row], path: Path = TABLE) -> None:
    """Replace or add rows by name; the order of the table stays."""
    names = [field.name for field in fields(Row)]
    held: dict[str, dict[str, Any]] = {}
    if path.exists():
        with path.open(newline="", encoding="utf-8") as file:
            held = {row["name"]: row for row in csv.DictReader(file)}
    for row in rows:
        held[row.name] = {name: "" if value is None else value for name, value in asdict(row).items()}
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(held.values())


def main(families: list[str]) -> int:
    unknown = [name for name in families if name not in FAMILIES]
    if unknown:
        print(f"found {', '.join(unknown)}, allowed: {', '.join(FAMILIES)}", file=sys.stderr)
        return 2
    for name in families or list(FAMILIES):
        for row in FAMILIES[name]():
            print(f"{row.name}: {row.parameters} parameters, {row.macs} multiply-adds", flush=True)
            write([row])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
