"""One address that deals requests to several servers, and a load that several processes send."""

from __future__ import annotations

import os
import signal
from contextlib import suppress

import psutil
import pytest

from specbench.harness.engines.openai.clients import Work
from specbench.harness.engines.openai.endpoint import Endpoint
from specbench.harness.engines.warmup import WarmUp

from .conftest import Kept, deployment_of, load_of


def clients() -> list[psutil.Process]:
    alive = [each for each in psutil.Process().children() if each.status() != psutil.STATUS_ZOMBIE]
    return [each for each in alive if "specbench.harness.engines.openai.clients" in each.cmdline()]


def test_shares_are_dealt_in_turn():
    whole = Work(
        endpoint=Endpoint("http://h/v1"), url="", max_concurrency=5, keeps=True,
        bodies=[bytes([n]) for n in range(7)], arrival_s=[float(n) for n in range(7)],
    )  # fmt: skip
    shares = whole.dealt(3)
    assert [share.max_concurrency for share in shares] == [2, 2, 1]
    assert [[body[0] for body in share.bodies] for share in shares] == [[0, 3, 6], [1, 4], [2, 5]]
    assert [list(share.arrival_s) for share in shares] == [[0, 3, 6], [1, 4], [2, 5]]


def test_two_clients_send_what_one_does(serve):
    # A block that is long for a pacer that waits for a busy core.
    server = serve(kind="vllm", sizes=(3, 1), speculates=True, details="detailed", delay_s=0.03)
    alone, both = Kept(), Kept()
    deployment = deployment_of(server, concurrency=4)
    deployment.measure(load_of(8, max_tokens=9, concurrency=4), alone)
    deployment.num_clients = 2
    deployment.measure(load_of(8, max_tokens=9, concurrency=4), both)
    assert deployment.described.config == {"client_processes": "2"}
    rows = [
        sorted((r.request_id, r.prompt_id, r.num_output_tokens, r.finish_reason, r.error) for r in sink.requests)
        for sink in (alone, both)
    ]
    assert rows[0] == rows[1] and len(rows[1]) == 8
    first_ns = [row.t_submit_ns for row in both.requests]
    assert min(first_ns) > max(row.t_last_ns for row in alone.requests), "one clock"
    assert server.most_in_flight <= 4
    for name in ("engine.spec_decode_num_drafts", "engine.answers_num_accepted_tokens"):
        assert both.counters[name] == alone.counters[name] > 0
    assert both.counters["client.delay_p99_ns"] > 0 and not clients()
    salts = [one["cache_salt"] for one in server.asked]
    assert len(set(salts)) == len(salts) == 16


def test_a_load_that_is_cut_short_ends_all_clients(serve):
    deployment = deployment_of(serve(kind="vllm", delay_s=0.01), concurrency=4)
    deployment.num_clients = 2
    sink = Kept(most=2)
    deployment.measure(load_of(400, max_tokens=8, concurrency=4), sink)
    assert 2 <= len(sink.requests) < 400 and not clients()


def test_a_client_that_is_killed_ends_the_block_and_what_had_ended_is_kept(serve):
    deployment = deployment_of(serve(kind="vllm", delay_s=0.01), concurrency=4)
    deployment.num_clients = 2

    class Killer(Kept):
        def request(self, row) -> None:
            super().request(row)
            if len(self.requests) == 1:
                os.kill(clients()[0].pid, signal.SIGKILL)

    sink = Killer()
    with pytest.raises(RuntimeError, match="a client process ended with status -9"):
        deployment.measure(load_of(400, max_tokens=8, concurrency=4), sink)
    assert sink.requests and not clients()


