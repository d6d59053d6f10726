"""The whole command on a toy target: responses through the engine, training, export, check, resumption."""

from __future__ import annotations

import json
import re
import shutil
import statistics
from dataclasses import dataclass, field, replace

import pandas as pd
import pytest
import torch
from safetensors.torch import load_file, save_file
from toy.checkpoints import llama_config, load_written, write_llama
from toy.engines import generate, make_engine, named_strategy, request, toy_target
from toy.plans import CPU
from typer.testing import CliRunner

from specbench.harness.cli.main import app
from specbench.harness.engines.native.models.eagle3_loader import load_eagle3
from specbench.harness.experiments import check_head as check_head_command
from specbench.harness.experiments.check_head import try_head
from specbench.harness.run.progress import NullProgress
from specbench.harness.spec.commands import CheckHeadOptions
from specbench.harness.training.check import check_files, check_head
from specbench.harness.training.config import TrainHeadOptions
from specbench.harness.training.engines import throughput_engine
from specbench.harness.training.evaluate import Outputs, acceptance_of, answers, evaluation_of, pooled
from specbench.harness.training.generate import GenerateStats
from specbench.harness.training.load import LoadedTarget
from specbench.harness.training.pipeline import check_out, continuing, train_head
from specbench.harness.training.shards import read_sequences
from specbench.harness.training.trainer import LogRow
from specbench.workloads.base import Prompt, Workload

from .made import EOS, CharTokenizer


@dataclass
class Quiet:
    """A watcher that remembers."""

    said: list[str] = field(default_factory=list)
    stats: list[GenerateStats] = field(default_factory=list)
    rows: list[LogRow] = field(default_factory=list)

    def say(self, text: str) -> None:
        self.said.append(text)

    def asset(self, name: str, done: int, total: int) -> None: ...

    def generated(self, stats: GenerateStats, num_samples: int) -> None:
        self.stats.append(replace(stats))

    def trained(self, row: LogRow) -> None:
        self.rows.append(row)


@pytest.fixture(scope="module")
def target(tmp_path_factory) -> LoadedTarget:
    folder = tmp_path_factory.mktemp("target")
    # Position hardly matters and the last token rules: a toy that a small head can follow.
    write_llama(folder, llama_config())
    described = {"name": "toy", "hub_name": "nobody/toy", "source": "made up", "sha256": "0" * 64}
    return LoadedTarget(
        model=load_written(folder),
        model_dir=folder,
        tokenizer=CharTokenizer(),
        stop_token_ids=(EOS,),
        described=described,
    )


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    chats = [
        {"id": f"c{i}_0", "conversations": [{"from": "human", "value": f"say {i}"}, {"from": "gpt", "value": "x"},
                                            {"from": "human", "value": f"and {i * 7}"}]}
        for i in range(30)
    ]  # fmt: skip
    (folder / "chats.jsonl").write_text("\n".join(map(json.dumps, chats)))
    questions = [{"question": f"what is {i}?", "answer": "#### 1"} for i in range(12)]
    (folder / "questions.jsonl").write_text("\n".join(map(json.dumps, questions)))
    (folder / "test.jsonl").write_text(json.dumps({"question": "What is  3?", "answer": "3"}))
    return folder


def options(data, out, **changes) -> TrainHeadOptions:
    return TrainHeadOptions(
        target="toy",
        data=(str(data / "chats.jsonl"), f"{data / 'questions.jsonl'}*3"),
        exclude=(str(data / "test.jsonl"),),
        max_prompt_tokens=90,
        max_response_tokens=24,
        samples_per_prompt=1,
        generate_batch=8,
        draft_vocab_size=96,
        unroll=3,
        lr=3e-3,
        warmup_steps=2,
        steps=12,
        batch_tokens=1024,
        max_sequence_tokens=128,
        log_every=4,
        out=out,
        **changes,
    )


@pytest.fixture(scope="module")
def head(target, data, tmp_path_factory):
    out = tmp_path_factory.mktemp("head") / "out"
    watcher = Quiet()
    train_head(options(data, out), "specbench", target, watcher)
    return out, watcher


def test_what_the_command_leaves(head, target):
    out, watcher = head
    assert {p.name for p in out.iterdir()} == {
        "config.json", "model.safetensors", "training.json", "training_log.csv", "README.md", "responses",
    }  # fmt: skip
    training = json.loads((out / "training.json").read_text())
    assert training["run"]["steps"] == 12 and training["selection"]["num_excluded"] == 1
    assert watcher.stats[-1].done and watcher.rows[-1].step == 12
    card = (out / "README.md").read_text()
    assert "draft vocabulary of 96 tokens" in card and "nobody/toy" in card and "chats.jsonl" in card
    assert str(out) not in card.replace("specbench", "") and "/tmp" not in card
    loaded = load_eagle3(out, target.model)
    assert loaded.d2t is not None and loaded.config.num_q_heads == 4


