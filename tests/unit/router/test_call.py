"""A call to a worker."""

import pytest

from services.router.workers.call import part_done


@pytest.mark.parametrize(
    ("fraction", "finished", "count", "done"),
    [(0.25, 0, 4, 0.25), (0.75, 2, 4, 0.5), (0.5, 2, 4, 0.0), (0.49, 2, 4, 0.0), (1.0, 3, 4, 1.0), (1.0, 4, 4, 1.0)],
)
def test_outputs_that_were_finished_before_a_call_are_none_of_its_progress(
    fraction: float, finished: int, count: int, done: float
) -> None:
    assert part_done(fraction, finished, count) == done
