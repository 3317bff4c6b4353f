"""One NATS connection that is never given up, and questions asked over it."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

import nats.aio.client
import nats.errors
import structlog
from nats.aio.msg import Msg

from triptych.exchange.config import ExchangeConfig
from triptych.exchange.errors import ExchangeUnavailable
from triptych.tls import TlsError, client_context

log = structlog.get_logger(__name__)

# Before a question is asked again that nobody was there to answer: JetStream may be starting, or electing.
NO_RESPONDERS_PAUSE_S = 0.05
# A header and a subject must fit beside a chunk.
HEADROOM_BYTES = 4096


def inbox_prefix(user: str) -> str:
    """Where the answers to a user's questions come; "" is for a server without users."""
    return f"_INBOX.{user}" if user else "_INBOX"


@dataclass(slots=True)
class ConnectionCounters:
    """What happened to a connection since it was opened."""

    disconnects: int = 0
    reconnects: int = 0
    errors: int = 0
    slow_consumers: int = 0


class _Disconnected(Exception):
    """The connection was lost while an answer was awaited."""


class Connection:
    """A NATS client that reconnects for ever, with an inbox of its own.

    `ask` survives a lost connection: it waits for the next one and asks again, so what it sends must be idempotent.
    """

    def __init__(self, config: ExchangeConfig, role: str, on_reconnected: Callable[[], None] = lambda: None) -> None:
        self.client = nats.aio.client.Client()
        self.counters = ConnectionCounters()
        self._config = config
        self._role = role
        self._log = log.bind(connection=role)
        self._notify = on_reconnected
        self._up = asyncio.Event()
        self._opened = False
        self._closing = False
        self._lost_at_s = 0.0
        self._inbox = ""
        self._asked = 0
        self._answers: dict[str, asyncio.Future[Msg]] = {}

    @property
    def connected(self) -> bool:
        """Whether the server can be reached, as far as is known."""
        return self._up.is_set()

    async def open(self) -> None:
        """Connect.

        Raises ExchangeUnavailable when that takes longer than `connect_timeout_s`.
        """
        try:
            async with asyncio.timeout(self._config.connect_timeout_s):
                await self._connect()
        except TimeoutError as error:
            await self.close()
            raise ExchangeUnavailable(self._unreachable()) from error
        needed = self._config.chunk_bytes + HEADROOM_BYTES
        if self.client.max_payload < needed:
            await self.close()
            raise ExchangeUnavailable(f"the NATS server's max_payload is {self.client.max_payload}; {needed} is needed")

    async def _connect(self) -> None:
        config = self._config
        self._opened = True
        tls = client_context(config.tls) if config.tls.wanted else None
        await self.client.connect(
            servers=config.servers,
            name=f"{config.client_name} {self._role}",
            user_credentials=str(config.credentials_file) if config.credentials_file else None,
            user=config.user or None,
            password=self._password if config.password_file else None,
            tls=tls,
            # No word in clear: nobody on the way can say that there is no TLS here, and be told the password.
            tls_handshake_first=tls is not None,
            inbox_prefix=inbox_prefix(config.user),
            max_reconnect_attempts=-1,
            reconnect_time_wait=config.reconnect_pause_s,
            ping_interval=config.ping_interval_s,
            pending_size=config.pending_bytes,
            error_cb=self._on_error,
            disconnected_cb=self._on_disconnected,
            reconnected_cb=self._on_reconnected,
            closed_cb=self._on_closed,
        )
        self._inbox = self.client.new_inbox()
        await self.client.subscribe(f"{self._inbox}.*", cb=self._on_answer)
        self._up.set()

    def _password(self) -> str:
        """Read at every connect: it may have been changed meanwhile."""
        assert self._config.password_file is not None, "asked for only where there is one"
        return self._config.password_file.read_text(encoding="utf-8").strip()

    def _unreachable(self) -> str:
        why, where = self.client.last_error, self._config.shown_url
        nobody = why is None or isinstance(why, ConnectionRefusedError | nats.errors.NoServersError)
        said = (
            f"no NATS server at {where}" if nobody else f"the NATS server at {where} cannot be used: {why or repr(why)}"
        )
        hint = "; with exchange.tls it must have `handshake_first: true` in its tls block"
        return f"{said}{hint if self._config.tls.wanted else ''}"

    async def close(self) -> None:
        """Close for good; questions under way fail."""
        self._closing = True
        self._up.clear()
        try:
            async with asyncio.timeout(self._config.answer_timeout_s):
                if self._opened:
                    await self.client.close()
        except (OSError, nats.errors.Error) as error:
            self._log.warning("nats_close_failed", error=repr(error))
        self._fail_questions()

    async def ask(self, subject: str, payload: bytes | memoryview = b"", *, persist: bool = True) -> Msg:
        """Send one message and return its answer. Unless it is to `persist`, it ends with the connection.

        Raises ExchangeUnavailable after `answer_timeout_s`, lost connections included; at once when NATS has been away
        for longer than that already.
        """
        try:
            async with asyncio.timeout(self._config.answer_timeout_s):
                return await self._ask_until_answered(subject, payload, persist=persist)
        except TimeoutError as error:
            why = f"no answer from NATS within {self._config.answer_timeout_s:g} s"
            raise ExchangeUnavailable(why) from error
        except nats.errors.Error as error:
            raise ExchangeUnavailable(str(error)) from error

    async def _ask_until_answered(self, subject: str, payload: bytes | memoryview, *, persist: bool) -> Msg:
        while True:
            self._refuse_if_hopeless()
            if not persist and not self.connected:
                raise ExchangeUnavailable("the connection to NATS is lost")
            await self._up.wait()
            try:
                answer = await self._ask_once(subject, payload)
            except _Disconnected:
                continue
            except nats.errors.OutboundBufferLimitError:
                answer = None
            if answer is not None and not _nobody_there(answer):
                return answer
            await asyncio.sleep(NO_RESPONDERS_PAUSE_S)

    def _refuse_if_hopeless(self) -> None:
        if self.client.is_closed:
            raise ExchangeUnavailable("the connection to NATS is closed")
        if not self.connected and time.monotonic() - self._lost_at_s > self._config.answer_timeout_s:
            raise ExchangeUnavailable(f"NATS has been away for over {self._config.answer_timeout_s:g} s")

    async def _ask_once(self, subject: str, payload: bytes | memoryview) -> Msg:
        self._asked += 1
        token = str(self._asked)
        answer: asyncio.Future[Msg] = asyncio.get_running_loop().create_future()
        self._answers[token] = answer
        try:
            await self.client.publish(subject, payload, reply=f"{self._inbox}.{token}")
            return await answer
        finally:
            del self._answers[token]

    async def _on_answer(self, message: Msg) -> None:
        answer = self._answers.get(message.subject[len(self._inbox) + 1 :])
        if answer is not None and not answer.done():
            answer.set_result(message)

    def _fail_questions(self) -> None:
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(_Disconnected())

    async def _on_disconnected(self) -> None:
        self._up.clear()
        self._lost_at_s = time.monotonic()
        self._fail_questions()
        self._renew_certificates()
        if not self._closing:
            self.counters.disconnects += 1
            self._log.warning("nats_disconnected")

    def _renew_certificates(self) -> None:
        """Have the next connection use the files as they are now; files that cannot be used change nothing."""
        if not self._config.tls.wanted:
            return
        try:
            # A new one: an authority that was replaced is trusted no more.
            self.client.options["tls"] = client_context(self._config.tls)
        except TlsError as error:
            self._log.warning("certificates_not_renewed", error=str(error))

    async def _on_reconnected(self) -> None:
        self.counters.reconnects += 1
        self._up.set()
        self._log.info("nats_reconnected")
        self._notify()

    async def _on_closed(self) -> None:
        if not self._closing:
            self._log.error("nats_connection_closed", why=str(self.client.last_error))

    async def _on_error(self, error: Exception) -> None:
        self.counters.errors += 1
        if isinstance(error, nats.errors.SlowConsumerError):
            self.counters.slow_consumers += 1
            self._log.warning("nats_message_dropped", subject=error.subject)
        elif "permissions violation" in str(error).lower():
            self._log.error("nats_permission_denied", error=str(error))
        elif self.connected:
            self._log.warning("nats_error_reported", error=repr(error))
        else:
            self._log.debug("nats_connect_failed", error=repr(error))


def _nobody_there(answer: Msg) -> bool:
    return bool(answer.headers) and not answer.data and answer.headers.get("Status") == "503"
