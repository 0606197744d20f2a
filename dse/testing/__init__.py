"""Contracts that every built-in passes: run them on your own engine, link, network or searcher.

    from dse.testing import check_compute, check_link, check_metric, check_network, check_searcher, check_strategy
"""

from dse.evaluation.metrics import check_metric
from dse.testing.contracts import check_compute, check_link, check_network, check_searcher, check_strategy

__all__ = ["check_compute", "check_link", "check_metric", "check_network", "check_searcher", "check_strategy"]
