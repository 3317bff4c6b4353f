"""What the tests of device work share."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from services.stage.device_thread import DeviceThread


@pytest.fixture
def thread() -> "Iterator[DeviceThread]":
    """A device thread that runs; results on a CPU are compared at one torch thread."""
    # Here, not above: most unit tests do without torch.
    import torch

    from services.stage.device_thread import DeviceThread

    torch.set_num_threads(1)
    thread = DeviceThread("device", max_waiting=8)
    thread.start()
    yield thread
    thread.close()
