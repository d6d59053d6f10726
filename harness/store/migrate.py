"""Converts records of the previous schema to the current one. Nothing on disk is changed.

Stored results are dropped: they are derived from the tables again.
"""

from __future__ import annotations

from specbench.harness.store.files import Json

OLD_RUN_SCHEMA, OLD_SWEEP_SCHEMA = "specbench.run/1", "specbench.sweep/1"
_SAME = "run_id label status argv command started_utc ended_utc git sampling forwards profile imported resumes".split()
_NESTED = {"name": "dataset_name", "path": "dataset_path"}
_Table = dict[str, Json]


def migrated_run(old: _Table, schema: str) -> _Table:
    """The `run.json` of OLD_RUN_SCHEMA as one of `schema`."""
    new: _Table = {name: old[name] for name in _SAME if old.get(name) is not None}
    new |= {"schema": schema, **_inputs(old)}
    if "arms" in old:
        new["arms"] = [_arm(arm) for arm in _tables(old["arms"])]
    new["purpose"] = {
        "ablation": old.get("factors"),
        "acceptance": old.get("acceptance") or "",
        **{name: old.get(name) for name in ("recipe", "sweep", "evaluation", "certify_graphs")},
    }
    new["ab"] = _experiment(_table(old["ab"])) if "ab" in old else None
    new["files"] = {name: _table(file).get("sha256") for name, file in _table(old.get("files")).items()}
    return new


def with_imported_arms(record: _Table) -> _Table:
    """Moves `imported` into the arm: earlier imports had one file, recorded next to the arms."""
    told = _table(record.get("imported"))
    if not told:
        return record
    file: _Table = {name: told[name] for name in ("source", "file", "sha256") if name in told}
    return {**record, "arms": [{**arm, "imported": file} for arm in _tables(record.get("arms"))]}


def with_later_options(record: _Table) -> _Table:
    """Says that earlier runs had no limit for prompts beside decodes; without the field it would be today's default."""
    config = _table(record.get("config"))
    if not config or "mixed_chunk_size" in config or "max_num_batched_tokens" not in config:
        return record
    return {**record, "config": {**config, "mixed_chunk_size": config["max_num_batched_tokens"]}}


def migrated_sweep(old: _Table, schema: str) -> _Table:
    """The `sweep.json` of OLD_SWEEP_SCHEMA as one of `schema`."""
    return {**old, "schema": schema, "config": _config(_table(old.get("config"))), "purpose": old.get("record") or {}}


def _inputs(old: _Table) -> _Table:
    """The fields that a run and a side of an experiment have in common."""
    model = old.get("model")
    return {
        "config": _config(_table(old.get("config"))),
        "environment": _table(old.get("environment")),
        "model": {"name": model} if isinstance(model, str) else model,
        "workload": _table(old.get("workload")) or None,
    }


def _config(old: _Table) -> _Table | None:
    """None for a run of another program, and for an experiment before its first block."""
    if "arms" not in old:
        return None
    new = {name: value for name, value in old.items() if name not in ("measured_by", "workload")}
    # The workload was a table of its own, and infinity was stored as null.
    workload = _table(old.get("workload"))  # its vocab_size now belongs to the model
    new |= {_NESTED.get(name, name): value for name, value in workload.items() if name != "vocab_size"}
    return {**new, "request_rate": "inf" if old.get("request_rate") is None else old["request_rate"]}


def _arm(old: _Table) -> _Table:
    config = _table(old.get("config"))
    return {**old, "config": config, "warmup": config.get("warmup")}


def _experiment(old: _Table) -> _Table:
    sides: _Table = {}
    for label, told in _table(old.get("first_manifests")).items():
        side = _table(told)
        sides[label] = {**side, **_inputs(side)}
    return {**{name: value for name, value in old.items() if name != "first_manifests"}, "sides": sides}


def _table(value: Json) -> _Table:
    return value if isinstance(value, dict) else {}


def _tables(value: Json) -> list[_Table]:
    return [_table(item) for item in value] if isinstance(value, list) else []
