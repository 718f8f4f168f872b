"""Servers to practise on, in real time and in virtual time, and what strategies make of them."""

from .plugging import plug, plug_shared

__all__ = ["plug", "plug_shared"]
