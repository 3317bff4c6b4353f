"""Which denoisers are reserved for which pool."""

import pytest

from services.router.core.config import PoolConfig, SchedulerConfig, default_pools
from services.router.core.job import Stage
from services.router.core.workers import Worker, reserve
from tests.scenarios.virtual_clock import request, worker


def fleet(count: int) -> list[Worker]:
    return [Worker(worker(f"n{index:02}", Stage.DENOISE)) for index in range(count)]


def counts(pools: tuple[PoolConfig, ...], workers: list[Worker]) -> list[int]:
    reserve(pools, workers)
    return [sum(each.pool == pool.name for each in workers) for pool in pools]


@pytest.mark.parametrize(
    ("shares", "worker_count", "expected"),
    [
        ([1, 1], 0, [0, 0]),
        ([1, 1], 1, [1, 0]),
        ([1, 1], 5, [3, 2]),
        ([1, 3], 8, [2, 6]),
        ([1, 3], 4, [1, 3]),
        ([0.7, 0.2, 0.1], 3, [2, 1, 0]),
        ([0, 1], 3, [0, 3]),
    ],
)
def test_shares_are_rounded_by_largest_remainder(shares: list[float], worker_count: int, expected: list[int]) -> None:
    pools = tuple(PoolConfig(name=f"p{index}", share=share) for index, share in enumerate(shares))
    assert counts(pools, fleet(worker_count)) == expected


def test_labels_come_first_then_counts_then_shares() -> None:
    pools = (
        PoolConfig(name="rest"),
        PoolConfig(name="counted", count=2),
        PoolConfig(name="big", labels={"memory": "141"}),
    )
    workers = [*fleet(4), Worker(worker("big", Stage.DENOISE, memory="141", zone="a"))]
    assert counts(pools, workers) == [2, 2, 1]
    assert counts(pools, workers[:1]) == [0, 1, 0]


def test_a_newcomer_moves_no_more_than_the_shares_ask_for() -> None:
    pools = default_pools()
    workers = fleet(6)
    reserve(pools, workers)
    before = {each.worker_id: each.pool for each in workers}
    reserve(pools, [Worker(worker("a", Stage.DENOISE)), Worker(worker("b", Stage.DENOISE)), *workers])
    assert {each.worker_id: each.pool for each in workers} == before


def test_a_job_goes_to_the_first_pool_that_takes_it() -> None:
    pools = (
        PoolConfig(name="premium", priority_classes=("premium",)),
        PoolConfig(name="n", models=("n",)),
        PoolConfig(name="short", max_estimate_s=10.0),
        PoolConfig(name="middle", min_estimate_s=10.0, max_estimate_s=100.0),
    )
    first = [
        next((pool.name for pool in pools if pool.takes(job)), None)
        for job in (
            request("j", 500.0, priority_class="premium"),
            request("j", 500.0, model="n"),
            request("j", 9.0, encode_s=0.5),
            request("j", 9.0, encode_s=0.5, decode_s=0.5),
            request("j", 100.0),
        )
    ]
    assert first == ["premium", "n", "short", "middle", None]


@pytest.mark.parametrize(
    ("what", "change"),
    [
        ("max_backlog_s", {"max_backlog_s": 0.0}),
        ("max_job_s", {"max_job_s": 0.0}),
        ("max_running", {"max_running": 0}),
    ],
)
def test_a_bad_value_is_named(what: str, change: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=rf"pool 'p': bad value of {what}"):
        PoolConfig(name="p", **change)  # type: ignore[arg-type]


def test_pools_need_names_of_their_own() -> None:
    with pytest.raises(ValueError, match="scheduler: bad value of pools"):
        SchedulerConfig(pools=(PoolConfig(name="p"), PoolConfig(name="p")))


def test_backoff_doubles_up_to_its_bound() -> None:
    config = SchedulerConfig(backoff_s=0.5, max_backoff_s=3.0)
    assert [config.backoff(tries) for tries in (0, 1, 2, 3, 4, 10_000)] == [0.0, 0.5, 1.0, 2.0, 3.0, 3.0]
