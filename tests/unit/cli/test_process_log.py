"""The bounded log of a process."""

from pathlib import Path

import pytest

from triptych.supervisor.process_log import ProcessLog


def test_the_file_is_bounded_and_the_newest_stays(tmp_path: Path) -> None:
    log = ProcessLog(tmp_path / "x.log", max_bytes=100, tail_lines=3)
    for number in range(50):
        log.write(b"line %d\n" % number)
    log.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.log", "x.log.1"]
    assert all(path.stat().st_size <= 100 for path in tmp_path.iterdir())
    assert (tmp_path / "x.log").read_text().endswith("line 49\n")
    assert list(log.tail) == ["line 47", "line 48", "line 49"]


def test_lines_come_whole_however_they_were_cut(tmp_path: Path) -> None:
    log = ProcessLog(tmp_path / "x.log")
    seen: list[str] = []
    log.on_line = seen.append
    for piece in (b"o", b"ne\ntw", b"o\n", b"three"):
        log.write(piece)
    assert seen == ["one", "two"]
    log.finish_line()
    assert seen == ["one", "two", "three"]


def test_it_appends_to_what_an_earlier_process_wrote(tmp_path: Path) -> None:
    log = ProcessLog(tmp_path / "x.log")
    log.write(b"first\n")
    log.close()
    log.write(b"second\n")
    log.close()
    assert (tmp_path / "x.log").read_text() == "first\nsecond\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full, a file on a full disk")
def test_what_a_full_disk_does_not_take_is_in_the_tail() -> None:
    log = ProcessLog(Path("/dev/full"))
    log.write(b"one\n")
    log.write(b"two\n")
    assert list(log.tail) == ["one", "two"]
