"""Torch modules: the counts that the module itself gives, without its weights."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from workloads.importers import torch as importer

torch: Any = pytest.importorskip("torch", reason="needs torch (never a dependency)")
nn = torch.nn


@pytest.fixture(autouse=True)
def plain() -> Any:
    """Modules of the meta device, and attention as its products."""
    torch.backends.mha.set_fastpath_enabled(False)
    with torch.device("meta"):
        yield


def counted(module: Any, *inputs: Any) -> tuple[int, int]:
    """Parameters and MACs by torch."""
    from torch.utils.flop_counter import FlopCounterMode

    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        module(*inputs)
    return sum(one.numel() for one in module.parameters()), counter.get_total_flops() // 2


class Block(nn.Module):  # type: ignore[misc, name-defined]
    """A layer of a decoder with a convolution beside it."""

    def __init__(self, width: int = 32, heads: int = 4) -> None:
        super().__init__()
        self.norm, self.attend = nn.LayerNorm(width), nn.MultiheadAttention(width, heads, batch_first=True)
        self.mix = nn.Conv1d(width, width, 3, padding="same", groups=width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width, bias=False)
        self.scale = nn.Parameter(torch.ones(width))

    def forward(self, x: Any) -> Any:
        y = self.norm(x)
        x = x + self.attend(y, y, y, need_weights=False)[0] * self.scale
        x = x + self.mix(x.transpose(1, 2)).transpose(1, 2)
        return x + self.down(nn.functional.gelu(self.up(x)))


class Words(nn.Module):  # type: ignore[misc, name-defined]
    """A language model whose head is its table."""

    def __init__(self, layers: int = 2, causal: bool = True) -> None:
        super().__init__()
        self.table, self.places = nn.Embedding(101, 32), nn.Embedding(64, 32)
        self.query = nn.ModuleList(nn.Linear(32, 96) for _ in range(layers))
        self.head = nn.Linear(32, 101, bias=False)
        self.head.weight = self.table.weight
        self.causal = causal

    def forward(self, words: Any) -> Any:
        x = self.table(words) + self.places(torch.arange(words.shape[1], device=words.device))
        for layer in self.query:
            q, k, v = (part.unflatten(-1, (4, 8)).transpose(1, 2) for part in layer(x).chunk(3, -1))
            y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
            x = x + y.transpose(1, 2).flatten(2)
        return self.head(x)


def words(tokens: int) -> Any:
    return torch.zeros(1, tokens, dtype=torch.int64)


def test_a_module_of_ones_own_has_the_counts_of_torch() -> None:
    module, x = Block().eval(), torch.zeros(1, 17, 32)
    network = importer.from_torch(module, x, name="block", sequence=17)
    assert (network.graph().parameters, network.graph().macs) == counted(module, x)
    kinds = [type(node.operator).__name__ for node in network.graph().nodes]
    assert kinds.count("LayerNorm") == 1 and kinds.count("Activation") == 1
    products = [one.name for node in network.graph().nodes for one in node.counts.products]
    assert products == ["linear", "scores", "context", "linear", "convolution", "linear", "linear"]


def test_a_tied_head_is_counted_once_and_the_mask_is_causal() -> None:
    module = Words()
    network = importer.from_torch(module, words(19))
    assert (network.graph().parameters, network.graph().macs) == counted(module, words(19))
    assert network.sequence == 19 and network.sample == "sequence" and network.divisors() == {"attention heads": 4}
    body, loss = network.blocks(19)[1:]
    assert body.causal and body.attentions[0].repeats == 2 and loss.vectors


def test_a_function_of_the_length_gives_any_length_and_fixed_inputs_one() -> None:
    network = importer.from_torch(Words(), words, sequence=16)
    core = [sum(one.flops for one in network.blocks(tokens)[1].matmuls if one.core) for tokens in (16, 32)]
    assert core[1] == 4 * core[0]
    with pytest.raises(ValueError, match="found 32, allowed: 16"):
        importer.from_torch(Words(), words(16)).graph(32)
    with pytest.raises(ValueError, match="sequence: found 0"):
        importer.from_torch(Words(), words)


def test_dropout_is_counted_in_training_mode_alone() -> None:
    module = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.1), nn.Linear(8, 8))
    trained = importer.from_torch(module.train(), torch.zeros(1, 8)).graph()
    inferred = importer.from_torch(module.eval(), torch.zeros(1, 8)).graph()
    assert len(trained.nodes) == len(inferred.nodes) + 1 and trained.macs == inferred.macs


def test_frozen_parameters_and_buffers_are_not_trained() -> None:
    module = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Conv2d(8, 4, 1)).eval()
    module[0].requires_grad_(False)
    graph = importer.from_torch(module, torch.zeros(1, 3, 9, 9)).graph()
    assert graph.parameters == 16 + 36


@pytest.mark.parametrize(("kind", "gates"), [("LSTM", 4), ("GRU", 3), ("RNN", 1)])
def test_recurrent_layers_count_each_direction_and_layer(kind: str, gates: int) -> None:
    module = getattr(nn, kind)(6, 8, num_layers=2, bidirectional=True, batch_first=True)
    graph = importer.from_torch(module, torch.zeros(1, 5, 6), sequence=5).graph()
    assert graph.parameters == sum(one.numel() for one in module.parameters())
    assert graph.macs == 5 * 2 * gates * 8 * ((6 + 8) + (16 + 8))


def test_attention_written_out_is_the_same_as_the_operator() -> None:
    class Written(Words):
        def forward(self, words: Any) -> Any:
            x = self.table(words)
            mask = torch.full((words.shape[1],) * 2, float("-inf")).triu(1)
            q, k, v = (part.unflatten(-1, (4, 8)).transpose(1, 2) for part in self.query[0](x).chunk(3, -1))
            scores = q @ k.transpose(-1, -2) / 8**0.5 + mask
            return self.head((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))

    body = importer.from_torch(Written(1), words(12)).blocks(12)[1]
    core = importer.from_torch(Words(1), words(12)).blocks(12)[1].attentions[0]
    assert body.attentions == (core,) and body.causal


def test_a_loss_in_the_module_is_the_loss() -> None:
    class Trained(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Linear(8, 5)

        def forward(self, x: Any, target: Any) -> Any:
            return nn.functional.cross_entropy(self.net(x), target)

    network = importer.from_torch(Trained(), (torch.zeros(1, 8), torch.zeros(1, dtype=torch.int64)))
    assert len(network.blocks(1)[2].vectors) == 1 and network.graph().macs == 40


def test_what_cannot_be_read_is_said_in_one_error() -> None:
    class Strange(nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            return torch.linalg.inv(x) + torch.fft.fft(x).real

    with pytest.raises(ValueError, match="operators that cannot be read: fft_fft.*linalg_inv"):
        importer.from_torch(Strange(), torch.zeros(1, 3, 3))

    class Branch(nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            return x if x.sum() > 0 else -x

    with pytest.raises(ValueError, match="branch: torch.export cannot export it"):
        importer.from_torch(Branch(), torch.zeros(1, 3))
    with pytest.raises(ValueError, match="allowed: a torch.nn.Module"):
        importer.from_torch(len, torch.zeros(1, 3))
    with pytest.raises(ValueError, match="allowed: one sample"):
        importer.from_torch(nn.Conv2d(3, 4, 1), torch.zeros(8, 3, 4, 4))
    with pytest.raises(ValueError, match="inputs: found int"):
        importer.from_torch(nn.Linear(3, 4), 3)


def test_without_torch_the_error_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ValueError, match="pip install torch"):
        importer.from_torch(None, None)


@pytest.mark.parametrize("name", ["resnet50", "vit_b_16", "mobilenet_v3_small"])
def test_a_model_of_torchvision_has_the_counts_of_torch(name: str) -> None:
    vision = pytest.importorskip("torchvision", reason="needs torchvision (never a dependency)")
    module, x = vision.models.get_model(name).eval(), torch.zeros(1, 3, 224, 224)
    network = importer.from_torch(module, x)
    assert (network.graph().parameters, network.graph().macs) == counted(module, x)
