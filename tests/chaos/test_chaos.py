"""The proof programs in small: every kind of fault once, and a crowd. See docs/testing.md."""

from pathlib import Path

from bench import chaos, crowd


async def test_nothing_accepted_is_lost(tmp_path: Path) -> None:
    options = chaos.Options(
        seed=3, gap_s=2.0, customers=3, long_customers=1, long_steps=60, denoisers=1, settle_s=60.0, one_of_each=True
    )
    result = await chaos.chaos(tmp_path, options)
    assert result["sound"], result
    assert result["accepted"] == result["succeeded"], result
    assert result["faults"] == 10, result


async def test_a_crowd_sees_everything_and_gets_no_error_but_shedding(tmp_path: Path) -> None:
    result = await crowd.crowd(tmp_path, crowd.Options(watchers=100, submitters=20, jobs=3))
    assert result["sound"], result
