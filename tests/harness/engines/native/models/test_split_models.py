"""A model split among ranks is the model: logits, features and drafts of every rank equal those of the whole one."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from toy.checkpoints import eagle1_config, eagle3_config, llama_config, write_eagle1, write_eagle3, write_llama
from toy.compare import dense_pass
from toy.ranks import on_ranks

from specbench.harness.engines.native.models.all_reduce import LARGEST, Sum, best, check_method, method_for
from specbench.harness.engines.native.models.eagle3_loader import load_eagle3
from specbench.harness.engines.native.models.group import ALONE, Group
from specbench.harness.engines.native.models.heads import load_head
from specbench.harness.engines.native.models.linear import Linear
from specbench.harness.engines.native.models.llama import LlamaModel
from specbench.harness.engines.native.models.loader import dummy_target, load_target
from specbench.harness.engines.native.models.weights import CheckpointWeights

CPU, IDS = torch.device("cpu"), [5, 100, 31, 64, 127, 0, 77]
FOUR_HEADS = llama_config(num_key_value_heads=4)


def _target(folder: Path, group: Group = ALONE) -> LlamaModel:
    return load_target(folder, torch.float32, CPU, group)


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("tied", [True, False])
def test_every_rank_has_the_logits_and_features_of_the_whole_model(tmp_path, size, tied):
    write_llama(tmp_path, {**FOUR_HEADS, "tie_word_embeddings": tied})
    logits_TV, features_TF = dense_pass(_target(tmp_path), IDS, features=True)
    for its_logits_TV, its_features_TF in on_ranks(
        size, lambda group: dense_pass(_target(tmp_path, group), IDS, [3, 4], features=True)
    ):
        torch.testing.assert_close(its_logits_TV, logits_TV, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(its_features_TF, features_TF, atol=1e-5, rtol=1e-5)


def test_in_bfloat16_too():
    """Whose products on a CPU may be others."""

    def logits(group: Group) -> torch.Tensor:
        return dense_pass(dummy_target("toy", torch.bfloat16, CPU, group=group), IDS)[0]

    whole = logits(ALONE)
    for logits_TV in on_ranks(2, logits):
        torch.testing.assert_close(logits_TV, whole, atol=0.03, rtol=0.03)


def test_biases_are_added_once(tmp_path):
    config = {**FOUR_HEADS, "attention_bias": True}

    def add_biases(tensors):
        for name in [n for n in tensors if ".self_attn." in n]:
            size = tensors[name].shape[0]
            tensors[name.replace("weight", "bias")] = torch.linspace(-1, 1, size)

    write_llama(tmp_path, config, change=add_biases)
    whole, *_ = dense_pass(_target(tmp_path), IDS)
    for logits_TV, _ in on_ranks(2, lambda group: dense_pass(_target(tmp_path, group), IDS)):
        torch.testing.assert_close(logits_TV, whole, atol=1e-5, rtol=1e-5)


def test_two_sums_a_layer_one_of_the_embedding_and_one_gather(tmp_path):
    write_llama(tmp_path, FOUR_HEADS)

    def count(group):
        dense_pass(_target(tmp_path, group), IDS)
        return group.num_sums, group.num_gathers

    assert on_ranks(2, count) == [(2 * FOUR_HEADS["num_hidden_layers"] + 1, 1)] * 2


def test_random_weights_are_the_same_model_whatever_the_group():
    whole, _ = dense_pass(dummy_target("toy", torch.float32, CPU), IDS)
    for logits_TV, _ in on_ranks(
        2, lambda group: dense_pass(dummy_target("toy", torch.float32, CPU, group=group), IDS)
    ):
        torch.testing.assert_close(logits_TV, whole, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("splits_drafter", [True, False])
@pytest.mark.parametrize("kind", ["eagle1", "eagle3"])
def test_a_split_or_whole_head_drafts_as_the_whole_one(tmp_path, kind, splits_drafter):
    """Of a whole head what it shares with the target stays split."""
    write_llama(tmp_path / "target", FOUR_HEADS)
    if kind == "eagle1":
        write_eagle1(tmp_path / "head", eagle1_config(num_key_value_heads=2))
    else:
        write_eagle3(tmp_path / "head", eagle3_config(num_key_value_heads=2), FOUR_HEADS)
    hidden_TH = torch.linspace(-1, 1, 4 * 64).view(4, 64)
    ids_T, features_TF = torch.tensor(IDS[:4]), torch.linspace(-1, 1, 4 * 192).view(4, 192)

    def draft(group: Group):
        head = load_head(tmp_path / "head", _target(tmp_path / "target", group))
        # What attention gives is put in by hand: as many columns as this rank has heads.
        inputs_TH = head.project(hidden_TH.clone() if kind == "eagle1" else features_TF)
        pieces = head.pieces(ids_T, inputs_TH.clone())
        _, qkv_TX = next(pieces)
        num_heads, d = head.config.num_q_heads, head.config.head_dim
        try:
            pieces.send(qkv_TX[:, : num_heads * d].contiguous())
        except StopIteration as end:
            return head.logits_and_state(end.value)[0]

    whole = draft(ALONE)
    for logits_TV in on_ranks(2, draft, splits_drafter=splits_drafter):
        torch.testing.assert_close(logits_TV, whole, atol=1e-5, rtol=1e-5)


def test_alone_nothing_is_added(tmp_path):
    write_llama(tmp_path, FOUR_HEADS)
    model = _target(tmp_path)
    layer = model.layers[0]
    assert {type(x) for x in (layer.qkv, layer.o, layer.mlp.gate_up, layer.mlp.down, model.lm_head)} == {Linear}
    assert model.config == model.whole and model.group is ALONE is ALONE.of_drafter


def test_a_rank_reads_its_part_of_a_file_and_no_more(tmp_path, monkeypatch):
    write_llama(tmp_path, FOUR_HEADS)
    read: dict[str, tuple[int, ...]] = {}
    raw = CheckpointWeights.raw

    def noted(self, name, part=()):
        tensor = raw(self, name, part)
        read[name] = tuple(tensor.shape)
        return tensor

    monkeypatch.setattr(CheckpointWeights, "raw", noted)
    _target(tmp_path, Group(1, 2, Sum()))
    prefix = "model.layers.0."
    assert read["lm_head.weight"] == read["model.embed_tokens.weight"] == (64, 64)
    assert read[f"{prefix}self_attn.k_proj.weight"] == (32, 64) and read[f"{prefix}self_attn.o_proj.weight"] == (64, 32)
    assert read[f"{prefix}mlp.down_proj.weight"] == (64, 64) and read[f"{prefix}input_layernorm.weight"] == (64,)


@pytest.mark.parametrize(
    ("changes", "size", "said"),
    [
        ({}, 4, "tensor_parallel_size: 4 is not allowed; num_key_value_heads is 2; allowed: a divisor of it"),
        (dict(vocab_size=127), 2, "tensor_parallel_size: 2 is not allowed; vocab_size is 127"),
        (dict(intermediate_size=130), 4, "intermediate_size is 130"),
        (dict(num_attention_heads=6, num_key_value_heads=6), 4, "num_attention_heads is 6"),
    ],
)
def test_what_does_not_divide_is_refused_by_its_field(tmp_path, changes, size, said):
    config = {**llama_config(), **(dict(num_key_value_heads=4) if changes else {}), **changes}
    write_llama(tmp_path, config)
    with pytest.raises(ValueError, match=said):
        _target(tmp_path, Group(0, size, Sum()))


def test_a_head_that_does_not_divide_names_its_own_option(tmp_path):
    write_llama(tmp_path / "target", FOUR_HEADS)
    write_eagle3(tmp_path / "head", eagle3_config(), FOUR_HEADS)
    target = _target(tmp_path / "target", Group(0, 2, Sum()))
    with pytest.raises(ValueError, match="draft_tensor_parallel_size: 2 is not allowed; num_key_value_heads is 1"):
        load_eagle3(tmp_path / "head", target)


def test_a_file_of_another_shape_is_refused_as_on_one_rank(tmp_path):
    write_llama(tmp_path, FOUR_HEADS, change=lambda t: t.update({"lm_head.weight": torch.ones(130, 64)}))
    with pytest.raises(ValueError, match=r"lm_head.weight in .* has shape \(130, 64\), the config needs \(128, 64\)"):
        _target(tmp_path, Group(0, 2, Sum()))


def test_symmetric_memory_needs_gpus():
    for method in ("one-shot", "two-shot", "fused"):
        with pytest.raises(ValueError, match=f"all_reduce: '{method}' is not allowed on cpu: symmetric"):
            check_method(method, CPU)
    check_method("auto", CPU)


def test_auto_goes_by_size():
    assert [best(n, 2) for n in (8 << 10, 8 << 20, LARGEST, LARGEST + 1)] == ["fused", "fused", "two-shot", "nccl"]
    assert [best(n, 2, can_fuse=False) for n in (8 << 10, 512 << 10)] == ["one-shot", "two-shot"]
    assert [best(n, 4) for n in (64 << 10, 1 << 20, LARGEST)] == ["fused", "fused", "two-shot"]


@pytest.mark.parametrize(
    ("asked", "num_bytes", "can_fuse", "method"),
    [
        ("fused", 8 << 10, True, "fused"),
        ("fused", 8 << 20, True, "fused"),  # rows of a wide model that fit
        ("fused", 8 << 20, False, "two-shot"),
        ("auto", 8 << 10, False, "one-shot"),  # rows wider than the inbox
        ("one-shot", 8 << 20, True, "one-shot"),
        ("two-shot", LARGEST + 1, True, "nccl"),
        ("nccl", 8 << 10, True, "nccl"),
    ],
)
def test_what_does_not_fit_goes_another_way(asked, num_bytes, can_fuse, method):
    assert method_for(asked, num_bytes, 2, can_fuse=can_fuse) == method
