"""Arms as command lines of llama-server."""

from __future__ import annotations

from pathlib import Path

import pytest

from specbench.harness.engines.llama_cpp import command_line
from specbench.harness.engines.llama_cpp.command_line import speculation
from specbench.harness.engines.llama_cpp.engine import LlamaCppEngine
from specbench.harness.spec.arm import parse_arm
from specbench.harness.spec.conditions import Conditions


def words_of(text: str, draft: Path | None = None, **changes: object) -> list[str]:
    arm = parse_arm(text)
    command_line.refuse(arm)
    conditions = Conditions(max_concurrency=3, max_model_len=512, **changes)
    files = {"binary": Path("/bin/llama-server"), "model": Path("m.gguf"), "draft": draft}
    return command_line.words(arm, speculation(arm), conditions, **files, dtype="float32", is_cpu=True)


def test_every_request_has_a_whole_context_of_its_own():
    words = words_of("no-spec")
    assert words[:3] == ["/bin/llama-server", "--model", "m.gguf"] and "--spec-type" not in words
    pairs = dict(zip(words, words[1:], strict=False))
    assert pairs["--parallel"] == "3" and pairs["--ctx-size"] == "1536" and pairs["--cache-type-k"] == "f32"
    assert pairs["--gpu-layers"] == "0" and "--metrics" in words


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("eagle:k=5,head=h", "--spec-type draft-eagle3 --spec-draft-n-max 5 --spec-draft-model d.gguf"),
        ("draft-model:draft=d", "--spec-type draft-simple --spec-draft-n-max 4 --spec-draft-model d.gguf"),
        ("draft-mtp", "--spec-type draft-mtp --spec-draft-n-max 4"),
        ("ngram:k=3", "--spec-type ngram-simple --spec-draft-n-max 3 --spec-ngram-simple-size-n 5"),
        ("ngram:kind=map-k4v,max_n=2", "--spec-type ngram-map-k4v --spec-draft-n-max 4 --spec-ngram-map-k4v-size-n 2"),
        ("ngram:k=6,kind=mod", "--spec-type ngram-mod --spec-draft-n-max 6 --spec-ngram-mod-n-match 5"),
        ("eagle:acceptance=synthetic:2.5", "--spec-draft-n-max 4 --spec-synth-len 2.5"),
        ("eagle:acceptance=synthetic:rates=0.8/0.5/0.3/0.2", "--spec-synth-rates 0.8,0.5,0.3,0.2"),
        ("no-spec:engine.flash_attn=off,engine.mlock=true", "--flash-attn off --mlock"),
    ],
)
def test_strategies_and_switches(text, expected):
    needs = text.startswith(("eagle", "draft-model"))
    assert expected in " ".join(words_of(text, Path("d.gguf") if needs else None))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("eagle-topk:topk=4", "llama.cpp drafts no trees"),
        ("medusa", "is not a method of llama.cpp; allowed: no-spec, eagle"),
        ("eagle:tree=4", "tree: '4' cannot be given to llama.cpp's eagle; allowed: k, head"),
        ("eagle:k=0", "k: '0' is not allowed"),
        ("draft-model", "draft: '' is not allowed"),
        ("ngram:kind=long", "kind: 'long' is not allowed; allowed: simple"),
        ("eagle:drafter=unpadded", "drafter: 'unpadded' cannot be given to llama.cpp"),
        ("eagle:graph=full", "no switch for CUDA graphs"),
        ("no-spec:engine.ctx_size=4", "engine.ctx_size: is not allowed"),
        ("eagle:acceptance=histogram:x", "acceptance: 'histogram:x' is not allowed for llama.cpp"),
    ],
)
def test_what_it_cannot_do_is_refused_with_the_reason(text, said):
    with pytest.raises(ValueError, match=said):
        words_of(text)


@pytest.mark.parametrize(
    ("strategy", "notes", "acceptance"),
    [("ngram", ("synthetic acceptance (2.5)",), "synthetic:2.5"), ("no-spec", (), "real")],
)
def test_forced_acceptance_is_marked_where_there_are_drafts(tmp_path, strategy, notes, acceptance):
    """Without the mark, tables showed it as the drafter's own."""
    server = tmp_path / "llama-server"
    server.touch(mode=0o755)
    arm = LlamaCppEngine().resolve(parse_arm(f"{strategy}:acceptance=synthetic:2.5,python={server}"), Conditions())
    assert (arm.notes, arm.setup().acceptance) == (notes, acceptance)
