"""One store of bundles: a JetStream stream with one subject a chunk."""

import base64
import json
import re
from dataclasses import dataclass
from typing import Any

from triptych.exchange.connection import Connection
from triptych.exchange.disk import refuse, written
from triptych.exchange.errors import BundleInvalid, ExchangeUnavailable, StoreFull
from triptych.v1.tensor_pb2 import DataRef

STREAMS = {"conditioning": "CONDITIONING", "latents": "LATENTS", "outputs": "OUTPUTS"}
SUBJECT_PREFIX = "tt"

_BUNDLE_ID = re.compile(r"[0-9a-f]{32}")
_NO_MESSAGE_FOUND = 10037
# nats-server's error codes for a limit reached: of the stream's bytes (a store error, told by its text), of the
# server, of the account.
_STORE_FAILED = 10077
_LIMITS_REACHED = frozenset({10023, 10028, 10047})


def is_bundle_id(text: str) -> bool:
    """Whether it can be a bundle's id: nothing else may get into the subjects that are asked for, or purged."""
    return _BUNDLE_ID.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class Store:
    """Names of one store's stream and subjects, and what can be done with single messages of it.

    Every method that talks to NATS raises ExchangeUnavailable when there is no answer in time.
    """

    name: str

    def __post_init__(self) -> None:
        if self.name not in STREAMS:
            raise BundleInvalid(f"no store is called {self.name!r}; there are {', '.join(STREAMS)}")

    @classmethod
    def of(cls, ref: DataRef) -> "Store":
        """The store that a reference names; raises BundleInvalid when it is no reference at all."""
        if not is_bundle_id(ref.bundle_id):
            raise BundleInvalid(f"not a bundle id: {ref.bundle_id!r}")
        return cls(ref.store)

    @property
    def stream(self) -> str:
        return STREAMS[self.name]

    def manifest_subject(self, bundle_id: str) -> str:
        return f"{SUBJECT_PREFIX}.{self.name}.{bundle_id}.m"

    def chunk_subject(self, bundle_id: str, index: int) -> str:
        return f"{SUBJECT_PREFIX}.{self.name}.{bundle_id}.{index}"

    async def write(self, connection: Connection, subject: str, data: bytes | memoryview) -> None:
        """Store one message, and return when the server has acknowledged it.

        Raises StoreFull at the store's byte limit, DiskFull where the server's disk is full.
        """
        answer = await written(connection.ask(subject, data), connection, self.stream)
        error = json.loads(answer.data).get("error")
        if error is not None and says_full(error.get("err_code"), error.get("description", "")):
            raise StoreFull(self.name)
        refuse(self.stream, error)

    async def read(self, connection: Connection, subject: str) -> bytes | None:
        """The last message of a subject, or None.

        A direct get may be answered by a replica that lags; a miss is asked again of the leader.
        """
        answer = await connection.ask(f"$JS.API.DIRECT.GET.{self.stream}.{subject}")
        if answer.headers and "Nats-Subject" in answer.headers:
            data: bytes = answer.data
            return data
        return await self.read_from_leader(connection, subject)

    async def read_from_leader(self, connection: Connection, subject: str) -> bytes | None:
        """The last message of a subject as the stream's leader has it, or None; slower than `read`."""
        request = {"last_by_subj": subject}
        answer = await self._call(connection, f"STREAM.MSG.GET.{self.stream}", request)
        error = answer.get("error")
        if error is None:
            return base64.b64decode(answer["message"].get("data", ""))
        if error.get("err_code") == _NO_MESSAGE_FOUND:
            return None
        raise ExchangeUnavailable(f"store {self.name}: {error.get('description')}")

    async def purge(self, connection: Connection, bundle_id: str, *, persist: bool = True) -> None:
        """Remove whatever there is of a bundle; see `Connection.ask`. Raises DiskFull too: it takes some room."""
        request = {"filter": f"{SUBJECT_PREFIX}.{self.name}.{bundle_id}.>"}
        answer = await self._call(connection, f"STREAM.PURGE.{self.stream}", request, persist=persist)
        refuse(self.stream, answer.get("error"))

    async def discard(self, connection: Connection, bundle_id: str) -> None:
        """Remove whatever a put that ended early has sent over this connection, messages still on their way included.

        A purge overtakes published messages inside the server, but these keep their order: one more, whose answer
        comes last, shows that all have been dealt with.
        """
        await written(connection.ask(f"{SUBJECT_PREFIX}.{self.name}.{bundle_id}.end"), connection, self.stream)
        await self.purge(connection, bundle_id)

    async def _call(
        self, connection: Connection, api: str, request: dict[str, str], *, persist: bool = True
    ) -> dict[str, Any]:
        answer = await connection.ask(f"$JS.API.{api}", json.dumps(request).encode(), persist=persist)
        parsed: dict[str, Any] = json.loads(answer.data)
        return parsed


def says_full(code: int | None, why: str) -> bool:
    """Whether nats-server's error, by its code and its words, is that a limit of what may be stored is reached."""
    return code in _LIMITS_REACHED or (code == _STORE_FAILED and "maximum" in why)
