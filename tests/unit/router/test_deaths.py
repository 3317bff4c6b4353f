"""What shows that a worker had not died: its own word, later than anything that a dead one could have sent."""

from google.protobuf.timestamp_pb2 import Timestamp

from services.router.workers.deaths import Deaths
from triptych.v1.worker_pb2 import WorkerHeartbeat


def beat(worker_id: str = "x", start_s: int = 1, address: str = "here:1") -> WorkerHeartbeat:
    return WorkerHeartbeat(worker_id=worker_id, address=address, start_time=Timestamp(seconds=start_s))


def test_each_death_of_the_process_is_refuted_once() -> None:
    deaths = Deaths()
    numbers = {deaths.note(beat(), 10.0), deaths.note(beat(), 11.0)}
    assert deaths.refuted(beat(), 14.0) == numbers
    assert deaths.refuted(beat(), 15.0) == frozenset()


def test_what_may_have_been_on_its_way_shows_nothing() -> None:
    deaths = Deaths()
    number = deaths.note(beat(), 10.0)
    assert deaths.refuted(beat(), 11.0) == frozenset()
    assert deaths.refuted(beat(), 13.0) == {number}


def test_another_process_refutes_nothing() -> None:
    deaths = Deaths()
    deaths.note(beat(), 10.0)
    for other in (beat(start_s=2), beat(address="there:1"), beat("y")):
        assert deaths.refuted(other, 20.0) == frozenset()
