"""Optuna's samplers behind `ask` and `tell`, and the Optuna study that a dashboard reads.

The study a sampler learns from lives in memory; the archive of the search is the truth.  `record` after each
batch holds what Optuna itself added to the batch (repeats, generation numbers, parents), so `restore` puts back
the same study without asking the sampler again, which would cost 1 to 160 ms a trial.
`StudyMirror` copies finished trials into a journal file or any Optuna URL; it never holds a running trial.
"""

from __future__ import annotations

import json
import math
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.trial import TrialState, create_trial

from dse.exploration.searchers import called, distinct, neighbours, unvisited
from dse.exploration.variables import Floats, Integers, Objective, Space

__all__ = ["SAMPLERS", "OptunaSearcher", "StudyMirror", "sampler_classes"]

SAMPLERS = ("nsga2", "tpe", "qmc", "random")

# Batches after which neighbours have their full share: measured on smooth and on stepped toy spaces.
_RAMP = 20
# Trial attributes that belong to asking, not to the finished trial.
_PASSING = ("constraints", "tpe:relative_params", "fixed_params")


class OptunaSearcher:
    """An Optuna sampler, by name or by its class, that never proposes a row twice.

    A repeated proposal is told its known value at once; after `repeats` of them in a batch (default: the batch
    size) the batch is filled with random unvisited rows.
    Every batch has a new sampler seeded by (seed, batch number); only the Sobol sequence of `qmc` keeps the seed.
    population  generation size of nsga2: equal to the batch size gives whole generations
    local       share of a batch that is taken from the unvisited neighbours of the front, reached step by step in the
                first 20 batches: early on the sampler finds the region, later the neighbours fill the front, of
                which the sampler sees only one plan for each hardware row.  The sampler is told these rows too"""

    def __init__(
        self,
        space: Space,
        objectives: int,
        constraints: Sequence[str] = (),
        *,
        sampler: str | Callable[..., optuna.samplers.BaseSampler] = "nsga2",
        seed: int = 0,
        presets: Any = None,
        population: int = 50,
        repeats: int | None = None,
        local: float = 0.5,
    ) -> None:
        if isinstance(sampler, str) and sampler not in SAMPLERS:
            raise ValueError(f"sampler: found {sampler!r}, allowed: {', '.join(SAMPLERS)}")
        self._space, self._constraints = space, tuple(constraints)
        self._sampler, self._seed, self._population = sampler, seed, population
        self._repeats, self._local = repeats, local
        self._distributions = distributions(space)
        self._presets = distinct(space, presets)
        self._known: dict[int, tuple[list[float] | None, list[float]]] = {}
        self._front = np.empty((0, len(space.shape)), dtype=np.int64)
        self._batch = 0
        self._asked: list[tuple[optuna.trial.Trial, int]] = []  # with point numbers, repeats of this batch included
        self._waiting: list[tuple[optuna.trial.Trial, int]] = []  # those not told yet
        self._attributes: dict[str, Any] = {}
        with _quiet():
            self._storage = optuna.storages.InMemoryStorage()
            self._study = optuna.create_study(
                storage=self._storage, study_name="search", directions=["minimize"] * objectives
            )
        self._study_id = self._storage.get_study_id_from_name("search")

    def focus(self, rows: Integers) -> None:
        """The hardware rows of the front so far: fillers are taken around them."""
        self._front = np.asarray(rows, dtype=np.int64).reshape(-1, len(self._space.shape))

    def ask(self, n: int) -> Integers:
        n = min(n, self._space.size - len(self._known))
        chosen: dict[int, Integers] = {}
        self._asked, self._waiting = [], []
        with _quiet():
            self._study.sampler = self._new_sampler()
            for row in self._presets[:n]:
                self._enqueue(row)
                self._ask_one(chosen)
            self._presets = self._presets[n:]
            repeats = 0
            for row in self._near(chosen, int(n * self._local * min(self._batch / _RAMP, 1.0))):
                self._enqueue(row)
                self._ask_one(chosen)
            while len(chosen) < n and repeats <= (n if self._repeats is None else self._repeats):
                repeats += not self._ask_one(chosen)
            for row in self._far(chosen, n - len(chosen)):
                self._enqueue(row)
                self._ask_one(chosen)
        return np.array(list(chosen.values()), dtype=np.int64).reshape(-1, len(self._space.shape))

    def tell(self, rows: Integers, values: Floats, violations: Floats) -> None:
        self._learn(rows, values, violations)
        with _quiet():
            for trial, key in self._waiting:
                self._finish(trial, key)
        self._batch += 1

    def record(self) -> dict[str, Any]:
        """What Optuna added to the last told batch, JSON-able: its trials in order as [row, attributes] and the
        study attributes that changed."""
        trials = self._study.get_trials(deepcopy=False)
        kept = [
            [self._space.index_to_row(key)[0].tolist(), _lasting(trials[trial.number].system_attrs)]
            for trial, key in self._asked
        ]
        now = self._storage.get_study_system_attrs(self._study_id)
        changed = {k: v for k, v in now.items() if self._attributes.get(k) != v}
        self._attributes = dict(now)
        return {"trials": kept, "study": changed}

    def restore(self, record: Mapping[str, Any], rows: Integers, values: Floats, violations: Floats) -> None:
        """Put back a batch that was asked and told before."""
        self._learn(rows, values, violations)
        with _quiet():
            for row, attributes in record["trials"]:
                key = int(self._space.row_to_index(row)[0])
                self._study.add_trial(self._trial(np.asarray(row), *self._known[key], attributes))
            for name, value in record["study"].items():
                self._storage.set_study_system_attr(self._study_id, name, value)
        self._attributes = dict(self._storage.get_study_system_attrs(self._study_id))
        self._presets = self._presets[len(rows) :]
        self._batch += 1

    def trials(self) -> list[optuna.trial.FrozenTrial]:
        """The trials of the study, repeats included, not copied."""
        return self._study.get_trials(deepcopy=False)

    def _new_sampler(self) -> optuna.samplers.BaseSampler:
        seed = int(np.random.SeedSequence([self._seed, self._batch]).generate_state(1)[0])
        if self._sampler == "nsga2":
            return optuna.samplers.NSGAIISampler(population_size=self._population, seed=seed)
        if self._sampler == "tpe":
            return optuna.samplers.TPESampler(multivariate=True, seed=seed)
        if self._sampler == "qmc":
            return optuna.samplers.QMCSampler(scramble=True, seed=self._seed, warn_independent_sampling=False)
        if callable(self._sampler):
            made: optuna.samplers.BaseSampler = called(self._sampler, seed=seed)
            return made
        return optuna.samplers.RandomSampler(seed=seed)

    def _enqueue(self, row: Integers) -> None:
        self._study.enqueue_trial(_parameters(self._space, row))

    def _ask_one(self, chosen: dict[int, Integers]) -> bool:
        """Ask for one trial; True when its row is new.  A known row is told at once."""
        trial = self._study.ask(self._distributions)
        row = np.array([trial.params.get(name, 0) for name in self._space.names], dtype=np.int64)
        key = int(self._space.row_to_index(row)[0])
        self._asked.append((trial, key))
        if key in self._known:
            self._finish(trial, key)
            return False
        self._waiting.append((trial, key))
        if key in chosen:
            return False
        chosen[key] = row
        return True

    def _near(self, chosen: Mapping[int, Integers], n: int) -> Integers:
        """Up to n unvisited neighbours of the front."""
        n = min(n, self._space.size - len(self._known) - len(chosen))
        if n <= 0 or len(self._front) == 0:
            return self._front[:0]
        rng = np.random.default_rng([self._seed, self._batch, 1])
        return neighbours(self._space, self._front, self._visited(chosen), n, rng)

    def _far(self, chosen: Mapping[int, Integers], n: int) -> Integers:
        """n unvisited rows anywhere; fewer when the space ends."""
        if n <= 0:
            return self._front[:0]
        return unvisited(self._space, self._visited(chosen), n, np.random.default_rng([self._seed, self._batch, 2]))

    def _visited(self, chosen: Mapping[int, Integers]) -> set[int]:
        return self._known.keys() | chosen.keys() | set(self._space.row_to_index(self._presets).tolist())

    def _learn(self, rows: Integers, values: Floats, violations: Floats) -> None:
        for key, value, violation in zip(
            self._space.row_to_index(rows).tolist(), values.tolist(), violations.tolist(), strict=True
        ):
            failed = any(math.isnan(v) for v in (*value, *violation))
            self._known[key] = (None if failed else value, [] if failed else violation)

    def _finish(self, trial: optuna.trial.Trial, key: int) -> None:
        values, violations = self._known[key]
        if values is None:
            self._study.tell(trial, state=TrialState.FAIL)
            return
        for name, violation in zip(self._constraints, violations, strict=True):
            trial.set_constraint(name, violation)
        self._study.tell(trial, values)

    def _trial(
        self, row: Integers, values: list[float] | None, violations: list[float], attributes: Mapping[str, Any]
    ) -> optuna.trial.FrozenTrial:
        trial = create_trial(
            state=TrialState.COMPLETE if values is not None else TrialState.FAIL,
            values=values,
            params=_parameters(self._space, row),
            distributions=self._distributions,
            system_attrs=dict(attributes),
        )
        for name, violation in zip(self._constraints, violations, strict=values is not None):
            trial.set_constraint(name, violation)
        return trial


