"""Commands for typer with options in groups: a parameter that is a dataclass stands for its fields.

    @command(app, "list")
    def list_jobs(session: Session, size: Size) -> None: ...

typer wants one parameter for each option, which makes unreadable signatures. Here a group is a frozen
dataclass with fields that are `Annotated[..., typer.Option(...)]`. A parameter of type `Session` stands for the flags
that every command about a cluster has.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Any, get_type_hints

import typer
from typer.core import TyperGroup

from tidewater.cli.errors import UsageError
from tidewater.cli.session import Session, Target, Tools

Function = Callable[..., None]

_LIST, _DESCRIBE, _DELETE = "job list", "job describe NAME", "job delete NAME"
OTHER_WORDS = {
    "ls": _LIST,
    "ps": _LIST,
    "get": f"{_LIST}, or for one job: tidewater {_DESCRIBE}",
    "status": _DESCRIBE,
    "show": _DESCRIBE,
    "create": "job submit",
    "apply": "job submit -f FILE",
    "rm": _DELETE,
    "kill": _DELETE,
    "cancel": _DELETE,
    "stop": "job suspend NAME",
    "pause": "job suspend NAME",
    "start": "job resume NAME",
    "resize": "job scale NAME WORKERS",
    "version": "--version",
}
"""The words of kubectl, docker and others, and what to say here."""


def command(app: typer.Typer, name: str, **settings: Any) -> Callable[[Function], Function]:
    """Register a function as a command of `app`. The rest goes to `typer.Typer.command`."""

    def register(function: Function) -> Function:
        app.command(name, **settings)(flat(function))
        return function

    return register


class Group(TyperGroup):
    """A group of commands that answers the words of other programs, `ls` or `rm`, with its own."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that the first word names.

        Raises:
            UsageError: another command, or one of another group, does what the word asks for.
        """
        word = args[0]
        if self.get_command(ctx, word) is None and not ctx.resilient_parsing:
            groups = {"": ctx.find_root().command, **ctx.find_root().command.commands}
            homes = [name for name, each in groups.items() if word in getattr(each, "commands", {})]
            if meant := OTHER_WORDS.get(word) or (" ".join([*homes[0].split(), word]) if homes else ""):
                raise UsageError(f"there is no command {ctx.command_path} {word}", f"Use: tidewater {meant}")
        return super().resolve_command(ctx, args)


def flat(function: Function) -> Function:
    """Return a function with one parameter for each option, which calls `function` with its groups."""
    hints = get_type_hints(function, include_extras=True)
    groups = {name: hints[name] for name in inspect.signature(function).parameters if _is_group(hints[name])}

    def called(**values: Any) -> None:
        context: typer.Context = values.pop("context_of_typer")
        for name, group in groups.items():
            own = {each.name: values.pop(each.name) for each in dataclasses.fields(_options_of(group))}
            options = _options_of(group)(**own)
            values[name] = _session(context, options) if group is Session else options
        function(**values)

    parameters = [_parameter("context_of_typer", typer.Context, inspect.Parameter.empty)]
    for name, parameter in inspect.signature(function).parameters.items():
        if name not in groups:
            parameters.append(_parameter(name, hints[name], parameter.default))
    # Those that every command has come last in the help.
    for group in sorted(groups.values(), key=lambda group: group is Session):
        parameters += _fields(_options_of(group))
    functools.update_wrapper(called, function)
    del called.__dict__["__wrapped__"]  # typer would read the signature of `function`
    called.__annotations__ = {each.name: each.annotation for each in parameters}
    called.__dict__["__signature__"] = inspect.Signature(parameters)
    return called


def _session(context: typer.Context, target: Target) -> Session:
    """Return the session of a command; tests put their own tools into typer's context."""
    tools = context.find_object(Tools) or Tools()
    return Session(target, tools)


def _is_group(hint: Any) -> bool:
    return isinstance(hint, type) and dataclasses.is_dataclass(hint)


def _options_of(group: type) -> Any:
    return Target if group is Session else group


def _fields(options: Any) -> list[inspect.Parameter]:
    hints = get_type_hints(options, include_extras=True)
    return [_parameter(each.name, hints[each.name], _default(each)) for each in dataclasses.fields(options)]


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return inspect.Parameter.empty if field.default is dataclasses.MISSING else field.default


def _parameter(name: str, hint: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hint)
