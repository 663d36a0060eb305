"""The tag `pareto` of the trials on the Pareto front of a sweep, in MLflow."""

from __future__ import annotations

from vinedresser.errors import VinedresserError
from vinedresser.infra.catalog.known_tracking import require_known
from vinedresser.infra.catalog.run_notes import stored_tracking
from vinedresser.infra.services.tracking import set_tags, tags_of
from vinedresser.objects import Location, open_storage
from vinedresser.store.records import TrackingRecord
from vinedresser.sweeps.trial import Trial
from vinedresser.tasks.lifecycle.earlier_runs import runs_of_trial

__all__ = ["PARETO_TAG", "tag_front"]

PARETO_TAG = "sweep.pareto"
# Of MLflow's run of a trial: "true", or "false" if it was on the front before.
_TAG = "pareto"


def tag_front(store: Location, tracking: TrackingRecord, front: tuple[Trial, ...]) -> list[str]:
    """Tag MLflow's runs of the trials on the front, and of those that were on it before.

    Args:
        tracking: MLflow's run of the sweep, as the trials' parent.
        front: the trials on the Pareto front.

    Returns:
        A sentence if MLflow did not accept it.
    """
    try:
        uri = require_known(store, tracking.uri)
        before = tags_of(uri, tracking.parent).get(PARETO_TAG, "")
        names = {trial.name: "true" for trial in front}
        changes = dict.fromkeys(filter(None, before.split(", ")), "false") | names
        for name, value in changes.items():
            runs = runs_of_trial(store, name)
            record = stored_tracking(runs[-1], open_storage(runs[-1])) if runs else None
            if record is not None:
                set_tags(uri, record.run_id, {_TAG: value})
    except VinedresserError as error:
        return [f"the tag {_TAG} of the trials on the Pareto front is not in MLflow: {error}"]
    return []
