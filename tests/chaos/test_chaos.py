"""The proof programs in small: every kind of fault once, and a crowd. See docs/testing.md."""

from pathlib import Path

from bench import chaos, crowd
from tests.suite import RunningSuite


async def test_nothing_accepted_is_lost(tmp_path: Path) -> None:
    options = chaos.Options(
        seed=3,
        gap_s=1.5,
        customers=3,
        long_customers=1,
        long_steps=60,
        least_faults=1,
        denoisers=1,
        settle_s=60.0,
        one_of_each=True,
    )
    result = await chaos.chaos(tmp_path, options)
    assert result["sound"], result
    assert result["accepted"] == result["succeeded"], result
    by_kind = result["by_kind"]
    assert isinstance(by_kind, dict)
    assert {"kill leader", "freeze_long leader", "kill nats", "kill_all several"} <= by_kind.keys(), result


async def test_a_crowd_sees_everything_and_gets_no_error_but_shedding(suite: RunningSuite) -> None:
    options = crowd.Options(watchers=100, submitters=20, jobs=3, model="shapes", watched_jobs=4, watched_steps=60)
    result = await crowd.crowd(suite.address, options)
    assert result["sound"], result
