"""Which characters a body's bytes stand for, when its header, its first bytes and its own words may all disagree.

Asked in this order: a byte order mark; the header; the body itself (``<meta charset>``, an XML declaration); UTF-8;
and at last windows-1252, in which every byte is something. UTF-8 is hardly ever met by accident, so a body that is
valid UTF-8 is read as such even where a single-byte charset is claimed: servers add those to everything they send.

Only charsets of the web are known (the Encoding Standard's names, read as it reads them). Python knows more, some
of which take minutes for a megabyte or are no charsets at all.
"""

from __future__ import annotations

import codecs
import re
from typing import NamedTuple

SEARCHED = 4_096
"""Bytes in which a body may name its charset."""
LONGEST_NAME = 40

_BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_META = re.compile(rb"""(?i)<meta[^>]{0,500}?charset\s*=\s*["']?\s*([a-z0-9_.:-]{2,40})""")
_XML = re.compile(rb"""(?i)^\s*<\?xml[^>]{0,200}?encoding\s*=\s*["']([a-z0-9_.:-]{2,40})""")
_COMMENT = re.compile(rb"(?s)<!--.*?(?:-->|\Z)")
_UTF16_LE = re.compile(rb"(?:[\t\n\r -~]\0){8}")
_UTF16_BE = re.compile(rb"(?:\0[\t\n\r -~]){8}")

_SINGLE_BYTE = {
    "windows-1252": "cp1252", "iso-8859-1": "cp1252", "latin1": "cp1252", "latin-1": "cp1252", "us-ascii": "cp1252",
    "ascii": "cp1252", "iso8859-1": "cp1252", "cp1252": "cp1252", "iso-8859-15": "iso8859-15", "latin9": "iso8859-15",
    "iso-8859-9": "cp1254", "iso-8859-11": "cp874", "tis-620": "cp874", "windows-874": "cp874", "koi8-r": "koi8-r",
    "koi8-u": "koi8-u", "koi8": "koi8-r", "ibm866": "cp866", "cp866": "cp866", "macintosh": "mac-roman",
    "x-mac-cyrillic": "mac-cyrillic", "iso-8859-8-i": "iso8859-8", "cp1251": "cp1251", "win-1251": "cp1251",
    **{f"windows-{number}": f"cp{number}" for number in (1250, 1251, 1253, 1254, 1255, 1256, 1257, 1258)},
    **{f"iso-8859-{part}": f"iso8859-{part}" for part in (2, 3, 4, 5, 6, 7, 8, 10, 13, 14, 16)},
}  # fmt: skip
_MULTI_BYTE = {
    "utf-8": "utf-8", "utf8": "utf-8", "utf-16": "utf-16-le", "utf-16le": "utf-16-le", "utf-16be": "utf-16-be",
    "shift_jis": "cp932", "shift-jis": "cp932", "sjis": "cp932", "x-sjis": "cp932", "windows-31j": "cp932",
    "ms_kanji": "cp932", "euc-jp": "euc_jp", "x-euc-jp": "euc_jp", "iso-2022-jp": "iso2022_jp", "euc-kr": "cp949",
    "ks_c_5601-1987": "cp949", "windows-949": "cp949", "cp949": "cp949", "gb2312": "gb18030", "gbk": "gb18030",
    "gb18030": "gb18030", "x-gbk": "gb18030", "gb_2312-80": "gb18030", "big5": "big5hkscs", "big5-hkscs": "big5hkscs",
    "x-x-big5": "big5hkscs",
}  # fmt: skip
_CODECS = _SINGLE_BYTE | _MULTI_BYTE
_SHOWN = {
    "cp932": "shift_jis", "cp949": "euc-kr", "big5hkscs": "big5", "euc_jp": "euc-jp", "iso2022_jp": "iso-2022-jp",
    "utf-16-le": "utf-16le", "utf-16-be": "utf-16be", "mac-roman": "macintosh", "mac-cyrillic": "x-mac-cyrillic",
    "cp866": "ibm866",
}  # fmt: skip


class Decoded(NamedTuple):
    text: str
    problem: str = ""
    """What was claimed wrongly or could not be read, as a clause; empty if all was well."""


def decode(body: bytes, declared: str | None = None) -> Decoded:
    """The body as text. Never raises; bytes without a meaning become U+FFFD."""
    for mark, codec in _BOMS:
        if body.startswith(mark):
            return _read(body[len(mark) :], codec)
    claims = [name for name in (_name(declared), _own_word(body)) if name]
    unknown = next((name for name in claims if name not in _CODECS), None)
    known = list(dict.fromkeys(_CODECS[name] for name in claims if name in _CODECS))
    if known in ([], ["utf-8"]) and (codec := _utf16(body)):
        return _read(body, codec, "is UTF-16 without declaring it")
    problem = f"declares an unknown charset, {unknown!r}" if unknown and not known else ""
    single = bool(known) and known[0] in _SINGLE_BYTE.values()
    for codec in dict.fromkeys(["utf-8", *known] if single else [*known, "utf-8"]):
        try:
            text = body.decode(codec)
        except UnicodeError:
            continue
        if known and codec != known[0] and not (single and body.isascii()):
            problem = f"declares {_shown(known[0])} but is {_shown(codec)}"
        return Decoded(text, problem)
    if known:
        return _read(body, known[0], problem)
    if _is_damaged_utf8(body):
        return _read(body, "utf-8", problem)
    return _read(body, "cp1252", problem or "declares no charset; read as windows-1252")


def _read(body: bytes, codec: str, problem: str = "") -> Decoded:
    try:
        return Decoded(body.decode(codec), problem)
    except UnicodeError:
        text = body.decode(codec, "replace")
    damage = f"has bytes that are not valid {_shown(codec)}"
    return Decoded(text, f"{problem}, and {damage}" if problem else damage)


def _name(text: str | None) -> str:
    return (text or "").strip(" \t\r\n\"'").lower()[:LONGEST_NAME]


def _own_word(body: bytes) -> str:
    head = _COMMENT.sub(b"", body[:SEARCHED])
    found = _XML.match(head) or _META.search(head)
    name = found[1].decode("ascii").lower() if found else ""
    return "utf-8" if name.startswith("utf-16") else name  # it could be read, so it is not UTF-16


def _is_damaged_utf8(body: bytes) -> bool:
    """Whether it is UTF-8 but for a few bytes, or cut in the middle of a character."""
    text = body.decode("utf-8", "replace")
    damaged = text.count("\ufffd")
    whole = len(text) - len(text.encode("ascii", "ignore")) - damaged
    return 10 * damaged <= whole or (damaged == 1 and text.endswith("\ufffd"))


def _utf16(body: bytes) -> str:
    head = body[:SEARCHED]
    return "utf-16-le" if _UTF16_LE.search(head) else "utf-16-be" if _UTF16_BE.search(head) else ""


def _shown(codec: str) -> str:
    """As the web calls it: utf-8, windows-1251, shift_jis, ..."""
    if codec.startswith("cp125") or codec == "cp874":
        return f"windows-{codec[2:]}"
    return _SHOWN.get(codec) or (codec.replace("iso8859", "iso-8859") if codec.startswith("iso8859") else codec)
