"""Options that change logits: what a run says, what its record keeps, which runs compare, which engines take them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from specbench.harness.engines.llama_cpp.engine import LlamaCppEngine
from specbench.harness.engines.load import PromptRequest
from specbench.harness.engines.openai.dialects import LLAMA_CPP, PLAIN, SGLANG, VLLM
from specbench.harness.engines.sglang.answers import sampling
from specbench.harness.engines.sglang.engine import SglangEngine
from specbench.harness.engines.vllm.engine import VllmEngine
from specbench.harness.judge.keys import mismatches
from specbench.harness.spec.arm import parse_arm
from specbench.harness.spec.conditions import Conditions
from specbench.harness.spec.sampling import SamplingParams

ASKED = "--bad-word 5,5 --bad-word 7,9,7 "
ASKED += "--temperature 0.7 --min-p 0.1 --frequency-penalty 0.3 --logit-bias 5:-1.5 --logit-bias 7:0.5 --min-tokens 50"
ALL = dict(
    allowed_token_ids=(1, 2),
    banned_token_ids=(3,),
    bad_words=((3, 4),),
    logit_bias=((1, 0.5),),
    min_tokens=4,
    repetition_penalty=1.2,
    frequency_penalty=0.3,
    presence_penalty=0.2,
    min_p=0.1,
)


def test_every_arm_of_a_run_says_the_same(cli, toy, only_run, runs):
    arms = "-s no-spec -s ngram:k=3,min_n=1 -s eagle:k=2,head=random -s eagle-topk:topk=2,num_steps=2,"
    arms += "num_draft_tokens=4,head=random"
    result = cli(*toy, *arms.split(), *ASKED.split())
    assert result.exit_code == 0, result.output
    run = only_run()
    rows = run.frames().requests
    said = rows.groupby("arm")["output_token_ids"].apply(lambda ids: [list(each) for each in ids])
    assert len(said) == 4 and all(each == said["no-spec"] for each in said)
    edits = "bad_words=[[5, 5], [7, 9, 7]], "
    edits += "logit_bias={'5': -1.5, '7': 0.5}, min_tokens=50, frequency_penalty=0.3, min_p=0.1"
    assert run.record.sampling.edits == edits
    assert run.record.config.edits.logit_bias == ((5, -1.5), (7, 0.5))
    assert edits in (run.path / "report.md").read_text().replace("\\", "")
    other = replace(run.record, sampling=replace(run.record.sampling, edits=""))
    assert [(m.group, m.key, m.second) for m in mismatches("", run.record, other)] == [
        ("sampling", "changes of logits", "none")
    ]


def fields(dialect, **edits):
    asked = PromptRequest(id=0, key="p", prompt_ids=(1,), text="a", sampling=SamplingParams(max_tokens=9, **edits))
    return dialect.fields(asked, (), ignore_eos=False)


@pytest.mark.parametrize("dialect", [VLLM, SGLANG, LLAMA_CPP, PLAIN], ids=lambda dialect: dialect.name)
@pytest.mark.parametrize("name", ALL)
def test_a_server_gets_what_it_takes_and_the_rest_is_refused(dialect, name):
    if name in dialect.edits:
        wanted = {"logit_bias": {"1": 0.5}, "allowed_token_ids": [1, 2]}.get(name, ALL[name])
        assert fields(dialect, **{name: ALL[name]})[name] == wanted
    else:
        with pytest.raises(ValueError, match=f"{name}: is not allowed; {dialect.name} has no {name}"):
            fields(dialect, **{name: ALL[name]})
    assert name in VLLM.edits or name in ("banned_token_ids", "bad_words")


@pytest.mark.parametrize(
    ("engine", "text", "name"),
    [
        (VllmEngine, "vllm/no-spec", "banned_token_ids"),
        (SglangEngine, "sglang/no-spec", "repetition_penalty"),
        (LlamaCppEngine, "llama.cpp/no-spec", "min_p"),
    ],
)
def test_what_an_engine_does_not_take_is_refused_before_it_starts(engine, text, name):
    with pytest.raises(ValueError, match=f"{name}: is not allowed"):
        engine().resolve(parse_arm(text), Conditions(**{name: ALL[name]}))


def test_sglang_in_process_has_a_name_of_its_own_for_min_tokens():
    names = {name: value for name, value in ALL.items() if name in SGLANG.edits}
    drawn = dict(temperature=0.5, top_p=1.0, top_k=0, max_tokens=9, ignore_eos=False, stop_token_ids=[])
    asked = sampling({**drawn, "edits": SamplingParams(**names).spelled})
    wanted = dict(min_new_tokens=4, logit_bias={"1": 0.5}, frequency_penalty=0.3, presence_penalty=0.2, min_p=0.1)
    assert wanted.items() <= asked.items() and "min_tokens" not in asked
