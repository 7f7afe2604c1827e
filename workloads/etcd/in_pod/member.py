"""Decides how a member of etcd starts, and writes its configuration: what its pod runs before etcd.

    python3 member.py --name etcd-1 --uid UID --options '{"data-dir": "/data/etcd", …}' --config /config/etcd.json \\
        --member etcd-0,http://etcd-0…:2380,http://etcd-0…:2379 --member etcd-1,…

A member with data goes on with it. One without data has never started, or has lost its disk:

- If the others have a majority, the lost member of this name is removed and a new one is added. What it knew comes from
  the others. https://etcd.io/docs/v3.5/op-guide/runtime-configuration/#replace-a-failed-machine
- If all members are here and none has data, they begin a new etcd. Each says at its peer port that it is here. The UID
  of the first is part of the new etcd's identity, so that what is left of an earlier one can't take part in it.
- Otherwise it waits and says for what. If some members still have data and no majority, people must decide: with a new
  etcd next to the rest of the old one, one question could have two answers.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

HERE = "/here"
"""Path at the peer port under which a member without data says that it is here."""

ANSWER_SECONDS = 2.0
LIST_SECONDS = 8.0
"""A member without a majority answers after its own time-out of about seven seconds."""
PAUSE_SECONDS = 0.5
GIVE_UP_SECONDS = 600.0
"""Kubernetes starts the program again then; the pod shows the sentence meanwhile."""
SAY_AGAIN_SECONDS = 30.0
STAY_SECONDS = 60.0
"""So long a member that has decided stays for those that have not, or can't be asked."""


@dataclass(frozen=True)
class Member:
    """A member of the stack's etcd: its name, and the addresses at which members and clients reach it."""

    name: str
    peer: str
    client: str


@dataclass(frozen=True)
class Seen:
    """What another member shows: that it is here without data; or its etcd, with or without a majority; or nothing."""

    uid: str = ""
    decided: bool = False
    is_away: bool = False
    """Whether its peer port is closed, or etcd's: it is not here any more."""
    listed: Sequence[Mapping[str, Any]] = ()
    lacks_majority: bool = False


class Waits(Exception):
    """The member can't start yet; the message says why."""


def cluster(members: Sequence[Member]) -> str:
    """Return the value of etcd's ``initial-cluster``."""
    return ",".join(f"{each.name}={each.peer}" for each in members)


def lost(listed: Sequence[Mapping[str, Any]], own: Member) -> list[str]:
    """Return the ids of members that are to be removed, as they are this one with its data.

    A member without a name has been added and has not started yet: that may still be this one.
    """
    return [each["ID"] for each in listed if each.get("name") == own.name]


def is_added(listed: Sequence[Mapping[str, Any]], own: Member) -> bool:
    """Return whether this member has been added, and has not started yet."""
    return any(not each.get("name") and own.peer in each["peerURLs"] for each in listed)


def current(listed: Sequence[Mapping[str, Any]], members: Sequence[Member]) -> str:
    """Return ``initial-cluster`` for one that joins: it must have exactly the members that there are now."""
    names = {each.peer: each.name for each in members}
    return ",".join(f"{names.get(url, each.get('name'))}={url}" for each in listed for url in each["peerURLs"])


def foreign(listed: Sequence[Mapping[str, Any]], others: Sequence[Member]) -> str:
    """Return why an etcd that has a majority isn't the one that this member belongs to, or ""."""
    peers = {url for each in listed for url in each["peerURLs"]}
    missing = [each.name for each in others if each.peer not in peers]
    return f"waits for the end of an etcd that {', '.join(missing)} has no part in" if missing else ""


def reason_to_wait(seen: Mapping[str, Seen]) -> str:
    """Return why a member without data can't start, or "" if all others are here without data, too."""
    powerless = [name for name, each in seen.items() if each.lacks_majority]
    if powerless:
        return (
            f"has no data, and {', '.join(powerless)} can't take it back: their etcd has no majority. When more of its "
            "members are back, this goes on by itself. If they have lost their disks as well, delete the pods of all "
            "members: a new etcd begins, and jobs go on from their last checkpoints"
        )
    missing = [name for name, each in seen.items() if not each.uid]
    return f"has no data and waits for {', '.join(missing)}, which can't be reached" if missing else ""


