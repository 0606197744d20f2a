"""What an importer gives: a network, the samples it is trained on, and what could not be carried over."""

from __future__ import annotations

from dataclasses import dataclass

from workloads.network import Network


@dataclass(frozen=True)
class Imported:
    """A network from a file.

    sequence   tokens a sample, 0 where the file does not say
    notes      what is counted otherwise than the file says, or left out: one sentence each
    """

    network: Network
    sequence: int = 0
    notes: tuple[str, ...] = ()
