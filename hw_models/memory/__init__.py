"""What stores and feeds: traffic between memory levels."""

from __future__ import annotations

from hw_models.memory.tiling import compulsory_traffic, stream_traffic, traffic

__all__ = ["compulsory_traffic", "stream_traffic", "traffic"]
