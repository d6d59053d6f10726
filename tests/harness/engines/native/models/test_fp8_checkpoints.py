"""FP8 checkpoints in each published form: equal to transformers on the dequantized weights, or refused by name."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
from toy.compare import assert_same_output, dense_pass
from toy.engines import generate, make_engine, named_strategy, request
from toy.fp8_checkpoints import E4M3, FORMS, QWEN, TOKEN, compressed, write_fp8
from toy.plans import Plan
from toy.prompts import text_prompt
from transformers import AutoModelForCausalLM, FineGrainedFP8Config, Qwen3Config, Qwen3ForCausalLM

from specbench.harness.engines.native.models import fp8_linear
from specbench.harness.engines.native.models.config import config_from_dict
from specbench.harness.engines.native.models.loader import load_target
from specbench.harness.quality.certificate.scores import fp32_twin

IDS = list(text_prompt(5, 60))
CPU = torch.device("cpu")


def write_source(folder: Path, **sizes: int) -> Path:
    """With biases, and norms of query and KV heads."""
    config = Qwen3Config(
        num_hidden_layers=2, head_dim=64, vocab_size=128, max_position_embeddings=512, attention_bias=True,
        tie_word_embeddings=False, pad_token_id=None, bos_token_id=None, eos_token_id=None, **sizes,
    )  # fmt: skip
    model, generator = Qwen3ForCausalLM(config), torch.Generator().manual_seed(1)
    for name, p in model.named_parameters():
        mean, std = (1.0 if "norm" in name else 0.0, 0.3) if p.dim() == 1 else (0.0, 1.5 / math.sqrt(p.shape[-1]))
        p.data.normal_(mean, std, generator=generator)
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    """Several whole blocks in each direction."""
    sizes = dict(hidden_size=256, intermediate_size=384, num_attention_heads=4, num_key_value_heads=2)
    return write_source(tmp_path_factory.mktemp("source"), **sizes)


CUT = "qwen-block-cut"  # the last blocks in each direction are smaller


@pytest.fixture(scope="module", params=[*FORMS, CUT])
def both(request, source, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == CUT:
        sizes = dict(hidden_size=192, intermediate_size=320, num_attention_heads=3, num_key_value_heads=1)
        return write_fp8(write_source(folder / "source", **sizes), folder, FORMS["qwen-block"])
    return write_fp8(source, folder, FORMS[request.param])


def theirs(folder: Path, dtype: torch.dtype = torch.float32, **options):
    return AutoModelForCausalLM.from_pretrained(
        folder, dtype=dtype, attn_implementation="eager", trust_remote_code=False, **options
    ).eval()


@torch.inference_mode()
def test_logits_and_features_equal_transformers_on_the_dequantized_weights(both):
    target = load_target(both / "fp8", torch.float32, CPU)
    ours, features = dense_pass(target, IDS, [40, 1, 19], features=True)
    out = theirs(both / "plain")(torch.tensor([IDS]), output_hidden_states=True)
    torch.testing.assert_close(ours, out.logits[0], atol=2e-4, rtol=1e-4)
    states = torch.cat([out.hidden_states[i][0] for i in target.config.aux_layers], -1)
    torch.testing.assert_close(features, states, atol=1e-4, rtol=1e-4)
    assert target.arithmetic.startswith("fp8 e4m3 ") and target.arithmetic.endswith(", dequantised to float32")


@torch.inference_mode()
def test_in_bfloat16_no_further_from_fp32_than_transformers(both):
    exact = theirs(both / "plain")(torch.tensor([IDS])).logits[0]
    other = theirs(both / "plain", torch.bfloat16)(torch.tensor([IDS])).logits[0]
    target = load_target(both / "fp8", torch.bfloat16, CPU)
    ours = dense_pass(target, IDS)[0]
    error, allowed = ((x.float() - exact).square().mean().sqrt() for x in (ours, other))
    assert error < 1.25 * allowed
    assert target.arithmetic.endswith(", dequantised to bfloat16")


@torch.inference_mode()
def test_transformers_reads_the_block_form_alike(source, tmp_path):
    folder = write_fp8(source, tmp_path, FORMS["qwen-block"]) / "fp8"
    model = theirs(folder, quantization_config=FineGrainedFP8Config(dequantize=True))
    ours = dense_pass(load_target(folder, torch.float32, CPU), IDS)[0]
    torch.testing.assert_close(ours, model(torch.tensor([IDS])).logits[0].float(), atol=2e-4, rtol=1e-4)


@pytest.mark.parametrize("form", ["qwen-block", "compressed-channel"])
@torch.inference_mode()
def test_modules_that_are_not_converted_are_read_as_they_are(source, tmp_path, form):
    skipped = ("layers.1.self_attn.o_proj", "layers.0.mlp.gate_proj", "layers.0.mlp.up_proj")
    folder = write_fp8(source, tmp_path, FORMS[form], skipped)
    ours = dense_pass(load_target(folder / "fp8", torch.float32, CPU), IDS)[0]
    torch.testing.assert_close(ours, theirs(folder / "plain")(torch.tensor([IDS])).logits[0], atol=2e-4, rtol=1e-4)


STRATEGIES = {
    "no-spec": {},
    "ngram": dict(k=3, min_n=1),
    "eagle": dict(k=3, head="random"),
    "naive-eagle": dict(k=2, head="random-eagle1"),
    "eagle-topk": dict(topk=2, num_steps=2, num_draft_tokens=5, head="random"),
    "draft-model": dict(k=2, draft="self:1"),
}


@pytest.fixture(scope="module")
def texts(source, tmp_path_factory) -> tuple[Path, dict[int, list[int]]]:
    folder, said = write_fp8(source, tmp_path_factory.mktemp("texts"), FORMS["qwen-block"]), {}
    model = theirs(folder / "plain")
    for number in range(2):
        ids = torch.tensor([text_prompt(number, 10 + 20 * number)])
        said[number] = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=12, do_sample=False)
    return folder / "fp8", {number: ids[0].tolist() for number, ids in said.items()}


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_strategy_says_what_transformers_generate(texts, strategy):
    folder, wanted = texts
    target = load_target(folder, torch.float32, CPU)
    engine = make_engine(Plan("cpu"), named_strategy(strategy, **STRATEGIES[strategy]), target=target, page_size=16)
    requests = [request(i, text_prompt(i, 10 + 20 * i), max_tokens=12) for i in range(2)]
    for number, done in generate(engine, requests).items():
        text = wanted[number][len(done.prompt_ids) :]
        assert_same_output(target, done.prompt_ids, done.sampling, done.output_ids, text, f"request {number}")


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def multiplying(request, monkeypatch) -> torch.device:
    """A device that multiplies E4M3; the CPU does so by the kernels' references."""
    if request.param == "cpu":
        monkeypatch.setattr(fp8_linear, "multiplies_fp8", lambda device, dtype: dtype == torch.bfloat16)
    return torch.device(request.param)


