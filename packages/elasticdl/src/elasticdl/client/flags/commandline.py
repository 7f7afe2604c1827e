"""From the words of a command line to the values of the flags. Every mistake is found before one is reported.

words(["train", "--num-workers=4", "--use_async"])      # ["train", "--num_workers=4", "--use_async=true"]
asked(JobMode.TRAIN, {"num_workers": "4", …}, [])       # Asked(…), or WrongCommand with all that is wrong
"""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from typing import Any

from elasticdl.client.flags import conflicts, table, values
from elasticdl.client.flags.mistakes import Mistake, WrongCommand
from elasticdl.client.flags.refused import REFUSED
from elasticdl.client.flags.request import Asked, Deployment, Resources, Target
from elasticdl.job import JobArgs, JobMode, Strategy

LOCAL_JOB = "local"
"""Name of a job in this process, which needs none."""

_WORD = re.compile(r"--([A-Za-z][A-Za-z0-9_-]*)(=.*)?", re.DOTALL)
_TRUTH = re.compile(r"true|false|yes|no|t|f|y|n", re.IGNORECASE)


def words(given: Sequence[str]) -> list[str]:
    """Return the words of a command line in one spelling.

    A flag's name may have dashes instead of underscores. A flag that is true or false may stand without a value. A
    command that was copied together with the backslashes at the ends of its lines has blanks before its flags.
    """
    known = table.known()
    found: list[str] = []
    rest = [each.lstrip() if each.lstrip().startswith("--") else each for each in given if each.strip() or not each]
    for index, word in enumerate(rest):
        match = _WORD.fullmatch(word)
        name = match[1].replace("-", "_") if match else ""
        if not match or name not in {*known, *REFUSED}:
            found.append(word)
            continue
        value = match[2] or ""
        following = rest[index + 1] if index + 1 < len(rest) else ""
        # One that is true by default was switched off by its bare name in ElasticDL: `asked` wants its value.
        if not value and name in known and known[name].is_boolean and not _TRUTH.fullmatch(following):
            value = "=" if known[name].default == "true" else "=true"
        found.append(f"--{name}{value}")
    return found


def asked(mode: JobMode, given: Mapping[str, str], more: Sequence[str]) -> Asked:
    """Return what a command asks for.

    Args:
        mode: The command.
        given: The flags that were given, without dashes, with their texts.
        more: What else was on the command line: flags that the command doesn't know, and the image.

    Raises:
        WrongCommand: something is wrong; it has all of it.
    """
    mistakes = _strange(mode, more)
    given = dict(given)
    if not mistakes and more:
        mistakes += _with_image(given, more)
    read: dict[str, Any] = {}
    for flag in table.of(mode):
        if flag.name in given:
            try:
                read[flag.name] = flag.read(given[flag.name])
            except values.WrongValue as wrong:
                mistakes.append(Mistake(f"--{flag.name}: {wrong.message}", wrong.remedy))
    mistakes += _spec_of_file(read)
    found = _typed(mode, read, given.keys() - read.keys())
    mistakes += conflicts.found(found, frozenset(given))
    if mistakes:
        raise WrongCommand(list(dict.fromkeys(mistakes)))
    return found


def _strange(mode: JobMode, more: Sequence[str]) -> list[Mistake]:
    """Return the mistakes of flags that the command doesn't have."""
    own, known = [flag.name for flag in table.of(mode)], table.known()
    found = []
    for word in more:
        if not word.startswith("-"):
            continue
        name = word.lstrip("-").partition("=")[0].replace("-", "_")
        if name in REFUSED:
            found.append(Mistake(f"--{name} has no meaning here", REFUSED[name]))
        elif name in known:
            others = ", ".join(f"`elasticdl {each}`" for each in sorted(known[name].modes))
            found.append(Mistake(f"--{name} is no flag of `elasticdl {mode}`", f"it is one of {others}; leave it out"))
        else:
            near = difflib.get_close_matches(name, own, n=1)
            hint = f"did you mean --{near[0]}? " if near else ""
            found.append(Mistake(f"{word.partition('=')[0]} is unknown", f"{hint}`elasticdl {mode} --help` lists them"))
    return found


def _with_image(given: dict[str, str], more: Sequence[str]) -> list[Mistake]:
    """Take the image that stands without a flag; return the mistakes in that."""
    image, *others = more
    if others:
        return [Mistake(f"{' '.join(others)} after the image {image}", "put texts with blanks into quotes")]
    if given.setdefault("image_name", image) != image:
        return [Mistake(f"two images: {image} and --image_name={given['image_name']}", "name one of them")]
    return []


def _spec_of_file(read: dict[str, Any]) -> list[Mistake]:
    """Replace the name of the file of --cluster_spec by its content; return the mistakes in that."""
    name = read.pop("cluster_spec", "")
    if not name:
        return []
    if name.endswith(".py"):
        remedy = 'write the same as JSON or YAML: {"pod_spec": {"labels": …, "tolerations": …}}'
        return [Mistake(f"--cluster_spec={name}: Python is not run here", remedy)]
    if "cluster_spec_json" in read:
        return [Mistake("--cluster_spec and --cluster_spec_json exclude each other", "leave out one of the two")]
    try:
        read["cluster_spec_json"] = values.cluster_spec(Path(name).read_text())
    except OSError as error:
        return [Mistake(f"--cluster_spec={name} can't be read: {error.strerror}", "name a file with JSON or YAML")]
    except (values.WrongValue, UnicodeDecodeError) as wrong:
        return [Mistake(f"--cluster_spec={name}: {wrong}", "name a file with JSON or YAML")]
    return []


def _typed(mode: JobMode, read: Mapping[str, Any], unread: Set[str]) -> Asked:
    """Return the values as dataclasses; what was not given, or can't be read (`unread`), has its default."""
    names = {each.name for each in dataclasses.fields(JobArgs)}
    own = {name: value for name, value in read.items() if name in names and name != "max_step"}
    may_be_local = own.get("distribution_strategy") is Strategy.LOCAL or "distribution_strategy" in unread
    own.setdefault("job_name", LOCAL_JOB if may_be_local else "")
    own["log_level"] = str(own.get("log_level", JobArgs.log_level))
    args = JobArgs(**own, mode=mode, max_step=read.get("max_step") or None)
    same = {each.name for each in dataclasses.fields(Deployment)} & read.keys()
    given: dict[str, Any] = {name: read[name] for name in same}
    given |= {kind: _resources(kind, read, unread) for kind in table.RESOURCES}
    deployment = Deployment(**given, volumes=read.get("volume"), cluster_spec=read.get("cluster_spec_json", {}))
    target = Target(
        namespace=read.get("namespace", ""),
        context=read.get("context", ""),
        kubeconfig=read.get("kubeconfig", ""),
        in_cluster=not read.get("force_use_kube_config_file", False),
        yaml=read.get("yaml", ""),
    )
    return Asked(args=args, deployment=deployment, target=target)


def _resources(kind: str, read: Mapping[str, Any], unread: Set[str]) -> Resources:
    request, limit = f"{kind}_resource_request", f"{kind}_resource_limit"
    if {request, limit} & unread:  # the other one can't be compared with it
        return Resources(request={})
    default = values.resources(table.RESOURCES[kind])
    return Resources(request=read.get(request, default), limit=read.get(limit, {}))
