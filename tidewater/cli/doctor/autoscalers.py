"""Checks of the HorizontalPodAutoscalers that resize jobs.

The API server refuses a size that is outside of a job's bounds. An autoscaler that sets one tries it again and again,
and the job keeps the size that it has, although another one within the bounds would be nearer.
"""

from __future__ import annotations

from collections.abc import Iterator

from tidewater.cli.doctor.jobs import Finding, summed
from tidewater.cli.doctor.place import Place
from tidewater.cli.doctor.results import Outcome, Result, skipped
from tidewater.cli.job.waiting import ENDED, bounds, state_of
from tidewater.cli.show import plural
from tidewater.elasticjob import names
from tidewater.elasticjob.names import JOBS
from tidewater.kube.cluster import Object
from tidewater.kube.kinds import Kind

AUTOSCALERS = Kind("autoscaling/v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers")


def autoscalers(place: Place) -> Result:
    """Check that the autoscalers of jobs can set only sizes that their jobs accept."""
    found = [each for each in place.everywhere(AUTOSCALERS) if _resizes_a_job(each)]
    if not found:
        return skipped("no HorizontalPodAutoscaler resizes a job")
    jobs = {(job["metadata"]["namespace"], job["metadata"]["name"]): job for job in place.everywhere(JOBS)}
    wrong = [finding for each in found for finding in _findings(each, jobs)]
    return summed(wrong, f"{plural(len(found), 'HorizontalPodAutoscaler')} of jobs, all within the jobs' bounds")


def _resizes_a_job(autoscaler: Object) -> bool:
    target = autoscaler["spec"]["scaleTargetRef"]
    return bool(target.get("kind") == names.KIND and str(target.get("apiVersion", "")).startswith(f"{names.GROUP}/"))


def _findings(autoscaler: Object, jobs: dict[tuple[str, str], Object]) -> Iterator[Finding]:
    """Yield what is wrong with one autoscaler, if anything is."""
    meta, spec = autoscaler["metadata"], autoscaler["spec"]
    job = jobs.get((meta["namespace"], spec["scaleTargetRef"]["name"]))
    if job is None or state_of(job) in ENDED:
        return
    low, high = bounds(job)
    least, most = int(spec.get("minReplicas") or 1), int(spec["maxReplicas"])
    if low <= least and most <= high:
        return
    namespace, name = meta["namespace"], job["metadata"]["name"]
    text = (
        f"HorizontalPodAutoscaler {namespace}/{meta['name']} may set {least} to {most} workers, and job {name} has "
        f"{low} to {high}: the API server refuses the others, and the job keeps the size that it has"
    )
    remedy = (
        f"Make the autoscaler's bounds as narrow as the job's: `kubectl patch hpa {meta['name']} -n {namespace} "
        f'--type=merge -p \'{{"spec": {{"minReplicas": {low}, "maxReplicas": {high}}}}}\'`. Or change minReplicas and '
        f"maxReplicas of the job."
    )
    never = most < low or least > high
    yield Finding(Outcome.FIX if never else Outcome.NOTE, text, remedy)