@torch.inference_mode()
def test_e4m3_products_stay_near_the_dequantized_ones(both, multiplying):
    """Activations keep three bits behind the first: some per cent of the logits' spread."""
    exact = dense_pass(load_target(both / "fp8", torch.float32, CPU), IDS)[0]
    target = load_target(both / "fp8", torch.bfloat16, multiplying)
    ours = dense_pass(target, IDS)[0].float().cpu()
    assert (ours - exact).square().mean().sqrt() < 0.1 * exact.std()
    assert ("dequantised" in target.arithmetic) == (
        both.name.startswith(("qwen-block-cut", "compressed-weights-alone"))
    )
    twin = dense_pass(fp32_twin(target), IDS)[0].cpu()
    assert (twin - exact).square().mean().sqrt() < 0.02 * exact.std()  # norms, biases and embedding are rounded to bf16


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_strategy_says_the_same_in_e4m3_products(texts, multiplying, strategy):
    """A row is quantized by its own values alone, so rows beside it change nothing but the order of sums."""
    target = load_target(texts[0], torch.bfloat16, multiplying)
    plan, said = Plan(multiplying.type), []
    for name in ("no-spec", strategy):
        engine = make_engine(plan, named_strategy(name, **STRATEGIES[name]), target=target, page_size=16)
        said.append(generate(engine, [request(i, text_prompt(i, 10 + 20 * i), max_tokens=12) for i in range(2)]))
    for number, done in said[0].items():
        other = said[1][number].output_ids
        assert_same_output(target, done.prompt_ids, done.sampling, other, done.output_ids, strategy, tolerance=0.1)