class Desk:
    """Says at the peer port that this member is here, until ``close``."""

    def __init__(self, own: Member, uid: str) -> None:
        self.decided = False
        desk = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                text = json.dumps({"uid": uid, "decided": desk.decided}).encode()
                self.send_response(200 if self.path == HERE else 404)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_: object) -> None:
                """Print nothing."""

        self._server = ThreadingHTTPServer(("", urlsplit(own.peer).port or 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        """Free the port, for etcd."""
        self._server.shutdown()
        self._server.server_close()


def _ask(url: str, body: object = None, *, seconds: float = ANSWER_SECONDS) -> dict[str, Any]:
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(url, data), timeout=seconds) as answer:
        found: dict[str, Any] = json.load(answer)
        return found


def greeting(other: Member) -> Seen:
    """Ask another member whether it is here without data."""
    try:
        found = _ask(other.peer + HERE)
        return Seen(uid=found["uid"], decided=found["decided"])
    except urllib.error.HTTPError:
        return Seen(is_away=True)
    except urllib.error.URLError as error:
        return Seen(is_away=isinstance(error.reason, ConnectionRefusedError))
    except (OSError, ValueError, KeyError):
        return Seen()


def look(other: Member) -> Seen:
    """Ask another member for what it shows."""
    seen = greeting(other)
    if seen.uid:
        return seen
    try:
        # As of the majority, and not as this member remembers it.
        found = _ask(f"{other.client}/v3/cluster/member/list", {"linearizable": True}, seconds=LIST_SECONDS)
        return Seen(listed=found["members"])
    except (urllib.error.HTTPError, TimeoutError, KeyError):
        return Seen(lacks_majority=True)
    except (OSError, ValueError):
        return Seen()


def rejoin(own: Member, through: Member, listed: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """Take the lost member's place, with the help of another one. Return the members. Raise Waits if it refuses."""

    def change(what: str, body: object) -> Sequence[Mapping[str, Any]]:
        try:
            members: Sequence[Mapping[str, Any]] = _ask(
                f"{through.client}/v3/cluster/member/{what}", body, seconds=LIST_SECONDS
            )["members"]
        except urllib.error.HTTPError as error:
            reason = error.read().decode(errors="replace").strip()
            raise Waits(f"has no data, and {through.name} refuses to {what} it: {reason}") from error
        except (OSError, ValueError, KeyError) as error:
            raise Waits(f"has no data, and {through.name} does not answer: {error}") from error
        return members

    for id_ in lost(listed, own):
        listed = change("remove", {"ID": id_})
    return listed if is_added(listed, own) else change("add", {"peerURLs": [own.peer]})


class Start:
    """One member's start.

    Args:
        own: This member.
        members: All members.
        uid: Of this member's pod.
        say: Called with each sentence.
    """

    def __init__(self, own: Member, members: Sequence[Member], uid: str, say: Callable[[str], None]) -> None:
        self._own, self._members, self._uid, self._say = own, members, uid, say
        self._others = [each for each in members if each != own]
        self._said, self._said_at = "", 0.0

    def decide(self) -> dict[str, str]:
        """Return the options with which a member without data starts. Raise Waits if that can't be known in time."""
        desk = Desk(self._own, self._uid)
        until = time.monotonic() + GIVE_UP_SECONDS
        try:
            while True:
                try:
                    return self._decided(desk)
                except Waits as waits:
                    self._repeat(f"{self._own.name} {waits}")
                    if time.monotonic() > until:
                        raise
                time.sleep(PAUSE_SECONDS)
        finally:
            desk.close()

    def _decided(self, desk: Desk) -> dict[str, str]:
        seen = {each.name: look(each) for each in self._others}
        for other in self._others:
            if listed := seen[other.name].listed:
                if reason := foreign(listed, self._others):
                    raise Waits(reason)
                listed = rejoin(self._own, other, listed)
                self._say(f"{self._own.name} has no data: the others have it, and it joins them")
                return {"initial-cluster-state": "existing", "initial-cluster": current(listed, self._members)}
        if reason := reason_to_wait(seen):
            raise Waits(reason)
        first = self._members[0].name
        token = {self._own.name: self._uid, **{name: each.uid for name, each in seen.items()}}[first]
        desk.decided = True
        try:
            self._stay(first, token)
        except Waits:
            desk.decided = False
            raise
        self._say("no member has data: a new etcd begins")
        return {
            "initial-cluster-state": "new",
            "initial-cluster": cluster(self._members),
            "initial-cluster-token": token,
        }

    def _stay(self, first: str, token: str) -> None:
        """Stay here until the others have decided as well. Raise Waits if the first member is another one by now.

        One that doesn't answer may be here all the same.
        """
        until = time.monotonic() + STAY_SECONDS
        while time.monotonic() < until:
            seen = {each.name: greeting(each) for each in self._others}
            if first in seen and seen[first].uid not in ("", token):
                raise Waits(f"begins anew with {first}, which was replaced")
            if all(each.decided or each.is_away for each in seen.values()):
                return
            time.sleep(PAUSE_SECONDS)

    def _repeat(self, sentence: str) -> None:
        if sentence != self._said or time.monotonic() > self._said_at + SAY_AGAIN_SECONDS:
            self._said, self._said_at = sentence, time.monotonic()
            self._say(sentence)


def has_data(directory: Path) -> bool:
    """Return whether etcd has started with this ``data-dir``: it then has a log of what it wrote."""
    return any(directory.glob("member/wal/*.wal"))


def main() -> None:
    """Write the configuration. End with exit code 1 and a sentence if the member can't start."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for flag in ("--name", "--uid", "--options", "--config"):
        parser.add_argument(flag, required=True)
    parser.add_argument("--member", action="append", required=True, metavar="NAME,PEER,CLIENT")
    given = parser.parse_args()
    members = [Member(*each.split(",")) for each in given.member]
    own = next((each for each in members if each.name == given.name), None)
    if own is None:
        sys.exit(f"{given.name} is no member: etcd has {', '.join(each.name for each in members)}")
    options = {"name": given.name, **json.loads(given.options)}

    def say(sentence: str) -> None:
        print(sentence, flush=True)

    if has_data(Path(options["data-dir"])):
        say(f"{own.name} goes on with its data")
        options |= {"initial-cluster-state": "existing", "initial-cluster": cluster(members)}
    else:
        try:
            options |= Start(own, members, given.uid, say).decide()
        except Waits as waits:
            sys.exit(f"{own.name} {waits}; this went on for {GIVE_UP_SECONDS:.0f} s")
    draft = Path(given.config).with_suffix(".draft")
    draft.write_text(json.dumps(options, indent=2))
    draft.replace(given.config)


if __name__ == "__main__":
    main()