def test_responses_are_the_targets_own_and_leave_out_what_is_held_out(head, target):
    from specbench.harness.engines.native.models.score import last_logits
    from specbench.workloads.held_out import is_held_out

    out, _ = head
    s = read_sequences(out / "responses")
    checked = 0
    for i in range(0, len(s), 5):
        ids = s.token_T[s.offset_N1[i] : s.offset_N1[i + 1]].tolist()
        mask = s.is_response_T[s.offset_N1[i] : s.offset_N1[i + 1]]
        for place in mask.nonzero()[0] if s.greedy_N[i] else []:
            logits = last_logits(target.model, ids[:place], 1)[0]
            assert float(logits.max() - logits[ids[place]]) < 1e-4
            checked += 1
    assert checked > 20
    prompts = {bytes(s.token_T[a:b].astype("uint8")) for a, b in zip(s.offset_N1, s.offset_N1[1:], strict=False)}
    held = [i for i in range(30) if is_held_out(f"c{i}_0")]
    assert held, "the made-up names must hold some out, or this test shows nothing"
    assert not [i for i in held if any(f"say {i}\x03".encode() in p for p in prompts)]
    assert not [p for p in prompts if b"what is 3?" in p]
    assert sum(b"what is 4?" in p for p in prompts) == 3, "three samples of each question"


def test_generation_goes_on_where_it_was_cut(target, data, tmp_path, head):
    asked = options(data, tmp_path / "out", only_responses=True)
    folder = train_head(replace(asked, generate_budget_s=1e-6), "specbench", target, Quiet())
    assert folder == tmp_path / "out" / "responses"
    assert not json.loads((folder / "responses.json").read_text())["done"]
    train_head(asked, "specbench", target, Quiet())
    whole, cut = read_sequences(head[0] / "responses"), read_sequences(folder)
    assert whole.token_T.tolist() == cut.token_T.tolist()
    with pytest.raises(ValueError, match="responses: .* was made with other options"):
        train_head(replace(asked, seed=1), "specbench", target, Quiet())


def test_a_folder_with_a_head_is_not_overwritten_or_resumed(head, data):
    for resume in (False, True):
        with pytest.raises(ValueError, match="out: .* already holds a finished head"):
            check_out(options(data, head[0], resume=resume))
    assert continuing(options(data, head[0]), ["train-head"]) == [], "interrupted after the end"


def test_evaluation_counts_what_the_engine_accepted(head, target):
    ids = tuple(CharTokenizer().apply_chat_template([{"role": "user", "content": "say 4"}]))
    prompts = tuple(Prompt(id=str(i), token_ids=(*ids, i), max_tokens=30, text="") for i in range(20, 26))
    workload = Workload(name="w", prompts=prompts, rule="r", source="s")
    result = evaluation_of(workload, answers(head[0], target.model, workload, stop_token_ids=(), k=3), 3, 0.0)
    assert result.all.num_prompts == 6 and result.num_output_tokens == 180
    assert 1 <= result.all.length <= 4 and result.all.low <= result.all.length <= result.all.high
    assert result.all.length == pytest.approx(1 + sum(result.all.marginal))
    assert len(result.all.conditional) == 3
    drawn = answers(head[0], target.model, workload, stop_token_ids=(), k=3, temperature=0.7)
    assert evaluation_of(workload, drawn, 3, 0.7).num_output_tokens == 180


def test_check_head_says_which_part_it_is_at_and_how_long_the_rest_takes(head, target, monkeypatch):
    """Two temperatures over a workload: two parts, each with its requests."""
    prompts = tuple(Prompt(id=str(n), token_ids=(5, 6, n), max_tokens=8, text="") for n in range(3))
    workload = Workload(name="w", prompts=prompts, rule="r", source="s")
    monkeypatch.setattr(check_head_command, "load_for_training", lambda *_: target)
    monkeypatch.setattr(check_head_command, "lookup", lambda *_: lambda *_: workload)
    watcher = Parts()
    asked = CheckHeadOptions(target="toy", evaluate=3, workload=("w=file",), temperatures=(0.0, 0.7), k=3)
    _, _, evaluations = try_head(head[0], asked, watcher)
    assert len(evaluations) == 2 and watcher.num_done == 6
    assert [place.counts for place in watcher.places] == [{"part": (1, 2)}, {"part": (2, 2)}]
    assert watcher.places[0].remaining_s is None and watcher.places[1].remaining_s > 0
    assert watcher.blocks[0] == ("part 1 of 2: w=file at temperature 0.0", 3)
    assert re.fullmatch(r"part 2 of 2: w=file at temperature 0\.7, about \d+ s left", watcher.blocks[1][0])
    assert watcher.said == ["loading toy", "checking out on 4 prompts"]


