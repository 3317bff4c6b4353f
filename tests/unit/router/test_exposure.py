"""What listens beyond this machine asks who calls, or does not start."""

from pathlib import Path

import pytest

from services.router.config import RouterConfig
from services.stage.config import WorkerConfig
from triptych.rpc.exposure import is_loopback
from triptych.tls import TlsFiles

EVERYWHERE = "0.0.0.0:7460"
MUTUAL = TlsFiles(Path("c"), Path("k"), Path("a"))


@pytest.mark.parametrize(
    "listen",
    ["127.0.0.1:1", "127.8.0.1:0", "[::1]:1", "[0:0::1]:1", "[::ffff:127.0.0.1]:1", "localhost:1", "unix:/run/x"],
)
def test_this_machine(listen: str) -> None:
    assert is_loopback(listen)
    assert RouterConfig(listen=listen).listen == listen


@pytest.mark.parametrize(
    "listen",
    [EVERYWHERE, "[::]:1", ":1", "10.0.0.1:1", "[fd00::1]:1", "[::ffff:10.0.0.1]:1", "router.example:1", "*:1"],
)
def test_others_can_reach_it(listen: str) -> None:
    with pytest.raises(ValueError, match=r"tokens_file .*insecure = true") as caught:
        RouterConfig(listen=listen)
    assert listen in str(caught.value)
    RouterConfig(listen=listen, insecure=True)
    RouterConfig(listen=listen, tokens_file=Path("tokens.toml"))
    RouterConfig(listen=listen, tls=MUTUAL)


def test_a_certificate_alone_lets_everyone_in() -> None:
    with pytest.raises(ValueError, match="insecure"):
        RouterConfig(listen=EVERYWHERE, tls=TlsFiles(Path("c"), Path("k")))


@pytest.mark.parametrize(
    ("setting", "address", "why"),
    [
        (
            "listen",
            "::1:7460",
            r"listen: '::1:7460' is not HOST:PORT; an IPv6 address stands in brackets: \[::1\]:7460",
        ),
        ("listen", "[fe80::1%eth0]:7460", "zone"),
        ("listen", "127.0.0.1", "is not HOST:PORT"),
        ("advertise", "2001:db8::7", "advertise: .*brackets"),
        ("advertise", "0.0.0.0:7460", "name one host"),
        ("advertise", "router.example:0", "name one host"),
    ],
)
@pytest.mark.parametrize("kind", [RouterConfig, WorkerConfig])
def test_what_is_no_address_is_refused(
    kind: type[RouterConfig] | type[WorkerConfig], setting: str, address: str, why: str
) -> None:
    with pytest.raises(ValueError, match=why):
        kind(**{setting: address})
