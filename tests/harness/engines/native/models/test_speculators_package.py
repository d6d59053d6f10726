"""Heads that the package `speculators` builds and saves itself load unchanged and compute what its own class does."""

from __future__ import annotations

import json

import pytest
import torch
from toy.checkpoints import d2t_offsets, eagle3_config, llama_config, load_written, write_eagle3, write_llama
from transformers import LlamaConfig, Qwen3Config

from specbench.harness.engines.native.models.forward import run_pieces
from specbench.harness.engines.native.models.heads import check_head_files, load_head
from specbench.harness.engines.native.models.rope import rope_table
from specbench.harness.training.frozen_target import DenseAttention

pytest.importorskip("speculators", reason="speculators is not installed")  # pip install speculators
DRAFT_VOCAB, LAYERS = 48, [1, 3, 5]
IDS_T, FEATURES_TF = torch.arange(9), torch.randn(9, 192, generator=torch.Generator().manual_seed(1))
OPTIONS = ["", "norm_before_residual", "norm_before_fc", "fc_norm", "norm_output"]


@pytest.fixture(scope="module")
def target_dir(tmp_path_factory):
    folder = tmp_path_factory.mktemp("target")
    write_llama(folder, llama_config())
    return folder


def built(target_dir, kind: type, option: str, draft_vocab: int):
    """As its trainer does, with random weights where training would have put others."""
    from speculators.models.eagle3 import Eagle3DraftModel

    said = {k: v for k, v in eagle3_config().items() if k not in ("architectures", "model_type", "draft_vocab_size")}
    rope = {"rope_type": "default", "rope_theta": said.pop("rope_theta")}
    ids = d2t_offsets(draft_vocab, 128) + torch.arange(draft_vocab)
    torch.manual_seed(3)
    model = Eagle3DraftModel.from_training_args(
        kind(**said, rope_parameters=rope), t2d=torch.isin(torch.arange(128), ids), d2t=d2t_offsets(draft_vocab, 128),
        draft_vocab_size=draft_vocab, norm_before_residual=option == "norm_before_residual", ttt_steps=1,
        norm_before_fc=option == "norm_before_fc", fc_norm=option == "fc_norm", norm_output=option == "norm_output",
        verifier_name_or_path=str(target_dir), target_layer_ids=LAYERS, draft_attn_impl="eager",
    )  # fmt: skip
    for name, parameter in model.named_parameters():
        if not name.startswith(("embed_tokens", "lm_head", "verifier")):
            torch.nn.init.normal_(parameter, 1.0 if "norm" in name else 0.0, 0.2)
    return model.float().eval()


def output_of(head):
    """The layer's output of a whole sequence."""
    table = rope_table(head.config, len(IDS_T), torch.device("cpu"))
    attend = DenseAttention(head.config, table, [head.weights.head_norm_2D], 1)
    return run_pieces(head.pieces(IDS_T, head.project(FEATURES_TF)), attend)


@torch.no_grad()
@pytest.mark.parametrize("draft_vocab", [DRAFT_VOCAB, 128])
@pytest.mark.parametrize("kind", [LlamaConfig, Qwen3Config])
@pytest.mark.parametrize("option", OPTIONS)
def test_what_it_saves_is_what_it_computes(target_dir, tmp_path, kind, option, draft_vocab):
    theirs = built(target_dir, kind, option, draft_vocab)
    theirs.save_pretrained(tmp_path)
    check_head_files(str(tmp_path), "eagle")
    target = load_written(target_dir)
    head = load_head(tmp_path, target)
    assert head.aux_layers == tuple(LAYERS)
    if draft_vocab == DRAFT_VOCAB:
        assert torch.equal(head.d2t, theirs.d2t)
    else:
        assert head.d2t is None

    seen = {}
    theirs.layers[0].register_forward_hook(lambda module, args, out: seen.update(layer=out))
    theirs.lm_head.register_forward_hook(lambda module, args, out: seen.update(logits=out))
    theirs(FEATURES_TF[None], IDS_T[None], torch.zeros(1, 9, dtype=torch.long), ttt_steps=1)
    output_TH = output_of(head)
    logits_TV, state_TH = head.logits_and_state(output_TH)
    torch.testing.assert_close(output_TH, seen["layer"][0], atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(logits_TV, seen["logits"][0], atol=1e-4, rtol=1e-4)
    fed_back = theirs.norm(seen["layer"])[0] if option == "norm_output" else seen["layer"][0]
    torch.testing.assert_close(state_TH, fed_back, atol=1e-4, rtol=1e-4)


def test_what_its_converter_makes_of_a_published_head_is_that_head(target_dir, tmp_path):
    from speculators.convert.eagle.eagle3_converter import Eagle3Converter

    write_eagle3(tmp_path / "published", eagle3_config(), llama_config())
    Eagle3Converter().convert(tmp_path / "published", tmp_path / "converted", str(target_dir), validate=False)
    assert json.loads((tmp_path / "converted" / "config.json").read_text())["speculators_model_type"] == "eagle3"
    target = load_written(target_dir)
    one, other = (load_head(tmp_path / name, target) for name in ("published", "converted"))
    assert torch.equal(output_of(one), output_of(other)) and torch.equal(one.d2t, other.d2t)
