"""The allocator's arenas are shared where there are arenas, unless the environment has a word on it."""

import platform

import pytest

from services.stage.allocator import share_arenas


def test_they_are_shared_by_glibc_and_left_alone_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MALLOC_ARENA_MAX", raising=False)
    assert share_arenas() == (platform.libc_ver()[0] == "glibc")
    monkeypatch.setenv("MALLOC_ARENA_MAX", "1")
    assert not share_arenas()
