"""A run with TLS and no policy of its own has the least rights for what its app declares, for its own name."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.app.tree_app import app
from unerring.app.options import RunOptions
from unerring.app.place import place_of
from unerring.app.rights import policy_of
from unerring.model import ConfigError, read_who, run_name
from unerring.runtime import load_policy
from unerring.runtime.certificates import identities_in, make_certificates
from unerring.runtime.process_cluster import ClusterShape, NodeCluster


def test_the_least_rights_for_what_the_app_declares(tmp_path: Path) -> None:
    options = RunOptions(engine="live", tls="ca")
    policy = load_policy(policy_of(app, options, place_of(tmp_path)))
    stream, run = app.streams[0].name, run_name(app.name)
    for who, right, thing, allowed in (
        (f"unerring://{run}/producer/gw1", "publish", stream, True),
        ("producer/gw1", "publish", stream, True),
        ("unerring://another/producer/gw1", "publish", stream, False),
        (f"unerring://{run}/producer/gw1", "publish", "Undeclared", False),
        (f"unerring://{run}/operator/ann", "start", "undeclared", False),
    ):
        assert policy.reason(read_who(who), right, thing)[0] is allowed, (who, thing)


def test_a_policy_that_was_given_counts_and_without_tls_none_is_needed(tmp_path: Path) -> None:
    assert policy_of(app, RunOptions(engine="live"), place_of(tmp_path)) == ""
    assert policy_of(app, RunOptions(engine="live", tls="ca", policy="mine"), place_of(tmp_path)) == "mine"
    assert list(tmp_path.iterdir()) == []


def test_nodes_have_certificates_of_their_run_also_where_the_key_of_the_ca_is_not(tmp_path: Path) -> None:
    make_certificates(tmp_path / "ca", [])
    shape = ClusterShape(f=0, tls=str(tmp_path / "ca"), run="plant", tls_hours=3)
    nodes = NodeCluster(["a:b"], tmp_path / "here", shape, {}, print)
    nodes.start()
    assert [who.uri for who in identities_in(tmp_path / "here" / "tls" / "n0")] == ["unerring://plant/node/n0"]
    nodes.stop()
    (tmp_path / "host").mkdir()
    elsewhere = NodeCluster(["a:b"], tmp_path / "there", ClusterShape(f=0, tls=str(tmp_path / "host")), {}, print)
    with pytest.raises(ConfigError, match=r"host/n0 is not there.*unerring certs n0 --ca CA --role node --name n0"):
        elsewhere.start()
    elsewhere.stop()
    make_certificates(tmp_path / "host" / "n0", ["n0"], ca=tmp_path / "ca", roles=["node"])
    brought = NodeCluster(["a:b"], tmp_path / "there", ClusterShape(f=0, tls=str(tmp_path / "host")), {}, print)
    brought.start()
    assert str(tmp_path / "host" / "n0") in brought.command("n0")
    brought.stop()