class StudyMirror:
    """An Optuna study of the finished rows of a search, for dashboards and other Optuna tools.

    url          an Optuna storage URL, or the path of a journal file in the locked folder of the search
    fingerprint  stored with a new study; the attribute of the same name is that of the study, None when the study
                 was made by something else
    The rows of the archive are numbered; the mirror holds the first of them and is brought up to date by `extend`.
    A trial left running by another tool is failed when the study is opened."""

    def __init__(
        self, url: str, name: str, *, space: Space, objectives: Sequence[Objective], fingerprint: Mapping[str, Any]
    ) -> None:
        self._space, self._objectives = space, tuple(objectives)
        self._distributions = distributions(space)
        with _quiet():
            self._storage = _open_storage(url)
            self._study = optuna.create_study(
                storage=self._storage,
                study_name=name,
                directions=[o.direction for o in objectives],
                load_if_exists=True,
            )
            self.fingerprint: dict[str, Any] | None = self._study.user_attrs.get("fingerprint")
            trials = self._study.get_trials(deepcopy=False)
            if self.fingerprint is None and not trials:
                self._study.set_user_attr("fingerprint", json.loads(json.dumps(fingerprint)))
                self._study.set_metric_names([o.name for o in objectives])
                self.fingerprint = dict(fingerprint)
            for trial in trials:
                if trial.state == TrialState.RUNNING:
                    self._study.tell(trial.number, state=TrialState.FAIL)
        self.count = sum("row" in t.user_attrs for t in trials)

    def extend(self, rows: Integers, values: Floats, violations: Floats, *, constraints: Sequence[str]) -> None:
        """Append finished rows; values (m, J) less is better, NaN where failed."""
        signs = [o.sign for o in self._objectives]
        with _quiet():
            for row, value, violation in zip(rows, values.tolist(), violations.tolist(), strict=True):
                failed = any(math.isnan(v) for v in (*value, *violation))
                trial = create_trial(
                    state=TrialState.FAIL if failed else TrialState.COMPLETE,
                    values=None if failed else [s * v for s, v in zip(signs, value, strict=True)],
                    params=_parameters(self._space, row),
                    distributions=self._distributions,
                    user_attrs={"row": self.count, "values": self._space.values(row)},
                )
                if not failed:
                    for name, number in zip(constraints, violation, strict=True):
                        trial.set_constraint(name, number)
                self._study.add_trial(trial)
                self.count += 1


