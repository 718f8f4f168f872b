"""Remembered answers in a folder: small files, one for each flush. A path of this machine, or any fsspec URL.

    (folder)/(run)/run.json                             the target that the run was begun with
    (folder)/(run)/(job)/(group)/(worker)-(number)      answers: a count, keys of 16 bytes and lengths, then the answers

A group is what an engine repeats as a whole: a partition of Spark's, whose rows may come in another order, or a block
of Ray's, which is named by a digest of its keys. Its answers of this job are in one folder. Those of earlier jobs
of the run are found by an index of their keys, which each worker reads once and which does not depend on groups.

A folder has no claims: two workers that have the same block at the same time both call its rows.
"""

from __future__ import annotations

import json
import os
import secrets
import struct
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Protocol

from ..distributed.store import StoreDown
from ..errors import ConfigError
from .answers import Taken, other_target
from .row_reader import KEY_BYTES

MOST_INDEXED = 20_000_000
"""Answers of earlier jobs that a worker looks for; 12 bytes of its memory each."""
MOST_GROUPS_READ = 8
"""Groups whose answers are kept in memory at once: those of the tasks that a worker has."""
MOST_FILES_READ = 64
"""Files of earlier jobs that are kept in memory at once."""
ABOUT = "run.json"
_COUNT = struct.Struct("<I")
_LENGTHS = "<%dI"


class Files(Protocol):
    """The few things that are asked of a file system. Names are relative, with slashes."""

    def read(self, name: str) -> bytes | None: ...
    def write(self, name: str, content: bytes) -> None: ...
    def names(self, folder: str) -> list[str]: ...


