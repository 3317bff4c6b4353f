"""Options of `simulate` and `plan`, and what they stand for."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from triptych.cli.values import natural, positive

if TYPE_CHECKING:
    from services.router.core.config import SchedulerConfig
    from services.router.core.job import StageSeconds
    from services.router.simulate.settings import FleetSettings, PolicySettings
    from services.router.simulate.workload import SimulatedJob

COMPARED = ("fcfs:max-queued=100", "fcfs:max-queued=20", "sjf", "stretch")


def add_jobs(parser: argparse.ArgumentParser) -> None:
    """Where the jobs come from."""
    jobs = parser.add_argument_group("jobs: one of --workload, --trace, --mix")
    source = jobs.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--workload",
        type=Path,
        metavar="FILE.jsonl",
        help='a line a job: {"arrival_s": 3.1, "kind": "image", "service_s": 2.0}',
    )
    source.add_argument("--trace", type=Path, metavar="FILE.csv[.gz]", help="requests with the columns of GenTD26")
    source.add_argument(
        "--mix",
        metavar="KIND:SECONDS[/SECONDS]=WEIGHT,…",
        help="made-up jobs, as in image:2/3/6=0.8,video:120/300=0.2; or names: sdxl-512, sdxl-1024, flux-1024, "
        "flux-2048, wan-480p, wan-720p on an H100, and the models of --catalog at their defaults",
    )
    jobs.add_argument("--catalog", type=Path, metavar="models.toml", help="models for --mix")
    jobs.add_argument("--rate", type=float, default=0.1, metavar="R", help="made-up jobs a second (default: 0.1)")
    jobs.add_argument(
        "--burst-factor", type=float, default=1.0, metavar="F", help="come in bursts, so many times as fast"
    )
    jobs.add_argument(
        "--burst-seconds", type=float, default=60.0, metavar="S", help="mean length of a burst (default: 60)"
    )
    jobs.add_argument("--jobs", type=positive, default=400, metavar="N", help="how many made-up jobs (default: 400)")
    jobs.add_argument(
        "--load", type=float, metavar="L", help="stretch or shrink time to this mean load of the cards, as 0.7"
    )
    jobs.add_argument("--seed", type=natural, default=0, metavar="N", help="of everything that is drawn (default: 0)")
    jobs.add_argument(
        "--exact-estimates", action="store_true", help="let the router know what a job of a trace will take"
    )
    jobs.add_argument(
        "--estimate-error",
        type=float,
        default=0.0,
        metavar="SIGMA",
        help="standard deviation of the logarithm of estimate over truth, of a workload or a mix (default: 0)",
    )


def add_policy(parser: argparse.ArgumentParser) -> None:
    """Who runs first, and who is let in."""
    policy = parser.add_argument_group("policy")
    policy.add_argument(
        "--policy",
        action="append",
        metavar="NAME[:KEY=VALUE,…]",
        help="fcfs, sjf, pools or stretch (default); may be repeated, with the options below as keys, as in "
        "fcfs:max-queued=20",
    )
    policy.add_argument("--compare", action="store_true", help=f"side by side: {', '.join(COMPARED)}")
    policy.add_argument(
        "--config",
        type=Path,
        metavar="router.toml",
        help="a router's settings; [scheduler] counts, with its pools (default: as of a router told nothing)",
    )
    policy.add_argument("--no-admission", action="store_true", help="refuse nothing for the work ahead of it")
    policy.add_argument("--no-tenants", action="store_true", help="hold nobody to a fair share")
    policy.add_argument("--max-queued", type=positive, metavar="N", help="accepted jobs that are not over, at most")
    policy.add_argument("--kappa", type=float, metavar="K", help="the stretch that a job may be asked to bear")
    policy.add_argument(
        "--slack", type=float, metavar="PART", help="the part of a job's promise that work ahead of it may fill"
    )
    policy.add_argument("--max-running", type=positive, metavar="N", help="jobs of a pool that are denoised at a time")
    policy.add_argument(
        "--borrow",
        choices=("none", "idle", "preemptible"),
        help="may jobs take workers of other pools: none, idle ones, or busy ones too, by rank",
    )


def add_behaviour(parser: argparse.ArgumentParser) -> None:
    """The fleet, and how its workers behave."""
    fleet = parser.add_argument_group("fleet")
    fleet.add_argument("--workers", type=positive, metavar="N", help="denoisers (default: 4)")
    fleet.add_argument(
        "--pool",
        action="append",
        default=[],
        metavar="KIND=N[xCARDS]",
        help="a pool for a kind of jobs, as in video=2x4",
    )
    fleet.add_argument(
        "--slots", type=positive, default=3, metavar="N", help="jobs a denoiser has at once (default: 3)"
    )
    fleet.add_argument(
        "--block-seconds",
        type=float,
        default=0.15,
        metavar="S",
        help="between blocks workers switch; 0: never (default: 0.15)",
    )
    fleet.add_argument(
        "--encoders", type=natural, default=1, metavar="N", help="0: encoding is the denoiser's (default: 1)"
    )
    fleet.add_argument(
        "--decoders", type=natural, default=1, metavar="N", help="0: decoding is the denoiser's (default: 1)"
    )
    fleet.add_argument(
        "--load-seconds", type=float, default=0.0, metavar="S", help="to load a model that is not resident"
    )
    fleet.add_argument(
        "--resident-models", type=positive, default=1, metavar="N", help="models loaded at once (default: 1)"
    )
    fleet.add_argument(
        "--mtbf-seconds", type=float, metavar="S", help="mean time until a denoiser is lost (default: never)"
    )
    fleet.add_argument("--repair-seconds", type=float, default=60.0, metavar="S", help="until it is back (default: 60)")
    fleet.add_argument(
        "--checkpoint-seconds",
        type=float,
        default=10.0,
        metavar="S",
        help="between two checkpoints; 0: none (default: 10)",
    )


def read_fleet(args: argparse.Namespace) -> "FleetSettings":
    """Raises `ValueError`."""
    from services.router.simulate.settings import FleetSettings, parse_pool

    pools = tuple(parse_pool(text) for text in args.pool)
    in_pools = sum(pool.workers for pool in pools)
    if pools and args.workers not in (None, in_pools):
        raise ValueError(f"--workers {args.workers}, but the pools have {in_pools}")
    return FleetSettings(
        workers=args.workers or in_pools or 4,
        pools=pools,
        slots=args.slots,
        block_s=args.block_seconds,
        encoders=args.encoders,
        decoders=args.decoders,
        load_s=args.load_seconds,
        resident_models=args.resident_models,
        mtbf_s=float("inf") if args.mtbf_seconds is None else args.mtbf_seconds,
        repair_s=args.repair_seconds,
        checkpoint_s=args.checkpoint_seconds,
    )


def read_jobs(args: argparse.Namespace, cards: int) -> "list[SimulatedJob]":
    """Raises `ValueError`."""
    from random import Random

    from services.router.simulate.generator import Arrivals, generate, parse_mix
    from services.router.simulate.gentd26 import read_trace
    from services.router.simulate.workload import read_workload, scale_to_load

    if args.workload is not None:
        jobs = read_workload(args.workload)
    elif args.trace is not None:
        jobs = read_trace(args.trace)
    else:
        arrivals = Arrivals(args.rate, args.burst_factor, args.burst_seconds)
        mix = parse_mix(args.mix, _catalog_seconds(args.catalog))
        jobs = generate(arrivals, mix, args.jobs, Random(f"jobs {args.seed}"))
    return jobs if args.load is None else scale_to_load(jobs, args.load, cards)


def read_policies(args: argparse.Namespace) -> "list[PolicySettings]":
    """Raises `ValueError`."""
    from services.router.simulate.settings import PolicySettings, parse_policy

    given = {
        "max_queued": args.max_queued,
        "kappa": args.kappa,
        "slack": args.slack,
        "max_running": args.max_running,
        "borrow": args.borrow,
    }
    said = {name: value for name, value in given.items() if value is not None}
    defaults = PolicySettings(no_admission=args.no_admission, no_tenants=args.no_tenants, **said)
    names = [*(args.policy or ()), *(COMPARED if args.compare else ())]
    return [parse_policy(name, defaults) for name in names or ("stretch",)]


def read_scheduler(args: argparse.Namespace) -> "SchedulerConfig | None":
    """Raises `ValueError`."""
    from services.router.simulate.settings import read_config

    return read_config(args.config) if args.config is not None else None


def _catalog_seconds(path: Path | None) -> "dict[str, StageSeconds]":
    """What a job of each model takes at its defaults, by the catalog's prices and the usual cut into tokens."""
    if path is None:
        return {}
    from services.router.core.job import StageSeconds
    from services.router.estimates.price import UNKNOWN_TFLOP_PER_KTOKEN, JobShape, ModelCost, TokenGrid
    from triptych.catalog import Catalog

    seconds = {}
    for name, model in Catalog.load(path).models.items():
        cost, usual = model.cost, model.defaults
        grid = TokenGrid(vae_temporal_factor=4 if model.media_kind == "video" else 1)
        price = ModelCost(
            grid,
            UNKNOWN_TFLOP_PER_KTOKEN if cost.tflop_per_ktoken is None else cost.tflop_per_ktoken,
            cost.effective_tflops,
            cost.forward_s,
            cost.encode_s,
            cost.decode_s_per_megapixel,
        )
        shape = JobShape(
            name, usual.width, usual.height, usual.step_count, 2 if usual.guidance > 1 else 1, usual.frame_count
        )
        seconds[name] = StageSeconds(cost.encode_s, price.denoise_s(shape), price.decode_s(shape))
    return seconds
