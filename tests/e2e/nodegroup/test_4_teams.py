"""Two teams on one stack: a person runs jobs in the namespace of her team, and no team reads what belongs to the other.

This module uses the stack of the modules before it. Without them, it makes the stack. At the end it removes the teams.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.e2e.checkout import STACK, UP, Checkout, Output
from tests.e2e.elasticjob import PYTORCH, SLEEP, Job, make_room
from tests.e2e.training import is_running

pytestmark = [pytest.mark.e2e, pytest.mark.incremental, pytest.mark.timeout(900)]

TEAMS = {"vision": "ada", "speech": "bob"}
"""The person of each team."""
SAYS = """sh -c 'trap "echo last words; exit 0" TERM; echo words of {team}; sleep 3600 & wait'"""


@dataclass(frozen=True)
class Person:
    """Someone with an access key and a team."""

    checkout: Checkout
    team: str
    arn: str
    key: str
    secret: str

    def run(self, command: str) -> Output:
        """Run a command with the person's own identity."""
        return self.checkout.run(self._as_me(command))

    def fails(self, command: str) -> Output:
        """Run a command that fails."""
        return self.checkout.fails(self._as_me(command))

    def in_pod(self, command: str) -> str:
        """Return the command line that runs another one in the person's worker."""
        return f"kubectl exec -n {self.team} own-worker-0 -- {command}"

    def _as_me(self, command: str) -> str:
        mine = f"AWS_ACCESS_KEY_ID={self.key} AWS_SECRET_ACCESS_KEY={self.secret}"
        return f"unset AWS_SESSION_TOKEN AWS_PROFILE; export {mine}; {command}"


@pytest.fixture(scope="module")
def persons(checkout: Checkout) -> Iterator[dict[str, Person]]:
    """Yield a person of each team, by the team's name; the teams are in the config only."""
    make_room(checkout, 2)
    iam = checkout.client("iam")
    found, settings = {}, {"fileAccess": "iam", "jobLogDays": "7"}
    for number, (team, name) in enumerate(TEAMS.items()):
        arn = iam.create_user(UserName=name)["User"]["Arn"]
        key = iam.create_access_key(UserName=name)["AccessKey"]
        found[team] = Person(checkout, team, arn, key["AccessKeyId"], key["SecretAccessKey"])
        entries = {"name": team, "userArns[0]": arn, "maxWorkers": "2", "nominalWorkers": "1"}
        settings |= {f"teams[{number}].{entry}": value for entry, value in entries.items()}
    pairs = " ".join(f"--plaintext 'tidewater:{key}={value}'" for key, value in settings.items())
    checkout.run(f"pulumi config set-all --path {pairs}")
    try:
        yield found
    finally:
        if "tidewater:teams" in (checkout.path / f"Pulumi.{STACK}.yaml").read_text():  # a test has failed
            without_teams(checkout)  # for the modules after this one
    for team, person in found.items():
        iam.delete_access_key(UserName=TEAMS[team], AccessKeyId=person.key)
        iam.delete_user(UserName=TEAMS[team])


@pytest.fixture(scope="module")
def people(persons: dict[str, Person], checkout: Checkout) -> dict[str, Person]:
    """Return the same people, with their teams on the stack."""
    checkout.run(UP)
    return persons


def without_teams(checkout: Checkout) -> None:
    """Take the teams off the stack."""
    for key in ("teams", "fileAccess", "jobLogDays"):
        checkout.run(f"pulumi config rm tidewater:{key}", expect=None)
    checkout.run(UP)


def test_a_namespace_of_others_and_a_person_with_another_access_entry_are_refused_at_once(
    persons: dict[str, Person], checkout: Checkout
) -> None:
    cluster, ada = checkout.outputs["clusterName"], persons["vision"].arn
    entry = f"--cluster-name {cluster} --principal-arn {ada}"
    checkout.run(f"kubectl create namespace speech && aws eks create-access-entry {entry}")
    refused = checkout.fails("pulumi preview").text
    checkout.run(f"kubectl delete namespace speech && aws eks delete-access-entry {entry}")
    assert "the configuration has 2 mistakes; nothing was changed" in refused
    assert f"teams = speech: the cluster {cluster} has a namespace of this name already" in refused
    assert f"teams.vision.userArns = {ada}: has an access entry on the cluster {cluster} already" in refused


def test_the_logs_of_a_deleted_job_stay_for_its_team_and_no_other(
    people: dict[str, Person], checkout: Checkout
) -> None:
    flags = f"--image {PYTORCH} --launcher none --cpu 50m --memory 256Mi"
    for team, person in people.items():
        person.run(f"tidewater job submit said -n {team} {flags} -- {SAYS.format(team=team)}")
    for team, person in people.items():
        Job(checkout.path, "said", team).await_active(1)
        person.run(f"tidewater job delete said -n {team}")
    for team, person in people.items():
        found = person.run(f"tidewater job logs said -n {team} 2>/dev/null").text
        assert found.splitlines() == [f"worker-0 | words of {team}", "worker-0 | last words"]
        assert "tidewater-logs" not in person.run(f"kubectl get pods -n {team}").text
    assert "forbidden" in people["speech"].fails("tidewater job logs said -n vision").text
    assert "forbidden" in people["speech"].fails("tidewater job logs said -n vision --kept").text


