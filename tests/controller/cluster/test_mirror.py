"""A mirror shows what the API server has, whatever happens to the watch."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from tests.controller.fakes.api import PAGE, Api, Call
from tidewater.controller.cluster.client import Manifest, Ref, Source, within
from tidewater.controller.cluster.mirror import FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS, Change, Key, Mirror, pause
from tidewater.kube.errors import ClusterError, Refused, Unavailable
from tidewater.kube.kinds import PODS

SELECTOR = "app=x"


def pod(name: str, **labels: str) -> Manifest:
    return {"metadata": {"name": name, "namespace": "default", "labels": {"app": "x", **labels}}, "spec": {}}


def phase(manifest: Manifest) -> str:
    return str(manifest["status"]["phase"])


class Watched:
    """A mirror of pods' phases, with what it has reported."""

    def __init__(self, api: Api, fault: Callable[[Call, str], None] = lambda call, moment: None) -> None:
        self.api = api
        self.changes: list[Change[str]] = []
        self.errors: list[ClusterError | None] = []
        self.mirror = Mirror(
            api.client(fault),
            [Source(PODS, selector=SELECTOR)],
            phase,
            self.changes.append,
            lambda plural, error: self.errors.append(error),
        )
        self.task = asyncio.create_task(self.mirror.run())

    def shown(self) -> dict[str, str]:
        return {key.name: entry.value for key, entry in self.mirror.entries.items()}

    def calls(self, verb: str) -> int:
        return sum(call.verb == verb for call in self.api.calls)


def set_phase(api: Api, name: str, value: str) -> None:
    api.patch(Ref(PODS, "default", name), {"status": {"phase": value}}, "status")


async def moment() -> None:
    await asyncio.sleep(0.01)


async def watching(*names: str) -> Watched:
    """Return a mirror that shows pods with these names."""
    api = Api()
    for name in names:
        api.create(PODS, pod(name))
    watched = Watched(api)
    await moment()
    return watched


async def test_it_shows_what_exists_and_what_changes() -> None:
    api = Api()
    api.create(PODS, pod("a"))
    watched = Watched(api)
    await watched.mirror.synced.wait()
    assert watched.shown() == {"a": "Pending"}
    await moment()
    api.create(PODS, pod("b"))
    set_phase(api, "a", "Running")
    await moment()
    assert watched.shown() == {"a": "Running", "b": "Pending"}
    api.delete(Ref(PODS, "default", "a"))
    await moment()
    assert watched.shown() == {"b": "Pending"}


async def test_a_list_of_several_parts_is_shown_whole() -> None:
    api = Api()
    for number in range(2 * PAGE + 1):
        api.create(PODS, pod(f"p{number}"))
    watched = Watched(api)
    await watched.mirror.synced.wait()
    assert len(watched.shown()) == 2 * PAGE + 1


async def test_only_objects_that_the_selector_names_are_shown() -> None:
    api = Api()
    api.create(PODS, pod("other", app="y"))
    watched = Watched(api)
    await watched.mirror.synced.wait()
    assert watched.shown() == {}


async def test_after_an_interruption_it_continues_from_where_it_was_without_a_list() -> None:
    watched = await watching("a")
    api = watched.api
    api.down = True
    api.restart()
    set_phase(api, "a", "Running")
    await asyncio.sleep(20)
    assert watched.shown() == {"a": "Pending"}
    api.down = False
    await asyncio.sleep(LONGEST_PAUSE_SECONDS)
    assert watched.shown() == {"a": "Running"}
    assert watched.calls("list") == 1


async def test_a_version_that_is_too_old_is_answered_by_a_new_list() -> None:
    watched = await watching("a", "b")
    api = watched.api
    api.down = True
    api.restart()
    set_phase(api, "a", "Running")
    api.delete(Ref(PODS, "default", "b"))
    api.create(PODS, pod("c"))
    api.compact()
    await moment()
    api.down = False
    await asyncio.sleep(30)
    assert watched.shown() == {"a": "Running", "c": "Pending"}
    assert watched.calls("list") == 2
    gone = [change.old.key.name for change in watched.changes if change.old and not change.new]
    assert gone == ["b"]


async def test_a_bookmark_moves_the_version_so_that_a_quiet_watch_does_not_expire() -> None:
    watched = await watching()
    api = watched.api
    for number in range(3):
        api.create(PODS, pod(f"other{number}", app="y"))
    await asyncio.sleep(100)
    api.compact()
    api.restart()
    await asyncio.sleep(1)
    assert watched.calls("list") == 1
    assert watched.calls("watch") == 2


async def test_what_was_written_counts_before_its_event_arrives_and_only_once() -> None:
    watched = await watching()
    api = watched.api
    watched.mirror.wrote(api.create(PODS, pod("a")))
    assert watched.shown() == {"a": "Pending"}
    await moment()
    assert [(change.mine, change.new is not None) for change in watched.changes] == [(True, True)]


async def test_an_answer_that_arrives_after_the_deletion_brings_nothing_back() -> None:
    watched = await watching()
    api = watched.api
    created = api.create(PODS, pod("a"))
    api.delete(Ref(PODS, "default", "a"))
    await moment()
    watched.mirror.wrote(created)
    assert watched.shown() == {}


