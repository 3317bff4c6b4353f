"""`host:port`, taken apart and put together."""

import pytest

from triptych.address import Address, is_bare_ipv6
from triptych.client.credentials import hosts_and_ports
from triptych.exchange import ExchangeConfig


@pytest.mark.parametrize(
    ("text", "host", "port", "here"),
    [
        ("127.0.0.1:7460", "127.0.0.1", 7460, "127.0.0.1:7460"),
        ("router.example:0", "router.example", 0, "router.example:0"),
        ("localhost:7460", "localhost", 7460, "localhost:7460"),
        ("[::1]:7460", "::1", 7460, "[::1]:7460"),
        ("[2001:db8::7]:65535", "2001:db8::7", 65535, "[2001:db8::7]:65535"),
        ("0.0.0.0:7460", "0.0.0.0", 7460, "127.0.0.1:7460"),
        ("[::]:7460", "::", 7460, "[::1]:7460"),
        (":7460", "", 7460, "127.0.0.1:7460"),
    ],
)
def test_there_and_back(text: str, host: str, port: int, here: str) -> None:
    address = Address.parse(text)
    assert address == Address(host, port)
    assert str(address) == text
    assert str(address.here) == here
    assert address.is_everywhere == (text != here)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "not HOST:PORT"),
        ("router.example", "not HOST:PORT"),
        ("router.example:", "not HOST:PORT"),
        ("router.example:http", "not HOST:PORT"),
        ("router.example:65536", "not HOST:PORT"),
        ("router.example:-1", "not HOST:PORT"),
        ("http://router.example:7460", "not HOST:PORT"),
        ("a b:1", "not HOST:PORT"),
        ("::1", "in brackets"),
        ("::1:7460", "in brackets"),
        ("2001:db8::7:7460", "in brackets"),
        ("[::1]", "in brackets"),
        ("[127.0.0.1]:7460", "in brackets"),
        ("[]:7460", "in brackets"),
        ("[::1:7460", "in brackets"),
        ("[fe80::1%eth0]:7460", "zone"),
        ("fe80::1%eth0:7460", "zone"),
    ],
)
def test_what_is_none_is_refused_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why) as caught:
        Address.parse(text)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize("text", ["::1", "::1:7460", "2001:db8::7", "fe80::1%eth0"])
def test_an_address_without_its_brackets_is_named(text: str) -> None:
    assert is_bare_ipv6(text)
    with pytest.raises(ValueError, match="brackets"):
        hosts_and_ports(f"127.0.0.1:7460,{text}")
    with pytest.raises(ValueError, match="brackets"):
        ExchangeConfig(url=f"nats://{text}")


@pytest.mark.parametrize("text", ["[::1]:7460", "router.example:7460", "router.example", "dns:///router.example:7460"])
def test_what_has_them_or_needs_none_is_not(text: str) -> None:
    assert not is_bare_ipv6(text)
    assert hosts_and_ports(f"https://{text}") == [text]


@pytest.mark.parametrize("url", ["nats://[::1]:4222", "[::1]:4222", "tls://user:word@[2001:db8::7]:4222,nats://n:4222"])
def test_nats_is_found_by_ipv6(url: str) -> None:
    shown = ExchangeConfig(url=url).shown_url
    assert "word" not in shown
    assert "[" in shown
