"""``CredentialCoordinator``: several API keys used as one, none of them while it is told to rest.

Here is what callers call. Who gets which credential is ``handing.py``, the rules of
resting are ``core.quarantine``, what is told and kept of it is ``following.py``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from ..checks import WHOLE, check, is_whole, number
from ..clock import Clock
from ..core.cooldown import ExponentialCooldown, FixedCooldown
from ..core.decision import NEVER, UNKNOWN
from ..core.quarantine import SILENT_REST
from ..errors import ConfigError
from ..events import ResilienceEvent
from ..identity import Identities
from .credential import BySecret, Credential, CredentialState, Key, labelled
from .following import Following
from .lease import Lease
from .opening import open_credential_store
from .record import ANY_PROVIDER, LONGEST_PROVIDER, PARKED, RETIRED, CredentialStore
from .telling import Telling

log = logging.getLogger("headgate")


class CredentialCoordinator(Following):
    """Hands out credentials, never one that rests.

    Leases share a credential, unless ``at_once`` bounds how many hold it at the same time; ``get_credential`` lends it
    exclusively. Safe for threads and for asyncio at once, bound to no event loop, without a thread of its own (unless
    its store is on another machine).

        keys = CredentialCoordinator(["sk-...", "sk-..."])
        with keys.lease() as lease:
            lease.report(requests.get(url, headers={"Authorization": f"Bearer {lease.secret}"}))
    """

    def __init__(
        self,
        credentials: Iterable[str | Credential],
        *,
        at_once: int | None = None,
        provider: str = "",
        clock: Clock | None = None,
        store: CredentialStore | str | None = None,
        on_event: Callable[[ResilienceEvent], None] | None = None,
        cooldown: FixedCooldown | ExponentialCooldown = SILENT_REST,
        identities: Identities | None = None,
    ) -> None:
        """``at_once``: how many leases may hold one credential at the same time; None for any number.

        ``store`` keeps how they stand over a restart and shares it with others: "machine", "redis://..." or an object.
        ``cooldown`` says how long to rest after a refusal that does not; ``identities`` names credentials in
        logs and stores, by default with a random key of this user.
        """
        check("at_once", at_once, at_once is None or is_whole(at_once), f"{WHOLE}, or None for no bound")
        fine = isinstance(provider, str) and provider.isprintable() and len(provider) <= LONGEST_PROVIDER
        range_ = f"printable text of at most {LONGEST_PROVIDER} characters, not {ANY_PROVIDER}"
        check("provider", provider, fine and provider != ANY_PROVIDER, range_)
        known = isinstance(cooldown, FixedCooldown | ExponentialCooldown)
        check("cooldown", cooldown, known, "a FixedCooldown or an ExponentialCooldown")
        super().__init__(labelled(credentials), at_once, provider or "credentials", clock, cooldown)
        self.provider = provider
        self._by_secret = BySecret((key.credential.secret, key) for key in self._pool.slots)
        self._telling = Telling(self.name, provider, self.clock, on_event, identities)
        if store is not None:
            self._keep_in(open_credential_store(store, self.clock), provider)

    # ------------------------------------------------------------------ leases

    def lease(self, timeout: float | None = None) -> Lease:
        """For ``with`` and ``async with``: takes a credential on entering and gives it back on leaving.

        It waits for the first that is free or back; for ``timeout`` seconds at most, and not at all if
        none can be free by then. Otherwise ``NoCredentialError`` says when the first is back.
        """
        return Lease(self, _checked(timeout))

    def acquire(self, timeout: float | None = None, prefer: str | None = None) -> Lease:
        """Wait, in this thread, for a credential; for the one labelled ``prefer`` if it is free when its turn comes."""
        lease = Lease(self)
        self.take(lease, _checked(timeout), prefer)
        return lease

    async def acquire_async(
        self,
        timeout: float | None = None,  # noqa: ASYNC109 - it refuses what could never come in time
        prefer: str | None = None,
    ) -> Lease:
        """Wait, in this task, for a credential. Cancelling the wait takes nothing."""
        lease = Lease(self)
        await self.take_async(lease, _checked(timeout), prefer)
        return lease

    def try_acquire(self, prefer: str | None = None, *, only: bool = False) -> Lease | None:
        """A lease if a credential is free this instant and nobody waits for it, else None.

        ``only`` the preferred one will do.
        """
        lease = Lease(self)
        return lease if self.try_take(lease, prefer, only=only) else None

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(key.label for key in self._pool.slots)

    def paced_by(self, label: str) -> str:
        """What its pace is learned under: its group, whose members share one budget, or itself."""
        return self._labelled(label).credential.group or label

    def shared_names(self, identities: Identities) -> dict[str, str]:
        """What others know each pace by, by what ``paced_by`` calls it here: a credential by its keyed hash, which does
        not depend on its label, and a group by its name."""
        return {key.group or key.label: key.group or identities.of(key.credential.secret) for key in self._pool.slots}

    def back_in(self, label: str) -> float | None:
        """In how many seconds this one has rested; 0 if it does not rest, None if it is retired."""
        if self._look_at != UNKNOWN:
            self._look_if_due()
        key = self._labelled(label)
        return None if key.retired else max(0.0, key.until - self._now()) if key.until != NEVER else 0.0

    # ------------------------------------------------------------------ bare strings

    def get_credential(self) -> str | None:
        """A credential that has no holder, or None; lent to this caller alone until ``release_credential``."""
        if self._look_at != UNKNOWN:
            self._look_if_due()
        with self._lock:
            self._begin()
            key = None if self._line else self._pool.pick(exclusive=True)
            self._torn = False
        if self._told or self._left:
            self._after()
        return None if key is None else key.credential.secret

    def release_credential(
        self, credential: str, *, rate_limited: bool = False, backoff_seconds: float | None = 0
    ) -> None:
        """Give a credential back; if it was rate limited, it and its group rest for ``backoff_seconds``.

        None (or nan) means that the server has not said for how long: then ``cooldown`` does. No rest is longer than
        31 days, and one that lasts longer already stays. A release of what is not lent changes nothing and is logged
        as a warning, but a rate limit counts whether it is lent or not. An unknown credential is a ``ConfigError``; so
        is a backoff that is no number, after the credential has been given back.
        """
        key = self._by_secret.get(credential) if isinstance(credential, str) else None
        if key is None:
            raise ConfigError(f"{self.name}: a credential was released that is not one of these; nothing was changed")
        seconds = number(backoff_seconds) if rate_limited else 0.0
        rests = not seconds <= 0
        with self._lock:
            now = self._begin()
            changed = self._pool.limit(key, seconds, now, now) if rests else []
            was_lent = key.exclusive
            if was_lent:
                key.holders -= 1
                self._pool.file(key)
            if changed or self._line:
                self._follow(changed, now)
            self._torn = False
        if not was_lent and not rests:
            log.warning("%s: %s was released but is not lent; nothing was changed", self.name, key.label)
        if self._told or self._left:
            self._after()
        if rate_limited and backoff_seconds is not None:
            is_number = isinstance(backoff_seconds, int | float) and not isinstance(backoff_seconds, bool)
            check("backoff_seconds", backoff_seconds, is_number, "a number of seconds, or None if it is not known")

    def get_available_count(self) -> int:
        """How many are free this instant: ``get_credential`` could hand them out."""
        return self._count(lambda: sum(not key.holders for key in self._pool.free))

    def get_quarantine_count(self) -> int:
        """How many rest."""
        return self._count(lambda: len(self._pool.resting))

    # ------------------------------------------------------------------ an operator's words

    def retire(self, credential: str | Credential) -> None:
        """Use this one, named by its label or itself, no more."""
        self._change(self._find(credential), lambda key, _: self._pool.retire(key, RETIRED))

    def park(self, label: str, seconds: float) -> None:
        """Let this one rest for so long, alone."""
        check("seconds", seconds, number(seconds) >= 0, "a number of seconds, 0 or more")
        self._change(self._find(label), lambda key, now: self._pool.rest((key,), seconds, now, PARKED))

    def free(self, label: str) -> None:
        """Use this one again at once, whether it rested or was retired."""

        def bring_back(key: Key, now: float) -> list[Key]:
            if self._pool.bring_back(key):
                self._told.append(("credential_back", key, 0.0, "freed by hand"))
            return []

        self._change(self._find(label), bring_back)

    @property
    def on_event(self) -> Callable[[ResilienceEvent], None] | None:
        """Who is told what happens; may be changed at any time."""
        return self._telling.listener

    @on_event.setter
    def on_event(self, listener: Callable[[ResilienceEvent], None] | None) -> None:
        self._telling.listener = listener

    @property
    def waiting(self) -> int:
        """How many callers wait for one."""
        return len(self._line)

    def states(self) -> list[CredentialState]:
        """How each of them stands."""
        self._look_if_due()
        shown = {key: self._telling.shown(key) for key in self._pool.slots}
        with self._lock:
            now = self._begin()
            states = [
                CredentialState(
                    label=key.label,
                    shown=shown[key],
                    group=key.group,
                    state=key.state(now),
                    back_in=key.until - now if key in self._pool.resting else None,
                    budget=None if key.budget == UNKNOWN else max(0.0, key.budget),
                    reason=key.reason,
                )
                for key in self._pool.slots
            ]
            self._torn = False
        self._after()
        return states

    def __repr__(self) -> str:
        return f"<CredentialCoordinator {self.name!r} of {len(self._pool.slots)}>"

    # ------------------------------------------------------------------ inside

    def _count(self, count: Callable[[], int]) -> int:
        self._look_if_due()
        with self._lock:
            self._begin()
            number = count()
            self._torn = False
        self._after()
        return number

    def _labelled(self, label: str) -> Key:
        key = self._pool.by_label.get(label)
        return self._find(label) if key is None else key

    def _find(self, credential: str | Credential) -> Key:
        """By its label, by its secret, or itself. What was asked for is not repeated: it may be a secret."""
        for key in self._pool.slots:
            if credential in (key.label, key.credential.secret, key.credential):
                return key
        known = ", ".join(key.label for key in self._pool.slots[:10])
        raise ConfigError(f"{self.name}: there is no such credential; there are {known}")

    def _change(self, key: Key, change: Callable[[Key, float], list[Key]]) -> None:
        with self._lock:
            now = self._begin()
            self._follow(change(key, now), now)
            self._torn = False
        self._after()


def _checked(timeout: float | None) -> float | None:
    fine = timeout is None or number(timeout) >= 0
    check("timeout", timeout, fine, "a number of seconds, 0 or more, or None to wait without end")
    return timeout
