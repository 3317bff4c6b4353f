"""A model hub on loopback, as far as its client library asks: one folder a model, some gated, some private."""

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

COMMIT = "c0ffee" + "0" * 34


class FakeHub:
    """Shows `gated` models to whoever has `token`, while its owner has `accepted` their licence; nothing while `away`.

    As the real one does it: a gated model's files are refused with 401 or 403, a model that is not there with 401.
    """

    def __init__(self, models: dict[str, Path], gated: set[str], token: str) -> None:
        self.models = models
        self.gated = gated
        self.token = token
        self.accepted = True
        self.away = False
        # While `let_go` is not set, files are held back; `asked`: one was wanted.
        self.let_go = threading.Event()
        self.let_go.set()
        self.asked = threading.Event()
        self.url = ""

    def refusal(self, model: str, authorization: str | None) -> tuple[int, str] | None:
        """Status and error code for who may not see the model's files."""
        if self.away:
            return 503, ""
        if model not in self.models:
            return (404 if authorization else 401), "RepoNotFound"
        if model in self.gated and authorization is None:
            return 401, "GatedRepo"
        if model in self.gated and (authorization != f"Bearer {self.token}" or not self.accepted):
            return 403, "GatedRepo"
        return None


@contextmanager
def running_hub(models: dict[str, Path], gated: set[str], token: str) -> Iterator[FakeHub]:
    """Serve it until the block ends."""
    hub = FakeHub(models, gated, token)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(hub))
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        hub.let_go.set()
        server.shutdown()
        server.server_close()
        thread.join()


def _handler(hub: FakeHub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._answer(body=True)

        def do_HEAD(self) -> None:
            self._answer(body=False)

        def _answer(self, *, body: bool) -> None:
            parts = unquote(urlsplit(self.path).path).strip("/").split("/")
            is_api = parts[:2] == ["api", "models"]
            model = "/".join(parts[2:4] if is_api else parts[:2])
            rest = parts[4:] if is_api else parts[2:]
            refusal = hub.refusal(model, self.headers.get("Authorization"))
            # What there is of a gated model everyone may know.
            if refusal is not None and not (is_api and model in hub.models and not hub.away):
                self._refuse(*refusal, body=body)
            elif rest[1] not in ("main", COMMIT):
                self._refuse(404, "RevisionNotFound", body=body)
            elif is_api and rest[:1] == ["tree"]:
                self._send(json.dumps([_entry(hub.models[model], path) for path in _files(hub.models[model])]).encode())
            elif is_api:
                self._send(json.dumps({"id": model, "sha": COMMIT, "siblings": []}).encode())
            else:
                self._file(hub.models[model] / "/".join(rest[2:]), body=body)

        def _file(self, path: Path, *, body: bool) -> None:
            hub.asked.set()
            hub.let_go.wait()
            if path.is_file():
                data = path.read_bytes()
                self._send(data, {"ETag": f'"{_digest(data)}"'}, body=body)
            else:
                self._refuse(404, "EntryNotFound", body=body)

        def _refuse(self, status: int, code: str, *, body: bool) -> None:
            self._send(b"no", {"X-Error-Code": code} if code else {}, status=status, body=body)

        def _send(
            self, data: bytes, headers: dict[str, str] | None = None, *, status: int = 200, body: bool = True
        ) -> None:
            self.send_response(status)
            for name, value in {"X-Repo-Commit": COMMIT, **(headers or {})}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if body:
                self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    return Handler


def _files(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def _entry(folder: Path, path: str) -> dict[str, Any]:
    data = (folder / path).read_bytes()
    return {"type": "file", "path": path, "size": len(data), "oid": _digest(data)}


def _digest(data: bytes) -> str:
    return hashlib.sha1(data, usedforsecurity=False).hexdigest()
