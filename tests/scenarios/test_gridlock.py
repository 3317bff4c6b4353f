"""Jobs that wait for room in a full store, and who gives back what to whom."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from services.router.core.actions import AmendJob, FinishJob, GiveBack, RequeueJob, StartTask, StopTask
from services.router.core.config import PoolConfig
from services.router.core.events import (
    JobAmendRequested,
    JobCancelRequested,
    JobSubmitted,
    LatentsReady,
    ResultGone,
    TaskFailed,
    TaskFinished,
    TaskSaved,
    Ticked,
    WorkerLost,
    WorkerSeen,
)
from services.router.core.job import Stage, Task
from tests.scenarios.narrow_stores import NarrowJob, NarrowStores
from tests.scenarios.story import Story, decode, denoise, encode
from tests.scenarios.trio import CONFIG, TRIO
from tests.scenarios.virtual_clock import request, worker


def full(task: Task) -> TaskFailed:
    return TaskFailed(task, "STORE_FULL", "", retryable=True, counts=False, awaits_room=True)


def half_made(*job_ids: str) -> Story:
    """Of each job's two outputs the first is decoded, and the second is being decoded."""
    story = Story(CONFIG, *TRIO)
    for job_id in job_ids:
        story.tell(0.0, JobSubmitted(request(job_id, 4.0, decode_s=1.0, outputs=2)))
        story.tell(0.0, TaskFinished(encode(job_id), 0.0))
    for job_id in job_ids:
        story.tell(1.0, TaskFinished(denoise(job_id), 4.0))
        story.tell(1.0, TaskFinished(decode(job_id, 0), 1.0))
    return story


def refuse(story: Story, now: float, task: Task) -> list[object]:
    """It runs, finds no room, and is put back; what else follows."""
    requeue, *rest = story.tell(now, full(task))
    assert requeue == RequeueJob(task.job_id, 1, "STORE_FULL", task.stage)
    return list(rest)


def until_given(story: Story, tasks: list[Task]) -> tuple[float, GiveBack]:
    """Refuse them room again and again, a while between the tries; when something is given back, and what."""
    now = 2.0
    for _ in range(10):
        for task in tasks:
            for action in refuse(story, now, task):
                assert isinstance(action, GiveBack)
                return now, action
        now += CONFIG.max_backoff_s
        story.tell(now, Ticked())
    raise AssertionError("nothing was given back")


def test_of_jobs_that_fill_a_store_between_them_the_last_gives_its_outputs_back_to_the_first() -> None:
    story = half_made("a", "b", "c")
    now, given = until_given(story, [decode("c", 1), decode("a", 1), decode("b", 1)])
    assert given == GiveBack("c", 1, Stage.DECODE, "a", frozenset({0}))
    # The first tries again at once, before who gave it room, or any other.
    first, *rest = story.tell(now + CONFIG.backoff_s, Ticked())
    assert isinstance(first, StartTask)
    assert (first.task, rest) == (decode("a", 1), [])
    finish, *started = story.tell(now + 2.0, TaskFinished(decode("a", 1), 1.0))
    assert finish == FinishJob("a", "succeeded")
    started += story.tell(now + CONFIG.max_backoff_s, Ticked())
    assert {each.task for each in started if isinstance(each, StartTask)} == {decode("c", 0), decode("c", 1)}
    for task in (decode("c", 0), decode("c", 1)):
        actions = story.tell(now + 40.0, TaskFinished(task, 1.0))
    assert actions[-1] == FinishJob("c", "succeeded")


def test_if_that_is_not_enough_the_next_to_last_gives_too() -> None:
    story = half_made("a", "b", "c")
    now, _ = until_given(story, [decode("c", 1), decode("a", 1), decode("b", 1)])
    story.tell(now + CONFIG.backoff_s, Ticked())
    assert refuse(story, now + 0.9, decode("b", 1)) == []  # the first has not tried yet
    (given,) = refuse(story, now + 1.0, decode("a", 1))
    assert given == GiveBack("b", 1, Stage.DECODE, "a", frozenset({0}))


