"""The suite of a trial: real processes on this machine, with tiny models, in a folder of its own."""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.trial.models import write_models, write_router_config
from triptych.supervisor import RestartPolicy, SuiteConfig

CHECKPOINT_S = 0.5


@contextmanager
def scene_folder(keep: Path | None) -> Iterator[Path]:
    """A folder that goes away at the end, unless one to keep is given."""
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        yield keep
        return
    with tempfile.TemporaryDirectory(prefix="triptych-trial-") as name:
        yield Path(name)


def suite_config(
    folder: Path,
    *,
    routers: int = 1,
    denoisers: int = 2,
    more: Mapping[str, Sequence[str]] = {},
) -> SuiteConfig:
    """Write the models, and say what the suite consists of. `more` are further flags per role."""
    flags = {role: list(more.get(role, ())) for role in ("router", "encoder", "denoiser", "decoder")}
    flags["denoiser"] += ["--checkpoint_seconds", str(CHECKPOINT_S)]
    return SuiteConfig(
        state_dir=folder / "suite",
        catalog=write_models(folder / "models"),
        router_config=write_router_config(folder),
        routers=routers,
        denoisers=denoisers,
        device="cpu",
        threads=1,
        stage_threads=1,
        drain_s=5.0,
        flags=flags,
        restarts=RestartPolicy(first_pause_s=0.1, max_pause_s=1.0),
    )
