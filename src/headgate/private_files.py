"""Files for their owner only: records, keys and registries that other users of the machine must not read or change;
and names for secrets (``Identities``) that do not give them away.

A plain hash of a key could be checked against a list of leaked ones, and the first letters of
a key are a part of it. So a credential is known by a HMAC with a random secret that is made
once for each user and never leaves its file: 128 bits identify, 6 hex digits are shown.
"""

from __future__ import annotations

import logging
import os
import stat

log = logging.getLogger("headgate")

OWNER_ONLY, OWNER_ONLY_FOLDER = 0o600, 0o700


def state_folder() -> str:
    """Where Headgate keeps what it must remember for this user. ``HEADGATE_STATE`` puts it elsewhere."""
    chosen = os.environ.get("HEADGATE_STATE")
    if chosen:
        return os.path.expanduser(chosen)
    base = os.environ.get("XDG_STATE_HOME") or os.environ.get("LOCALAPPDATA") or os.path.join("~", ".local", "state")
    return os.path.join(os.path.expanduser(base), "headgate")


def make_private_folder(path: str) -> None:
    """Create the folder of a file for its owner only, and the state folder too if the file lies deeper in it. Existing
    folders stay as they are."""
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        state = os.path.abspath(state_folder())
        if folder.startswith(f"{state}{os.sep}"):
            os.makedirs(os.path.dirname(state), exist_ok=True)
            os.makedirs(state, mode=OWNER_ONLY_FOLDER, exist_ok=True)
        os.makedirs(os.path.dirname(folder), exist_ok=True)
        os.makedirs(folder, mode=OWNER_ONLY_FOLDER, exist_ok=True)


def is_open_to_other_users(path: str) -> bool:
    """Whether other users than its owner may read or change the file. Only a POSIX system says so."""
    return os.name == "posix" and bool(stat.S_IMODE(os.stat(path).st_mode) & 0o077)


def restrict_to_owner(path: str) -> None:
    """Take the permissions of other users away."""
    if is_open_to_other_users(path):
        os.chmod(path, OWNER_ONLY)
        log.warning("%s was accessible to other users; only its owner has access now", path)


def write_private(path: str, content: bytes) -> None:
    """Replace a file as a whole; there is no moment at which others can read it or it is half written."""
    make_private_folder(path)
    draft = f"{path}.{os.getpid()}-{os.urandom(4).hex()}"
    file = os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, OWNER_ONLY), "wb")
    try:
        with file:
            file.write(content)
        os.replace(draft, path)
    except BaseException:
        os.unlink(draft)
        raise


def create_private(path: str, content: bytes) -> None:
    """Create a file, whole from the start, unless there is one. Of several processes that do so the first wins."""
    draft = f"{path}.{os.getpid()}-{os.urandom(4).hex()}"
    write_private(draft, content)
    try:
        os.link(draft, path)  # unlike a rename, it fails if there is one already
    except FileExistsError:
        pass
    except OSError:  # a file system without links
        if not os.path.exists(path):
            os.replace(draft, path)
    finally:
        if os.path.exists(draft):
            os.unlink(draft)


KEY_BYTES = 32
IDENTITY_DIGITS = 32
"""128 bits."""
SHOWN_DIGITS = 6
_UNKEPT: dict[str, bytes] = {}
"""Keys of this process in place of files that cannot be used."""


class Identities:
    """Names for secrets. The same key gives the same names, so simulations pass their seed."""

    def __init__(self, key: bytes | None) -> None:
        """Without a ``key``, the random one of this user is read from its file when a name is first needed."""
        self._key = key

    def of(self, secret: str) -> str:
        """32 hex digits that stand for this secret wherever something is stored."""
        import hmac  # here, because most programs never name a credential

        if self._key is None:
            self._key = _user_key()
        return hmac.digest(self._key, secret.encode("utf-8", "surrogatepass"), "sha256").hex()[:IDENTITY_DIGITS]

    @classmethod
    def of_user(cls) -> Identities:
        """With the random key of this user, made at the first use; where no file can be kept, for this process only."""
        return cls(None)

    def __repr__(self) -> str:
        return "<Identities>"


def _user_key() -> bytes:
    path = os.path.join(state_folder(), "identity.key")
    try:
        return _kept_key(path)
    except OSError as error:
        if path not in _UNKEPT:
            log.warning("credential ids will differ in each run: cannot use %s (%s)", path, error.strerror)
        return _UNKEPT.setdefault(path, os.urandom(KEY_BYTES))


def _kept_key(path: str) -> bytes:
    """Read the key; make one if there is none."""
    for _ in range(2):
        try:
            with open(path, "rb") as file:
                key = file.read(KEY_BYTES)
        except FileNotFoundError:
            create_private(path, os.urandom(KEY_BYTES))
            continue
        if len(key) == KEY_BYTES:
            restrict_to_owner(path)
            return key
        break
    raise OSError(0, "not a Headgate key file; remove it", path)