@pytest.mark.parametrize("num_clients", [1, 2])
def test_ctrl_c_is_not_for_helpers(serve, num_clients):
    """A terminal sends it to the whole process group; each client and each pacer printed a traceback."""
    deployment = deployment_of(serve(kind="vllm", delay_s=0.01), concurrency=4)
    deployment.num_clients = num_clients
    groups: set[int] = set()
    before = set(psutil.Process().children(recursive=True))  # of other tests: a warm process stays until the end

    class Looking(Kept):
        def request(self, row) -> None:
            super().request(row)
            for each in set(psutil.Process().children(recursive=True)) - before:
                with suppress(ProcessLookupError):  # a client has ended since
                    groups.add(os.getpgid(each.pid))

    deployment.measure(load_of(4, concurrency=4), Looking())
    assert groups and os.getpgid(0) not in groups


def test_replicas_behind_one_address(cli, prompts, runs, only_run, serve):
    """Their counters are added up; each empties its own caches; the run says how many there were."""
    replicas = [serve(kind="vllm", sizes=(3, 1), speculates=True) for _ in range(2)]
    front = serve(kind="plain", deals_to=replicas)
    arm = f"eagle:url={front.url},k=3,engine.replicas={'+'.join(each.url for each in replicas)}"
    words = f"run --engine openai --dataset-name jsonl --dataset-path {prompts} --num-prompts 6 --max-model-len 200"
    result = cli(
        *words.split(), "-s", arm, *"--num-repeats 1 --warmup-max-s 0.05 --max-concurrency 4 --num-clients 2".split(),
        "--output-dir", runs,
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    run = only_run()
    (stored,) = run.record.arms
    assert stored.engine.config == {"replicas": "2", "client_processes": "2"} and stored.engine.version == "0.32.0"
    counters = run.frames().counters.set_index("name")["value"]
    # 6 answers of 8 tokens: rounds of 3, 1, 3 behind the first token, three drafts each.
    assert counters["engine.spec_decode_num_drafts"] == 6 * 3
    assert counters["engine.spec_decode_num_accepted_tokens"] == 6 * 4
    assert all(each.num_rounds and "/reset_prefix_cache" in each.paths for each in replicas)
    assert "/metrics" not in front.paths and "/reset_prefix_cache" not in front.paths


def test_a_replica_that_does_not_tell_leaves_no_counters(serve, monkeypatch):
    server = serve(kind="vllm", speculates=True)
    deployment = deployment_of(server)
    deployment.warm_up(load_of(), WarmUp(window_s=0.001, max_s=0.05))
    monkeypatch.setattr(type(deployment.server), "counted", (Endpoint(server.url), Endpoint("http://127.0.0.1:9/v1")))
    sink = Kept()
    deployment.measure(load_of(), sink)
    assert sink.requests and "engine.spec_decode_num_drafts" not in sink.counters


def test_replicas_that_differ_are_refused(cli, prompts, runs, serve):
    drafting, plain = serve(kind="vllm", speculates=True), serve(kind="vllm")
    arm = f"as-served:url={plain.url},engine.replicas={plain.url}+{drafting.url}"
    result = cli("run", "--engine", "openai", "-s", arm, "--dataset-name", "jsonl", "--dataset-path", prompts)
    assert result.exit_code == 2 and len(result.stderr.strip().splitlines()) <= 2
    assert f"engine.replicas: {drafting.url} is vLLM 0.32.0, served, drafts by some method" in result.stderr
    assert "no drafts; replicas must be alike" in result.stderr and not runs.exists()


@pytest.mark.parametrize(
    ("replicas", "said"),
    [
        ("two", "engine.replicas: 'two' is not allowed; allowed: http://HOST:PORT/v1"),
        ("http://127.0.0.1:2+", "engine.replicas: '' is not allowed; allowed: http://HOST:PORT/v1"),
        ("http://127.0.0.1:2+http://127.0.0.1:2/v1", "names a replica twice"),
    ],
)
def test_replicas_that_cannot_be(cli, runs, replicas, said):
    arm = f"as-served:url=http://127.0.0.1:1,engine.replicas={replicas}"
    result = cli("run", "--engine", "openai", "-s", arm, "--model", "m", "--output-dir", runs)
    assert result.exit_code == 2 and said in result.stderr.splitlines()[-1], result.stderr
    assert not runs.exists()