async def test_an_older_event_does_not_undo_what_was_written() -> None:
    watched = await watching("a")
    api = watched.api
    set_phase(api, "a", "Running")
    watched.mirror.wrote(api.patch(Ref(PODS, "default", "a"), {"status": {"phase": "Failed"}}, "status"))
    await moment()
    assert watched.shown() == {"a": "Failed"}
    assert [change.new.value for change in watched.changes if change.new] == ["Pending", "Failed"]


async def test_a_list_does_not_hide_what_was_written_since() -> None:
    api = Api()
    watched = Watched(api)

    def while_listing(call: Call, moment_: str) -> None:
        if call.verb == "list" and moment_ == "after":
            watched.mirror.wrote(api.create(PODS, pod("a")))

    watched.mirror._cluster = api.client(while_listing)
    await watched.mirror.synced.wait()
    assert watched.shown() == {"a": "Pending"}


async def test_a_pod_that_was_replaced_under_its_name_is_another_pod() -> None:
    watched = await watching()
    api = watched.api
    api.create(PODS, pod("a"))
    api.delete(Ref(PODS, "default", "a"))
    api.create(PODS, pod("a"))
    await moment()
    uid = api.get(PODS, "default", "a")["metadata"]["uid"]
    assert watched.mirror.entries[Key("default", "a")].uid == uid


async def test_forgetting_a_pod_does_not_forget_another_one_of_its_name() -> None:
    watched = await watching("a")
    api = watched.api
    watched.mirror.gone(Key("default", "a"), "uid of a former pod")
    assert watched.shown() == {"a": "Pending"}
    watched.mirror.gone(Key("default", "a"), api.get(PODS, "default", "a")["metadata"]["uid"])
    assert watched.shown() == {}


async def test_changes_that_do_not_matter_are_not_reported() -> None:
    watched = await watching("a")
    api = watched.api
    api.patch(Ref(PODS, "default", "a"), {"metadata": {"annotations": {"a": "b"}}})
    await moment()
    assert len(watched.changes) == 1


async def test_errors_are_reported_and_tried_again_with_growing_pauses() -> None:
    api = Api()
    api.down = True
    watched = Watched(api)
    await asyncio.sleep(120)
    failures = len(watched.errors)
    assert all(isinstance(error, Unavailable) for error in watched.errors)
    assert 120 / LONGEST_PAUSE_SECONDS <= failures <= 45
    api.down = False
    await watched.mirror.synced.wait()


@pytest.mark.parametrize("optional", [True, False])
async def test_objects_that_may_not_be_read_are_done_without_if_they_are_optional(optional: bool) -> None:
    def forbidden(call: Call, moment_: str) -> None:
        raise Refused("pods is forbidden", status=403)

    source = [Source(PODS, optional=optional)]
    mirror = Mirror(Api().client(forbidden), source, phase, lambda change: None)
    task = asyncio.create_task(mirror.run())
    await asyncio.sleep(60)
    assert mirror.synced.is_set() is optional
    assert not task.done()


def test_pauses_double_up_to_a_limit() -> None:
    assert FIRST_PAUSE_SECONDS / 2 <= pause(0) <= FIRST_PAUSE_SECONDS
    assert LONGEST_PAUSE_SECONDS / 2 <= pause(1000) <= LONGEST_PAUSE_SECONDS


async def test_an_answer_without_a_version_leaves_the_object_to_the_watch() -> None:
    """So the API server answers a deletion of an object that another client deletes at the same moment."""
    watched = await watching("a")
    answer = watched.api.get(PODS, "default", "a")
    del answer["metadata"]["resourceVersion"]
    answer["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    watched.mirror.deleted(answer)
    assert watched.shown() == {"a": "Pending"}
    watched.api.delete(Ref(PODS, "default", "a"))
    await moment()
    assert watched.shown() == {}


async def test_of_several_namespaces_each_is_read_by_itself_and_all_are_shown_together() -> None:
    def forbidden_in_b(call: Call, moment_: str) -> None:
        if forbidden and call.namespace == "b":
            raise Refused("pods is forbidden", status=403)

    def place(namespace: str, name: str) -> None:
        api.create(PODS, {"metadata": {"name": name, "namespace": namespace, "labels": {"app": "x"}}, "spec": {}})

    forbidden, api = True, Api()
    for namespace in ("a", "b", "other"):
        place(namespace, "first")
    sources = within(Source(PODS, selector=SELECTOR), ("a", "b"))
    changes: list[Change[str]] = []
    mirror = Mirror(api.client(forbidden_in_b), sources, phase, changes.append)
    task = asyncio.create_task(mirror.run())
    await moment()
    assert [str(key) for key in mirror.entries] == ["a/first"]
    assert not mirror.synced.is_set(), "a namespace that isn't read yet may have pods of a job"
    forbidden = False
    await mirror.synced.wait()
    assert sorted(map(str, mirror.entries)) == ["a/first", "b/first"]
    # One namespace is listed anew, and what is in the others stays.
    api.down = True
    api.restart()
    api.delete(Ref(PODS, "a", "first"))
    place("a", "second")
    api.compact()
    await moment()
    api.down = False
    await asyncio.sleep(30)
    assert sorted(map(str, mirror.entries)) == ["a/second", "b/first"]
    task.cancel()
