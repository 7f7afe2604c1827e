"""When a whole job restarts: what `restartScope: Job` asks for when one of its pods is replaced.

    situation = replace(situation, restart=following(situation))

A restart begins when a pod has failed and is retried, or was disrupted: evicted, preempted, deleted by another client,
or on a node that ends. All pods of the job are then deleted, those that have exited with 0 included, and made anew when
none of them is left, but not before the back-off of those that failed.

The number of restarts is in the status, and every pod has the number that was there when it was made. A restart begins
with a higher number in the status, and pods with a lower one can only end. So a controller that is stopped in between
goes on with the same restart, what such pods do from then on is not counted, and they begin no other restart.

The number also grows when the job gives all of its pods up, to be suspended or to wait in its queue. Otherwise those
that still end when it goes on would be taken for pods that another client has deleted.
"""

from __future__ import annotations

from tidewater.controller.decide.assessment import Assessment, Restart
from tidewater.controller.decide.exits import due
from tidewater.controller.decide.pods import Goal, missing
from tidewater.controller.decide.replica_groups import Crew
from tidewater.elasticjob.choices import RestartScope

REASON = "a pod of the job failed or was disrupted, and restartScope is Job"
"""Why the pods leave, as the events about them say."""


def following(situation: Assessment) -> Restart:
    """Return where a job that goes on is in its restarts, after what is observed now."""
    before, job = situation.restart, situation.job
    admission = situation.standing.admission
    if job.spec.restart_scope is not RestartScope.JOB or before.under_way or situation.outdated or admission is None:
        return before
    if job.spec.suspend or situation.waits:
        stays = any(not pod.terminating for pod in situation.view.pods)
        return Restart(before.number + 1, under_way=True) if stays else before
    replaced = [crew for crew in situation.kept.values() if _replaces(crew, situation.goal(crew))]
    if not replaced:
        return before
    ended = (each for crew in replaced for each in crew.ended)
    now, earlier = situation.now, job.status.restarts
    time = max((due(pod, how, earlier, now) for pod, how in ended), default=now)
    return Restart(before.number + 1, under_way=True, time=time if time > now else None)


def _replaces(crew: Crew, goal: Goal) -> bool:
    """Return whether a pod of the type has ended or is ending, and another one is to be made."""
    lost = {pod.uid for pod, _ in crew.ended}
    return bool(lost or crew.ending) and missing(crew.without(lost), goal) > 0
