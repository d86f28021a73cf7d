"""Who may do what: identities, the policy file and its mistakes, the defaults."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from unerring.model import (
    Actor,
    ConfigError,
    Right,
    Who,
    default_policy,
    identities,
    policy_text,
    read_policy,
    read_who,
    run_name,
)

PLANT = """
run = "plant"            # the identities' run
revoked = ["producer/gw7"]

[[allow]]
who = "producer/gw*"
publish = ["Reading", "Alarm*"]

[[allow]]
who = "consumer/*"
read = ["*"]
acknowledge = ["$name"]
"""


def may(policy, who, right, thing):
    return policy.reason(read_who(who), right, thing)[0]


def test_an_identity_is_a_uri_and_back():
    who = Who("plant", "producer", "gw-1.hall_3")
    assert who.uri == "unerring://plant/producer/gw-1.hall_3"
    assert read_who(who.uri) == who
    assert str(who) == "producer/gw-1.hall_3"
    assert read_who("viewer/anna") == Who("any", "viewer", "anna")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "producer",
        "producer/",
        "king/anna",
        "unerring://plant/producer",
        "unerring://plant/producer/a/b",
        "viewer/ü",
    ],
)
def test_what_is_no_identity_gets_a_sentence(text):
    with pytest.raises(ConfigError):
        read_who(text)


def test_of_a_certificate_s_uris_only_ours_count():
    uris = ["https://example.org", "unerring://plant/viewer/a", "unerring://plant/king/b", "unerring://plant/viewer/a"]
    assert identities(uris) == (Who("plant", "viewer", "a"),)


@pytest.mark.parametrize(
    ("who", "right", "thing", "allowed"),
    [
        ("producer/gw1", "publish", "Reading", True),
        ("producer/gw1", "publish", "Alarms", True),
        ("producer/gw1", "publish", "Order", False),
        ("producer/hall", "publish", "Reading", False),
        ("producer/gw7", "publish", "Reading", False),
        ("producer/gw1", "read", "Reading", False),
        ("consumer/log", "read", "Reading", True),
        ("consumer/log", "acknowledge", "log", True),
        ("consumer/log", "acknowledge", "log/of Reading", True),
        ("consumer/log", "acknowledge", "logger", False),
        ("consumer/log", "acknowledge", "other", False),
        ("unerring://plant/producer/gw1", "publish", "Reading", True),
        ("unerring://mill/producer/gw1", "publish", "Reading", False),
        ("operator/anna", "command", "kill", False),
    ],
)
def test_what_an_entry_allows_is_allowed_and_nothing_else(who, right, thing, allowed):
    assert may(read_policy(PLANT), who, right, thing) is allowed


def test_the_reason_names_the_entry():
    policy = read_policy(PLANT, "policy.toml")
    assert policy.reason(read_who("consumer/log"), "read", "Reading")[1] == (
        "consumer/log has the right 'read Reading': entry 2 of policy.toml allows it to consumer/*"
    )
    assert policy.reason(read_who("producer/gw7"), "publish", "Reading")[1].endswith("policy.toml revoke producer/gw7")
    assert "no entry of policy.toml allows it" in policy.reason(read_who("viewer/a"), "view", "plant")[1]
    assert "of run mill" in policy.reason(read_who("unerring://mill/viewer/a"), "view", "plant")[1]


@pytest.mark.parametrize(
    ("text", "line", "sentence"),
    [
        ("run = plant", 1, "not TOML"),
        ('run = "plant"\n[[allow]\n', 2, "not TOML"),
        ('\nruns = "plant"', 2, "there is no 'runs' in a policy"),
        ("run = 7", 1, "run is the name of a run"),
        ('\n[[allow]]\nwho = "producer/*"\npublsh = ["Reading"]', 4, "there is no right 'publsh'"),
        (
            '[[allow]]\nwho = "viewer/*"\nview = ["*"]\n\n[[allow]]\nwho = "prodcer/*"\n',
            6,
            "'prodcer/\\*' names nobody",
        ),
        ('[[allow]]\nwho = "producer"\npublish = ["a"]', 2, "'producer' names nobody"),
        ('[[allow]]\npublish = ["Reading"]', 1, "names whom it is about"),
        ('[[allow]]\nwho = "producer/*"\npublish = "Reading"', 3, "publish is a list of texts"),
        ('[[allow]]\nwho = "producer/*"', 2, "is allowed nothing"),
        ('revoked = ["gw7"]', 1, "'gw7' names nobody"),
        ('[allow]\nwho = "viewer/*"', 1, "two pairs of brackets"),
    ],
)
def test_a_mistake_is_refused_with_its_line(text, line, sentence):
    with pytest.raises(ConfigError, match=rf"^policy.toml, line {line}: .*{sentence}"):
        read_policy(text, "policy.toml")


OWN = {
    Actor.PRODUCER: {Right.PUBLISH},
    Actor.CONSUMER: {Right.READ, Right.ACKNOWLEDGE},
    Actor.REPLICA: {Right.REPLICA, Right.MEMBERSHIP},
    Actor.NODE: {Right.NODE, Right.CALL},
    Actor.SERVICE: {Right.CALL},
    Actor.OPERATOR: {Right.START, Right.CANCEL, Right.VIEW, Right.COMMAND},
    Actor.VIEWER: {Right.VIEW},
}


@pytest.mark.parametrize("role", Actor)
@pytest.mark.parametrize("right", Right)
def test_by_default_each_role_has_the_rights_that_it_is_for(role, right):
    who = f"{role}/ann"
    assert may(default_policy(), who, right, "ann") is (right in OWN[role])


@pytest.mark.parametrize("right", [Right.ACKNOWLEDGE, Right.REPLICA, Right.MEMBERSHIP, Right.NODE])
@pytest.mark.parametrize("role", Actor)
def test_by_default_nobody_stands_for_another(role, right):
    assert not may(default_policy(), f"{role}/ann", right, "bob")


def test_the_defaults_of_an_app_are_for_what_it_declares():
    policy = default_policy("plant", ("Reading",), ("order",), ("shop",))
    assert may(policy, "producer/a", "publish", "Reading")
    assert not may(policy, "producer/a", "publish", "Order")
    assert not may(policy, "operator/a", "start", "other")
    assert not may(policy, "unerring://mill/producer/a", "publish", "Reading")


def test_the_page_says_what_the_defaults_are():
    page = (Path(__file__).parents[2] / "docs" / "security.md").read_text()
    rows = re.findall(r"^\| `([a-z]+)` \| [^|]+ \| [^|]+ \| ([a-z, ]+) \|$", page, re.MULTILINE)
    told = {right: set() if who == "nobody" else set(who.split(", ")) for right, who in rows}
    assert told == {right: {role for role in Actor if right in OWN[role]} for right in Right}


def test_a_policy_is_written_as_it_is_read():
    made = default_policy("plant", ("Reading", 'odd "name"'), (), ("shop",))
    again = read_policy(policy_text(made), "policy.toml")
    assert [(allow.who, dict(allow.rights)) for allow in again.allows] == [
        (allow.who, {right: tuple(things) for right, things in allow.rights.items()}) for allow in made.allows
    ]
    assert again.run == "plant"
    assert read_policy(policy_text(read_policy(PLANT))).revoked == ("producer/gw7",)


def test_any_text_can_name_a_run():
    assert Who(run_name("Hall 3 / übung"), "viewer", "a").run == "Hall-3----bung"
    assert run_name("") == "any"


@pytest.mark.parametrize("right", ["start", "cancel"])
def test_what_nodes_do_not_ask_each_other_is_explained_as_theirs(right):
    """Said was that an entry counts which nobody asks for between nodes."""
    narrow = (
        '[[allow]]\nwho = "node/*"\nnode = ["$name"]\nstart = ["cool"]\n[[allow]]\nwho = "operator/*"\nnode = ["n9"]\n'
    )
    policy = read_policy(f'revoked = ["node/n7"]\n{narrow}')
    allowed, why = policy.explained(read_who("node/n0"), right, "heat")
    assert allowed
    assert why.startswith("node/n0 has the right 'node n0': entry 1 of policy.toml allows it")
    assert why.endswith("nodes start and cancel every process, and ask each other for no right but this one")
    assert not policy.reason(read_who("node/n0"), right, "heat")[0], "from the dashboard it may not"
    assert not policy.explained(read_who("node/n7"), right, "heat")[0]
    assert not policy.explained(read_who("operator/ann"), right, "heat")[0]
    assert policy.explained(read_who("node/n0"), "node", "n1") == policy.reason(read_who("node/n0"), "node", "n1")