@pytest.mark.parametrize("taken", ["", "README.md", "acceptance.json"])
def test_check_head_stores_its_evaluation_after_it_is_shown(head, target, tmp_path, monkeypatch, taken):
    """`taken`: a file of the head that is a directory."""
    folder = shutil.copytree(head[0], tmp_path / "out")
    if taken:
        (folder / taken).unlink(missing_ok=True)
        (folder / taken).mkdir()
    prompts = tuple(Prompt(id=str(n), token_ids=(5, 6, n), max_tokens=8, text="") for n in range(3))
    workload = Workload(name="w", prompts=prompts, rule="r", source="s")
    monkeypatch.setattr(check_head_command, "load_for_training", lambda *_: target)
    monkeypatch.setattr(check_head_command, "lookup", lambda *_: lambda *_: workload)
    words = ["check-head", folder, "--evaluate", 3, "--workload", "w=file", "--k", 3, "--write"]
    result = CliRunner().invoke(app, list(map(str, words)))
    assert "w, K = 3, temperature 0.0: acceptance length" in result.stdout
    if taken:
        error = f"error: write: cannot write to {folder}: Is a directory ({folder / taken})\n"
        assert result.exit_code == 2 and result.stderr.endswith(error)
    else:
        (stored,) = json.loads((folder / "acceptance.json").read_text())
        assert stored["k"] == 3 and "3 prompts" in (folder / "README.md").read_text()


def test_several_workloads_are_evaluated_on_their_own_and_together(head, target, monkeypatch):
    def load(request, tokenizer):
        first, most = {"a": (20, 8), "b": (30, 12)}[request.name]
        prompts = tuple(Prompt(id=str(n), token_ids=(5, 6, first + n), max_tokens=most, text="") for n in range(3))
        return Workload(name=request.name, prompts=prompts, rule="r", source="s")

    monkeypatch.setattr(check_head_command, "load_for_training", lambda *_: target)
    monkeypatch.setattr(check_head_command, "lookup", lambda *_: load)
    asked = CheckHeadOptions(target="toy", evaluate=3, workload=("a, b",), temperatures=(0.0, 0.7), k=3)
    _, _, found = try_head(head[0], asked, NullProgress())
    assert [(e.workload, e.temperature) for e in found] == [
        (name, heat) for name in ("a", "b") for heat in (0.0, 0.7)
    ] + [("a,b", 0.0), ("a,b", 0.7)]
    for part_a, part_b, both in (found[::2], found[1::2]):
        assert both.all.num_prompts == 6 and both.num_loops == part_a.num_loops + part_b.num_loops
        assert both.num_output_tokens == part_a.num_output_tokens + part_b.num_output_tokens > 24
        low, high = sorted((part_a.all.length, part_b.all.length))
        assert low <= both.all.length <= high
    assert found[4].workload_sha256 not in (found[0].workload_sha256, found[2].workload_sha256)


def test_pooled_rounds_belong_to_the_requests_of_their_own_workload():
    def part(*accepted):
        rounds = pd.DataFrame([(n, j) for n, own in enumerate(accepted) for j in own], columns=["request", "accepted"])
        return Outputs(dict.fromkeys(range(len(accepted))), rounds)

    whole = pooled([part((3, 1), (0,)), part((2,), (2, 2, 0))])
    assert list(whole.requests) == [0, 1, 2, 3] and whole.rounds["request"].tolist() == [0, 0, 1, 2, 3, 3, 3]
    found = acceptance_of(whole.rounds, 3, whole.requests)
    assert found.length == pytest.approx(1 + 10 / 7) and found.num_prompts == 4
    assert acceptance_of(whole.rounds, 3, [3]).length == pytest.approx(1 + 4 / 3)


class Parts(NullProgress):
    """A watcher that remembers where a command was."""

    def __init__(self) -> None:
        self.said, self.places, self.blocks, self.num_done = [], [], [], 0

    def say(self, text):
        self.said.append(text)

    def at(self, place):
        self.places.append(place)

    def start_block(self, what, num_requests):
        self.blocks.append((what, num_requests))

    def request_done(self, row):
        self.num_done += 1


