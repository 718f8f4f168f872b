"""What ``headgate run`` was told, turned into what a job needs: a configuration file, limits, prices, keys."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable
from typing import Any

import click

from headgate.batch.addresses import Address
from headgate.batch.config import BatchConfig
from headgate.batch.prices import Prices
from headgate.config import RateLimitConfig
from headgate.credentials import CredentialCoordinator, CredentialStore, StoreError, credentials_from
from headgate.errors import ConfigError

from . import CommandFailed, complain
from .sharing import Shared

DIMENSIONS = ("requests", "tokens")
LARGEST_CONFIG = 1 << 20
LOOK_AGAIN = 5.0
"""Seconds after which a server that has been failing is tried again: nobody waits for a single row of a batch, and
every second after an outage that nothing is sent is lost."""
STANDSTILL = 15 * 60.0
HOPELESS = 100
"""Rows that fail alike before it is plain that the others will too."""
"""Seconds without anything to start after which it is better to come back later."""
_TABLES = {"limits": ",", "prices": None}
"""Options that a file may write as a table, and what stands between their parts on the command line."""


def read_config(context: click.Context, parameter: click.Parameter, path: str | None) -> str | None:
    """Make a file's values the defaults of this command's options; what is typed goes before."""
    if path is None:
        return None
    names = {str(one.name): one for one in context.command.params if one is not parameter}
    by_option = {
        option.lstrip("-").replace("-", "_"): name for name, one in names.items() for option in (*one.opts, name)
    }
    defaults: dict[str, Any] = {}
    for given, value in _toml(path).items():
        name = by_option.get(given.replace("-", "_"))
        if name is None:
            known = ", ".join(sorted(option[2:] for one in names.values() for option in one.opts if option[:2] == "--"))
            raise click.UsageError(f"--config: {path} has {given!r}, which is no option; there are {known}.")
        defaults[name] = _as_typed(given, value, names[name])
    context.default_map = {**(context.default_map or {}), **defaults}
    return path


def _toml(path: str) -> dict[str, Any]:
    try:
        with open(path, "rb") as file:
            content = file.read(LARGEST_CONFIG + 1)
        if len(content) > LARGEST_CONFIG:
            raise click.UsageError(f"--config: {path} is longer than {LARGEST_CONFIG:,} bytes.")
        return tomllib.loads(content.decode())
    except OSError as error:
        raise click.UsageError(f"--config: {path} cannot be read ({error.strerror}).") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise click.UsageError(f"--config: {path} is not written as TOML ({error}).") from None


def _as_typed(given: str, value: Any, parameter: click.Parameter) -> Any:
    """A value of the file as the command line would have it."""
    if isinstance(value, dict) and parameter.name in _TABLES:
        parts = [
            f"{name}={amount}"
            for name, given_ in value.items()
            for amount in (given_ if isinstance(given_, list) else [given_])
        ]
        joint = _TABLES[parameter.name]
        return parts if joint is None else joint.join(parts)
    if isinstance(value, bool) or not isinstance(value, dict | list):
        many = parameter.multiple or parameter.nargs == -1
        text = value if isinstance(value, bool) else str(value)
        return [text] if many else text
    if isinstance(value, list) and parameter.multiple:
        return [str(one) for one in value]
    raise click.UsageError(f"--config: {given} is no single value; write it as on the command line.")


def read_limits(text: str) -> dict[str, list[str]]:
    """``requests=15/min,requests=1500/day,tokens=200000/min``: a dimension may have several limits."""
    limits: dict[str, list[str]] = {}
    for part in text.split(","):
        name, equals, amount = part.strip().partition("=")
        if not equals or name not in DIMENSIONS:
            raise ValueError(f"{part!r} is no limit; write requests=500/min,tokens=200000/min")
        limits.setdefault(name, []).append(amount.strip())
    try:
        RateLimitConfig(limits=limits)
    except ConfigError as error:
        raise ValueError(str(error)) from None
    return limits


def read_workers(text: str) -> int | str:
    if text == "auto":
        return text
    try:
        workers = int(text)
    except ValueError:
        workers = 0
    if not 1 <= workers <= 100_000:
        raise ValueError(f"{text!r} is neither auto nor a whole number from 1 to 100,000")
    return workers


def prices_of(given: Iterable[str]) -> Prices:
    prices: dict[str, object] = {}
    for one in given:
        model, equals, price = one.rpartition("=")
        if not equals or not model:
            raise click.UsageError(f"--price {one!r} is written MODEL=IN/OUT, such as gpt-4o-mini=0.15/0.60.")
        prices[model] = price
    try:
        return Prices.of(prices)
    except ConfigError as error:
        raise click.UsageError(f"--price: {error}.") from None


def keys_of(
    address: Address, sources: tuple[str, ...], store: CredentialStore | None = None
) -> CredentialCoordinator | None:
    """From where the user says, else from the vendor's usual variable; an address of one's own may need none."""
    variable = address.key_variable
    if not sources and variable:
        if not (os.environ.get(variable) or os.environ.get(f"{variable}_1")):
            raise click.UsageError(
                f"{address.name} needs a key: put it into the environment variable {variable}, or say where it is with "
                "--keys file:PATH."
            )
        sources = (f"env:{variable}",)
    if not sources:
        return None
    try:
        found = [one for source in sources for one in credentials_from(source, warn=complain)]
        return CredentialCoordinator(found, provider=address.name, store=store)
    except ConfigError as error:
        raise click.UsageError(f"--keys: {error}.") from None
    except StoreError as error:
        raise CommandFailed(f"{error}; HEADGATE_STATE names another folder.") from None


def settings_of(given: dict[str, Any], shared: Shared, credentials: CredentialCoordinator | None) -> dict[str, Any]:
    prices = prices_of(given["prices"])
    if given["max_cost"] is not None and not prices:
        raise click.UsageError("--max-cost needs to know what tokens cost: --price MODEL=IN/OUT.")
    config = RateLimitConfig(limits=given["limits"] or {}, open_state_duration=LOOK_AGAIN)
    shared.warn_if_forgotten(config)
    return {
        "limiter": shared.limiter(config, lambda _: credentials),
        "workers": given["workers"],
        "prices": prices,
        "config": BatchConfig(
            max_attempts=given["max_attempts"],
            base_delay=1.0,
            max_delay=60.0,
            deadline=given["deadline"],
            standstill=None if given["wait"] else STANDSTILL,
            max_tokens=given["max_tokens"],
            max_cost=given["max_cost"],
            hopeless_after=None if given["keep_going"] else HOPELESS,
        ),
    }
