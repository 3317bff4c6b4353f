"""Reads configuration into frozen dataclasses: flag > environment > TOML file > default."""

import os
import sys
from pathlib import Path
from typing import Any, TypeVar

from jsonargparse import ArgumentParser

from triptych.streams import fit_streams

_Config = TypeVar("_Config")


class ConfigError(ValueError):
    """An unknown key or a bad value; the message names it."""


def load_config(kind: type[_Config], program: str) -> _Config:
    """A program's configuration. A bad value or an unknown key is named on standard error and ends it with status 2.

    A field `listen` is `--listen`, the variable `TRIPTYCH_LISTEN` and the TOML key `listen`; a nested field is
    `--exchange.url`, `TRIPTYCH_EXCHANGE__URL` and `url` under `[exchange]`. The file is named by `--config`.
    """
    fit_streams()
    parser = ArgumentParser(prog=program, env_prefix="TRIPTYCH", default_env=True, parser_mode="toml")
    try:
        return _parse(parser, kind, sys.argv[1:])
    except ConfigError as error:
        parser.exit(2, f"{program}: {error}{os.linesep}")
        raise


def reread_config(kind: type[_Config], program: str) -> _Config:
    """Like `load_config`, of a program that runs already: what is bad raises `ConfigError`."""
    parser = ArgumentParser(
        prog=program, env_prefix="TRIPTYCH", default_env=True, parser_mode="toml", exit_on_error=False
    )
    try:
        return _parse(parser, kind, sys.argv[1:])
    except Exception as error:
        raise ConfigError(str(error)) from error


def load_toml(kind: type[_Config], path: Path) -> _Config:
    """A TOML file alone, whatever the environment says. Raises `ConfigError`."""
    if not path.is_file():
        raise ConfigError(f"{path}: no such file")
    parser = ArgumentParser(prog=path.name, exit_on_error=False, parser_mode="toml")
    try:
        return _parse(parser, kind, [f"--config={path}"])
    except Exception as error:
        raise ConfigError(f"{path}: {error}") from error


def _parse(parser: ArgumentParser, kind: type[_Config], arguments: list[str]) -> _Config:
    parser.add_argument("--config", action="config", help="TOML file to read")
    parser.add_class_arguments(kind, as_group=False)
    values = parser.parse_args(arguments)
    values.pop("config", None)
    try:
        made: Any = parser.instantiate(values)
        return kind(**{name: made[name] for name in vars(made)})
    except ValueError as error:
        raise ConfigError(str(error)) from error
