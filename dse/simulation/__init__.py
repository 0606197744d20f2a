"""One training step as events: the reference that the closed forms of `dse.evaluation` are held against.

It reads the same prices of passes, transfers and collectives, and shares no formula of how they follow each other.
"""

from dse.simulation.step import Timeline, re_score, simulate, simulated_step_time

__all__ = ["Timeline", "re_score", "simulate", "simulated_step_time"]
