"""What network policies mean, and which are refused at the door."""

from __future__ import annotations

import contextlib
import re
from ipaddress import IPv4Address, IPv4Network
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandlot.addresses import CLOSED, is_closed
from sandlot.engine.core.errors import InvalidRequest
from sandlot.engine.core.model import NetworkPolicy
from sandlot.engine.core.network_policy import compile_rules, matches, validate
from sandlot.engine.node.network import dnswire, greeting, resolver

ALL = "0.0.0.0/0"


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"allow_out": ["1.1.1.1", "8.8.8.0/24"]},
        {"deny_out": [ALL], "allow_out": ["example.com", "*.example.com", "*", "1.1.1.1", "xn--bcher-kva.example"]},
        {"allow_internet": False, "allow_out": ["Example.COM."]},
        {"deny_out": ["10.1.2.3/8", "2001:db8::/32", "::1"]},
        {"mask_request_host": "localhost:${PORT}"},
        {"mask_request_host": "custom-host.example.com:8080"},
        {"mask_request_host": "${PORT}.example.com"},
        {"https_ports": [1, 443, 65535], "dns_servers": ["1.1.1.1"] * 10},
        {"dns_servers": []},
    ],
)
def test_what_makes_sense_is_kept_as_it_was_said(asked: dict[str, Any]) -> None:
    policy = validate(**asked)
    for field, value in asked.items():
        assert getattr(policy, field) == (tuple(value) if isinstance(value, list) else value)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"allow_out": ["example.com"]}, "ALL_TRAFFIC"),
        ({"allow_out": ["example.com"], "deny_out": ["1.1.1.1"]}, "0.0.0.0/0"),
        ({"allow_out": ["example.com"], "allow_internet": True}, "denyOut"),
        ({"deny_out": ["example.com"]}, "'example.com' is not an IP"),
        ({"deny_out": ["*.example.com"]}, "domains can only be allowed"),
        ({"deny_out": ["1.2.3.4/33"]}, "denyOut"),
        ({"deny_out": ["0.0.0.0"]}, "unspecified"),
        ({"allow_out": ["0.0.0.0/8"]}, "unspecified"),
        ({"deny_out": [ALL], "allow_out": ["1.2.3"]}, "allowOut"),
        ({"deny_out": [ALL], "allow_out": ["256.1.1.1"]}, "allowOut"),
        ({"deny_out": [ALL], "allow_out": ["1.2.3.4/255.0.0.0"]}, "allowOut"),
        ({"deny_out": [ALL], "allow_out": ["a..b"]}, "allowOut"),
        ({"deny_out": [ALL], "allow_out": ["https://example.com"]}, "allowOut"),
        ({"deny_out": [ALL], "allow_out": ["a.*.example.com"]}, "wildcard"),
        ({"deny_out": [ALL], "allow_out": [""]}, "allowOut"),
        ({"deny_out": [ALL], "allow_out": ["x" * 5000]}, "allowOut"),
        ({"deny_out": ["1.1.1.1"] * 1001}, "at most 1000"),
        ({"mask_request_host": "bücher.example"}, "ASCII"),
        ({"mask_request_host": "a b"}, "maskRequestHost"),
        ({"mask_request_host": "host:99999"}, "maskRequestHost"),
        ({"mask_request_host": "host\r\nX-Evil: 1"}, "maskRequestHost"),
        ({"mask_request_host": ""}, "maskRequestHost"),
        ({"https_ports": [0]}, "1 to 65535"),
        ({"https_ports": [65536]}, "65536"),
        ({"dns_servers": ["1.1.1.1"] * 11}, "at most 10"),
        ({"dns_servers": ["dns.example.com"]}, "IPv4"),
        ({"dns_servers": ["2001:db8::1"]}, "IPv4"),
    ],
)
def test_what_makes_no_sense_is_refused_with_a_word_of_help(asked: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        validate(**asked)
    assert words in str(caught.value) and len(str(caught.value)) < 400


ADDRESSES = st.ip_addresses(v=4).filter(int).map(str)  # 0.0.0.0 is refused, with a word of help
RANGES = st.builds(lambda address, bits: f"{address}/{bits}", ADDRESSES, st.integers(2, 32))
NAMES = st.from_regex(r"(\*\.)?[a-z0-9]{1,9}(-[a-z0-9]{1,9})?\.[A-Za-z]{2,9}", fullmatch=True)
ANYTHING = st.lists(st.one_of(st.text(max_size=30), ADDRESSES, RANGES, NAMES), max_size=3)


@given(ANYTHING, ANYTHING, st.text(max_size=30))
def test_any_text_is_either_a_policy_or_refused(allow: list[str], deny: list[str], mask: str) -> None:
    for masked in (mask, "host.example"):
        try:
            policy = validate(allow_out=allow, deny_out=[*deny, ALL], mask_request_host=masked)
        except InvalidRequest:
            continue
        assert (policy.mask_request_host, len(policy.allow_out)) == (masked, len(allow))
        rules = compile_rules(policy)
        assert len(rules.allow) + len(rules.domains) <= len(allow)
        assert rules.denies_all or any(network.prefixlen == 0 for network in rules.allow)


@given(st.lists(st.one_of(ADDRESSES, RANGES), max_size=3), st.lists(NAMES, max_size=3))
def test_addresses_and_names_are_taken_and_open_what_they_say_and_no_more(ranges: list[str], names: list[str]) -> None:
    rules = compile_rules(validate(allow_out=[*ranges, *names], deny_out=[ALL]))
    opened = [IPv4Network(text, strict=False) for text in ranges]
    for network in opened:
        assert rules.permits(network[0]) and rules.permits(network[-1])
    for address in (IPv4Address("9.9.9.9"), IPv4Address("200.1.2.3")):
        assert rules.permits(address) is any(address in network for network in opened)
    assert all(rules.resolves(name.replace("*", "any")) for name in names)
    assert not rules.resolves("nothing")


@pytest.mark.parametrize(
    ("name", "pattern", "meant"),
    [
        ("example.com", "example.com", True),
        ("EXAMPLE.com.", "example.com", True),
        ("a.example.com", "*.example.com", True),
        ("a.b.example.com", "*.example.com", True),
        ("example.com", "*.example.com", False),
        (".example.com", "*.example.com", False),
        ("notexample.com", "*.example.com", False),
        ("notexample.com", "example.com", False),
        ("anything.at.all", "*", True),
        ("", "*", False),
    ],
)
def test_patterns_mean_what_they_say(name: str, pattern: str, meant: bool) -> None:
    assert matches(name, pattern) is meant


def test_rules_hold_merged_networks_and_lower_case_names() -> None:
    rules = compile_rules(
        NetworkPolicy(
            allow_out=("1.0.0.0/9", "1.128.0.1/9", "WWW.Example.com", "www.example.com."), allow_internet=False
        )
    )
    assert rules.allow == (IPv4Network("1.0.0.0/8"),) and rules.domains == ("www.example.com",)
    assert rules.denies_all and rules.permits(IPv4Address("1.2.3.4")) and not rules.permits(IPv4Address("2.0.0.1"))


def test_allowing_everything_again_makes_denying_everything_void() -> None:
    rules = compile_rules(NetworkPolicy(deny_out=(ALL,), allow_out=(ALL,)))
    assert not rules.denies_all and rules.resolves("any.name") and rules.permits(IPv4Address("9.9.9.9"))


def test_opened_ranges_are_taken_out_of_the_closed_ones() -> None:
    assert all(is_closed(network[0], ()) for network in CLOSED)
    opened = (IPv4Network("10.1.0.0/16"),)
    assert not is_closed(IPv4Address("10.1.2.3"), opened) and is_closed(IPv4Address("10.2.0.1"), opened)
    assert not is_closed(IPv4Address("8.8.8.8"), ())


def test_a_dot_inside_a_label_is_not_a_dot_between_labels() -> None:
    labels = [b"a.example", b"com"]
    message = dnswire.HEADER.pack(1, 0x100, 1, 0, 0, 0)
    message += b"".join(bytes([len(label)]) + label for label in labels) + b"\0\0\1\0\1"
    assert not matches(dnswire.read_query(message).name, "*.example.com")


LABELS = st.lists(st.binary(min_size=1, max_size=63).map(lambda label: bytes([len(label)]) + label), max_size=3)
HEADERS = st.builds(
    dnswire.HEADER.pack,
    *[st.integers(0, 65535), st.sampled_from([0x100, 0, 0x8180])],
    *[st.integers(0, 2), st.integers(0, 3), st.just(0), st.just(0)],
)
QUESTIONS = LABELS.map(lambda labels: b"".join(labels) + b"\0\0\1\0\1")


@given(st.one_of(st.binary(max_size=12), HEADERS), st.one_of(st.just(b""), QUESTIONS), st.binary(max_size=300))
def test_any_bytes_are_either_a_query_or_malformed(head: bytes, question: bytes, rest: bytes) -> None:
    message = head + question + rest
    with contextlib.suppress(dnswire.Malformed):
        read = dnswire.read_query(message)
        assert message[12:].startswith(read.raw) and (read.id, read.flags) == dnswire.HEADER.unpack_from(message)[:2]
        assert re.fullmatch(r"([a-z0-9_*.-]|\\\d{3})*", read.name), "a name holds what could be taken for another"
    with contextlib.suppress(dnswire.Malformed):
        assert all(address.packed in message for address in dnswire.addresses(message))


@given(NAMES, st.integers(0, 65535), st.lists(st.ip_addresses(v=4), max_size=3))
def test_a_query_is_read_as_it_was_made_and_so_are_its_answers(name: str, id: int, given_: list[IPv4Address]) -> None:
    message = dnswire.query(name, id)
    question = dnswire.read_query(message)
    assert (question.id, question.name, question.kind) == (id, name.lower(), dnswire.TYPE_A)
    head = dnswire.HEADER.pack(id, 0x8180, 1, len(given_), 0, 0)
    answer = head + question.raw + b"".join(b"\xc0\x0c\0\1\0\1\0\0\0\x3c\0\4" + each.packed for each in given_)
    assert dnswire.addresses(answer) == given_ and dnswire.answers(answer, question, id)
    assert not dnswire.answers(answer, question, id ^ 1)
    with pytest.raises(dnswire.Malformed):
        dnswire.read_query(answer)
    if given_:
        with pytest.raises(dnswire.Malformed):
            dnswire.addresses(answer[:-15])


@given(
    st.sampled_from([b"", b"GET / HTTP/1.1\r\nHost: ", b"\x16\x03\x01\x00\x30\x01\x00\x00\x2c"]),
    st.binary(max_size=300),
)
def test_any_first_bytes_are_a_greeting_or_need_more_or_are_unreadable(start: bytes, data: bytes) -> None:
    try:
        greeted = greeting.GreetingReader().feed(start + data)
    except greeting.Unreadable:
        return
    assert greeted is None or greeted.name


def test_resolvers_are_read_from_the_hosts_file() -> None:
    text = "# x\nsearch a\nnameserver 127.0.0.53\n nameserver fe80::1%eth0 \nnameserver junk\nnameserver 1.1.1.1\n"
    assert resolver.read_resolv_conf(text) == ("127.0.0.53", "fe80::1%eth0", "1.1.1.1")
