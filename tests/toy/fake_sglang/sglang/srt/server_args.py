"""The options of SGLang 0.5.16 by name (server_args_0_5_16.txt); all others are refused, as there."""

from __future__ import annotations

from dataclasses import field, make_dataclass
from pathlib import Path
from typing import Any

_DEFAULTS = {"device": "cpu", "attention_backend": "triton", "disable_radix_cache": False, "stream_interval": 1}
NAMES = Path(__file__).with_name("server_args_0_5_16.txt").read_text().split()
ServerArgs = make_dataclass("ServerArgs", [(name, Any, field(default=_DEFAULTS.get(name))) for name in NAMES])
ServerArgs.__module__ = __name__  # where its copies in other processes look for it
