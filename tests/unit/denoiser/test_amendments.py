"""How many steps a job's outputs are to run, changed while they run one by one or together."""

from services.denoiser.amendments import Amendments, StepScale
from triptych.v1.job_pb2 import Amendment, FinishNow

NOW = Amendment(finish_now=FinishNow())
WHOLE = StepScale(30, 30)


def test_outputs_that_have_not_begun_run_as_many_steps_as_the_one_that_finishes_now() -> None:
    amendments = Amendments(30)
    assert Amendments(30).amend(NOW) == 1
    amendments.begin(0, WHOLE, 0)
    amendments.reach(0, 12)
    assert amendments.amend(NOW) == 12
    assert amendments.amend(Amendment(step_count=20)) == 20


def test_among_outputs_at_work_together_the_furthest_finishes_now() -> None:
    amendments = Amendments(30)
    for output_index, step in ((0, 12), (1, 3), (2, 1)):
        amendments.begin(output_index, WHOLE, 0)
        amendments.reach(output_index, step)
    assert amendments.amend(NOW) == 12


def test_an_output_that_is_done_keeps_nobody_at_work() -> None:
    amendments = Amendments(30)
    for output_index, step in ((0, 30), (1, 3)):
        amendments.begin(output_index, WHOLE, 0)
        amendments.reach(output_index, step)
    amendments.end(0)
    assert amendments.amend(NOW) == 3


def test_between_two_outputs_the_next_runs_as_many_steps_as_the_last() -> None:
    amendments = Amendments(30)
    amendments.begin(0, WHOLE, 0)
    amendments.reach(0, 30)
    amendments.end(0)
    assert amendments.amend(NOW) == 30


def test_of_a_loop_that_runs_part_of_the_steps_the_count_is_the_jobs_own() -> None:
    """From an image at strength 0.5: ten of twenty steps."""
    amendments = Amendments(20)
    amendments.begin(0, StepScale(20, 10), 0)
    amendments.reach(0, 4)
    assert amendments.amend(NOW) == 8
    assert amendments.loop_steps == 4
