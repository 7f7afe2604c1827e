"""`job list`: where there are jobs if there are none here, and with --watch the rows that change."""

from __future__ import annotations

from tests.cli.conftest import Run
from tests.cli.fake import FakeCluster, job, running
from tidewater.elasticjob.names import JOBS
from tidewater.kube.cluster import ALL_NAMESPACES, EVERYTHING, Selection, Table
from tidewater.kube.errors import error_of
from tidewater.kube.kinds import Kind


def put(cluster: FakeCluster, name: str, namespace: str) -> None:
    made = job(name)
    made["metadata"]["namespace"] = namespace
    cluster.put(JOBS, made)


def test_an_empty_list_says_where_it_looked_and_where_there_are_some(run: Run, cluster: FakeCluster) -> None:
    result = run("job", "list")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "There are no jobs in namespace training, nor in any other.\n"
    for name, namespace in (("a", "prod"), ("b", "prod"), ("c", "dev")):
        put(cluster, name, namespace)
    words = "There are no jobs in namespace training. There are in prod (2), dev (1): choose one with -n, or list all"
    assert words in run("job", "list").stderr
    assert words in run("job", "describe", "a").stderr


def test_an_empty_list_of_all_namespaces_says_so(run: Run) -> None:
    assert run("job", "list", "-A").stderr == "There are no jobs in any namespace.\n"


def test_a_user_who_may_not_list_other_namespaces_is_told_about_the_own_one(run: Run, cluster: FakeCluster) -> None:
    put(cluster, "a", "prod")
    table = cluster.table

    def own_only(kind: Kind, selection: Selection = EVERYTHING) -> Table:
        if selection.namespace == ALL_NAMESPACES:
            raise error_of(403, "Forbidden", "elasticjobs is forbidden")
        return table(kind, selection)

    cluster.table = own_only  # type: ignore[method-assign]
    assert run("job", "list").stderr == "There are no jobs in namespace training. Choose another one with -n.\n"


def test_a_watched_list_prints_the_rows_that_change(run: Run, cluster: FakeCluster) -> None:
    cluster.put(JOBS, job("digits", **running()))
    cluster.put(JOBS, job("other", **running()))

    def interrupt() -> None:
        raise KeyboardInterrupt

    cluster.steps = [
        lambda: cluster.change(JOBS, "digits", status={"lastReconcileTime": "2026-03-01T12:00:01Z"}),
        lambda: cluster.change(JOBS, "digits", status={"state": "Succeeded"}),
        lambda: cluster.remove(JOBS, "other"),
        interrupt,
    ]
    result = run("job", "list", "--watch")
    assert result.exit_code == 130
    assert result.stdout.splitlines() == [
        "NAME     STATE     DESIRED   ACTIVE   AGE",
        "digits   Running   2         2        5m",
        "other    Running   2         2        5m",
        "digits   Succeeded   2         2        5m",
    ]
    assert "other in namespace training has been deleted" in result.stderr


def test_a_watched_list_has_no_other_output(run: Run) -> None:
    result = run("job", "list", "--watch", "-o", "json")
    assert (result.exit_code, "--watch can't be used with --output" in result.stderr) == (2, True)
