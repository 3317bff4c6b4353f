"""A value that cannot work is named."""

import pytest

from triptych.exchange import ExchangeConfig

MIB = 1 << 20


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("url", ""),
        ("url", "nats://one,"),
        ("storage", "tape"),
        ("replicas", 0),
        ("latents_max_bytes", -1),
        ("latents_ttl_s", 0.0),
        ("conditioning_index_ttl_s", 6 * 3600.0),
        ("chunk_bytes", 8 * MIB),
        ("inline_bytes", 2 * MIB),
        ("window_bytes", MIB // 2),
        ("window_bytes", 64 * MIB),
        ("pending_bytes", MIB),
        ("answer_timeout_s", float("nan")),
    ],
)
def test_a_bad_value_is_named(field: str, value: object) -> None:
    with pytest.raises(ValueError, match=field):
        ExchangeConfig(**{field: value})  # type: ignore[arg-type]


def test_several_servers_share_one_url() -> None:
    assert ExchangeConfig(url="nats://one, nats://two").servers == ["nats://one", "nats://two"]
