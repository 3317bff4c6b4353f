"""A whole suite, and its client, on a machine's IPv6 address alone."""

from pathlib import Path

import psutil

from tests.integration.whole.jobs import job
from tests.ipv6 import needs_ipv6
from tests.suite import running_suite
from triptych.client import Client


@needs_ipv6
async def test_an_image_is_made_over_ipv6_alone(tmp_path: Path) -> None:
    with running_suite(tmp_path / "state", listen="[::1]:0", routers=2) as suite:
        assert [address.startswith("[::1]:") for address in suite.address.split(",")] == [True, True]
        async with Client(suite.address) as client:
            [image] = await client.generate(job("shapes", step_count=2))
        assert image.data.startswith(b"\x89PNG")
        sockets = [each for name in suite.names for each in psutil.Process(suite.pid(name)).net_connections("inet")]
        assert {each.laddr.ip for each in sockets if each.status == psutil.CONN_LISTEN} == {"::1"}
        assert {each.raddr.ip for each in sockets if each.raddr} == {"::1"}
