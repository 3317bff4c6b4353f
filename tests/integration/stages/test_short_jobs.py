"""Short jobs in small: a hundred jobs with random ranks that change, cancels and failures."""

from pathlib import Path

from bench.denoiser import bench_denoiser
from bench.short_jobs import MODELS, PLACES, run_short_jobs


async def test_nobody_hangs_nothing_stays_and_no_result_is_wrong(tiny_checkpoints: Path, tmp_path: Path) -> None:
    models = {model: tiny_checkpoints / model for model in MODELS}
    async with bench_denoiser(tmp_path, models, max_active_jobs=PLACES) as bench:
        result = await run_short_jobs(bench, job_count=100, seed=1)
    assert set(result["outcomes"]) == {"finished", "cancelled", "failed", "reranked"}, result  # type: ignore[call-overload]
    assert result["hung"] == result["wrong"] == result["left_on_device"] == result["threads_more"] == 0, result
