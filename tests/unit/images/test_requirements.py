"""What goes into the images' layers of dependencies."""

import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[3]


def requirements(*extra: str) -> list[str]:
    """Names, without versions, that the Dockerfile gets for an extra."""
    script, project = REPOSITORY / "deploy/images/requirements.py", REPOSITORY / "pyproject.toml"
    said = subprocess.run([sys.executable, script, project, *extra], capture_output=True, text=True, check=True).stdout
    return [line.partition(">")[0].partition("=")[0] for line in said.splitlines()]


def test_the_package_itself_and_the_router_have_no_torch() -> None:
    for names in (requirements(), requirements("router")):
        assert not {"torch", "diffusers", "transformers"} & set(names)


def test_extras_that_name_extras_are_followed() -> None:
    assert {"torch", "nats-py", "ftfy"} <= set(requirements("encoder"))
    assert not [name for name in requirements("up") if name.startswith("triptych")]


def test_everything_that_an_image_gets_is_pinned() -> None:
    pins = {line.partition("==")[0].lower() for line in (REPOSITORY / "constraints.txt").read_text().splitlines()}
    for extra in ((), ("router",), ("encoder",), ("denoiser",), ("decoder",)):
        assert {name.partition("[")[0].lower() for name in requirements(*extra)} <= pins