def test_each_person_runs_a_job_with_her_own_identity(people: dict[str, Person], checkout: Checkout) -> None:
    for team, person in people.items():
        made = person.run(
            f"tidewater job submit own -n {team} --image {PYTORCH} --launcher none --cpu 50m --memory 256Mi -- {SLEEP}"
        )
        assert f"own created in namespace {team}" in made.text
    for team in people:
        own = Job(checkout.path, "own", team)
        own.await_active(1)
        assert [is_running(pod) for pod in own.pods()] == [True]


def test_she_is_refused_elsewhere_with_a_sentence(people: dict[str, Person]) -> None:
    for space in ("speech", "training", "default"):
        submit = f"tidewater job submit other -n {space} --image {PYTORCH} --launcher none -- {SLEEP}"
        refused = people["vision"].fails(submit).text
        assert 'cannot create resource "elasticjobs"' in refused
        assert f'in the namespace "{space}"' in refused
    for kind in ("elasticjobs", "pods", "secrets", "configmaps"):
        assert "forbidden" in people["vision"].fails(f"kubectl get {kind} -n speech").text
    assert "forbidden" in people["vision"].fails(people["speech"].in_pod("true")).text


def test_pods_of_a_team_read_and_write_its_folder_of_the_bucket_only(
    people: dict[str, Person], checkout: Checkout
) -> None:
    bucket = checkout.outputs["bucket"]
    for team, person in people.items():
        aws = person.in_pod("python3 -m awscli s3")
        person.run(f"{aws} cp /etc/hostname s3://{bucket}/teams/{team}/name")
        assert "name" in person.run(f"{aws} ls s3://{bucket}/teams/{team}/").text
    for team, other in (("vision", "speech"), ("speech", "vision")):
        aws = people[team].in_pod("python3 -m awscli")
        read = f"s3api get-object --bucket {bucket} --key teams/{other}/name /tmp/name"  # `s3 cp` says 403 only
        for command in (read, f"s3 ls s3://{bucket}/teams/{other}/"):
            assert "AccessDenied" in people[team].fails(f"{aws} {command}").text


def test_pods_of_a_team_see_its_folder_of_the_file_system_only(people: dict[str, Person]) -> None:
    for team, person in people.items():
        person.run(person.in_pod(f"touch /data/of-{team}"))
    for team, person in people.items():
        there = person.run(person.in_pod("ls /data")).text.split()
        assert f"of-{team}" in there
        assert not [each for each in there if each.startswith("of-") and each != f"of-{team}"]


def test_the_controller_has_no_right_on_jobs_elsewhere(people: dict[str, Person], checkout: Checkout) -> None:
    account = "system:serviceaccount:tidewater-system:tidewater-controller"
    for space, answer in {"vision": "yes", "training": "yes", "default": "no"}.items():
        found = checkout.run(f"kubectl auth can-i create pods -n {space} --as={account}", expect=None).text
        assert found.strip() == answer, space


def test_a_teams_quota_binding_and_policies_stay_as_the_stack_has_made_them(people: dict[str, Person]) -> None:
    person = people["vision"]
    change = json.dumps({"spec": {"hard": {"pods": "1000"}}})
    assert "forbidden" in person.fails(f"kubectl patch resourcequota team -n vision -p '{change}'").text
    for kept in ("rolebinding people", "networkpolicy default-deny"):
        assert "forbidden" in person.fails(f"kubectl delete {kept} -n vision").text


def test_a_team_borrows_the_worker_that_the_other_leaves_and_shrinks_when_that_one_wants_it(
    people: dict[str, Person], checkout: Checkout
) -> None:
    for team, person in people.items():
        person.run(f"kubectl delete elasticjob own -n {team}")
    wide, late = Job(checkout.path, "wide", "vision"), Job(checkout.path, "late", "speech")
    small = f"--image {PYTORCH} --launcher none --cpu 50m --memory 256Mi"
    people["vision"].run(f"tidewater job submit wide -n vision {small} --workers 2 --min 1 -- {SLEEP}")
    wide.await_active(2)
    first = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in wide.worker_pods()}
    people["speech"].run(f"tidewater job submit late -n speech {small} -- {SLEEP}")
    late.await_active(1)
    (left,) = wide.worker_pods()
    assert first["wide-worker-0"] == left["metadata"]["uid"]
    assert "It may have 1 of 2 workers" in wide.condition("Running")["message"]
    people["speech"].run("kubectl delete elasticjob late -n speech")
    wide.await_active(2)


def test_teams_that_are_removed_go_with_their_peoples_jobs(people: dict[str, Person], checkout: Checkout) -> None:
    assert people
    without_teams(checkout)
    left = checkout.run("kubectl get namespaces,persistentvolumes -o name").text
    assert not [each for each in left.split() if each.endswith(tuple(TEAMS))], left
