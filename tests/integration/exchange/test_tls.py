"""NATS by mutual TLS."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from tests.certificates import Authority
from tests.integration.exchange.guarded import BUNDLE, Guarded
from tests.natsd import NatsServer
from triptych.exchange import Exchange, ExchangeConfig, ExchangeUnavailable
from triptych.supervisor.secrets import Secrets
from triptych.tls import TlsFiles


async def test_nats_by_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "tls")
    server_files, router = authority.issue("nats"), authority.issue("router")
    stranger = Authority(tmp_path / "theirs").issue("router")
    secrets = Secrets(tmp_path / "secrets")
    secrets.make(tls=server_files)
    server = NatsServer(tmp_path / "store", secrets.nats_config)
    server.start()
    guarded = Guarded(server, secrets)
    try:
        async with Exchange(guarded.config("router", router)) as exchange:
            ref = await exchange.put("outputs", BUNDLE)
            server.stop()
            authority.issue("router")  # renewed in place, for the next connection
            server.start()
            assert (await exchange.get(ref)).keys() == BUNDLE.keys()
        for shown in (stranger, TlsFiles(ca=authority.ca)):
            with pytest.raises(ExchangeUnavailable, match="NATS server at"):
                await Exchange(guarded.config("router", shown)).__aenter__()
    finally:
        server.stop()


async def test_a_server_that_speaks_in_clear_is_told_nothing(tmp_path: Path) -> None:
    """Who is between us and NATS could say that it knows no TLS, and be sent the password."""
    router, password = Authority(tmp_path).issue("router"), tmp_path / "password"
    password.write_text("secret")
    heard = bytearray()

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'INFO {"server_id":"x","version":"2.15.1","max_payload":8388608,"auth_required":true}\r\n')
        while data := await reader.read(4096):
            heard.extend(data)
        writer.close()

    async with await asyncio.start_server(listen, "127.0.0.1", 0) as server:
        url = f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        config = ExchangeConfig(url=url, user="router", password_file=password, tls=router, connect_timeout_s=1.0)
        config = replace(config, answer_timeout_s=0.5)
        with pytest.raises(ExchangeUnavailable, match="handshake_first"):
            await Exchange(config).__aenter__()
    assert heard.startswith(b"\x16\x03")  # how TLS begins
    assert b"CONNECT" not in heard
    assert b"secret" not in heard
