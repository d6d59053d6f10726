"""Redacted copies: no byte of them tells what was planted, and they say the same of the GPU."""

from __future__ import annotations

import gzip
import json
import os
import sqlite3
from contextlib import closing

import pytest
from profiling.synthetic import spec_trace, write_kineto, write_nsys
from profiling.test_nsys_trace import without_source

from specbench.harness.profiling.analysis import analyse_trace
from specbench.harness.profiling.chrome_json import ChromeTrace
from specbench.harness.profiling.redact import redact
from specbench.harness.profiling.rules import PhaseRules
from specbench.harness.store.masking import masked

RULES = PhaseRules.shipped()
PLANTED = [
    "hf_PlantedToken123",
    "node17.cluster.example",
    "alice",
    "printed by the program",
    "hunter2-in-argv",
    "GPU-1234",
]

SQL = """
INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES
  (1, 'DeviceEnvironment', 1, 'PATH=/usr/bin
HF_TOKEN=hf_PlantedToken123
USER=alice'), (1, 'Hostname', 2, 'node17.cluster.example');
INSERT INTO META_DATA_CAPTURE VALUES ('PROCESS_0:ENVIRONMENT_VARIABLE', 'HF_TOKEN="hf_PlantedToken123"'),
  ('PROCESS_0:ENVIRONMENT_VARIABLE', 'USER="alice"'), ('DEVICE_DISPLAY_NAME', 'node17.cluster.example'),
  ('PROCESS_0:ARGUMENT_4', '--output=/home/alice/out');
INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_OUTPUT_PATH', '/home/alice/node17.cluster.example.sqlite');
INSERT INTO StringIds VALUES (9001, 'printed by the program'), (9002, 'echo hf_PlantedToken123'),
  (9003, '/home/alice/lib/libcuda.so');
INSERT INTO ProcessStreams VALUES (1, 9003, 9001);
INSERT INTO DIAGNOSTIC_EVENT VALUES (1, 0, 0, 1, 'Daemon on node17.cluster.example started', NULL);
"""


def test_an_nsys_copy_holds_nothing_of_the_machine(tmp_path):
    path = write_nsys(tmp_path / "t.sqlite", spec_trace(), extra_sql=SQL)
    before, copy = path.read_bytes(), tmp_path / "copy.sqlite"
    redact(path, copy)
    data = copy.read_bytes()
    assert path.read_bytes() == before
    assert all(text.encode() in before for text in PLANTED)
    assert not [text for text in PLANTED if text.encode() in data]
    assert sorted(os.listdir(tmp_path)) == ["copy.sqlite", "t.sqlite"]


def test_the_copy_says_the_same_of_the_gpu_and_the_command(tmp_path):
    path = write_nsys(tmp_path / "t.sqlite", spec_trace(), extra_sql=SQL)
    redact(path, tmp_path / "copy.sqlite")
    original, copy = (analyse_trace(p, rules=RULES) for p in (path, tmp_path / "copy.sqlite"))
    assert without_source(copy) == without_source(original)
    assert copy.source.command == (
        "/usr/bin/python3",
        "-m",
        "specbench.harness",
        "--api-key",
        "[redacted]",
        "--output=/home/user/out",
    )
    assert copy.source.command == original.source.command
    assert (copy.source.devices, copy.source.tool) == (original.source.devices, original.source.tool)


# As nsys 2025.3 writes them: the environment is one string with NULs, and every process of the machine has a row.
REAL = """
INSERT INTO StringIds VALUES (9010, 'PATH=/usr/bin' || char(0) || 'HF_TOKEN=hf_PlantedToken123' || char(0)),
  (9011, 'alice: rsync to node17.cluster.example'), (9012, 'printed by the program');
CREATE TABLE PROCESSES (globalPid INTEGER, pid INTEGER, name TEXT);
INSERT INTO PROCESSES VALUES (1, 1, 'alice-shell');
CREATE TABLE ThreadNames (nameId INTEGER, priority INTEGER, globalTid INTEGER);
INSERT INTO ThreadNames VALUES (9011, 0, 1);
CREATE TABLE ANALYSIS_FILE (id INTEGER, filename TEXT, contentId INTEGER, globalPid INTEGER);
INSERT INTO ANALYSIS_FILE VALUES (0, '/tmp/alice/stdout.log', 9012, 1);
CREATE TABLE SOMETHING_NEWER (id INTEGER, text TEXT);
INSERT INTO SOMETHING_NEWER VALUES (0, 'alice');
INSERT INTO NVTX_EVENTS (start, end, eventType, text, globalTid, domainId) VALUES
  (1, 2, 59, 'hf_PlantedToken123', 1, 0);
"""


def test_the_environment_among_the_strings_and_the_machines_processes_go(tmp_path):
    path = write_nsys(tmp_path / "t.sqlite", spec_trace(), extra_sql=REAL)
    copy = tmp_path / "copy.sqlite"
    redact(path, copy)
    data = copy.read_bytes()
    planted = ("hf_PlantedToken123", "alice", "node17", "printed by", "HF_TOKEN", "PATH=")
    assert all(text.encode() in path.read_bytes() for text in planted)
    assert not [text for text in planted if text.encode() in data]
    original, redacted = (analyse_trace(p, rules=RULES) for p in (path, copy))
    assert without_source(redacted) == without_source(original)


