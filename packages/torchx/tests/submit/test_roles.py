"""Macros: one template serves all replicas, and Kubernetes expands nothing of the user's."""

from __future__ import annotations

import pytest
from tidewater_torchx.submit.roles import Values, literal, resolved
from torchx.specs import macros

from packages.torchx.tests.doubles import role

VALUES = Values(app_id="app-kx3p")


def kubernetes(text: str, variables: dict[str, str]) -> str:
    """Expand references as Kubernetes does it: `$(VAR)` if there is such a variable, and `$$` is `$`.

    Of a character with several bytes after a dollar sign, it takes the first byte for a character.
    """
    result, at = "", 0
    while at < len(text):
        after = text[at + 1 : at + 2]
        if text[at] == "$" and after == "$":
            result, at = result + "$", at + 2
        elif text[at] == "$" and after == "(" and ")" in text[at:]:
            end = text.index(")", at)
            name = text[at + 2 : end]
            result, at = result + variables.get(name, f"$({name})"), end + 1
        elif text[at] == "$" and not after.isascii():
            result, at = result + "$\ufffd", at + 2
        else:
            result, at = result + text[at], at + 1
    return result


def test_macros_are_filled_in_where_torchx_does() -> None:
    every = [macros.img_root, macros.app_id, macros.rank0_env, macros.replica_id, macros.base_img_root]
    found = resolved(role(args=every, env={"ID": f"<{macros.app_id}>"}), VALUES)
    assert found.args == ["", "app-kx3p", "TORCHX_RANK0_HOST", "$(TORCHX_REPLICA_ID)", "DEPRECATED"]
    assert found.env == {"ID": "<app-kx3p>"}


def test_each_replica_has_its_own_number() -> None:
    found = resolved(role(args=[f"--rank={macros.replica_id}"], env={"NODE": f"n{macros.replica_id}"}), VALUES)
    for replica in ("0", "17"):
        variables = {"TORCHX_REPLICA_ID": replica}
        assert kubernetes(found.args[0], variables) == f"--rank={replica}"
        assert kubernetes(found.env["NODE"], variables) == f"n{replica}"


def test_a_dollar_sign_before_the_number_stays() -> None:
    found = resolved(role(args=["$$${replica_id}", "$$$$${replica_id}$$"]), VALUES)
    variables = {"TORCHX_REPLICA_ID": "7"}
    assert [kubernetes(each, variables) for each in found.args] == ["$7", "$$7$"]


@pytest.mark.parametrize(
    "text", ["$(HOSTNAME)", "a$(b)$(c)", "$HOME", "${HOME}", "1$", "$$(x)", "$$$", "$(", "", "5$€$", "$$é"]
)
def test_what_the_user_wrote_reaches_the_container_unchanged(text: str) -> None:
    assert kubernetes(literal(text), {"HOSTNAME": "wrong", "b": "wrong", "x": "wrong"}) == text


def test_a_shells_own_substitution_is_left_to_the_shell() -> None:
    found = resolved(role(entrypoint="$(which sh)", args=["-c", "echo $(hostname)"], env={"A": "$(B)"}), VALUES)
    assert [kubernetes(each, {"B": "wrong"}) for each in (found.entrypoint, *found.args, found.env["A"])] == [
        "$(which sh)",
        "-c",
        "echo $(hostname)",
        "$(B)",
    ]


def test_the_role_that_was_given_stays_as_it_is() -> None:
    given = role(args=[macros.replica_id], env={"A": macros.app_id}, metadata={"k": {"id": macros.app_id}})
    found = resolved(given, VALUES)
    assert (given.args, given.env["A"], given.metadata["k"]["id"]) == (
        [macros.replica_id],
        macros.app_id,
        macros.app_id,
    )
    assert found.metadata["k"]["id"] == "app-kx3p"
