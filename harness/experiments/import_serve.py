"""Results of `vllm bench serve --save-result --save-detailed` as a run directory of ours.

Read from vllm/benchmarks/serve.py: `input_lens`, `output_lens`, `ttfts`, `itls` (seconds between streamed chunks),
`errors`, `generated_texts`; newer ones also `start_times` (client clock, s) and `latencies`. TTFT, TPOT =
(e2e - ttft) / (n_out - 1), burst ITL and throughput follow from them under our definitions. Rounds, their times,
synchronisations and acceptance by request are not in such a file; vLLM's own counters of acceptance are kept beside.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np

from specbench.harness.metrics.metrics import results
from specbench.harness.spec.arm import ArmSetup
from specbench.harness.store.arm_record import ArmRecord
from specbench.harness.store.codec import from_document
from specbench.harness.store.directories import utc
from specbench.harness.store.files import sha256_file
from specbench.harness.store.inputs_record import ModelRecord, SamplingRecord, WorkloadRecord
from specbench.harness.store.run_directory import RunDirectory
from specbench.harness.store.run_record import ImportRecord, RunRecord
from specbench.harness.text import is_number
from specbench.workloads.json_values import Json, JsonObject

SOURCE = "vllm"
_BY_REQUEST = ("input_lens", "output_lens", "ttfts", "itls")
_OPTIONAL = ("errors", "start_times", "latencies", "generated_texts")
_Seconds = Annotated[float, msgspec.Meta(ge=0, le=sys.float_info.max)]
_Count = Annotated[int, msgspec.Meta(ge=0)]
_SPEC = "spec_decode_"
_NS_PER_S = 1e9
_ABSENT = ("steps of the engine", "acceptance by request", "synchronisations", "output tokens", "hardware", "sampling")

Row = dict[str, str | int | list[int]]  # of a table of the run directory


class ServeFile(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of a result that are read; lists hold a value a request, times are in seconds."""

    duration: _Seconds
    completed: int
    input_lens: tuple[_Count, ...]
    output_lens: tuple[_Count, ...]
    ttfts: tuple[_Seconds, ...]
    itls: tuple[tuple[_Seconds, ...] | None, ...]
    errors: tuple[str | None, ...] | None = None
    start_times: tuple[_Seconds, ...] | None = None
    latencies: tuple[_Seconds, ...] | None = None
    generated_texts: tuple[str, ...] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ServeResult:
    """One result object, checked. `start_s` and `e2e_s`, a value a request, are measured or laid out."""

    raw: JsonObject
    file: ServeFile
    e2e_s: tuple[float, ...]
    start_s: tuple[float, ...]
    notes: tuple[str, ...]

    def error(self, number: int) -> str:
        """Of one request; empty where it succeeded."""
        return (self.file.errors[number] or "") if self.file.errors else ""


def read_results(path: Path) -> list[ServeResult]:
    """The results of a file: one object, or one a line as --append-result writes them. ValueError naming the file and
    the field for everything else."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: no text file: {error}") from error
    try:
        objects = [json.loads(text)]
    except json.JSONDecodeError as whole:
        lines = [line for line in text.splitlines() if line.strip()]
        try:
            objects = [json.loads(line) for line in lines]
        except json.JSONDecodeError:
            raise ValueError(f"{path}: no JSON: {whole}") from whole
        if not objects:
            raise ValueError(f"{path}: the file is empty") from whole
    return [
        _checked(raw, f"{path}" + (f", result {n + 1}" if len(objects) > 1 else "")) for n, raw in enumerate(objects)
    ]


def import_result(result: ServeResult, source: Path, output_dir: Path, argv: Sequence[str], label: str = "") -> Path:
    """Writes the run directory and returns its path; the arm is named after the file's own label or backend."""
    raw = result.raw
    arm = label or str(raw.get("label") or raw.get("backend") or SOURCE)
    notes = [f"imported: {SOURCE}", *result.notes, *_counters(raw)]
    directory = RunDirectory.create(output_dir, f"vllm-{arm}", _begun(result, source, arm, argv, notes))
    directory.append(arm, 0, requests=_requests(result), steps=_chunks(result))
    directory.finish(results(directory.frames()))
    return directory.path


def _checked(raw: Json, where: str) -> ServeResult:
    try:
        file = msgspec.convert(raw, ServeFile)
    except msgspec.ValidationError as error:
        raise ValueError(
            f"{where}: not a detailed result of `vllm bench serve`: {error}; make it with --save-result --save-detailed"
        ) from error
    assert isinstance(raw, Mapping)
    lengths = {name: len(getattr(file, name)) for name in _BY_REQUEST}
    lengths |= {name: len(values) for name in _OPTIONAL if (values := getattr(file, name))}
    if len(set(lengths.values())) != 1 or not file.ttfts:
        raise ValueError(f"{where}: requests do not match: {lengths}")
    streamed = tuple(t + sum(gaps or ()) for t, gaps in zip(file.ttfts, file.itls, strict=True))
    e2e = tuple(max(a, b) for a, b in zip(file.latencies or streamed, file.ttfts, strict=True))
    notes = [] if file.start_times else ["submit times laid out to fill the reported duration: no start_times"]
    notes += [] if file.latencies else ["end of a request: ttft + sum of itls, no latencies"]
    starts = file.start_times or _laid_out(e2e, file.duration)
    return ServeResult(raw=raw, file=file, e2e_s=e2e, start_s=starts, notes=tuple(notes))


