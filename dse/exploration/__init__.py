"""Searches a space of designs: what can be chosen, who proposes, what is recorded, which designs nothing beats.

The engine knows no hardware; `problem`, `plans` and `sweep` connect it to the models.
The search itself is `run.run`; it is not repeated here because a function would hide the module of its name.
"""

from dse.exploration.archive import Archive, DifferentSearch, FolderInUse
from dse.exploration.pareto import hypervolume, non_dominated
from dse.exploration.run import result_of
from dse.exploration.searchers import ExhaustiveSearcher, QuasiRandomSearcher, RandomSearcher, Searcher
from dse.exploration.settings import Progress, SearchResult, Settings
from dse.exploration.variables import Objective, Outcome, Problem, Space, Variable

__all__ = [
    "Archive",
    "DifferentSearch",
    "ExhaustiveSearcher",
    "FolderInUse",
    "Objective",
    "Outcome",
    "Problem",
    "Progress",
    "QuasiRandomSearcher",
    "RandomSearcher",
    "SearchResult",
    "Searcher",
    "Settings",
    "Space",
    "Variable",
    "hypervolume",
    "non_dominated",
    "result_of",
]
