"""Columns of the raw tables of a run, with units and meaning; everything reported is derived from these.

Times are nanoseconds of one process' monotonic clock: differences are meaningful inside one block (one arm, one
repeat) and never across blocks. A request without any output token has 0 in its token times. A column that depends on a
`Fact` is null in the rows of an engine that does not know it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pandas as pd
import pyarrow as pa

from specbench.harness.store.arm_record import ArmRecord, Fact
from specbench.harness.store.block_records import BlockRecord
from specbench.harness.store.journal import PartialBlock
from specbench.harness.store.rows import Row

FAILED_ARM_REQUEST_ID = -1
"""`request_id` of the single row that represents a block that failed as a whole."""

FINISH_REASONS = ("stop", "length", "abort", "error")
STEP_KINDS = ("decode", "mixed")
TEXT_PARTS = ("prompt", "output")

Value = bool | int | float | str | Sequence[int] | Sequence[float] | None
Rows = Sequence[Row] | Sequence[Mapping[str, Value]] | Mapping[str, Sequence[Value]]
"""Rows as an engine returned them, as a list of dicts, or one sequence per column."""


@dataclass(frozen=True, slots=True)
class Column:
    """`default`: for rows that omit the column; None: it is required. `same_as`: the column whose value such rows
    repeat. `fact`: what an engine must know to fill it; otherwise null. `is_newer`: files of earlier versions lack
    it."""

    name: str
    type: pa.DataType
    doc: str
    default: bool | int | str | None = None
    same_as: str = ""
    allowed: tuple[str, ...] | None = None
    fact: Fact | None = None
    is_newer: bool = False


_BLOCK = (
    Column("arm", pa.string(), "label of the arm"),
    Column("repeat", pa.int32(), "which repeat of the arm, from 0"),
)

REQUEST_COLUMNS = (
    *_BLOCK,
    Column("request_id", pa.int64(), "unique within arm and repeat; -1 marks a block that failed as a whole"),
    Column("prompt_id", pa.string(), "the workload's id of the prompt: pairs requests across arms"),
    Column("num_prompt_tokens", pa.int32(), "prompt length in tokens"),
    Column("num_output_tokens", pa.int32(), "tokens kept, the first token and a stop token included"),
    Column("finish_reason", pa.string(), "stop, length, abort or error", allowed=FINISH_REASONS),
    Column("error", pa.string(), "message of the error, else empty", default=""),
    Column("t_submit_ns", pa.int64(), "host clock when received; with --request-rate, when due and a slot was free"),
    Column("t_first_ns", pa.int64(), "host clock when the first token was visible to the host"),
    Column("t_last_ns", pa.int64(), "host clock when the last token was visible to the host"),
    Column(
        "t_first_device_ns",
        pa.int64(),
        "completion on the device of the first token, on the host's time line",
        fact=Fact.DEVICE_TIMES,
    ),
    Column(
        "t_last_device_ns",
        pa.int64(),
        "completion on the device of the last token, on the host's time line",
        fact=Fact.DEVICE_TIMES,
    ),
    Column("output_token_ids", pa.list_(pa.int32()), "the kept tokens", fact=Fact.TOKEN_IDS),
    Column("output_sha256", pa.string(), "hash of the kept tokens, of the text without them", fact=Fact.TOKEN_IDS),
    Column(
        "output_text",
        pa.string(),
        "the text, of engines that do not report token ids",
        fact=Fact.TOKEN_IDS,
        is_newer=True,
    ),
    Column(
        "num_preemptions",
        pa.int32(),
        "how often the request lost its KV pages and was recomputed",
        default=0,
        fact=Fact.PREEMPTIONS,
    ),
)

_step, _draft = partial(Column, fact=Fact.ROUNDS), partial(Column, fact=Fact.ACCEPTANCE)
STEP_COLUMNS = (
    *_BLOCK,
    Column("step", pa.int64(), "number of the engine step; all rows of a step share its times and sizes"),
    Column("request_id", pa.int64(), "the request this row is about"),
    Column("kind", pa.string(), "decode: uniform round; mixed: holds prefill chunks", allowed=STEP_KINDS),
    Column("is_prefill", pa.bool_(), "this request was in prefill in this step"),
    _step("t_start_ns", pa.int64(), "host clock at the launch of the step"),
    _step("t_host_ns", pa.int64(), "host clock when the host saw the step's result"),
    Column(
        "t_device_ns",
        pa.int64(),
        "completion on the device, on the host's time line; the host's own on CPU",
        fact=Fact.DEVICE_TIMES,
    ),
    _step("batch_size", pa.int32(), "requests in the step"),
    _step("num_rows", pa.int32(), "rows of the target forward, padding excluded"),
    _step("num_padded_rows", pa.int32(), "rows of the target forward, padding included", same_as="num_rows"),
    _step("num_draft_rows", pa.int32(), "rows of the step's first drafter pass; 0 where there is none", default=0),
    _draft("num_proposed", pa.int32(), "drafts offered to verification for this request (tree: nodes without root)"),
    _draft("draft_depth", pa.int32(), "longest draft path offered; for a chain all drafts", same_as="num_proposed"),
    _draft("num_accepted", pa.int32(), "drafts accepted, before truncation at a stop token or limit"),
    Column("num_emitted", pa.int32(), "tokens kept for this request from this step"),
    _draft("truncated", pa.bool_(), "fewer tokens kept than accepted + 1"),
    Column(
        "graph",
        pa.string(),
        "how the target forward ran: none, piecewise, full or one",
        default="none",
        fact=Fact.GRAPHS,
    ),
    Column("num_syncs", pa.int32(), "blocking host synchronisations of the whole step", default=0, fact=Fact.SYNCS),
    Column("syncs", pa.string(), "their names in order, separated by commas", default="", fact=Fact.SYNCS),
)

PHASE_COLUMNS = (
    *_BLOCK,
    Column("step", pa.int64(), "the engine step"),
    Column("phase", pa.string(), "verify, accept, draft_first, draft_next, advance, gap, ..."),
    Column("duration_ns", pa.int64(), "duration of this occurrence; occurrences in one step add up"),
    Column("instrumented", pa.bool_(), "measured in a separately instrumented capture: shares, never speed"),
    Column("source", pa.string(), "host_clock, cuda_event or external_event"),
)

COUNTER_COLUMNS = (
    *_BLOCK,
    Column("name", pa.string(), "what was counted, by whom: engine.spec_decode_num_drafts, client.delay_p99_ns, ..."),
    Column("value", pa.float64(), "over the whole block"),
)

LOGPROB_COLUMNS = (
    *_BLOCK,
    Column("request_id", pa.int64(), "the request"),
    Column("part", pa.string(), "prompt (from its second token on) or output", allowed=TEXT_PARTS),
    Column("token_logprobs", pa.list_(pa.float32()), "of each token, from the target's unmodified logits"),
    Column("top_token_ids", pa.list_(pa.int32()), "likeliest tokens, likeliest first, as many for each token in turn"),
    Column("top_logprobs", pa.list_(pa.float32()), "theirs"),
)

TABLES: dict[str, tuple[Column, ...]] = {
    "requests": REQUEST_COLUMNS,
    "steps": STEP_COLUMNS,
    "phases": PHASE_COLUMNS,
    "counters": COUNTER_COLUMNS,
    "logprobs": LOGPROB_COLUMNS,
}


def arrow_schema(table: str) -> pa.Schema:
    """The pyarrow schema of one of the tables, each field with its meaning as metadata."""
    return pa.schema([pa.field(c.name, c.type, metadata={"doc": c.doc}) for c in TABLES[table]])


def hash_token_ids(token_ids: Value) -> str:
    """sha256 (hex) over the ids as little-endian int32."""
    return hashlib.sha256(np.asarray(token_ids, dtype="<i4").tobytes()).hexdigest()


def _hash_output(token_ids: Value, text: Value) -> str | None:
    if token_ids is not None:
        return hash_token_ids(token_ids)
    return None if text is None else f"text:{hashlib.sha256(str(text).encode()).hexdigest()}"


def build_table(table: str, arm: str, repeat: int, rows: Rows) -> pa.Table:
    """Rows of one block as an arrow table, with defaults filled in.

    Raises ValueError naming the table and column for an unknown or missing column, a null where none is allowed, a
    block that differs from `arm` and `repeat`, or a word that is not allowed.
    """
    given = _as_columns(table, rows)
    columns = {c.name: c for c in TABLES[table]}
    unknown = sorted(set(given) - set(columns))
    if unknown:
        raise ValueError(f"{table}: unknown columns {unknown}; allowed: {list(columns)}")
    lengths = {name: len(values) for name, values in given.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"{table}: columns of unequal length: {lengths}")
    num_rows = next(iter(lengths.values()), 0)
    if num_rows == 0:
        return arrow_schema(table).empty_table()
    for name, value in (("arm", arm), ("repeat", repeat)):
        if any(v != value for v in given.get(name, ())):
            raise ValueError(f"{table}.{name}: rows of another block than {name}={value!r}")
        given[name] = [value] * num_rows
    if table == "requests" and "output_sha256" not in given:
        outputs = (given.get(name, [None] * num_rows) for name in ("output_token_ids", "output_text"))
        given["output_sha256"] = [_hash_output(ids, text) for ids, text in zip(*outputs, strict=True)]
    arrays = [_array(table, c, _values(table, c, given, num_rows)) for c in columns.values()]
    return pa.Table.from_arrays(arrays, schema=arrow_schema(table))


def _as_columns(table: str, rows: Rows) -> dict[str, Sequence[Value]]:
    if isinstance(rows, Mapping):
        return dict(rows)
    plain = [row._asdict() if isinstance(row, tuple) else row for row in rows]
    names = list(plain[0]) if plain else []
    if any(row.keys() != plain[0].keys() for row in plain):
        raise ValueError(f"{table}: every row must give the same columns; the first gives {names}")
    return {name: [row[name] for row in plain] for name in names}


def _values(table: str, column: Column, given: Mapping[str, Sequence[Value]], num_rows: int) -> Sequence[Value]:
    if column.name in given:
        return given[column.name]
    if column.same_as in given:
        return given[column.same_as]
    if column.default is None and column.fact is None:
        raise ValueError(f"{table}.{column.name}: missing ({column.doc})")
    return [column.default] * num_rows


def _array(table: str, column: Column, values: Sequence[Value]) -> pa.Array:
    name = f"{table}.{column.name}"
    try:
        array = pa.array(values, type=column.type, from_pandas=True)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
        raise ValueError(f"{name}: not {column.type}: {error}") from error
    if array.null_count and column.fact is None:
        raise ValueError(f"{name}: {array.null_count} values are missing ({column.doc})")
    wrong = sorted(set(array.unique().to_pylist()) - set(column.allowed)) if column.allowed else []
    if wrong:
        raise ValueError(f"{name}: {wrong} not allowed; allowed: {list(column.allowed or ())}")
    return array


@dataclass(frozen=True, kw_only=True, slots=True)
class Frames:
    """The raw tables of a run as pandas frames, its arms from the record, what remains of blocks that did not end (not
    in the tables), and what was observed of the machine around each block. `temperature`: of all tokens; None:
    unknown. `categories`: of the prompts that have one, by prompt id."""

    requests: pd.DataFrame
    steps: pd.DataFrame
    phases: pd.DataFrame
    counters: pd.DataFrame = field(default_factory=lambda: arrow_schema("counters").empty_table().to_pandas())
    logprobs: pd.DataFrame = field(default_factory=lambda: arrow_schema("logprobs").empty_table().to_pandas())
    arms: tuple[ArmRecord, ...] = ()
    partial: tuple[PartialBlock, ...] = ()
    seen: Mapping[tuple[str, int], BlockRecord] = field(default_factory=dict)
    temperature: float | None = None
    categories: Mapping[str, str] = field(default_factory=dict)