def test_text_deleted_before_stays_out_of_the_copy(tmp_path):
    sql = SQL + "DELETE FROM META_DATA_CAPTURE WHERE name LIKE '%ENVIRONMENT%';"
    path = write_nsys(tmp_path / "t.sqlite", spec_trace(), extra_sql=sql)
    redact(path, tmp_path / "copy.sqlite")
    assert b"hf_PlantedToken123" not in (tmp_path / "copy.sqlite").read_bytes()


@pytest.mark.parametrize("name", ["copy.json", "copy.json.gz"])
def test_a_kineto_copy(tmp_path, name):
    header = {
        "hostname": "node17.cluster.example",
        "traceName": "/home/alice/node17.cluster.example_4242.pt.trace.json",
        "env": {"HF_TOKEN": "hf_PlantedToken123"},
    }
    path = write_kineto(tmp_path / "t.json", spec_trace(), header=header)
    raw = path.read_text().replace(
        '"args": {"name": "python3"}',
        '"args": {"name": "/home/alice/bin/python3 on node17.cluster.example", "hostname": "n"}',
    )
    path.write_text(raw)
    copy = tmp_path / name
    redact(path, copy)
    data = gzip.decompress(copy.read_bytes()) if name.endswith(".gz") else copy.read_bytes()
    assert not [text for text in PLANTED if text.encode() in data]
    assert set(json.loads(data)) == {"schemaVersion", "deviceProperties", "cupti_version", "traceEvents"}
    original, redacted = (analyse_trace(p, rules=RULES) for p in (path, copy))
    assert without_source(redacted) == without_source(original)
    times = [[e.get("ts") for e in ChromeTrace(p, "")] for p in (path, copy)]
    assert times[0] == times[1]  # to the last digit


def test_other_files_are_refused(tmp_path):
    path = tmp_path / "run.nsys-rep"
    path.write_bytes(b"report")
    with pytest.raises(ValueError, match="allowed: an nsys sqlite export"):
        redact(path, tmp_path / "copy")
    path.write_bytes(write_nsys(tmp_path / "t.sqlite", spec_trace()).read_bytes()[:9000])
    with pytest.raises(ValueError, match="redact: run.nsys-rep cannot be read"):
        redact(path, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


@pytest.mark.parametrize(
    ("argv", "shown"),
    [
        (("--hf-token", "abc", "--num-tokens", "5"), ("--hf-token", "[redacted]", "--num-tokens", "5")),
        (("--api_key=abc", "--max-tokens=7"), ("--api_key=[redacted]", "--max-tokens=7")),
        (("env", "OPENAI_API_KEY=abc", "python"), ("env", "OPENAI_API_KEY=[redacted]", "python")),
        (("--tokenizer", "/home/bob/model"), ("--tokenizer", "/home/user/model")),
        (("--stop-token-id", "5", "--api-key-env", "KEY"), ("--stop-token-id", "5", "--api-key-env", "KEY")),
        (("--model", "/x/user:SECRET@h"), ("--model", "/x/user:[redacted]@h")),
        (("--engine-command", "serve --api-key abc -p 1"), ("--engine-command", "serve --api-key [redacted] -p 1")),
        (("http://me:pw@host/v1",), ("http://me:[redacted]@host/v1",)),
        (("-A", "ref:main@{1} ngram"), ("-A", "ref:main@{1} ngram")),
        (("--password", "--verbose"), ("--password", "--verbose")),
        (("--strategy", "eagle:k=4,drafter=unpadded"), ("--strategy", "eagle:k=4,drafter=unpadded")),
    ],
)
def test_command_lines(argv, shown):
    assert masked(argv) == shown


def test_secrets_among_the_arguments_of_kineto_events_go(tmp_path):
    path = write_kineto(tmp_path / "t.json", spec_trace())
    raw = json.loads(path.read_text())
    secret = "hf_abcdefgh"
    private = {"HF_TOKEN": secret, "env": f"HF_TOKEN={secret}", "cmd": f"serve --api-key {secret} --port 1", "seq": 5}
    raw["traceEvents"].append({"ph": "X", "cat": "user_annotation", "name": "n", "ts": 1, "dur": 1, "args": private})
    path.write_text(json.dumps(raw))
    redact(path, tmp_path / "copy.json")
    text = (tmp_path / "copy.json").read_text()
    assert secret not in text and "serve --api-key [redacted] --port 1" in text and '"seq": 5' in text


def test_triggers_of_a_hostile_export_do_not_run(tmp_path):
    path = write_nsys(tmp_path / "t.sqlite", spec_trace())
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(
            "CREATE TABLE SECRETS(value TEXT); INSERT INTO SECRETS VALUES ('hunter2');"
            "CREATE TABLE CUPTI_LEAK(value TEXT);"
            "CREATE TRIGGER leak BEFORE DELETE ON SECRETS BEGIN INSERT INTO CUPTI_LEAK VALUES (OLD.value); END;"
            "CREATE VIEW NVTX_SEEN AS SELECT value FROM SECRETS;"
        )
        connection.commit()
    redact(path, tmp_path / "copy.sqlite")
    assert b"hunter2" not in (tmp_path / "copy.sqlite").read_bytes()
