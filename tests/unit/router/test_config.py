"""The router's settings."""

from pathlib import Path

import pytest

from services.router.config import RouterConfig
from triptych.config import ConfigError, load_toml

ROOT = Path(__file__).parents[3]


def test_the_example_configuration_is_the_default_one() -> None:
    assert load_toml(RouterConfig, ROOT / "deploy" / "router.toml") == RouterConfig()


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("worker_timeout_s = 0", "worker_timeout_s"),
        ("page_size = 2000", "page_size"),
        ("drain_seconds = -1", "drain_seconds"),
        ("no_such_key = 1", "no_such_key"),
        ("[scheduler]\nkappa = -1", "kappa"),
    ],
)
def test_bad_configuration_is_named(tmp_path: Path, text: str, named: str) -> None:
    file = tmp_path / "router.toml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=named):
        load_toml(RouterConfig, file)
