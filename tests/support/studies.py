"""The Optuna study that a search leaves in its folder."""

from __future__ import annotations

from pathlib import Path

import optuna


def study_of(out: Path) -> optuna.Study:
    """The study in the journal of an output folder."""
    backend = optuna.storages.journal.JournalFileBackend(str(out / "optuna-journal.log"))
    return optuna.load_study(study_name="dse", storage=optuna.storages.JournalStorage(backend))
