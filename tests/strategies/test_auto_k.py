"""`k=auto`: rounds with any numbers of drafts, one after the other, say what no-spec says; how the number is chosen."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from toy.draft_tables import COUNTS, TABLE, at_load
from toy.edits import FEATURES, requests_with
from toy.engines import decode_rows, deployed, generate, make_engine, named_strategy, outputs, pad_rounds, request
from toy.few_words import FewWords
from toy.oracle import assert_as_oracle, continuations
from toy.plans import CPU, Plan, late
from toy.prompts import text_prompt
from toy.scripted import PATTERNS, Script, Scripted

from specbench.harness.engines.native.core.draft_counts import DraftCounts, TableDrafts
from specbench.harness.engines.native.core.sampler import SamplingMode
from specbench.harness.engines.native.core.strategy import Strategy
from specbench.harness.engines.native.core.synthetic import SyntheticAcceptance
from specbench.harness.store.codec import write_document
from specbench.harness.store.draft_table import DraftTable, DraftTables

HALF = SyntheticAcceptance((0.5, 0.25, 0.12, 0.06), "half of the drafts")
STRATEGIES = {
    "eagle": dict(head="random"),
    "naive-eagle": dict(head="random"),
    "ngram": dict(min_n=1),
    "draft-model": dict(draft="self:1"),
    "parallel-eagle": dict(head="random"),
}


class Drawn:
    """Any of the counts for each step, in an order that nothing else depends on."""

    choices = COUNTS

    def __init__(self, seed: int = 0):
        self._rng = random.Random(seed)
        self.seen: list[tuple[int, list[int]]] = []  # drafts there could be, accepted of each request

    def choose(self, num_requests: int) -> int:
        return self._rng.choice(self.choices)

    def accepted(self, num_drafts: int, status: Sequence[Sequence[int]]) -> None:
        self.seen.append((num_drafts, [row[0] for row in status]))


def _drawing(strategy: Strategy | Scripted, counts: DraftCounts) -> Strategy:
    object.__setattr__(strategy, "draft_counts", lambda: counts)
    return strategy  # type: ignore[return-value]


def _named(name: str, counts: Drawn | None = None) -> Strategy:
    return _drawing(named_strategy(name, k=COUNTS[-1], **STRATEGIES[name]), counts or Drawn())


def _eagle(k: int) -> Strategy:
    return named_strategy("eagle", k=k, head="random")


def _requests(num: int = 5, max_tokens: int = 22) -> list:
    kinds = [dict(temperature=0.0), dict(temperature=0.9), dict(temperature=0.0), dict(temperature=0.7, top_p=0.8)]
    return [request(i, text_prompt(i, 3 + 7 * i), max_tokens=max_tokens, seed=i, **kinds[i % 4]) for i in range(num)]


# -- lossless ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", STRATEGIES)
def test_c01_any_order_of_counts_gives_the_output_of_no_spec(plan: Plan, name: str):
    requests = _requests()
    engine = make_engine(plan, _named(name))
    assert_as_oracle(engine, generate(engine, requests), continuations(plan, requests), name)
    assert {r.num_rows // r.batch_size - 1 for r in engine.log.rows if r.kind == "decode"} == set(COUNTS)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_c01_with_scripted_drafts_in_padded_rounds(main_plan: Plan, pattern: str):
    requests = _requests()
    oracle = continuations(main_plan, requests)
    script = Script.of(requests, oracle, PATTERNS[pattern](COUNTS[-1]))
    engine = make_engine(main_plan, _drawing(Scripted(COUNTS[-1], script), Drawn()), num_pages=60)
    if main_plan.device == "cpu":
        pad_rounds(engine, [3, 8])
    assert_as_oracle(engine, generate(engine, requests), oracle, pattern)


def test_c01_unpadded_drafting():
    requests = _requests()
    engine = make_engine(replace(CPU, drafter="unpadded"), _named("eagle"))
    assert_as_oracle(engine, generate(engine, requests), continuations(CPU, requests))


@pytest.mark.parametrize("name", STRATEGIES)
def test_changed_logits_see_the_drafts_of_shorter_rounds(main_plan: Plan, name: str):
    expected = outputs(generate(make_engine(main_plan), requests_with(FEATURES["all"])))
    assert outputs(generate(make_engine(main_plan, _named(name)), requests_with(FEATURES["all"]))) == expected


@pytest.mark.parametrize("feature", ["frequency", "repetition", "all"])
def test_penalties_count_the_right_drafts_of_shorter_rounds(main_plan: Plan, feature: str):
    """All drafts are right, so that a row which counts another draft than those before it says something else."""
    expected = outputs(generate(make_engine(main_plan), requests_with(FEATURES[feature])))
    requests = requests_with(FEATURES[feature])
    script = Script.of(requests, expected, PATTERNS["perfect"](COUNTS[-1]))
    script.right_FL.fill_(COUNTS[-1])
    script.offered_FL.fill_(COUNTS[-1])
    engine = make_engine(main_plan, _drawing(Scripted(COUNTS[-1], script), Drawn()))
    assert outputs(generate(engine, requests)) == expected
    assert {row.num_accepted for row in decode_rows(engine)} >= set(COUNTS)


def test_log_probabilities_of_shorter_rounds():
    def asked() -> list:
        return [request(i, text_prompt(i, 9), max_tokens=14, logprobs=2) for i in range(3)]

    expected = generate(make_engine(CPU), asked())
    found = generate(make_engine(CPU, _named("ngram")), asked())
    for number, done in found.items():
        told, alone = done.logprobs, expected[number].logprobs
        assert [x.logprob for x in told] == pytest.approx([x.logprob for x in alone], abs=1e-4)


# -- the drafts themselves ---------------------------------------------------------------------------------------------


def test_a_right_draft_model_stays_right_whatever_the_counts(main_plan: Plan):
    """The target as its own draft model: every round accepts all drafts there can be, so no key is ever missing."""
    engine = make_engine(main_plan, _drawing(named_strategy("draft-model", k=4, draft="self:2"), counts := Drawn()))
    generate(engine, [request(0, text_prompt(0, 9), max_tokens=60)])
    assert [accepted for _, accepted in counts.seen[:-1]] == [[most] for most, _ in counts.seen[:-1]]
    assert {most for most, _ in counts.seen} == set(COUNTS)


def test_a_head_drafts_what_it_drafts_with_a_fixed_count(tmp_path: Path, main_plan: Plan):
    """At every position where both begin a round, as far as both draft."""
    words = FewWords(tmp_path)
    requests = [request(i, text_prompt(i, 5 + i), max_tokens=60) for i in range(3)]
    strategy = _drawing(named_strategy("eagle", k=4, head=words.head), Drawn())
    engines = [words.engine(main_plan, 4), make_engine(main_plan, strategy, target=words.target(main_plan.device))]
    fixed, drawn = (
        {at: row for engine_rows in [_by_position(e, requests)] for at, row in engine_rows} for e in engines
    )
    shared = fixed.keys() & drawn.keys()
    assert len(shared) > 20
    for at in shared:
        assert drawn[at].num_accepted == min(fixed[at].num_accepted, drawn[at].num_proposed), at


def _by_position(engine, requests) -> list:
    """((request, tokens before), row) of every decode."""
    generate(engine, [replace_id(r) for r in requests])
    found = []
    before: dict[int, int] = {}
    for row in engine.log.rows:
        at = before.get(row.request_id, 0)
        before[row.request_id] = at + row.num_emitted
        if not row.is_prefill and not row.truncated:
            found.append(((row.request_id, at), row))
    return found


def replace_id(r):
    return request(r.id, r.prompt_ids, max_tokens=r.sampling.max_tokens)


@pytest.mark.parametrize("name", ["eagle", "draft-model", "parallel-eagle"])
def test_no_draft_of_an_earlier_round_is_offered_again(name: str):
    """Behind a round with fewer drafts the next one has those alone."""
    engine = make_engine(CPU, _named(name, counts := Drawn(3)))
    generate(engine, [request(0, text_prompt(0, 9), max_tokens=60)])
    offered = [row.num_proposed for row in decode_rows(engine) if row.kind == "decode"]
    assert offered == [most for most, _ in counts.seen]
    verified = [row.num_rows - 1 for row in decode_rows(engine) if row.kind == "decode"]
    assert any(a < b for a, b in zip(offered, verified, strict=True)), "the count never rose"


def test_n_gram_drafts_of_a_shorter_round_count_where_a_longer_one_verifies_them():
    """n-gram leaves all drafts that it finds, whatever the round before verified."""
    engine = make_engine(CPU, _named("ngram", counts := Drawn(3)))
    generate(engine, [request(0, text_prompt(0, 9) * 4, max_tokens=90)])
    rounds = [row for row in decode_rows(engine) if row.kind == "decode"]
    could, verified = [most for most, _ in counts.seen], [row.num_rows - 1 for row in rounds]
    assert all(row.num_proposed <= most for row, most in zip(rounds, could, strict=True))
    before = [row.num_rows - 1 for row in rounds[:-1]]
    assert could[1:] == [now if last else 0 for last, now in zip(before, verified[1:], strict=True)]
    assert any(row.num_proposed > last for row, last in zip(rounds[1:], before, strict=True) if last), "none rose"


# -- the choice --------------------------------------------------------------------------------------------------------


def _write(folder: Path, *tables: DraftTable) -> Path:
    write_document(folder / "t.json", DraftTables(sweep_id="s", model="toy", hardware="", tables=tables or (TABLE,)))
    return folder / "t.json"


@pytest.mark.parametrize("size", [1, 4])
def test_a_best_number_that_never_changes_makes_the_steps_of_a_fixed_one(size: int):
    """Whatever layouts the others have: prompts beside decodes, ends of requests and late reads included."""
    table = replace(TABLE, loads=(at_load(1, (10.0, 7.0, 4.0, 5.0)), at_load(9, (10.0, 9.0, 6.0, 9.0))))
    steps = []
    for strategy in (_drawing(_eagle(4), TableDrafts(table)), _eagle(2)):
        engine = make_engine(late("cpu", "none", 1), strategy, acceptance=HALF, max_num_seqs=size)
        generate(engine, [request(i, text_prompt(i, 3 + 7 * i), max_tokens=12 + 5 * i, seed=i) for i in range(7)])
        steps.append([row._replace(t_start_ns=0, t_host_ns=0, t_device_ns=0) for row in engine.log.rows])
    assert {row.kind for row in steps[0]} == {"decode", "mixed"}
    assert steps[0] == steps[1]


def test_auto_reads_nothing_that_a_fixed_count_does_not_read(tmp_path: Path):
    strategies = [named_strategy("ngram", k="auto", k_table=_write(tmp_path)), named_strategy("ngram", k=4)]
    for strategy in strategies:
        engine = make_engine(late("cpu", "none", 1), strategy)
        generate(engine, [request(i, text_prompt(i, 9), max_tokens=60) for i in range(2)])
        waits = {r.step: r.num_syncs for r in engine.log.rows if r.kind == "decode"}
        assert sum(waits.values()) <= 1, "only the last round, with nothing behind it, may be waited for"


def test_rounds_of_changing_counts_are_not_traced():
    """Nor split by an instrumented capture, which is of one count."""
    engine = make_engine(CPU, _named("ngram"))
    with pytest.raises(ValueError, match="k: auto changes the drafts of a round; trace one of k=0, 1, 2, 4"):
        deployed(engine).trace(None, 1, None)  # type: ignore[arg-type]


def test_every_count_has_its_rounds_at_warm_up():
    engine = make_engine(CPU, _named("eagle"))
    pad_rounds(engine, [1, 2, 4])
    engine.launcher.capture([SamplingMode.GREEDY])
    made = len(engine.launcher.rounds())
    assert made == 3 * len(COUNTS)
    generate(engine, [request(i, text_prompt(i, 9), max_tokens=20) for i in range(6)])
    assert len(engine.launcher.rounds()) == made


# -- options -----------------------------------------------------------------------------------------------------------


def test_options(tmp_path: Path):
    file = _write(tmp_path)
    assert named_strategy("ngram", k="auto", k_table=file).num_drafts == 4
    two = _write(tmp_path, TABLE, replace(TABLE, options={"min_n": "1"}, acceptance=(0.1,) * 4))
    strategy = named_strategy("ngram", k="auto", k_table=two, min_n=1)
    assert isinstance(found := strategy.draft_counts(), TableDrafts) and found._rates == (0.1,) * 4


@pytest.mark.parametrize(
    ("strategy", "swept", "options"),
    [
        ("ngram", {"min_n": "2"}, dict(min_n=2)),  # the default
        ("ngram", {"min_n": "2"}, {}),
        ("ngram", {}, dict(min_n=2, max_n=5)),
        ("eagle", {}, dict(head="shipped:smollm2-135m-instruct")),  # what such an arm gets once the model is known
    ],
)
def test_of_several_tables_the_one_that_means_the_same(tmp_path: Path, strategy: str, swept: dict, options: dict):
    """Found when the arm is read and again when its engine is made."""
    other = {"min_n": "3"} if strategy == "ngram" else {"draft_sample_method": "probabilistic"}
    tables = [replace(TABLE, strategy=strategy, options=each) for each in (other, swept)]
    file = _write(tmp_path, tables[0], replace(tables[1], acceptance=(0.1,) * 4))
    found = named_strategy(strategy, k="auto", k_table=file, **options).draft_counts()
    assert isinstance(found, TableDrafts) and found._rates == (0.1,) * 4


def _without_last_time(table: DraftTable) -> DraftTable:
    first, last = table.loads
    return replace(table, loads=(first, replace(last, times=last.times[:-1])))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (dict(k="auto"), "k=auto needs k_table=FILE"),
        (dict(k="2", k_table="x.json"), "k_table is not allowed with k=2; give k=auto"),
        (dict(k_table="x.json"), r"k_table is not allowed with k=\(default\)"),
        (dict(k="auto", k_table="nowhere.json"), "k_table: 'nowhere.json' does not exist"),
        (dict(k="many"), "k='many' is not a whole number"),
    ],
)
def test_options_that_do_not_go_together(options: dict, said: str):
    with pytest.raises(ValueError, match=said):
        named_strategy("ngram", **options)


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        ([replace(TABLE, strategy="eagle")], "has no table of ngram ; it has eagle"),
        ([TABLE, TABLE], "has no table of ngram"),
        ([replace(TABLE, loads=())], "no loads"),
        ([replace(TABLE, loads=TABLE.loads[::-1])], "loads .* do not rise"),
        ([_without_last_time(TABLE)], "not every load has the same numbers of drafts"),
        ([replace(TABLE, acceptance=(0.5,))], "acceptance does not have 4 shares"),
    ],
)
def test_tables_that_cannot_be_used(tmp_path: Path, tables: list, said: str):
    with pytest.raises(ValueError, match=said):
        named_strategy("ngram", k="auto", k_table=_write(tmp_path, *tables))


def test_times_that_are_none(tmp_path: Path):
    file = _write(tmp_path)
    file.write_text(json.dumps(json.loads(file.read_text())).replace('"tpot_ms": 4.0', '"tpot_ms": 0'))
    with pytest.raises(ValueError, match="tpot_ms is not a positive number"):
        named_strategy("ngram", k="auto", k_table=file)


def test_the_most_drafts_of_a_strategy_hold_for_its_table(tmp_path: Path):
    loads = (at_load(1, (9.0, 9.0), (1, 12)),)
    long = replace(TABLE, strategy="eagle", acceptance=(0.5,) * 12, loads=loads)
    with pytest.raises(ValueError, match="eagle: k=12 is not allowed; allowed: 1 to 8"):
        named_strategy("eagle", k="auto", k_table=_write(tmp_path, long))
