"""Run a router: `python -m services.router --help`."""

import asyncio
import signal
import sys

import structlog

from services.router.config import RouterConfig
from services.router.router import Router
from triptych.config import ConfigError, load_config, reread_config
from triptych.errors import TriptychError
from triptych.logs import configure_logs
from triptych.tls import TlsError

log = structlog.get_logger()

PROGRAM = "triptych router"


async def run(config: RouterConfig) -> int:
    """Run until SIGTERM or SIGINT; returns the exit status. SIGHUP: read again what may change meanwhile."""
    router = Router(config)
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, router.end)
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, reload, router)
    return await router.run()


def reload(router: Router) -> None:
    """Read tokens and settings again. Bad settings are logged, and those there are stay."""
    router.reload()
    try:
        router.reconfigure(reread_config(RouterConfig, PROGRAM))
    except ConfigError as error:
        log.error("reload_refused", error=str(error))


def main() -> None:
    """The whole program. What keeps it from starting is said in one line: exit status 2 for settings, else 1."""
    config = load_config(RouterConfig, PROGRAM)
    configure_logs(config.log_level)
    try:
        sys.exit(asyncio.run(run(config)))
    except (ConfigError, TlsError) as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        sys.exit(2)
    except (TriptychError, OSError) as error:
        sys.exit(f"{PROGRAM}: {error}")


if __name__ == "__main__":
    main()
