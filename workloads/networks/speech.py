"""Speech recognition networks as graphs: a sample is an utterance, its sequence the number of frames (10 ms each)."""

from __future__ import annotations

from functools import partial

from workloads.graph import Graph, Value
from workloads.graph_network import GraphNetwork
from workloads.layers.convolution import Conv
from workloads.layers.dense import Linear
from workloads.layers.embedding import Embedding
from workloads.layers.norms import BatchNorm
from workloads.layers.pointwise import Activation, Add, Dropout, Permute
from workloads.layers.recurrent import LSTM, AlignmentLoss, StackTime, TransducerJoint

__all__ = ["NETWORKS"]

#: Frames of the longest utterance that is trained on, 16.7 s.
FRAMES = 1670
#: Labels a frame of LibriSpeech: 15 characters, or about 4 word pieces, a second of 100 frames (assumed).
CHARACTERS, PIECES = 15, 4
JASPER_BLOCKS = ((256, 11, 0.2), (384, 13, 0.2), (512, 17, 0.2), (640, 21, 0.3), (768, 25, 0.3))
QUARTZNET_BLOCKS = ((256, 33), (256, 39), (512, 51), (512, 63), (512, 75))


def _conv_norm(graph: Graph, x: Value, filters: int, kernel: int, *, stride: int = 1, dilation: int = 1,
               separable: bool = False) -> Value:  # fmt: skip
    """Convolution over frames that keeps their number, and batch norm; separable: depthwise, then pointwise."""
    pad = kernel // 2 * dilation
    if separable:
        x = graph.add(Conv(x.shape[0], kernel, stride, pad, dilation, groups=x.shape[0], bias=False), x)
        return graph.add(BatchNorm(), graph.add(Conv(filters, 1, bias=False), x))
    return graph.add(BatchNorm(), graph.add(Conv(filters, kernel, stride, pad, dilation, bias=False), x))


def _block(graph: Graph, x: Value, sources: list[Value], *, filters: int, kernel: int, repeat: int = 5,
           dropout: float = 0.0, separable: bool = False, stride: int = 1, dilation: int = 1) -> Value:  # fmt: skip
    """`repeat` convolutions, to the last of which each of `sources` is added through a pointwise one."""
    for at in range(repeat):
        x = _conv_norm(graph, x, filters, kernel, stride=stride, dilation=dilation, separable=separable)
        if at == repeat - 1 and sources:
            for source in sources:
                x = graph.add(Add(), x, _conv_norm(graph, source, filters, 1))
        x = graph.add(Activation("relu"), x)
        if dropout:
            x = graph.add(Dropout(dropout), x)
    return x


def _ctc(graph: Graph, x: Value, labels: int, classes: int = 29) -> None:
    """Pointwise convolution to characters and CTC loss."""
    with graph.cell("decoder"):
        x = graph.add(Permute((1, 0)), graph.add(Conv(classes, 1), x, name="classes"))
        graph.add(AlignmentLoss(labels, "ctc"), x)


def jasper(frames: int, *, features: int = 64) -> Graph:
    """Jasper 10x5 with dense residuals: every block's input also reaches the end of all later blocks."""
    graph = Graph("jasper")
    x = graph.input((features, frames), "spectrogram")
    with graph.cell("prologue"):
        x = _block(graph, x, [], filters=256, kernel=11, repeat=1, dropout=0.2, stride=2)
    inputs: list[Value] = []
    for at, (filters, kernel, dropout) in enumerate(JASPER_BLOCKS):
        for half in range(2):
            with graph.cell(f"block {2 * at + half}"):
                inputs.append(x)
                x = _block(graph, x, inputs, filters=filters, kernel=kernel, dropout=dropout)
    with graph.cell("epilogue"):
        x = _block(graph, x, [], filters=896, kernel=29, repeat=1, dropout=0.4, dilation=2)
        x = _block(graph, x, [], filters=1024, kernel=1, repeat=1, dropout=0.4)
    _ctc(graph, x, max(frames * CHARACTERS // 100, 1))
    return graph


def quartznet(frames: int, *, features: int = 64) -> Graph:
    """QuartzNet 15x5: blocks of depthwise-separable convolutions, each with its own residual."""
    graph = Graph("quartznet")
    x = graph.input((features, frames), "spectrogram")
    with graph.cell("prologue"):
        x = _block(graph, x, [], filters=256, kernel=33, repeat=1, separable=True, stride=2)
    for at, (filters, kernel) in enumerate(QUARTZNET_BLOCKS):
        for third in range(3):
            with graph.cell(f"block {3 * at + third}"):
                x = _block(graph, x, [x], filters=filters, kernel=kernel, separable=True)
    with graph.cell("epilogue"):
        x = _block(graph, x, [], filters=512, kernel=87, repeat=1, separable=True, dilation=2)
        x = _block(graph, x, [], filters=1024, kernel=1, repeat=1)
    _ctc(graph, x, max(frames * CHARACTERS // 100, 1))
    return graph


def transducer(frames: int, *, features: int = 80, classes: int = 1024) -> Graph:
    """RNN-T: LSTM encoder of 2 + 3 layers that halves time between them, LSTM prediction network, joint network.

    Three frames are joined outside the network; each encoder step meets each label in the joint network.
    """
    graph = Graph("rnn-t")
    labels = max(frames * PIECES // 100, 1)
    x = graph.input((-(-frames // 3), 3 * features), "spectrogram")
    for layer in range(5):
        with graph.cell(f"encoder {layer}"):
            x = graph.add(LSTM(1024), graph.add(StackTime(2), x) if layer == 2 else x)
            x = graph.add(Dropout(0.1), x)
    with graph.cell("encoder out"):
        x = graph.add(Linear(512), x)
    with graph.cell("prediction"):
        # the start symbol is a row of zeros
        y = graph.add(Embedding(classes - 1, 512), graph.input((labels + 1,), "labels"))
        for _ in range(2):
            y = graph.add(Dropout(0.3), graph.add(LSTM(512), y))
        y = graph.add(Linear(512), y)
    with graph.cell("joint"):
        z = graph.add(Linear(classes), graph.add(TransducerJoint(), x, y), name="classes")
        graph.add(AlignmentLoss(labels, "transducer"), z)
    return graph


#: Speech networks, by name.
NETWORKS: tuple[GraphNetwork, ...] = (
    GraphNetwork(
        "jasper-10x5", partial(jasper), FRAMES, "utterance",
        "Li et al. 2019, arXiv 1904.03288, table 1 (dense residual); NVIDIA/DeepLearningExamples, "
        "PyTorch/SpeechRecognition/Jasper: 333 million parameters, utterances to 16.7 s",
    ),
    GraphNetwork(
        "quartznet-15x5", partial(quartznet), FRAMES, "utterance",
        "Kriman et al. 2019, arXiv 1910.10261, table 1; NVIDIA/DeepLearningExamples, "
        "PyTorch/SpeechRecognition/QuartzNet: 18.9 million parameters",
    ),
    GraphNetwork(
        "rnn-t", partial(transducer), FRAMES, "utterance",
        "Graves 2012, arXiv 1211.3711; mlcommons/training, rnn_speech_recognition, configs/baseline_v3-1023sp.yaml",
        (("hidden", 512),),
    ),
)  # fmt: skip
