"""Runs whose servers are started for them, in one table with our own engine; and servers that fail on the way."""

from __future__ import annotations

import json
import os
import shlex
import site
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli.conftest import _wide_and_colourless, chat_model, cli, inline, only_run, runs  # noqa: F401
from engines.sglang.conftest import venv  # noqa: F401
from toy.checkpoints import eagle3_config
from toy.processes import eventually, marked

from specbench.harness.engines.process import managed, server
from specbench.harness.engines.process.server import Patience
from specbench.harness.engines.process.waiting import Waiting
from specbench.harness.engines.served.users_server import UsersArm
from specbench.harness.engines.sglang.engine import SglangEngine
from specbench.harness.engines.vllm.engine import VllmEngine
from specbench.harness.spec.arm import parse_arm
from specbench.harness.spec.conditions import Conditions
from specbench.harness.store.arm_record import Fact
from specbench.harness.store.block_records import read_records

TESTS = Path(__file__).parents[3]
FAKE = TESTS / "toy" / "fake_engine_server.py"
ENGINES = {"vllm": VllmEngine, "sglang": SglangEngine}


@pytest.fixture(autouse=True)
def no_process_is_left(tmp_path, monkeypatch) -> Iterator[None]:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(managed, "Patience", lambda startup_s: Patience(startup_s=startup_s, grace_s=0.3))
    yield
    assert eventually(lambda: marked(f"--mark {tmp_path}".replace(" ", "\0")) == [])


@pytest.fixture
def run(tmp_path, chat_model, runs) -> list[str]:  # noqa: F811
    """`run` and options; four prompts, one at a time."""
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text("".join(json.dumps({"prompt": f"hello {n}", "max_tokens": 6}) + "\n" for n in range(4)))
    words = f"--model {chat_model} --dtype float32 --dataset-name jsonl --dataset-path {prompts} --num-prompts 4"
    more = f"--num-repeats 1 --warmup-max-s 0.05 --max-model-len 64 --output-dir {runs}"
    return ["run", *words.split(), *more.split()]


def arm(
    kind: str, tmp_path: Path, strategy: str = "no-spec", more: str = "", engine: str = "llama.cpp"
) -> tuple[str, str]:
    command = f"{sys.executable} {FAKE} {kind} --as {engine} {more} --mark {tmp_path}"
    return "-s", f"{engine}/{strategy}:command={command}"


def test_a_server_of_the_users_command_beside_our_own_engine(cli, run, only_run, tmp_path):  # noqa: F811
    spec = arm("good", tmp_path, "ngram", more="--spec-type ngram-simple")
    result = cli(*run, "-s", "no-spec", *arm("good", tmp_path), *spec)
    assert result.exit_code == 0, result.output
    found = {arm.label: arm for arm in only_run().record.arms}
    assert [one.config.driven for one in found.values()][1:] == ["HTTP", "HTTP"]
    assert {one.engine.version for label, one in found.items() if "llama.cpp" in label} == {"b7000"}
    logs = sorted((only_run().path / "logs").iterdir())
    assert [log.name[:11] for log in logs] == ["2-llama.cpp", "3-llama.cpp"] and "--spec-type" in logs[1].read_text()


@pytest.fixture
def at_the_limit(monkeypatch) -> None:
    """No time passes until a server has written to its log; then its 4 s are over."""

    class AtOnce(Waiting):
        @property
        def elapsed_s(self) -> float:
            return 4.0 if "started as" in self._log.read_text() else 0.0

    monkeypatch.setattr(server, "Waiting", AtOnce)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("dies", "the server ended by SIGKILL: GGML_ASSERT failed: error in ggml (log: "),
        ("mute", "the server is not ready after 4 s"),
        ("exits", "the server ended with exit status 1 before it answered: error: unknown model architecture (log: "),
    ],
)
def test_a_server_that_fails_is_a_row_and_the_others_go_on(cli, run, only_run, tmp_path, kind, said, request):  # noqa: F811
    limit = []
    if kind == "mute":
        request.getfixturevalue("at_the_limit")
        limit = ["--engine-startup-timeout", "4", "--num-repeats", "2"]
    result = cli(*run, "-s", "no-spec", *arm(kind, tmp_path), *limit)
    assert result.exit_code == 1 and "Traceback" not in result.output, result.output
    errors = {one.label: one.error for one in only_run().record.arms}
    (failed,) = [text for label, text in errors.items() if "llama.cpp" in label]
    log = Path(failed.rpartition("(log: ")[2].removesuffix(")"))
    assert log == only_run().path / "logs" / log.name and "started as" in log.read_text()
    assert said in failed and "\n" not in failed and errors["no-spec"] == ""
    assert {label for label, _ in only_run().done_blocks()} == {"no-spec"}
    if kind == "mute":
        assert log.read_text().count("started as") == 1, "it is waited for once, whatever there is left to do"
    if kind == "dies":
        (partial,) = only_run().partial_blocks()
        assert len([row for row in partial.requests if not row.error]) == 2, "what had ended is kept"


def test_an_experiment_waits_once_for_a_side_never_ready(cli, run, only_run, inline, at_the_limit, tmp_path):  # noqa: F811
    words = [word for word in run[1:] if word not in ("--num-repeats", "1")]
    sides = ["-A", "no-spec", "-B", shlex.join(arm("mute", tmp_path)), "--engine-startup-timeout", "4"]
    assert cli("ab", *sides, *words, "--blocks", 2, "--no-verdict").exit_code == 4
    assert sorted(inline) == ["A", "A", "B"]
    failed = only_run().failed_blocks()
    assert set(failed) == {("B", 0), ("B", 1)} and all("is not ready after 4 s" in text for text in failed.values())


