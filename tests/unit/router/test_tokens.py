"""The tokens file, and quotas by a clock of our own."""

import tomllib
from pathlib import Path

import pytest

from services.router.access.principal import Principal, Scope
from services.router.access.quotas import Quotas
from services.router.access.tokens import Quota, Tokens
from services.router.jobs import JobTable
from triptych.config import ConfigError
from triptych.errors import Reason, TriptychError
from triptych.tokens import new_token, token_entry, token_hash


def test_a_token_is_known_by_its_hash_alone(tmp_path: Path) -> None:
    path, token = tmp_path / "tokens.toml", new_token()
    path.write_text(token_entry(token, "acme", ["submit", "read"], 'the "laptop" of Ann'))
    assert token not in path.read_text()
    tokens = Tokens(path)
    tokens.load()
    assert tokens.holder(token) == Principal("acme", frozenset({Scope.SUBMIT, Scope.READ}))
    assert tokens.holder(new_token()) is None
    assert tokens.holder(token_hash(token)) is None


def test_new_tokens_are_long_and_differ() -> None:
    tokens = {new_token() for _ in range(100)}
    assert len(tokens) == 100
    assert all(len(token) >= 50 for token in tokens)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[[tokens]]\nsha256 = 'beef'\ntenant = 'a'\nscopes = ['read']\n", "sha256"),
        (token_entry("x", "a", ["read"]).replace('"a"', '"a.b"'), "tenant"),
        (token_entry("x", "a", ["read"]).replace("read", "rule"), "scopes"),
        (token_entry("x", "a", ["read"]) * 2, "twice"),
        ("[tenants.a]\nmax_jobs = 0\n", "max_jobs"),
        ("[tenants.a]\nmax_jbos = 1\n", "max_jbos"),
        ("tokens = 7\n", "tokens"),
        ("[[", "document"),
    ],
)
def test_a_bad_file_is_refused_in_words(tmp_path: Path, text: str, named: str) -> None:
    path = tmp_path / "tokens.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=named) as caught:
        Tokens(path).load()
    assert str(path) in str(caught.value)
    with pytest.raises(ConfigError, match="no such file"):
        Tokens(tmp_path / "none.toml").load()


@pytest.mark.parametrize(
    ("tenant", "scopes", "name"),
    [("a b", ["read"], ""), ("", ["read"], ""), ("a", [], ""), ("a", ["x"], ""), ("a", ["read"], "\n")],
)
def test_no_entry_is_made_that_the_router_would_refuse(tenant: str, scopes: list[str], name: str) -> None:
    with pytest.raises(ValueError, match=":"):
        token_entry(new_token(), tenant, scopes, name)


def test_an_entry_is_toml() -> None:
    [entry] = tomllib.loads(token_entry("x", "acme", ["admin"], 'a\\b "c" é'))["tokens"]
    assert entry == {"sha256": token_hash("x"), "tenant": "acme", "scopes": ["admin"], "name": 'a\\b "c" é'}


def test_calls_come_in_bursts_and_at_their_rate() -> None:
    now_s = 100.0
    quotas = Quotas(lambda _: Quota(calls_per_s=2.0, burst=3), lambda: now_s)
    refusals: list[TriptychError] = []

    def calls(count: int, tenant: str = "a") -> int:
        served = 0
        for _ in range(count):
            try:
                quotas.count_call(tenant)
            except TriptychError as error:
                refusals.append(error)
                break
            served += 1
        return served

    assert calls(5) == 3
    assert refusals[0].reason is Reason.QUOTA_EXCEEDED
    assert refusals[0].retry_after_s == pytest.approx(0.5)
    assert calls(5, "b") == 3  # of each tenant its own
    now_s += 0.5
    assert calls(5) == 1
    now_s += 1000.0
    assert calls(5) == 3


def test_streams_are_each_tenants_own() -> None:
    quotas = Quotas(lambda _: Quota(max_streams=1))
    with quotas.stream("a"), quotas.stream("b"):
        with pytest.raises(TriptychError) as caught, quotas.stream("a"):
            pass
        assert caught.value.metadata["quota"] == "max_streams"
    with quotas.stream("a"):
        pass


def test_without_a_quota_nothing_is_refused() -> None:
    quotas = Quotas()
    for _ in range(1000):
        quotas.count_call("a")
    quotas.check_room("a", 1e9, JobTable(1, 1.0))