class LocalFiles:
    def __init__(self, root: str) -> None:
        self._root = os.path.abspath(os.path.expanduser(root))

    def read(self, name: str) -> bytes | None:
        try:
            with open(self._path(name), "rb") as file:
                return file.read()
        except (FileNotFoundError, NotADirectoryError):
            return None

    def write(self, name: str, content: bytes) -> None:
        """Whole or not at all, also where the process is killed meanwhile."""
        path = self._path(name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        half = f"{path}.{secrets.token_hex(4)}.tmp"
        with open(half, "wb") as file:
            file.write(content)
        os.replace(half, path)

    def names(self, folder: str) -> list[str]:
        try:
            return [one for one in os.listdir(self._path(folder)) if not one.endswith(".tmp")]
        except (FileNotFoundError, NotADirectoryError):
            return []

    def _path(self, name: str) -> str:
        return os.path.join(self._root, *name.split("/"))


class FsspecFiles:
    """An object store's write is whole or not at all by itself."""

    def __init__(self, url: str) -> None:
        try:
            import fsspec
        except ModuleNotFoundError:
            raise ConfigError('a folder given by a URL needs fsspec: pip install "headgate[ray]" or fsspec') from None
        try:
            self._system, self._root = fsspec.core.url_to_fs(url.rstrip("/"))
        except (ImportError, ValueError) as error:
            raise ConfigError(f"answers: {url.partition('://')[0]}:// cannot be opened ({error})") from None

    def read(self, name: str) -> bytes | None:
        try:
            content: bytes = self._system.cat_file(f"{self._root}/{name}")
        except FileNotFoundError:
            return None
        return content

    def write(self, name: str, content: bytes) -> None:
        path = f"{self._root}/{name}"
        self._system.makedirs(path.rpartition("/")[0], exist_ok=True)
        self._system.pipe_file(path, content)

    def names(self, folder: str) -> list[str]:
        self._system.invalidate_cache()
        try:
            found = self._system.ls(f"{self._root}/{folder}".rstrip("/"), detail=False)
        except FileNotFoundError:
            return []
        return [one.rstrip("/").rpartition("/")[2] for one in found]


class FolderAnswers:
    def __init__(self, folder: str, run: str, job: str) -> None:
        self.where = f"folder {folder}"
        self._files: Files = FsspecFiles(folder) if "://" in folder else LocalFiles(folder)
        self._run, self._job = run, job
        self._worker, self._written = secrets.token_hex(6), 0
        self._group_of: dict[bytes, str] = {}
        """Of the rows that were taken and have no answer yet."""
        self._groups: dict[str, GroupAnswers] = {}
        """Those that were asked for last."""
        self._earlier: EarlierAnswers | None = None

    def open(self, identity: str) -> None:
        with self._reachable():
            kept = self._files.read(f"{self._run}/{ABOUT}")
            if kept is None:
                self._files.write(f"{self._run}/{ABOUT}", json.dumps({"target": identity}).encode())
                return
        try:
            before = str(json.loads(kept)["target"])
        except (ValueError, KeyError, TypeError):
            raise ConfigError(f"{self.where}: {self._run}/{ABOUT} is damaged; choose another run name") from None
        if before != identity:
            raise other_target(self._run, before, identity)

    def take(self, keys: Sequence[bytes], group: str = "") -> list[bytes | Taken]:
        group = group or blake2b(b"".join(keys), digest_size=10).hexdigest()
        with self._reachable():
            answers = self._answers_of(group).read()
            found = {key: answers[key] for key in keys if key in answers}
            missing = [key for key in keys if key not in found]
            if missing:
                if self._earlier is None:
                    self._earlier = EarlierAnswers(self._files, self._run, self._job)
                found.update(self._earlier.find(missing))
        for key in missing:
            if key not in found:
                self._group_of[key] = group
        return [found.get(key, Taken.MINE) for key in keys]

    def _answers_of(self, group: str) -> GroupAnswers:
        known = self._groups.pop(group, None) or GroupAnswers(self._files, f"{self._run}/{self._job}/{group}")
        while len(self._groups) >= MOST_GROUPS_READ:
            del self._groups[next(iter(self._groups))]
        self._groups[group] = known
        return known

    def put(self, answers: Sequence[tuple[bytes, bytes]]) -> None:
        by_group: dict[str, list[tuple[bytes, bytes]]] = {}
        for key, packed in answers:
            by_group.setdefault(self._group_of.get(key, "rest"), []).append((key, packed))
        with self._reachable():
            for group, some in by_group.items():
                self._written += 1
                name = f"{self._run}/{self._job}/{group}/{self._worker}-{self._written}"
                self._files.write(name, pack_file(some))
        for key, _ in answers:
            self._group_of.pop(key, None)

    def release(self, keys: Sequence[bytes]) -> None:
        for key in keys:
            self._group_of.pop(key, None)

    def renew(self) -> None:
        pass

    def close(self) -> None:
        pass

    def _reachable(self) -> _Reachable:
        return _Reachable(self.where)


class GroupAnswers:
    """Answers of one group; each file is read once."""

    def __init__(self, files: Files, folder: str) -> None:
        self._files, self._folder = files, folder
        self._read: set[str] = set()
        self._found: dict[bytes, bytes] = {}

    def read(self) -> Mapping[bytes, bytes]:
        for name in self._files.names(self._folder):
            if name not in self._read:
                self._found.update(unpack_file(self._files.read(f"{self._folder}/{name}") or b""))
                self._read.add(name)
        return self._found


class EarlierAnswers:
    """Answers of earlier jobs of a run: which file has which key."""

    def __init__(self, files: Files, run: str, but_not: str) -> None:
        self._files = files
        self._names: list[str] = []
        self._read: dict[int, dict[bytes, bytes]] = {}
        entries: list[tuple[int, int]] = []
        for job in sorted(files.names(run)):
            if job in (but_not, ABOUT):
                continue
            for block in files.names(f"{run}/{job}"):
                for name in files.names(f"{run}/{job}/{block}"):
                    path = f"{run}/{job}/{block}/{name}"
                    entries += [(_prefix(key), len(self._names)) for key in keys_in(files.read(path) or b"")]
                    self._names.append(path)
                    if len(entries) > MOST_INDEXED:
                        raise ConfigError(
                            f"run {run!r} has more than {MOST_INDEXED:,} answers in its folder, too many to look "
                            'through; use answers="redis" for a run of this size'
                        )
        entries.sort()
        self._prefixes = array("Q", (prefix for prefix, _ in entries))
        self._places = array("I", (place for _, place in entries))

    def find(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        found = {}
        for key in keys:
            prefix = _prefix(key)
            at = bisect_left(self._prefixes, prefix)
            while at < len(self._prefixes) and self._prefixes[at] == prefix:
                packed = self._file(self._places[at]).get(key)
                if packed is not None:
                    found[key] = packed
                    break
                at += 1
        return found

    def _file(self, place: int) -> dict[bytes, bytes]:
        if place not in self._read:
            while len(self._read) >= MOST_FILES_READ:
                del self._read[next(iter(self._read))]
            self._read[place] = dict(unpack_file(self._files.read(self._names[place]) or b""))
        return self._read[place]


class _Reachable:
    """What a file system raises is ``StoreDown``: it may work again in a moment."""

    def __init__(self, where: str) -> None:
        self._where = where

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError):
            raise StoreDown(f"{self._where}: {error.strerror or type(error).__name__}") from error


def _prefix(key: bytes) -> int:
    return int.from_bytes(key[:8], "big")


def pack_file(answers: Sequence[tuple[bytes, bytes]]) -> bytes:
    lengths = struct.pack(_LENGTHS % len(answers), *(len(packed) for _, packed in answers))
    keys, contents = b"".join(key for key, _ in answers), b"".join(packed for _, packed in answers)
    return _COUNT.pack(len(answers)) + keys + lengths + contents


def keys_in(content: bytes) -> list[bytes]:
    """Of a file that is damaged, none."""
    if len(content) < _COUNT.size:
        return []
    (count,) = _COUNT.unpack_from(content)
    if len(content) < _COUNT.size + count * (KEY_BYTES + 4):
        return []
    return [content[at : at + KEY_BYTES] for at in range(_COUNT.size, _COUNT.size + count * KEY_BYTES, KEY_BYTES)]


def unpack_file(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    keys = keys_in(content)
    if not keys:
        return
    at = _COUNT.size + len(keys) * KEY_BYTES
    lengths = struct.unpack_from(_LENGTHS % len(keys), content, at)
    at += 4 * len(keys)
    for key, length in zip(keys, lengths, strict=True):
        if at + length <= len(content):
            yield key, content[at : at + length]
        at += length