# -- refusals ----------------------------------------------------------------------------------------------------------

MODULE = "model.layers.1.mlp.down_proj"
SCALE = f"{MODULE}.weight_scale_inv"


def spoiled(value: float):
    def change(tensors):
        tensors[SCALE][1, 0] = value

    return change


CHANGES = {
    "scale missing": (lambda t: t.pop(SCALE), rf"has no tensor '{MODULE}.weight_scale'"),
    "scale of nan": (spoiled(math.nan), rf"{SCALE} in .* has scales that are not finite or not above 0"),
    "scale of inf": (spoiled(math.inf), rf"{SCALE} in .* has scales that are not finite or not above 0"),
    "scale of nought": (spoiled(0.0), rf"{SCALE} in .* has scales that are not finite or not above 0"),
    "negative scale": (spoiled(-1.0), rf"{SCALE} in .* has scales that are not finite or not above 0"),
    "other block size": (
        lambda t: t.update({SCALE: torch.ones(4, 6)}),
        rf"{SCALE} in .* has shape \(4, 6\), fp8 e4m3 block 128x128 needs \(2, 3\)",
    ),
    "scale of bytes": (
        lambda t: t.update({SCALE: t[SCALE].to(torch.uint8)}),
        rf"{SCALE} in .* is stored as torch.uint8",
    ),
    "both scales": (lambda t: t.update({f"{MODULE}.weight_scale": t[SCALE].clone()}), rf"does not use \(1\): {SCALE}"),
    "extra scale": (
        lambda t: t.update({f"{MODULE}.input_scale": torch.ones(1)}),
        rf"does not use \(1\): {MODULE}.input_scale",
    ),
    "scale of keys": (
        lambda t: t.update({"model.layers.0.self_attn.k_scale": torch.ones(1)}),
        r"does not use \(1\): .*k_scale",
    ),
    "weight missing": (lambda t: t.pop(f"{MODULE}.weight"), rf"has no tensor '{MODULE}.weight'"),
    "weight of nan": (
        lambda t: t[f"{MODULE}.weight"].view(torch.uint8)[3].fill_(0xFF),
        rf"{MODULE}.weight in .* values that are not finite",
    ),
    "weight of another shape": (
        lambda t: t.update({f"{MODULE}.weight": torch.ones(256, 383).to(E4M3)}),
        r"has shape \(256, 383\), the config needs",
    ),
    "weight not converted": (
        lambda t: t.update({f"{MODULE}.weight": torch.ones(256, 384)}),
        rf"{MODULE}.weight in .* is stored as torch.float32, but config.json says fp8 e4m3 block 128x128",
    ),
    "weight in e5m2": (
        lambda t: t.update({f"{MODULE}.weight": torch.ones(256, 384).to(torch.float8_e5m2)}),
        "stored as torch.float8_e5m2",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_a_wrong_or_partial_checkpoint_is_refused_by_a_tensors_name(source, tmp_path, name):
    change, words = CHANGES[name]
    folder = write_fp8(source, tmp_path, FORMS["qwen-block"], change=change)
    with pytest.raises(ValueError, match=words) as refusal:
        load_target(folder / "fp8", torch.float32, CPU)
    assert "\n" not in str(refusal.value) and str(tmp_path) in str(refusal.value)


def test_a_missing_static_scale_is_refused(source, tmp_path):
    gone = f"{MODULE}.input_scale"
    folder = write_fp8(source, tmp_path, FORMS["fp8-tensor-static"], change=lambda t: t.pop(gone))
    with pytest.raises(ValueError, match=f"has no tensor '{gone}'"):
        load_target(folder / "fp8", torch.float32, CPU)


def test_one_of_two_matrices_that_are_multiplied_as_one_is_refused(source, tmp_path):
    folder = write_fp8(source, tmp_path, FORMS["qwen-block"], ("layers.0.mlp.gate_proj",))
    with pytest.raises(ValueError, match="layers.0.mlp.up_proj is quantized and model.layers.0.mlp.gate_proj is not"):
        load_target(folder / "fp8", torch.float32, CPU)


def test_a_module_named_unconverted_that_is_converted_is_refused(source, tmp_path):
    folder = write_fp8(source, tmp_path, FORMS["qwen-block"]) / "fp8"
    raw = json.loads((folder / "config.json").read_text())
    raw["quantization_config"]["modules_to_not_convert"] = [MODULE]
    (folder / "config.json").write_text(json.dumps(raw))
    with pytest.raises(ValueError, match=f"{MODULE}.weight in .* is stored as torch.float8_e4m3fn, which needs scales"):
        load_target(folder, torch.float32, CPU)


CONFIGS = {
    "block of 64": ({**QWEN, "weight_block_size": [64, 128]}, r"weight_block_size \[64, 128\] is not supported"),
    "block of one number": ({**QWEN, "weight_block_size": [128]}, r"weight_block_size \[128\] is not supported"),
    "e5m2": ({**QWEN, "fmt": "e5m2"}, "fmt 'e5m2' is not supported; allowed: e4m3"),
    "static blocks": ({**QWEN, "activation_scheme": "static"}, "static is not supported with weight_block_size"),
    "scales of powers of two": ({**QWEN, "scale_fmt": "ue8m0"}, "scale_fmt 'ue8m0' is not supported; allowed: float"),
    "fp4 experts": ({**QWEN, "expert_dtype": "fp4"}, "expert_dtype 'fp4' is not supported"),
    "unknown key": ({**QWEN, "rotation": 1}, "key 'rotation' with 1 is not known"),
    "names that are no names": ({**QWEN, "modules_to_not_convert": [1]}, "modules_to_not_convert .* a name"),
    "int8": (compressed("channel", TOKEN, num_bits=8, type="int"), "type 'int' is not supported; allowed: float"),
    "nvfp4": (
        {**compressed("tensor", TOKEN), "format": "nvfp4-pack-quantized"},
        "'nvfp4-pack-quantized' is not supported",
    ),
    "cache scales": (
        {**compressed("tensor", TOKEN), "kv_cache_scheme": {"num_bits": 8}},
        "key 'kv_cache_scheme' with .* is not known",
    ),
    "two groups": (
        {**compressed("tensor", TOKEN), "config_groups": {"group_1": {}}},
        "key 'group_1' .* is not known",
    ),
    "no groups": ({"quant_method": "compressed-tensors", "format": "float-quantized"}, "weights has no num_bits"),
    "static tokens": (
        compressed("channel", {"strategy": "token", "dynamic": False}),
        "strategy 'token' and dynamic false is not supported",
    ),
    "odd expression": ({**compressed("tensor", TOKEN), "ignore": ["re:("]}, "ignore .* a regular expression"),
    "block structure": (
        compressed("block", TOKEN, block_structure=[64, 64]), r"block_structure \[64, 64\] is not supported; allowed"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CONFIGS)
def test_a_config_of_another_form_is_refused_by_its_key(source, tmp_path, name):
    config, words = CONFIGS[name]
    raw = json.loads((source / "config.json").read_text())
    with pytest.raises(ValueError, match=words) as refusal:
        config_from_dict({**raw, "quantization_config": config}, tmp_path)
    assert "allowed: " in str(refusal.value) or "is it complete?" in str(refusal.value)
