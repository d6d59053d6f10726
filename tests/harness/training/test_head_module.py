"""What is trained is what runs: the unrolled module against the published format drafted by the plain reference."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from toy.checkpoints import llama_config, load_written, write_llama
from toy.eagle3_reference import Eagle3Reference

from specbench.harness.engines.native.models.heads import is_one_pass
from specbench.harness.engines.native.models.rope import rope_table
from specbench.harness.training.draft_vocab import DraftVocab
from specbench.harness.training.export import write_head
from specbench.harness.training.frozen_target import FrozenTarget
from specbench.harness.training.head_module import HeadModule, Unroller, norm_rows

CONFIG = llama_config()
VOCAB = DraftVocab(torch.arange(0, 128, 2), 128, 1.0)


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    folder = tmp_path_factory.mktemp("target")
    write_llama(folder, CONFIG)
    return load_written(folder)


def make_module(target, seed: int = 1, intermediate: int = 96, one_pass: bool = False) -> HeadModule:
    generator = torch.Generator().manual_seed(seed)
    config = replace(target.config, intermediate_size=intermediate)
    module = HeadModule(config, torch.randn(64, 64, generator=generator), target.norm_H, generator, one_pass)
    with torch.no_grad():
        for norm in (module.embed_norm, module.hidden_norm, module.post_norm):
            norm.add_(0.2 * torch.randn(64, generator=generator))
    return module


def written(module: HeadModule, folder) -> None:
    write_head(folder, module, VOCAB, CONFIG, torch.float32)


@torch.no_grad()
@pytest.mark.parametrize("one_pass", [False, True])
def test_unrolled_steps_are_the_drafts_of_the_exported_head(target, tmp_path, one_pass):
    module = make_module(target, one_pass=one_pass)
    written(module, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    reference = Eagle3Reference(load_file(tmp_path / "model.safetensors"), config, target.embed_VH)
    frozen = FrozenTarget(target, 64)
    unroller = Unroller(module.config, target.embed_VH, rope_table(target.config, 64, target.device), compiled=False)
    generator = torch.Generator().manual_seed(4)
    for _ in range(6):
        context = torch.randint(0, 128, (12,), generator=generator).tolist()
        features = frozen.states(torch.tensor([context[:-1]]))[1]
        drafts, gap = reference.drafts(features, context, 4)
        assert gap > 1e-5
        # Row n-1 of the context's features, fed with the drafts as the tokens that follow.
        ids_BT = torch.tensor([[*context, *drafts]])
        row = len(context) - 2
        _, features_NF = frozen.states(ids_BT)
        outputs = unroller.outputs(module.cast(torch.float32), features_NF, ids_BT, 4)
        got = []
        for hidden_NH in outputs:
            logits = norm_rows(hidden_NH[row], module.norm, 1e-5) @ module.lm_head.T
            got.append(int(VOCAB.target_id_Vd[logits.argmax()]))
        assert got == drafts


def test_features_are_the_states_entering_the_three_layers(target):
    from specbench.harness.engines.native.models.score import last_logits

    ids = torch.randint(0, 128, (2, 9), generator=torch.Generator().manual_seed(0))
    frozen = FrozenTarget(target, 64)
    hidden_NH, features_NF = frozen.states(ids)
    for row in range(2):
        expected = last_logits(target, ids[row].tolist(), 1)[0]
        torch.testing.assert_close(target.logits(hidden_NH[row * 9 + 8]), expected, atol=1e-4, rtol=1e-4)
    # Causal: what follows a token does not change its states.
    again = frozen.states(ids[:, :5])[1]
    torch.testing.assert_close(again.view(2, 5, -1), features_NF.view(2, 9, -1)[:, :5], atol=1e-4, rtol=1e-4)


def load_into(module: HeadModule, folder: Path) -> None:
    """The inverse of `write_head`: published tensors into master weights of the same shape."""
    tensors = load_file(folder / "model.safetensors")
    layer = {name.removeprefix("midlayer.").removesuffix(".weight"): t for name, t in tensors.items()}
    fused = {
        "fc": layer["fc"],
        "embed_norm": layer["input_layernorm"],
        "hidden_norm": layer["hidden_norm"],
        "qkv": torch.cat([layer[f"self_attn.{n}_proj"] for n in "qkv"]),
        "o": layer["self_attn.o_proj"],
        "post_norm": layer["post_attention_layernorm"],
        "gate_up": torch.cat([layer["mlp.gate_proj"], layer["mlp.up_proj"]]),
        "down": layer["mlp.down_proj"],
        "norm": layer["norm"],
        "lm_head": layer["lm_head"],
    }
    if "mask_hidden" in layer:
        fused["placeholder"] = layer["mask_hidden"][0]
    module.load_state_dict({name: t.float() for name, t in fused.items()})


@pytest.mark.parametrize("one_pass", [False, True])
def test_an_exported_head_comes_back_bit_by_bit(target, tmp_path, one_pass):
    module, other = make_module(target, seed=1, one_pass=one_pass), make_module(target, seed=2, one_pass=one_pass)
    written(module, tmp_path)
    load_into(other, tmp_path)
    for name, tensor in module.state_dict().items():
        assert torch.equal(tensor, other.state_dict()[name]), name
    assert is_one_pass(tmp_path) is one_pass