def _laid_out(e2e_s: Sequence[float], duration_s: float) -> tuple[float, ...]:
    """Starts in order, evenly spread, so that the first request starts at 0 and the last to end does so at `duration`:
    throughput and every latency are then as they were, how requests overlapped is not."""
    slack = [max(duration_s - one, 0.0) for one in e2e_s]
    last = max(len(e2e_s) - 1, 1)
    starts = [n / last * free for n, free in enumerate(slack)]
    if len(starts) > 1:
        starts[-1] = slack[-1]
    return tuple(starts)


def _begun(result: ServeResult, source: Path, arm: str, argv: Sequence[str], notes: list[str]) -> RunRecord:
    raw = result.raw
    rate = raw.get("request_rate")
    sampling = {
        "max_concurrency": raw.get("max_concurrency"),
        "request_rate": None if rate in (None, "inf") else rate,
    }
    imported = {
        "source": SOURCE,
        "file": source.name,
        "sha256": sha256_file(source),
        "date": raw.get("date"),
        "absent": [*_ABSENT, *([] if result.file.generated_texts else ["generated texts"])],
        "reported": {k: v for k, v in raw.items() if not isinstance(v, (list, dict)) or k.startswith(_SPEC)},
    }
    return RunRecord(
        argv=tuple(argv),
        model=from_document(ModelRecord, {"name": raw.get("model_id")}, source.name),
        workload=WorkloadRecord(
            name="vllm bench serve",
            rule="as the client was told; prompts are not in its file",
            source=source.name,
            num_prompts=len(result.start_s),
        ),
        sampling=from_document(SamplingRecord, sampling, source.name),
        started_utc=_started(raw),
        arms=(ArmRecord(label=arm, strategy=SOURCE, config=ArmSetup(driven="HTTP"), notes=tuple(notes)),),
        imported=from_document(ImportRecord, imported, source.name),
    )


def _started(raw: JsonObject) -> str:
    """When the client began, by its own clock without a zone; empty (the time of the import) where it does not say."""
    try:
        return utc(datetime.strptime(str(raw.get("date")), "%Y%m%d-%H%M%S"))
    except ValueError:
        return ""


def _counters(raw: JsonObject) -> list[str]:
    """vLLM's own counters over the whole run, as they are: rates of a percentage, the length with the bonus token."""
    length, rate = raw.get(f"{_SPEC}acceptance_length"), raw.get(f"{_SPEC}acceptance_rate")
    if not is_number(length):
        return []
    said = f"vLLM's counters: acceptance length {length:.3f}"
    return [said + (f", rate {rate:.1f}%" if is_number(rate) else "")]


def _requests(result: ServeResult) -> list[Row]:
    origin = min(result.start_s)
    rows: list[Row] = []
    for n, start in enumerate(result.start_s):
        failed = bool(result.error(n)) or result.file.output_lens[n] == 0
        submit = round((start - origin) * _NS_PER_S)
        first = 0 if failed else submit + round(result.file.ttfts[n] * _NS_PER_S)
        last = 0 if failed else submit + round(result.e2e_s[n] * _NS_PER_S)
        text = (
            result.file.generated_texts[n]
            if result.file.generated_texts
            else f"not known: request {n} of {result.raw.get('date')}"
        )
        rows.append(
            {
                "request_id": n,
                "prompt_id": f"{SOURCE}-{n}",
                "num_prompt_tokens": result.file.input_lens[n],
                "num_output_tokens": 0 if failed else result.file.output_lens[n],
                "finish_reason": "error" if failed else "stop",
                "error": (result.error(n) or "no output") if failed else "",
                "t_submit_ns": submit,
                "t_first_ns": first,
                "t_last_ns": last,
                "t_first_device_ns": first,
                "t_last_device_ns": last,
                "output_token_ids": [],
                "output_sha256": hashlib.sha256(text.encode()).hexdigest(),
            }
        )
    return rows


def _chunks(result: ServeResult) -> list[Row]:
    """One row a streamed chunk, for ITL. They are not rounds of the engine: kind `mixed` keeps them out of decode
    figures, `is_prefill` out of acceptance. How many tokens a chunk held is not known; burst ITL needs their sum only,
    which the last chunk makes up. A request with more chunks than tokens has none, since its times are not tokens'."""
    origin = min(result.start_s)
    rows: list[Row] = []
    for n, gaps in enumerate(gaps or () for gaps in result.file.itls):
        num_tokens, num_chunks = result.file.output_lens[n], len(gaps) + 1
        if result.error(n) or num_tokens < num_chunks:
            continue
        begin = result.start_s[n] - origin
        seen = begin + result.file.ttfts[n] + np.concatenate([[0.0], np.cumsum(gaps)])
        for i, moment in enumerate(seen):
            now = round(float(moment) * _NS_PER_S)
            rows.append(
                {
                    "step": len(rows),
                    "request_id": n,
                    "kind": "mixed",
                    "is_prefill": True,
                    "t_start_ns": round(begin * _NS_PER_S) if i == 0 else rows[-1]["t_host_ns"],
                    "t_host_ns": now,
                    "t_device_ns": now,
                    "batch_size": 1,
                    "num_rows": 0,
                    "num_proposed": 0,
                    "num_accepted": 0,
                    "num_emitted": 1 if i < num_chunks - 1 else num_tokens - num_chunks + 1,
                    "truncated": False,
                }
            )
    return rows
