"""A SCALE-Sim topology becomes a chain of its layers with the same multiply-adds."""

from __future__ import annotations

from pathlib import Path

import pytest

from workloads.importers.reading import FileError
from workloads.importers.scalesim import load, multiply_adds, read

HEADINGS = "Layer name, IFMAP Height, IFMAP Width, Filter Height, Filter Width, Channels, Num Filter, Strides,\n"
#: Sizes of AlexNet's layers (Krizhevsky et al. 2012) as the format has them: no padding of its own.
ALEXNET = HEADINGS + (
    "Conv1 ,224 ,224 ,11 ,11 ,3   ,96  ,4 ,\n"
    "Conv2 ,27  ,27  ,5  ,5  ,96  ,256 ,1 ,\n"
    "Conv3 ,13  ,13  ,3  ,3  ,256 ,384 ,1 ,\n"
)
PRODUCTS = "Layer,M,N,K\nQKT,1024,1024,64\nlinear,1024,4800,1600\n"


def said(text: str) -> str:
    with pytest.raises(FileError) as error:
        read(text, path="t.csv")
    return str(error.value)


def test_a_convolution_has_the_multiply_adds_of_its_columns() -> None:
    """Conv1: (224 - 11) / 4 is rounded up to 54, so 55 x 55 positions of 11 x 11 x 3 taps and 96 filters."""
    found = read(HEADINGS + "Conv1,224,224,11,11,3,96,4,\n").network
    assert found.graph().macs == 55 * 55 * 11 * 11 * 3 * 96 == 105415200
    assert found.graph().parameters == 11 * 11 * 3 * 96


def test_layers_form_a_chain_and_only_the_first_reads_data() -> None:
    network = read(ALEXNET, "alexnet").network
    graph = network.graph()
    assert graph.macs == multiply_adds(network) == 55**2 * 363 * 96 + 23**2 * 2400 * 256 + 11**2 * 2304 * 384
    assert [node.is_data for node in graph.nodes] == [True, *[False] * (len(graph.nodes) - 1)]
    body = network.blocks(1)[1]
    first = 2 * 55**2 * 363 * 96
    assert body.training_flops == 3 * body.flops - first
    assert [cell.name for cell in body.cells] == ["0 Conv1", "1 Conv2", "2 Conv3"]


def test_a_product_is_rows_times_a_matrix_of_weights() -> None:
    network = read(PRODUCTS).network
    assert network.graph().macs == multiply_adds(network) == 1024 * 1024 * 64 + 1024 * 4800 * 1600
    assert network.graph().parameters == 1024 * 64 + 4800 * 1600


def test_names_of_columns_and_blanks_do_not_matter() -> None:
    other = ALEXNET.replace("Layer name, IFMAP Height", "layer,h").replace(" ,", ",").replace("\n", "\n\n")
    assert read(other).network.graph().macs == read(ALEXNET).network.graph().macs


def test_equal_files_are_equal_networks() -> None:
    assert read(ALEXNET).network == read(ALEXNET).network
    assert read(ALEXNET).network != read(PRODUCTS).network


def test_what_a_file_does_not_have_is_said() -> None:
    found = read(HEADINGS.rstrip(",\n") + ", Sparsity\nConv1,24,24,3,3,3,8,1,2:4\n")
    assert "activations are not in the file" in found.notes[0]
    assert found.notes[1] == "columns after strides are not read: 2:4"


def test_a_file_is_named_by_its_stem(tmp_path: Path) -> None:
    (tmp_path / "tiny.csv").write_text(PRODUCTS)
    assert load(tmp_path / "tiny.csv").network.name == "tiny"


def test_every_wrong_cell_is_named_by_line_and_column() -> None:
    text = said(HEADINGS + "a,24,24,3,3,three,8,1,\nb,24,24,3\nc,24,0,3,3,3,8,1,\nd,3,9,5,3,1,1,1,\n")
    for part in (
        't.csv: line 2: channels: found "three"', "t.csv: line 3: found 4 cells; allowed: 8: Layer name",
        't.csv: line 4: IFMAP width: found "0"', "t.csv: line 5: filter height: found 5 on an IFMAP of 3",
    ):  # fmt: skip
        assert part in text


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "no layer"),
        (HEADINGS, "no layer"),
        ("a,b\n1,2\n", "found 2 columns; allowed: 8 columns"),
        ("Conv1,224,224,11,11,3,96,4,\n", "numbers in the first line"),
        ("Layer,M,N,K\nx,1,1,99999999999999999999\n", "a whole number >= 1"),
        ("Layer,M,N,K\nx,1,1,-4\n", 'K: found "-4"'),
        ("Layer,M,N,K\n" + "x,1,1,1\n" * 2500, "more than 2000 layers"),
        ('Layer,M,N,K\n"x,' + "1" * 200_000 + "\n", "no valid CSV"),
    ],
)
def test_a_file_that_is_no_topology_is_refused(text: str, part: str) -> None:
    assert part in said(text)