def sampler_classes() -> dict[str, type[optuna.samplers.BaseSampler]]:
    """Optuna's own samplers by the name of their class."""
    base = optuna.samplers.BaseSampler
    found = {name: getattr(optuna.samplers, name) for name in optuna.samplers.__all__ if name != base.__name__}
    return {name: one for name, one in found.items() if isinstance(one, type) and issubclass(one, base)}


def distributions(space: Space) -> dict[str, BaseDistribution]:
    """Choice numbers as Optuna sees them: whole numbers for ordered lists, categories for others; a variable with
    one choice is left out."""
    return {
        v.name: IntDistribution(0, len(v.values) - 1) if v.ordered else CategoricalDistribution(range(len(v.values)))
        for v in space.variables
        if len(v.values) > 1
    }


def _parameters(space: Space, row: Integers) -> dict[str, int]:
    return {v.name: int(i) for v, i in zip(space.variables, row, strict=True) if len(v.values) > 1}


def _lasting(attributes: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in attributes.items() if not k.startswith(_PASSING)}


def _open_storage(url: str) -> optuna.storages.BaseStorage:
    if "://" in url:
        return optuna.storages.get_storage(url)
    from optuna.storages.journal import JournalFileBackend

    # The folder of the search is locked by us, so a lock file beside the journal is from a killed process.
    Path(f"{url}.lock").unlink(missing_ok=True)
    _cut_torn_line(Path(url))
    return optuna.storages.JournalStorage(JournalFileBackend(url))


def _cut_torn_line(path: Path) -> None:
    # A process killed while writing leaves half a line, to which the next line would be glued.
    content = path.read_bytes() if path.exists() else b""
    if content and not content.endswith(b"\n"):
        os.truncate(path, content.rfind(b"\n") + 1)


@contextmanager
def _quiet() -> Iterator[None]:
    """Optuna logs every study and warns about experimental parts; a search prints its own progress."""
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            yield
    finally:
        optuna.logging.set_verbosity(before)