class GpuOfTwo:
    """Two processes compute on it."""

    def throttling(self) -> frozenset[str]:
        return frozenset()

    def is_power_capped(self) -> bool:
        return False

    def power_limit_w(self) -> float:
        return 700.0

    def num_processes(self) -> int:
        return 2


@pytest.mark.parametrize("where", ["in-process", "fresh"])
@pytest.mark.parametrize("whose", ["another engine", "our own"])
def test_engines_that_stay_up_are_not_foreign(cli, run, only_run, tmp_path, request, monkeypatch, where, whose):  # noqa: F811
    if where == "fresh":
        request.getfixturevalue("inline")
    monkeypatch.setattr("specbench.harness.experiments.ab.find_probe", lambda device, environ: (GpuOfTwo(), []))
    words = [word for word in run[1:] if word not in ("--num-repeats", "1")]
    side = shlex.join(arm("good", tmp_path)) if whose == "another engine" else "no-spec"
    more = ["--in-process"] if where == "in-process" else []
    cli("ab", "-A", "no-spec", "-B", side, *words, "--blocks", 2, "--no-verdict", *more)
    rejected = ("1 foreign processes on the GPU",) if whose == "our own" else ()
    reasons = {block.reasons for block in read_records(only_run().path).values()}
    assert {tuple(r for r in one if "GPU" in r) for one in reasons} == {rejected}


def test_answers_of_500_are_in_the_rows(cli, run, only_run, tmp_path):  # noqa: F811
    result = cli(*run, "-s", "no-spec", *arm("500", tmp_path))
    assert "500" in result.stdout + json.dumps(only_run().frames().requests["error"].tolist()), result.output


def test_a_server_that_does_not_do_what_the_arm_says_is_refused(cli, run, tmp_path):  # noqa: F811
    result = cli(*run, *arm("good", tmp_path, "ngram"))
    assert result.exit_code == 2 and "it does not speculate; label it no-spec" in result.output


def test_a_server_that_ignores_sigterm_is_gone_too(cli, run, tmp_path):  # noqa: F811
    assert cli(*run, *arm("deaf", tmp_path)).exit_code == 0


def test_no_llama_server_is_one_line(cli, run, tmp_path):  # noqa: F811
    result = cli(*run, "-s", f"llama.cpp/no-spec:python={tmp_path}")
    assert result.exit_code == 2 and "has no llama-server; `make engines ENGINE=llama.cpp` makes one" in result.output


def test_servers_of_vllm_and_sglang_by_the_users_command(cli, run, only_run, tmp_path):  # noqa: F811
    spec = arm("good", tmp_path, "eagle", "--speculative-algorithm EAGLE3", "sglang")
    result = cli(*run, *arm("good", tmp_path, engine="vllm"), *spec)
    assert result.exit_code == 0, result.output
    ours = {one.config.engine: one for one in only_run().record.arms}
    assert [ours[name].engine.version for name in ("vllm", "sglang")] == ["0.32.0", "0.5.23"]
    assert {one.config.driven for one in ours.values()} == {"HTTP"} and ours["sglang"].engine.backend == "fa3"
    assert "the user's command" in str(ours["vllm"].notes), ours["vllm"].notes


@pytest.mark.parametrize(("engine", "more"), [("vllm", "--speculative-config x"), ("sglang", "--spec-type x")])
def test_a_baseline_whose_server_speculates_is_refused(cli, run, tmp_path, engine, more):  # noqa: F811
    result = cli(*run, *arm("good", tmp_path, "no-spec", more, engine))
    assert result.exit_code == 2 and "it speculates" in result.output, result.output


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_beside_a_command_nobody_turns_switches(engine):
    def resolve(more: str, conditions: Conditions | None = None) -> UsersArm:
        return ENGINES[engine]().resolve(parse_arm(f"eagle:k=4,command=serve it{more}"), conditions or Conditions())

    found = resolve(",graph=auto")
    assert found.command.words[:2] == ("serve", "it") and found.setup().acceptance is None
    assert Fact.ROUNDS in found.capabilities.unknown
    for more in ("graph=none", "engine.block_size=32", "acceptance=synthetic:2", "url=http://a/v1"):
        key, _, value = more.partition("=")
        with pytest.raises(ValueError, match=f"{key}: '{value}' is not allowed"):
            resolve(f",{more}")
    with pytest.raises(ValueError, match="load_format: dummy is not allowed with a server's command"):
        resolve("", Conditions(load_format="dummy"))
    with pytest.raises(ValueError, match="engine_command: --port 0 is not allowed"):
        resolve(" --port 0")


def test_sglangs_own_server(cli, run, only_run, venv, tmp_path, monkeypatch):  # noqa: F811
    """engine.server=yes: the same arm as a server; its Python has what the stand-in needs."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([*site.getsitepackages(), str(TESTS)]))
    (tmp_path / "config.json").write_text(json.dumps(eagle3_config()))
    asked = f"sglang/eagle:k=2,head={tmp_path},python={venv},engine.server=yes,engine.log_level=warning"
    result = cli(*run, "-s", asked)
    assert result.exit_code == 0, result.output
    (one,) = only_run().record.arms
    assert (one.config.driven, one.config.num_drafts, one.engine.version) == ("HTTP", 2, "0.5.23")
    with pytest.raises(ValueError, match="engine.server: 'perhaps' is not allowed; allowed: yes, no"):
        SglangEngine().resolve(parse_arm(f"no-spec:python={venv},engine.server=perhaps"), Conditions())
    with pytest.raises(ValueError, match="engine.server: 'yes' is not allowed with --load-format dummy"):
        SglangEngine().resolve(parse_arm(f"no-spec:python={venv},engine.server=yes"), Conditions(load_format="dummy"))
