"""ShareGPT conversations that no head is ever trained on: one in twenty, chosen by a hash of the conversation's name.

The published file cuts long conversations into records `<name>_<first turn>`; all parts of one conversation fall on the
same side.
"""

from __future__ import annotations

import hashlib

from specbench.workloads.assets.resolve import ResolvedAsset, resolve
from specbench.workloads.base import Tokenizer, Workload, WorkloadRequest
from specbench.workloads.sharegpt import sample
from specbench.workloads.sharegpt_file import Exchange, first_exchanges

ONE_IN = 20


def is_held_out(record_id: str) -> bool:
    """Whether the record of this id is for evaluation only."""
    name = record_id.partition("_")[0]
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") % ONE_IN == 0


def text_key(text: str) -> str:
    """A hash of a text that ignores case and white space, to find texts that two data sets share."""
    return hashlib.sha256(" ".join(text.lower().split()).encode()).hexdigest()


def exchanges(asset: ResolvedAsset) -> list[Exchange]:
    """The first exchange of each conversation that is for evaluation only, in file order."""
    return [e for e in first_exchanges(asset.path, asset.sha256) if is_held_out(e.id.partition(":")[2])]


def load(request: WorkloadRequest, tokenizer: Tokenizer) -> Workload:
    """As the workload `sharegpt`, over the held-out conversations only."""
    asset = resolve(request.path or "sharegpt")
    subset = f"held out (sha256 of the conversation's name, modulo {ONE_IN}, is 0); "
    return sample(asset, exchanges(asset), request, tokenizer, subset)