def test_what_is_at_work_is_not_given_back() -> None:
    """It will be done, or be refused room too; until the first has had its room it does not begin again."""
    story = half_made("a", "b")
    now = 2.0
    for _ in range(8):
        assert refuse(story, now, decode("a", 1)) == []
        now += CONFIG.max_backoff_s
        story.tell(now, Ticked())
    assert refuse(story, now, decode("b", 1)) == []
    (given,) = refuse(story, now, decode("a", 1))
    assert given == GiveBack("b", 1, Stage.DECODE, "a", frozenset({0}))


def test_nobody_waits_for_long_for_one_that_cannot_be_tried_again() -> None:
    """Its last worker has gone. Others begin once its next try is long overdue."""
    story = half_made("a", "b")
    story.tell(1.0, WorkerSeen(worker("d2", Stage.DECODE, models=("m", "o"))))
    now, _ = until_given(story, [decode("a", 1), decode("b", 1)])
    for info in (worker("e2", Stage.ENCODE, models="o"), worker("n2", Stage.DENOISE, models="o")):
        story.tell(now, WorkerSeen(info))
    story.tell(now, WorkerSeen(worker("d2", Stage.DECODE, models="o")))
    story.tell(now, WorkerLost("d"))
    story.tell(now, JobSubmitted(request("c", 1.0, model="o", decode_s=1.0)))
    story.tell(now, TaskFinished(encode("c"), 0.0))
    story.tell(now, TaskFinished(denoise("c"), 1.0))
    last_s = now + CONFIG.max_backoff_s + 1.0
    assert not [each for each in story.tell(last_s - 0.1, Ticked()) if isinstance(each, StartTask)]
    assert story.scheduler.next_tick_s() == last_s
    story.at(last_s, Ticked(), (decode("c"), "d2"))


def test_others_wait_for_as_long_as_the_first_is_at_work() -> None:
    """Were they to begin as soon as its estimate is over, they would take the room from one that takes longer."""
    story = half_made("a", "b")
    now, _ = until_given(story, [decode("a", 1), decode("b", 1)])
    story.tell(now + CONFIG.backoff_s, Ticked())
    later_s = now + 10.0 * CONFIG.max_backoff_s
    assert story.tell(later_s, Ticked()) == []
    assert story.scheduler.next_tick_s() is None
    actions = story.tell(later_s, TaskFinished(decode("a", 1), 300.0))
    assert {each.task for each in actions if isinstance(each, StartTask)} == {decode("b", 0), decode("b", 1)}


def test_latents_that_a_job_goes_on_from_are_given_back_too() -> None:
    story = Story(CONFIG, *TRIO)
    for job_id in ("a", "b"):
        story.tell(0.0, JobSubmitted(request(job_id, 4.0, decode_s=1.0), encoded=True, refines=True))
    (given, *_) = refuse(story, 1.0, denoise("a"))
    assert given == GiveBack("b", 0, Stage.DENOISE, "a")
    # It has nothing more.
    story.tell(1.0 + CONFIG.backoff_s, Ticked())
    assert not [each for each in story.tell(2.0, full(denoise("a"))) if isinstance(each, GiveBack)]


def test_latents_that_nobody_can_decode_are_given_back() -> None:
    """Else one model's decoders, once gone, would keep every other model's jobs from beginning."""
    story = Story(CONFIG, *TRIO)
    for job_id in ("a", "b"):
        story.tell(0.0, JobSubmitted(request(job_id, 4.0, decode_s=1.0, outputs=2)))
        story.tell(0.0, TaskFinished(encode(job_id), 0.0))
    story.tell(0.5, LatentsReady("a", 0))
    story.tell(0.5, TaskFailed(denoise("a"), "DRAINING", "", retryable=True, counts=False))
    story.tell(0.5, WorkerSeen(worker("n2", Stage.DENOISE)))
    story.tell(1.0, WorkerLost("d"))
    story.tell(1.0, TaskFinished(denoise("b"), 4.0))
    assert not [each for each in story.tell(2.0, full(denoise("a"))) if isinstance(each, GiveBack)]
    story.tell(2.0 + CONFIG.backoff_s, Ticked())
    gone_s = 1.0 + CONFIG.absence_grace_s
    assert GiveBack("b", 1, Stage.DENOISE, "a") in story.tell(gone_s + 1.0, full(denoise("a")))


def test_nobody_gives_to_one_that_is_behind_it() -> None:
    story = half_made("a", "b")
    story.tell(1.5, JobCancelRequested("a"))
    now = 2.0
    for _ in range(10):
        assert refuse(story, now, decode("b", 1)) == []
        now += CONFIG.max_backoff_s
        story.tell(now, Ticked())


