"""The options of a suite on this machine, for `up` and `demo`."""

import argparse
import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

from triptych.cli.failures import EXIT_BAD_INPUT, Failure
from triptych.cli.values import positive

if TYPE_CHECKING:
    from triptych.catalog import Catalog
    from triptych.supervisor import SuiteConfig

# One module of each part of the extra.
NEEDED = ("services", "nats", "torch", "diffusers", "transformers", "PIL")


def add_suite_options(parser: argparse.ArgumentParser) -> None:
    """How many workers, of what, on what."""
    parser.add_argument(
        "--routers", type=positive, default=1, metavar="N", help="routers, of which one leads (default 1)"
    )
    for role in ("encoder", "denoiser", "decoder"):
        parser.add_argument(f"--{role}s", type=positive, default=1, metavar="N", help=f"{role} processes (default 1)")
    parser.add_argument("--catalog", type=Path, metavar="FILE", help="models.toml (default: the embedded model's)")
    parser.add_argument("--config", type=Path, metavar="FILE", help="the router's configuration, TOML")
    parser.add_argument(
        "--device", default="auto", metavar="NAME", help="cpu, cuda, cuda:0,cuda:1, mps (default: the best there is)"
    )
    parser.add_argument(
        "--threads", type=positive, metavar="N", help="CPU threads of each denoiser (default: an even share)"
    )
    parser.add_argument("--stage-threads", type=positive, metavar="N", help="CPU threads of each encoder and decoder")
    parser.add_argument(
        "--drain", type=float, default=10.0, metavar="SECONDS", help="how long running work may go on at the end"
    )
    parser.add_argument("--log-level", default="info", choices=("debug", "info", "warning", "error"))


def suite_config(
    args: argparse.Namespace, *, state_dir: Path, listen: str, auth: bool | None = None, tls: Path | None = None
) -> "SuiteConfig":
    """The suite that the options ask for. Raises `Failure`, also when the packages it needs are not installed."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise Failure(
            f"a suite on this machine needs more than the client (not found: {', '.join(missing)}); "
            "install it: pip install 'triptych[up]'",
            EXIT_BAD_INPUT,
        )
    from triptych.catalog import Catalog
    from triptych.supervisor import SuiteConfig, default_catalog

    catalog = args.catalog or default_catalog()
    if catalog is None:
        raise Failure("no model catalog found; name one: --catalog models.toml", EXIT_BAD_INPUT)
    try:
        # The services would find its faults too, but one after the other and seconds later.
        _check_places(Catalog.load(catalog))
        return SuiteConfig(
            state_dir=state_dir,
            catalog=catalog,
            routers=args.routers,
            encoders=args.encoders,
            denoisers=args.denoisers,
            decoders=args.decoders,
            listen=listen,
            router_config=args.config,
            auth=auth,
            tls=tls,
            device=args.device,
            threads=args.threads,
            stage_threads=args.stage_threads,
            drain_s=args.drain,
            log_level=args.log_level,
        )
    except ValueError as error:
        raise Failure(str(error), EXIT_BAD_INPUT) from error


def _check_places(catalog: "Catalog") -> None:
    """Raise `ValueError` if no model's checkpoint is there; of some that are not, a warning is told later."""
    faults = []
    for name in catalog.models:
        try:
            catalog.checkpoint(name)
        except ValueError as error:
            faults.append(error)
    if len(faults) == len(catalog.models):
        raise faults[0]
