"""Mixture of experts: equal to transformers for every variant of the config, or refused by name."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from toy.compare import assert_same_output, dense_pass
from toy.engines import deployed, generate, make_engine, named_strategy, request
from toy.expert_checkpoints import write_experts
from toy.fp8_checkpoints import FORMS, write_fp8
from toy.plans import Plan
from toy.prompts import text_prompt
from transformers import AutoModelForCausalLM

from specbench.harness.engines.load import Load
from specbench.harness.engines.native.models import expert_weights, fp8_linear
from specbench.harness.engines.native.models.config import config_from_dict
from specbench.harness.engines.native.models.loader import load_target
from specbench.harness.quality.certificate.scores import fp32_twin
from specbench.workloads.base import Prompt

CPU = torch.device("cpu")
IDS = list(text_prompt(5, 60))
VARIANTS = {
    "as published": {},
    "weights not normalised": dict(norm_topk_prob=False, num_experts_per_tok=3),
    "every second layer": dict(decoder_sparse_step=2, num_hidden_layers=6),
    "some layers dense": dict(mlp_only_layers=[0, 2]),
    "one expert a row, tied": dict(num_experts_per_tok=1, tie_word_embeddings=True),
    "all experts, biases": dict(num_experts_per_tok=6, attention_bias=True),
}


def theirs(folder: Path, dtype: torch.dtype = torch.float32):
    return AutoModelForCausalLM.from_pretrained(
        folder, dtype=dtype, attn_implementation="eager", trust_remote_code=False
    ).eval()


@pytest.fixture(scope="module", params=VARIANTS)
def folder(request, tmp_path_factory) -> Path:
    return write_experts(tmp_path_factory.mktemp("experts"), **VARIANTS[request.param])


@torch.inference_mode()
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_logits_and_features_equal_transformers(folder, device):
    target = load_target(folder, torch.float32, torch.device(device))
    ours, features = dense_pass(target, IDS, [40, 1, 19], features=True)
    out = theirs(folder)(torch.tensor([IDS]), output_hidden_states=True)
    torch.testing.assert_close(ours.cpu(), out.logits[0], atol=2e-4, rtol=1e-4)
    states = torch.cat([out.hidden_states[i][0] for i in target.config.aux_layers], -1)
    torch.testing.assert_close(features.cpu(), states, atol=1e-4, rtol=1e-4)
    assert target.arithmetic == ""


@torch.inference_mode()
def test_in_bfloat16_no_further_from_fp32_than_transformers(folder):
    """Of the same rounded weights, each token alone: one whose expert a rounding changes shall not reach the others."""
    alone = torch.arange(0, 128, 3)[:, None]
    rounded = theirs(folder, torch.bfloat16)
    other = rounded(alone).logits[:, 0].float()
    exact = rounded.float()(alone).logits[:, 0]
    target = load_target(folder, torch.bfloat16, CPU)
    ours = torch.cat([dense_pass(target, ids)[0] for ids in alone.tolist()]).float()
    error, allowed = ((x - exact).square().mean(1).sqrt().median() for x in (ours, other))
    assert error < 1.25 * allowed
    twin = fp32_twin(target)
    fp32 = torch.cat([dense_pass(twin, ids)[0] for ids in alone.tolist()])
    torch.testing.assert_close(fp32, exact, atol=2e-4, rtol=1e-4)


STRATEGIES = {
    "no-spec": {},
    "ngram": dict(k=3, min_n=1),
    "eagle": dict(k=3, head="random"),
    "naive-eagle": dict(k=2, head="random-eagle1"),
    "eagle-topk": dict(topk=2, num_steps=2, num_draft_tokens=5, head="random"),
    "draft-model": dict(k=2, draft="self:1"),
}


@pytest.fixture(scope="module")
def texts(tmp_path_factory) -> tuple[Path, dict[int, list[int]]]:
    folder, said = write_experts(tmp_path_factory.mktemp("texts")), {}
    model = theirs(folder)
    for number in range(2):
        ids = torch.tensor([text_prompt(number, 10 + 20 * number)])
        said[number] = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=12, do_sample=False)
    return folder, {number: ids[0].tolist() for number, ids in said.items()}


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_strategy_says_what_transformers_generate(texts, main_plan: Plan, strategy):
    """On a GPU under every graph plan: nothing of the experts may wait for the host."""
    folder, wanted = texts
    target = load_target(folder, torch.float32, main_plan.torch_device)
    engine = make_engine(main_plan, named_strategy(strategy, **STRATEGIES[strategy]), target=target, page_size=16)
    requests = [request(i, text_prompt(i, 10 + 20 * i), max_tokens=12) for i in range(2)]
    for number, done in generate(engine, requests).items():
        text = wanted[number][len(done.prompt_ids) :]
        assert_same_output(target, done.prompt_ids, done.sampling, done.output_ids, text, f"request {number}")


class Counters:
    """Keeps the counters of a block."""

    cancelled = False

    def __init__(self):
        self.found: dict[str, float] = {}

    def request(self, row) -> None: ...

    def add_steps(self, rows) -> None: ...

    def add_phases(self, rows) -> None: ...

    def add_counters(self, rows) -> None:
        self.found |= {row.name: row.value for row in rows}


def test_experts_read_are_counted_block_by_block(texts):
    """A round of one row meets two; the prompt's pass, which meets up to all six, is left out, and so is what the
    block before read."""
    prompt = Prompt(id="p", text="", token_ids=tuple(text_prompt(1, 12)), max_tokens=8)
    load = Load(
        prompts=[prompt], arrival_s=[0.0], max_concurrency=1, temperature=0.0, top_k=0, top_p=1.0, stop_token_ids=(),
        seed=3,
    )  # fmt: skip
    target = load_target(texts[0], torch.float32, CPU)
    deployment, blocks = deployed(make_engine(Plan("cpu"), target=target)), []
    for _ in range(2):
        sink = Counters()
        deployment.measure(load, sink)
        blocks.append(sink.found)
    assert blocks == [{"engine.experts_per_decode_pass": 2, "engine.num_experts": 6}] * 2
    dense = Counters()
    deployed(make_engine(Plan("cpu"))).measure(load, dense)
    assert dense.found == {}


def test_of_a_head_of_aux_layers_the_rounds_alone_count(texts):
    """Its target is another object over the same layers."""
    target = load_target(texts[0], torch.float32, CPU)
    engine = make_engine(Plan("cpu"), named_strategy("eagle", k=1, head="random"), target=target)
    assert engine.builder.target is not target
    engine.add(request(0, text_prompt(1, 40), max_tokens=8))
    while engine.scheduler.wants_mixed_step():
        engine.step()
    assert target.expert_reads.total() == (0, 0), "the prompt's steps"
    engine.step()
    num_read, num_passes = target.expert_reads.total()
    assert num_passes == len(target.layers) and 2 <= num_read / num_passes <= 4, "one round of two rows"


# -- FP8 ---------------------------------------------------------------------------------------------------------------

WHOLE_BLOCKS = dict(hidden_size=256, moe_intermediate_size=128, head_dim=64, num_hidden_layers=2, num_experts=4)


@pytest.fixture(scope="module")
def fp8_source(tmp_path_factory) -> Path:
    return write_experts(tmp_path_factory.mktemp("source"), **WHOLE_BLOCKS)


@pytest.mark.parametrize("form", ["qwen-block", "compressed-channel", "fp8-tensor-static", "compressed-weights-alone"])
@torch.inference_mode()
def test_fp8_experts_equal_transformers_on_the_dequantized_weights(fp8_source, tmp_path, form):
    folder = write_fp8(fp8_source, tmp_path, FORMS[form], ("mlp.gate",))
    target = load_target(folder / "fp8", torch.float32, CPU)
    ours = dense_pass(target, IDS)[0]
    torch.testing.assert_close(ours, theirs(folder / "plain")(torch.tensor([IDS])).logits[0], atol=2e-4, rtol=1e-4)
    assert target.arithmetic.startswith("fp8 e4m3 ") and target.arithmetic.endswith(", dequantised to float32")


@pytest.mark.parametrize("form", ["qwen-block", "compressed-channel"])
@torch.inference_mode()
def test_kept_fp8_experts_mean_the_same_weights(fp8_source, tmp_path, form, monkeypatch):
    for module in (fp8_linear, expert_weights):
        monkeypatch.setattr(module, "multiplies_fp8", lambda device, dtype: dtype == torch.bfloat16)
    folder = write_fp8(fp8_source, tmp_path, FORMS[form], ("mlp.gate",))
    target = load_target(folder / "fp8", torch.bfloat16, CPU)
    mlp = target.layers[0].mlp
    assert mlp.weights.gate_up_EXH.dtype == torch.float8_e4m3fn and "dequantised" not in target.arithmetic
    twin = fp32_twin(target).layers[0].mlp.weights
    plain = load_file(folder / "plain" / "model.safetensors")
    for expert in range(4):
        stored = [plain[f"model.layers.0.mlp.experts.{expert}.{name}_proj.weight"] for name in ("gate", "up", "down")]
        assert torch.equal(twin.gate_up_EXH[expert], torch.cat(stored[:2])), expert
        assert torch.equal(twin.down_EHI[expert], stored[2])


@pytest.mark.gpu
@pytest.mark.parametrize("form", ["qwen-block", "compressed-channel"])
@torch.inference_mode()
def test_on_a_gpu_e4m3_experts_stay_near_the_dequantized_ones(fp8_source, tmp_path, form):
    folder = write_fp8(fp8_source, tmp_path, FORMS[form], ("mlp.gate",)) / "fp8"
    exact = dense_pass(load_target(folder, torch.float32, CPU), IDS)[0]
    target = load_target(folder, torch.bfloat16, torch.device("cuda"))
    error = (dense_pass(target, IDS)[0].float().cpu() - exact).square().mean(1).sqrt()
    assert error.median() < 0.15 * exact.std() and "dequantised" not in target.arithmetic


# -- refusals ----------------------------------------------------------------------------------------------------------

GONE = "model.layers.1.mlp.experts.3.up_proj.weight"
CHANGES = {
    "missing expert": (lambda t: t.pop(GONE), f"has no tensor '{GONE}'"),
    "missing router": (lambda t: t.pop("model.layers.0.mlp.gate.weight"), "has no tensor 'model.layers.0.mlp.gate.w"),
    "an expert more": (
        lambda t: t.update({GONE.replace(".3.", ".6."): t[GONE].clone()}), r"does not use \(1\): .*experts.6.up"
    ),
    "a shared expert": (
        lambda t: t.update({"model.layers.0.mlp.shared_expert.up_proj.weight": torch.ones(2, 2)}),
        r"does not use \(1\): .*shared_expert",
    ),
    "router of other experts": (
        lambda t: t.update({"model.layers.0.mlp.gate.weight": torch.ones(5, 64)}), r"has shape \(5, 64\), the config"
    ),
    "expert of another width": (lambda t: t.update({GONE: torch.ones(47, 64)}), r"has shape \(47, 64\), the config"),
    "expert of nan": (lambda t: t[GONE][0].fill_(math.nan), f"{GONE} in .* has values that are not finite"),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_a_wrong_or_partial_checkpoint_is_refused_by_a_tensors_name(texts, tmp_path, name):
    change, words = CHANGES[name]
    tensors = load_file(texts[0] / "model.safetensors")
    change(tensors)
    save_file(tensors, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text((texts[0] / "config.json").read_text())
    with pytest.raises(ValueError, match=words):
        load_target(tmp_path, torch.float32, CPU)


def test_experts_of_two_forms_are_refused(fp8_source, tmp_path):
    for skipped in ("experts.2.up_proj", "down_proj"):
        folder = write_fp8(fp8_source, tmp_path, FORMS["qwen-block"], ("mlp.gate", skipped))
        with pytest.raises(ValueError, match="some .*are quantized and some are not; allowed: all or none"):
            load_target(folder / "fp8", torch.float32, CPU)


CONFIGS = {
    "too many": (dict(num_experts_per_tok=7), "num_experts_per_tok 7 is not allowed; allowed: 1 to 6 .num_experts"),
    "two counts": (dict(num_experts=5), "num_experts 5 and num_local_experts 6; allowed: one number"),
    "no count": (dict(num_local_experts=None), "no num_experts; is it complete"),
    "no width": (dict(moe_intermediate_size=None), "no moe_intermediate_size; is it complete"),
    "another scoring": (dict(scoring_func="sigmoid"), "key 'scoring_func' with 'sigmoid' is not known"),
    "a step of nought": (dict(decoder_sparse_step=0), "decoder_sparse_step 0 is not supported; allowed: a whole"),
    "a dense architecture": (dict(architectures=["Qwen3ForCausalLM"]), "key '[a-z_]+' with .* is not known"),
}  # fmt: skip


@pytest.mark.parametrize("name", CONFIGS)
def test_a_config_that_is_not_computed_is_refused_by_its_key(texts, tmp_path, name):
    changes, words = CONFIGS[name]
    raw = json.loads((texts[0] / "config.json").read_text())
    with pytest.raises(ValueError, match=words):
        config_from_dict({**raw, **changes}, tmp_path)


def test_the_published_spelling_is_read_alike(texts, tmp_path):
    raw = json.loads((texts[0] / "config.json").read_text())
    published = {("num_experts" if key == "num_local_experts" else key): value for key, value in raw.items()}
    assert config_from_dict(published, tmp_path) == config_from_dict(raw, tmp_path)
