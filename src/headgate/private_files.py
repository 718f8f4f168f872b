"""Files for their owner only: records, keys and registries that other users of the machine must not read or change."""

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
