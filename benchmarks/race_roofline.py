"""Share of an H200's roofline in the cells of decode_race.py, and which limit it is.

    PYTHONPATH=.ns python3 benchmarks/race_roofline.py benchmarks/results/decode-race-h200.json ...

The median TPS divided by that of a round's ideal time (harness/roofline: weights and KV read once a pass at 4,570 GB/s,
matrix products at 789 TFLOP/s, attention at 688; sampling and starting kernels cost nothing). KV: of the prompt and
half of the output. Drafts are a chain, whose first pass has K + 1 rows a request. On several GPUs (SHAPE@N) only cells
without drafts, of one rank and its sums. The limit is what most of the ideal time goes into: W reading weights, KV
reading the KV cache, P matrix products.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

from peer_shapes import SHAPES as PEERS

from specbench.harness.engines.native.models.config import ModelConfig
from specbench.harness.engines.native.models.shapes import SHAPES
from specbench.harness.roofline.ideal import KV_CACHE, PRODUCTS, WEIGHTS, Round, round_parts_s
from specbench.harness.roofline.machines import STATED
from specbench.harness.roofline.shape import after_attention_params, eagle3_shape, model_shape
from specbench.harness.store.roofline_record import ForwardShape

H200 = replace(STATED[0], read_bytes_per_s=4.57e12, kernel_launch_s=0.0)  # kernels.md: as products read
NUM_FEATURES = 3  # hidden states of the target that EAGLE-3 takes
_BF16 = 2


MARKS = {WEIGHTS: "W", PRODUCTS: "P", KV_CACHE: "KV"}


@dataclass(frozen=True, slots=True)
class Ideal:
    """`tps` of all requests; `limit`: what most of the ideal time goes into."""

    tps: float
    limit: str


def ideal(row: dict) -> Ideal:
    """ValueError for drafts with tensor parallelism, whose head's passes are not known here."""
    name, _, num_ranks = row["shape"].removesuffix(":alone").partition("@")
    config, k, head = SHAPES[name].config, row["k"], None
    if k and num_ranks:
        raise ValueError(f"shape: {row['shape']!r} is not allowed with drafts; allowed: shapes on one GPU")
    if k:
        features = NUM_FEATURES * config.hidden_size
        head = eagle3_shape(config.with_layers(1), PEERS[name]["draft_vocab_size"], features, _BF16)
        head = replace(head, last_params=after_attention_params(config))
    one = Round.tree(row["batch"], row["num_prompt"] + row["num_output"] / 2, num_nodes=k + 1, depth=k, topk=1)
    parts: Counter[str] = Counter()
    for phase in round_parts_s(H200, _target(config, int(num_ranks or 1)), head, one, logit_bytes=0.0).values():
        parts.update(phase)
    tokens = row["batch"] * (row["acceptance_length"] or 1.0)
    return Ideal(tokens / sum(parts.values()), parts.most_common(1)[0][0])


def _target(config: ModelConfig, num_ranks: int) -> ForwardShape:
    """One rank's part, with a sum after o, down and the embedding."""
    shape = model_shape(config.split(num_ranks), _BF16)
    if num_ranks == 1:
        return shape
    return replace(
        shape,
        head_params=shape.head_params // num_ranks,
        num_ranks=num_ranks,
        num_sums=2 * config.num_layers + 1,
        sum_bytes=config.hidden_size * _BF16,
    )


def cell(row: dict) -> str:
    """Ours / vLLM's share, and the limit."""
    found = ideal(row)
    ours, theirs = (statistics.median(row[f"{side}_tps"]) / found.tps for side in ("ours", "vllm"))
    return f"{ours:.0%} / {theirs:.0%} {MARKS[found.limit]}"


def table(rows: list[dict]) -> str:
    """A line for each shape, prompt length and K; a column for each batch size."""
    batches = sorted({row["batch"] for row in rows})
    lines: dict[str, dict[int, str]] = {}
    for row in rows:
        prompt = f", {row['num_prompt']:,} prompt tokens" if row["num_prompt"] != 128 else ""
        lines.setdefault(f"{row['shape']}{prompt}, K={row['k']}", {})[row["batch"]] = cell(row)
    printed = [["ours / vLLM", *map(str, batches)], ["---", *["---:"] * len(batches)]]
    printed += [[name, *(cells.get(batch, "") for batch in batches)] for name, cells in lines.items()]
    return "\n".join("| " + " | ".join(line) + " |" for line in printed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("races", nargs="+", type=Path, help="files that decode_race.py wrote on an H200")
    files = parser.parse_args().races
    rows = [row for file in files for row in json.loads(file.read_text(encoding="utf-8"))]
    try:
        print(table(rows))
    except ValueError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