def test_a_parallel_head_is_trained_checked_and_drafts_better_than_chance_at_every_place(head, target, data, tmp_path):
    made, watcher = tmp_path / "parallel", Quiet()
    asked = replace(options(data, made, responses=head[0] / "responses"), kind="parallel-eagle", steps=60)
    train_head(asked, "specbench", target, watcher)
    assert json.loads((made / "config.json").read_text())["ptd_token_id"] == 0
    assert load_eagle3(made, target.model).placeholder is not None
    assert watcher.rows[-1].loss < watcher.rows[0].loss - 0.5 and min(watcher.rows[-1].accuracy) > 0.2
    assert json.loads((made / "training.json").read_text())["train"]["kind"] == "parallel-eagle"
    card = (made / "README.md").read_text()
    assert "-s parallel-eagle:k=4,head=DIR" in card and '"parallel_drafting": true' in card
    prompts = [tuple(CharTokenizer().apply_chat_template([{"role": "user", "content": t}])) for t in ("ab", "say 7")]
    report = check_head(made, target.model, prompts, (), max_tokens=20, k=3)
    assert report.tensors["mask_hidden"] == "bfloat16 [1, 192]" and not [p for p in report.problems if "t2d" in p]
    hits = hits_by_place(target, named_strategy("parallel-eagle", k=3, head=made))
    untrained = hits_by_place(target, named_strategy("parallel-eagle", k=3, head="random"))
    assert min(hits) > 5 / 96 > max(untrained), "chance is one in the 96 tokens of the draft vocabulary"


@torch.inference_mode()
def hits_by_place(target, strategy) -> list[float]:
    """Share of the drafts of each place that are what the target said there, whatever became of those before them."""
    seen = []

    def look(engine) -> None:
        seen.extend(
            (r, len(r.output_ids), engine.state.drafts_SK[r.slot].tolist())
            for r in engine.scheduler.running
            if not r.is_prefilling
        )

    asked = [CharTokenizer().apply_chat_template([{"role": "user", "content": f"what is {i}?"}]) for i in range(12)]
    engine = make_engine(CPU, strategy, target=target.model)
    generate(engine, [request(i, ids, max_tokens=24) for i, ids in enumerate(asked)], after_step=look)
    return [
        statistics.mean(r.output_ids[at + i] == drafts[i] for r, at, drafts in seen if at + i < len(r.output_ids))
        for i in range(3)
    ]


def test_check_finds_a_good_head_good(head, target):
    prompts = [tuple(CharTokenizer().apply_chat_template([{"role": "user", "content": t}])) for t in ("ab", "cde")]
    report = check_head(head[0], target.model, prompts, (), max_tokens=20)
    assert report.aux_layers == (2, 3, 3) and len(report.agreement) >= 2
    assert not [p for p in report.problems if "t2d" in p or "tensors" in p or "finite" in p]


def spoilt(head, folder, change) -> None:
    folder.mkdir()
    tensors = load_file(head / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text((head / "config.json").read_text())


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda t: t["t2d"].fill_(True), "t2d does not mark"),
        (lambda t: t["d2t"].copy_(-torch.arange(96)), "d2t maps two draft ids"),
        (lambda t: t.pop("t2d"), "t2d is missing"),
    ],
)
def test_check_names_what_looks_wrong(head, target, tmp_path, change, problem):
    spoilt(head[0], tmp_path / "bad", change)
    assert problem in "; ".join(check_files(tmp_path / "bad", target.model).problems)


def test_check_refuses_what_cannot_be_loaded(head, target, tmp_path):
    with pytest.raises(ValueError, match="is not a directory"):
        check_files(tmp_path / "nothing", target.model)
    spoilt(head[0], tmp_path / "bad", lambda t: t.pop("fc.weight"))
    with pytest.raises(ValueError, match="fc.weight"):
        check_files(tmp_path / "bad", target.model)
    spoilt(head[0], tmp_path / "nan", lambda t: t["norm.weight"].fill_(torch.nan))
    with pytest.raises(ValueError, match="norm.weight in .* has values that are not finite"):
        check_files(tmp_path / "nan", target.model)
    spoilt(head[0], tmp_path / "worse", lambda t: t.update(extra=torch.zeros(2)))
    with pytest.raises(ValueError, match=r"tensors that this model does not use \(1\): extra"):
        check_files(tmp_path / "worse", target.model)


def test_generating_answers_does_not_hold_prompts_back():
    """Nobody waits for a token, so a step takes as many prompt tokens as fit beside its decodes."""
    config = throughput_engine(toy_target(), "no-spec", {}, max_num_seqs=4, max_model_len=64).config
    assert config.mixed_chunk_size == config.max_num_batched_tokens
