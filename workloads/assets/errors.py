"""The one error of everything that fetches: a ValueError whose text is a line a user can act on."""

from __future__ import annotations


class AssetError(ValueError):
    """An asset could not be had. The message says what was tried and what is allowed or what to do."""


class HashMismatch(AssetError):
    """Downloaded bytes are not the recorded ones."""
