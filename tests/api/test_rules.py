"""Network rules and proxies of E2B's SDK over the API: told again without credentials, refused with a word of help."""

from __future__ import annotations

from typing import Any

import pytest
from e2b import AsyncSandbox, AsyncSecret, SandboxException
from tests.api.servers import Doors

CANARY = "canary-2f4e6a"


def rules(domain: str = "api.example.com", **headers: str) -> dict[str, Any]:
    return {"rules": {domain: [{"transform": {"headers": headers}}]}}


async def test_rules_come_back_as_they_were_said_and_only_the_node_learns_values(doors: Doors) -> None:
    await AsyncSecret.create("token", CANARY, **doors.sdk)
    said = rules("API.Example.com", Authorization=f"Bearer {AsyncSecret.fill('Token')}")
    sandbox = await AsyncSandbox.create(network=said, **doors.sdk)
    info = await sandbox.get_info()
    assert info.network is not None
    assert info.network["rules"] == rules("api.example.com", Authorization="Bearer ${e2b.secrets.Token}")["rules"]
    told = doors.node.policies[sandbox.sandbox_id]
    assert dict(told.secrets) == {"token": CANARY}
    row = await doors.control.lookup.find(sandbox.sandbox_id)
    assert row is not None and CANARY not in repr(row) and not row.network.secrets
    await AsyncSecret.update("token", "second", **doors.sdk)
    assert dict(doors.node.policies[sandbox.sandbox_id].secrets) == {"token": "second"}
    await AsyncSecret.destroy("token", **doors.sdk)
    assert dict(doors.node.policies[sandbox.sandbox_id].secrets) == {}
    await sandbox.update_network({})
    assert "rules" not in ((await sandbox.get_info()).network or {})


async def test_another_teams_secret_of_the_same_name_is_another(doors: Doors) -> None:
    await AsyncSecret.create("token", CANARY, **doors.sdk)
    other = await doors.access.create_team("others")
    _, key = await doors.access.create_key(other.id, "k")
    theirs = await AsyncSandbox.create(network=rules(X="${e2b.secrets.token}"), **{**doors.sdk, "api_key": key})
    assert dict(doors.node.policies[theirs.sandbox_id].secrets) == {}


async def test_a_proxy_comes_back_without_its_password(doors: Doors) -> None:
    proxy: Any = {"address": "proxy.example.com:1080", "username": "u", "password": CANARY, "tls": {"server_name": "p"}}
    sandbox = await AsyncSandbox.create(network={"egress_proxy": proxy}, **doors.sdk)
    info = await sandbox.get_info()
    assert info.network is not None and CANARY not in repr(info)
    assert info.network["egress_proxy"] == {
        "address": "proxy.example.com:1080",
        "username": "u",
        "tls": {"server_name": "p"},
    }
    told = doors.node.policies[sandbox.sandbox_id].egress_proxy
    assert told is not None and told.password == CANARY and told.use_tls and CANARY not in repr(told)


@pytest.mark.parametrize(
    ("network", "words"),
    [
        (rules("*", X="y"), "not a domain"),
        (rules("1.2.3.4", X="y"), "not a domain"),
        (rules("a.*.example.com", X="y"), "not a domain"),
        (rules(Host="evil.example.com"), "cannot be set"),
        (rules(**{"Content-Length": "0"}), "cannot be set"),
        (rules(**{"Proxy-Authorization": "x"}), "cannot be set"),
        (rules(**{"a b": "x"}), "header's name"),
        (rules(**{"n" * 65: "x"}), "64"),
        (rules(X="y\r\nEvil: 1"), "line breaks"),
        (rules(X="y" * 2049), "2048"),
        (rules(X="${e2b.identity.tokens.aws}"), "identity"),
        (rules(X="${e2b.what}"), "means nothing"),
        (rules(X="a", x="b"), "twice"),
        ({"rules": {f"a{n}.example.com": [] for n in range(11)}}, "at most 10"),
        (rules(**{f"h{n}": "x" for n in range(21)}), "at most 20"),
        ({"rules": {"a.example.com": [{}, {}]}}, "at most 1"),
        ({"egress_proxy": {"address": "nowhere"}}, "1080"),
        ({"egress_proxy": {"address": "p.example.com:70000"}}, "1080"),
        ({"egress_proxy": {"address": "p.example.com:1080", "password": "x"}}, "needs a username"),
        ({"egress_proxy": {"address": "p.example.com:1080", "username": "u" * 256}}, "255"),
        ({"egress_proxy": {"address": "p.example.com:1080", "tls": {"ca_cert": "junk"}}}, "certificate"),
    ],
)
async def test_what_makes_no_sense_is_refused(doors: Doors, network: Any, words: str) -> None:
    with pytest.raises(SandboxException, match=words):
        await AsyncSandbox.create(network=network, **doors.sdk)
