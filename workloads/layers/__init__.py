"""Operators that a graph is built of: what each computes, trains and keeps, for one sample."""

from workloads.layers.convolution import Conv, ConvTranspose, Pool
from workloads.layers.dense import Linear
from workloads.layers.losses import CrossEntropy, Loss
from workloads.layers.norms import BatchNorm, GroupNorm, InstanceNorm, LayerNorm, LocalResponseNorm
from workloads.layers.pointwise import (
    Activation,
    AdaptivePool,
    Add,
    ChannelShuffle,
    Concat,
    Dropout,
    Flatten,
    GlobalPool,
    Multiply,
    Permute,
    PixelShuffle,
    PReLU,
    Reduce,
    RoiAlign,
    Scale,
    Slice,
    Upsample,
)

__all__ = [
    "Activation",
    "AdaptivePool",
    "Add",
    "BatchNorm",
    "ChannelShuffle",
    "Concat",
    "Conv",
    "ConvTranspose",
    "CrossEntropy",
    "Dropout",
    "Flatten",
    "GlobalPool",
    "GroupNorm",
    "InstanceNorm",
    "LayerNorm",
    "Linear",
    "LocalResponseNorm",
    "Loss",
    "Multiply",
    "PReLU",
    "Permute",
    "PixelShuffle",
    "Pool",
    "Reduce",
    "RoiAlign",
    "Scale",
    "Slice",
    "Upsample",
]
