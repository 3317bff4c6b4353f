"""How often progress is worth an event."""

from services.router.store.throttle import ProgressThrottle
from triptych.v1 import job_pb2 as pb


def test_progress_is_throttled_but_never_the_last_step() -> None:
    throttle = ProgressThrottle(0.25)
    first, second, last = (pb.Progress(fraction=fraction) for fraction in (0.1, 0.2, 1.0))
    assert throttle.offer(first, 10.0, busy=False) is first
    assert throttle.offer(second, 10.1, busy=False) is None
    assert throttle.take() is second
    assert throttle.take() is None
    assert throttle.offer(second, 20.0, busy=True) is None
    assert throttle.offer(last, 20.0, busy=True) is last
    assert throttle.take() is None
