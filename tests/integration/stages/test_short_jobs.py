"""Short jobs in small: a hundred and twenty, re-ranked, amended, cancelled and failing at random."""

from pathlib import Path
from typing import Any

from bench.denoiser import bench_denoiser
from bench.short.plans import MODELS
from bench.short_jobs import SETTINGS, run_short_jobs


async def test_nobody_hangs_nothing_stays_and_no_result_is_wrong(tiny_checkpoints: Path, tmp_path: Path) -> None:
    models = {model: tiny_checkpoints / model for model in MODELS}
    async with bench_denoiser(tmp_path, models, **SETTINGS) as bench:
        result: dict[str, Any] = await run_short_jobs(bench, job_count=120, seed=1)
    assert set(result["outcomes"]) == {"finished", "cancelled", "failed", "reranked"}, result
    assert all(result["amends"][kind]["running"] for kind in ("more_steps", "fewer_steps", "finish_now")), result
    assert result["pauses"] > 0, result
    assert result["sound"], result
