"""Strategies as SGLang's speculative algorithms. Names of options: ServerArgs of SGLang 0.5.16."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from specbench.harness.registry import strategy_class
from specbench.harness.spec.arm import ArmConfig

EAGLE, EAGLE3, STANDALONE, NGRAM, NEXTN = "EAGLE", "EAGLE3", "STANDALONE", "NGRAM", "NEXTN"
_OURS = ("no-spec", "eagle", "eagle-topk", "ngram", "draft-model")
_THEIRS = {"mtp": NEXTN, "dflash": "DFLASH", "dspark": "DSPARK"}
_MAX_RESERVED = 64  # positions, if SGLang takes the number of drafts from the checkpoint
_NGRAM_NOTE = (
    "n-gram of SGLang: a tree of {k} nodes from a table of all requests since the block began, not a chain from the "
    "request alone; it verifies in every step, so its acceptance length counts steps without a match too"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Method:
    """`algorithm`: None without speculation. `args`: further ServerArgs. `num_drafts`, `depth`: nodes and levels of a
    round, 0 where SGLang takes them from the checkpoint. `draft`: what names the drafter's weights, None where there
    are none; `is_head`: they are an EAGLE head, and its config decides between EAGLE and EAGLE3."""

    algorithm: str | None = None
    args: Mapping[str, int] = field(default_factory=dict)
    num_drafts: int = 0
    depth: int = 0
    draft: str | None = None
    is_head: bool = False
    notes: tuple[str, ...] = ()

    @property
    def num_reserved(self) -> int:
        """Positions after an answer that SGLang reserves for the drafts of a round; an upper bound."""
        if self.algorithm is None:
            return 0
        nodes = self.depth * self.args.get("speculative_eagle_topk", 1)
        return max(nodes, self.num_drafts + 1) if self.num_drafts else _MAX_RESERVED


def method_of(arm: ArmConfig) -> Method:
    """ValueError names what is allowed."""
    if arm.strategy == "naive-eagle":
        raise ValueError(
            "naive-eagle: SGLang does not have it: its pull request 6995, with one graph per round, was not merged; "
            "eagle:k=1 is the nearest arm"
        )
    if arm.strategy in _OURS:
        return _ours(arm)
    if arm.strategy in _THEIRS or arm.strategy.isupper():
        return _theirs(arm)
    allowed = ", ".join((*_OURS, *_THEIRS))
    raise ValueError(
        f"strategy: {arm.strategy!r} is not allowed; allowed with SGLang: {allowed}, or the name of one of its "
        "algorithms in capitals"
    )


def _ours(arm: ArmConfig) -> Method:
    options = strategy_class(arm.strategy).of(arm.options)
    num_drafts, depth = options.num_drafts, options.depth
    if arm.strategy == "no-spec":
        return Method()
    if options.samples_drafts:
        raise ValueError(
            f"{arm.strategy}: draft_sample_method={arm.options['draft_sample_method']} is not allowed with SGLang, "
            "whose own key is engine.speculative_use_rejection_sampling=true"
        )
    if arm.strategy == "ngram":
        if given := [key for key in ("min_n", "max_n") if key in arm.options]:
            raise ValueError(
                f"ngram: {given[0]}={arm.options[given[0]]} is not allowed; SGLang looks up the longest match in a "
                "table; its own keys are engine.speculative_ngram_max_trie_depth and _match_type"
            )
        args = {"speculative_num_steps": 1, "speculative_num_draft_tokens": num_drafts + 1}
        notes = (_NGRAM_NOTE.format(k=num_drafts),)
        return Method(algorithm=NGRAM, args=args, num_drafts=num_drafts, depth=depth, notes=notes)
    args = _tree(depth, getattr(options, "topk", 1), num_drafts)
    if arm.strategy == "draft-model":
        return Method(
            algorithm=STANDALONE, args=args, num_drafts=num_drafts, depth=depth, draft=arm.options.get("draft", "")
        )
    head = arm.options.get("head", "")
    return Method(algorithm=EAGLE3, args=args, num_drafts=num_drafts, depth=depth, draft=head, is_head=True)


def _theirs(arm: ArmConfig) -> Method:
    """`k` and the tree's options as theirs; weights with `head`; all else as `engine.KEY`."""
    values = {key: value for key, value in arm.options.items() if key != "head"}
    unknown = [key for key in values if key not in ("k", "num_steps", "topk", "num_draft_tokens")]
    if unknown:
        raise ValueError(
            f"{arm.strategy}: unknown option {unknown[0]!r}; allowed: head, k, num_steps, topk, num_draft_tokens, and "
            "engine.KEY for any of SGLang's own"
        )
    wrong = [key for key, value in values.items() if not value.isdecimal() or int(value) < 1]
    if wrong:
        raise ValueError(f"{arm.strategy}: {wrong[0]}={values[wrong[0]]!r} is not allowed; allowed: 1 or more")
    numbers = {key: int(value) for key, value in values.items()}
    algorithm = _THEIRS.get(arm.strategy, arm.strategy)
    k = numbers.pop("k", 0)
    if k and numbers:
        raise ValueError(f"{arm.strategy}: k={k} describes a chain, {next(iter(numbers))} a tree; give one of them")
    if algorithm == "DSPARK":
        args = {"speculative_dspark_block_size": k} if k else {}
    elif algorithm == "DFLASH":  # drafts the whole block in one pass
        args = {"speculative_num_draft_tokens": k + 1} if k else {}
    else:
        args = _tree(k, 1, k) if k else {}
    names = {"num_steps": "speculative_num_steps", "topk": "speculative_eagle_topk"}
    args |= {names.get(key, f"speculative_{key}"): value for key, value in numbers.items()}
    return Method(
        algorithm=algorithm,
        args=args,
        num_drafts=k or max(0, numbers.get("num_draft_tokens", 1) - 1),
        depth=k or numbers.get("num_steps", 0),
        draft=arm.options.get("head"),
    )


def _tree(depth: int, topk: int, num_drafts: int) -> dict[str, int]:
    """A chain has topk 1. SGLang counts the pending token as a draft token."""
    return {
        "speculative_num_steps": depth,
        "speculative_eagle_topk": topk,
        "speculative_num_draft_tokens": num_drafts + 1,
    }