def test_latents_and_checkpoint_are_given_back_to_a_denoise_that_waits() -> None:
    """What decodes of them is stopped if it was refused room before: it works in vain."""
    story = half_made("a")
    story.tell(1.0, JobSubmitted(request("b", 4.0, decode_s=1.0, outputs=2)))
    story.tell(1.0, TaskFinished(encode("b"), 0.0))
    story.tell(2.0, LatentsReady("b", 0))
    story.tell(2.0, TaskSaved(denoise("b"), 1, 3))
    story.tell(2.0, ResultGone(decode("a", 1), Stage.DENOISE))
    story.tell(3.0, TaskFailed(denoise("b"), "DRAINING", "", retryable=True, counts=False))
    assert story.scheduler.job("a").running == (denoise("a"),)  # type: ignore[union-attr]
    assert refuse(story, 4.0, decode("b", 0)) == []
    (again,) = story.tell(4.0 + CONFIG.backoff_s, Ticked())
    assert isinstance(again, StartTask)
    assert again.task == decode("b", 0)
    requeue, stop, given = story.tell(5.0, full(denoise("a")))[:3]
    assert requeue == RequeueJob("a", 2, "STORE_FULL", Stage.DENOISE)
    assert stop == StopTask(decode("b", 0), "d", "made room")
    assert given == GiveBack("b", 1, Stage.DENOISE, "a")
    # Whoever ranks behind begins no denoise until the first has had its room.
    started = story.tell(5.0 + CONFIG.backoff_s, Ticked())
    assert [each.task for each in started if isinstance(each, StartTask)] == [denoise("a")]
    story.tell(6.0, TaskFinished(denoise("a"), 4.0))
    again = [each for each in story.started if each.task == denoise("b")][-1]
    assert (again.attempt, again.finished_outputs) == (2, frozenset())


_LIMIT = 100
jobs = st.builds(
    NarrowJob,
    outputs=st.integers(1, 4),
    denoise_s=st.sampled_from([1.0, 7.0, 100.0]),
    decode_s=st.sampled_from([0.5, 6.0, 45.0]),
    latents=st.integers(1, 25),
    file=st.integers(1, 25),
    pace=st.sampled_from([1.0, 0.3, 20.0]),
    refined=st.sampled_from([0, 0, 25, 50]),
).filter(lambda job: job.outputs * job.latents + job.refined <= _LIMIT)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(jobs, min_size=2, max_size=8),
    st.integers(1, 3),
    st.integers(1, 3),
    st.sampled_from([0.0, 1000.0]),
    st.sampled_from([0.0, 600.0]),
)
def test_all_jobs_are_made_that_fit_the_store_alone(
    mix: list[NarrowJob], denoisers: int, decoders: int, kept_s: float, wait_s: float
) -> None:
    """Whatever fills the stores on the way, and in whatever order: none waits for ever."""
    roomy = replace(CONFIG, pools=(PoolConfig(name="all", max_backlog_s=1e9),))
    stores = NarrowStores(roomy, denoisers, decoders, _LIMIT, kept_s, wait_s)
    for number, job in enumerate(mix):
        stores.submit(f"job{number}", job)
    stores.run(until_s=200_000.0)
    assert set(stores.ended.values()) == {"succeeded"}
    assert len(stores.ended) == len(mix)


def test_a_job_that_waited_behind_one_that_is_amended_starts_if_it_is_ahead_now() -> None:
    story = Story(CONFIG, TRIO[0], TRIO[1], worker("n2", Stage.DENOISE), TRIO[2])
    for job_id, seconds in (("a", 1.0), ("b", 9.0), ("c", 3.0)):
        story.tell(0.0, JobSubmitted(request(job_id, seconds, outputs=2, tenant=job_id)))
        story.tell(0.0, TaskFinished(encode(job_id), 0.0))
    story.tell(1.0, LatentsReady("b", 0))
    assert refuse(story, 1.0, denoise("a")) == []  # "c" may not take the room that "a" waits for
    amended = request("a", 5.0, outputs=2, tenant="a")
    answer, begun = story.tell(1.1, JobAmendRequested(amended))
    assert isinstance(answer, AmendJob)
    assert isinstance(begun, StartTask)
    assert begun.task == denoise("c")
