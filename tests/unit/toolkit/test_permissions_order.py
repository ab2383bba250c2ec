"""The order of decisions: one test for each step over the one that follows it."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from tests.support.permits import TRAITS, Stub, desk

from harness.toolkit import Category, Registry
from harness.toolkit.permissions.decision import DecisionContext, DecisionStep, decide
from harness.toolkit.permissions.questions import AccessItem, AccessRequest
from harness.toolkit.permissions.rules.rule import Action, Match, Rule, RuleIndex, RuleSubject
from harness.toolkit.permissions.rules.settings import Mode

HERE = "local:"
ALLOW, DENY, ASK = Action.ALLOW, Action.DENY, Action.ASK


def claim_of(text: str = "make", *, read_only: bool = False, forbidden: str = "", must_ask: str = "") -> AccessRequest:
    form = RuleSubject(HERE, "run_shell", text)
    return AccessRequest("command", text, form, (AccessItem(text, (form,), read_only),), forbidden, must_ask)


def index(action: Action, argument: str | None = "make") -> RuleIndex:
    return RuleIndex([Rule(action, argument=argument)])


PLAIN = DecisionContext(Mode.ASK, Category.SHELL, "run_shell", mutating=True, requires_approval=True)
NONE = DecisionContext(Mode.ASK, Category.NONE, "clock")
OTHER = replace(claim_of(), kind="other")

# What each step needs to decide, each with what the steps before it need, so that only their order tells them apart.
CASES = [
    (DecisionStep.HARD, claim_of(forbidden="a secret"), {}, DENY),
    (DecisionStep.DENY_RULE, claim_of(), {"profile": index(DENY)}, DENY),
    (DecisionStep.MODE_DENY, claim_of(), {"mode": Mode.DENY}, DENY),
    (DecisionStep.SESSION, claim_of(), {"session": index(ALLOW)}, ALLOW),
    (DecisionStep.BROKEN, claim_of(), {"failure": "it is corrupt"}, ASK),
    (DecisionStep.STORED, claim_of(), {"stored": index(ASK)}, ASK),
    (DecisionStep.PROFILE, claim_of(), {"profile": index(ALLOW)}, ALLOW),
    (DecisionStep.ONLY, claim_of(), {"only": ("read_file",)}, DENY),
    (DecisionStep.MUST_ASK, claim_of(must_ask="not understood"), {}, ASK),
    (DecisionStep.AUTO, claim_of(), {"mode": Mode.AUTO}, ALLOW),
    (DecisionStep.QUIET, claim_of(read_only=True), {}, ALLOW),
    (DecisionStep.DEFAULT, claim_of(), {}, ASK),
]


@pytest.mark.parametrize(("step", "claim", "more", "action"), CASES, ids=[case[0] for case in CASES])
def test_each_step_decides_where_nothing_before_it_does(
    step: DecisionStep, claim: AccessRequest, more: dict[str, object], action: Action
) -> None:
    decision = decide([claim], replace(PLAIN, **more))  # type: ignore[arg-type]  # fields of it, by name
    assert (decision.step, decision.action) == (step, action)


def joined(first: AccessRequest, second: AccessRequest) -> AccessRequest:
    pieces = tuple(replace(piece, read_only=piece.read_only or second.pieces[0].read_only) for piece in first.pieces)
    return replace(
        first, pieces=pieces, forbidden=first.forbidden or second.forbidden, must_ask=first.must_ask or second.must_ask
    )


@pytest.mark.parametrize(("first", "second"), list(pairwise(CASES)), ids=lambda case: case[0])
def test_each_step_goes_before_the_one_that_follows_it(
    first: tuple[DecisionStep, AccessRequest, dict[str, object], Action],
    second: tuple[DecisionStep, AccessRequest, dict[str, object], Action],
) -> None:
    more = {**second[2], **first[2]}
    if "profile" in first[2] and "profile" in second[2]:
        raise AssertionError("these two cannot be told apart")
    decision = decide([joined(first[1], second[1])], replace(PLAIN, **more))  # type: ignore[arg-type]  # as above
    assert (decision.step, decision.action) == (first[0], first[3])


def test_a_rule_that_denies_goes_before_any_that_allows_wherever_it_is_from() -> None:
    for layer in ("session", "stored", "profile"):
        layers = {name: index(ALLOW) for name in ("session", "stored", "profile")} | {layer: index(DENY)}
        decision = decide([claim_of()], replace(PLAIN, mode=Mode.AUTO, **layers))  # type: ignore[arg-type]  # as above
        assert (decision.action, decision.step) == (DENY, DecisionStep.DENY_RULE)


def test_of_one_layer_the_first_rule_counts() -> None:
    rules = [Rule(ASK, argument="make"), Rule(ALLOW)]
    assert decide([claim_of()], replace(PLAIN, profile=RuleIndex(rules))).action is ASK
    assert decide([claim_of()], replace(PLAIN, profile=RuleIndex(rules[::-1]))).action is ALLOW


@pytest.mark.parametrize(
    ("mode", "read_only", "expected"),
    [
        (Mode.ASK, True, ALLOW),
        (Mode.ASK, False, ASK),
        (Mode.STRICT, True, ASK),
        (Mode.AUTO, False, ALLOW),
        (Mode.DENY, True, DENY),
    ],
)
def test_the_modes(mode: Mode, read_only: bool, expected: Action) -> None:
    assert decide([claim_of(read_only=read_only)], replace(PLAIN, mode=mode)).action is expected


@pytest.mark.parametrize(
    ("situation", "expected"),
    [
        (NONE, (ALLOW, DecisionStep.HARMLESS)),
        (replace(NONE, mode=Mode.STRICT), (ALLOW, DecisionStep.HARMLESS)),
        (replace(NONE, mutating=True), (ASK, DecisionStep.DEFAULT)),
        (replace(NONE, requires_approval=True), (ASK, DecisionStep.DEFAULT)),
        (replace(NONE, category=Category.SHELL), (ALLOW, DecisionStep.QUIET)),
        (replace(NONE, category=Category.SHELL, mode=Mode.STRICT), (ASK, DecisionStep.DEFAULT)),
        (replace(NONE, category=Category.NETWORK), (ASK, DecisionStep.DEFAULT)),
        (replace(NONE, category=Category.MCP), (ASK, DecisionStep.DEFAULT)),
        (replace(NONE, category=Category.PLUGIN), (ASK, DecisionStep.DEFAULT)),
        (replace(NONE, category=Category.AGENT), (ASK, DecisionStep.DEFAULT)),
    ],
)
def test_what_a_category_does_by_default(situation: DecisionContext, expected: tuple[Action, DecisionStep]) -> None:
    decision = decide([OTHER], situation)
    assert (decision.action, decision.step) == expected


def test_every_subject_must_be_allowed_and_one_that_is_denied_denies() -> None:
    good, bad, unknown = claim_of("ls", read_only=True), claim_of("rm", forbidden="no"), claim_of("make")
    assert decide([good, good], PLAIN).action is ALLOW
    assert decide([good, unknown], PLAIN).action is ASK
    assert decide([good, unknown], PLAIN).asks == (unknown,)
    assert decide([unknown, good, bad], PLAIN).action is DENY
    assert decide([], PLAIN).action is ASK


def test_every_piece_must_be_allowed() -> None:
    forms = [RuleSubject(HERE, "run_shell", text) for text in ("make", "ls")]
    pieces = (AccessItem("make", (forms[0],)), AccessItem("ls", (forms[1],), read_only=True))
    claim = replace(claim_of(), pieces=pieces)
    assert decide([claim], PLAIN).action is ASK
    assert decide([claim], replace(PLAIN, profile=index(ALLOW))).action is ALLOW
    assert decide([claim], replace(PLAIN, profile=index(ALLOW, "ls"))).action is ASK
    assert decide([claim], replace(PLAIN, profile=index(DENY, "ls"))).action is DENY


def test_what_must_be_asked_is_allowed_by_a_rule_for_exactly_it_and_by_no_other() -> None:
    form = RuleSubject(HERE, "run_shell", "make", allows="exact")
    claim = replace(claim_of(must_ask="not understood"), whole=form, pieces=(AccessItem("make", (form,)),))
    assert decide([claim], replace(PLAIN, session=index(ALLOW))).action is ALLOW
    assert decide([claim], replace(PLAIN, session=index(ALLOW, None))).action is ASK
    assert decide([claim], replace(PLAIN, mode=Mode.AUTO)).action is ASK
    assert decide([replace(claim, unkept=True)], replace(PLAIN, session=index(ALLOW))).action is ASK


def test_a_decision_names_the_rule_and_where_it_is_from() -> None:
    rule = Rule(DENY, argument="make", origin="/etc/some.toml")
    decision = decide([claim_of()], replace(PLAIN, profile=RuleIndex([rule])))
    assert decision.by == f"deny rule {rule.rule_id}, /etc/some.toml"
    assert decision.reason == "matched rule: deny * 'make'"


def test_a_file_of_rules_that_cannot_be_trusted_lifts_no_whitelist() -> None:
    situation = replace(PLAIN, failure="it is corrupt", only=("read_file",))
    assert decide([claim_of()], situation).step is DecisionStep.ONLY


async def test_a_rule_for_another_name_of_a_tool_is_a_rule_for_it() -> None:
    denying = RuleIndex([Rule(DENY, tool="bash", argument="make")], {"bash": "run_shell"})
    assert decide([claim_of()], replace(PLAIN, profile=denying)).action is DENY
    rule = decide([claim_of()], replace(PLAIN, profile=denying)).rule
    assert rule is not None
    assert rule.tool == "bash"
    settings: dict[str, object] = {"rules": (Rule(DENY, tool="put"),), "allowed_tools": ("put", "read_file")}
    made = desk(mode=Mode.AUTO, **settings)  # type: ignore[arg-type]  # fields of the settings
    other = Stub("write_file", replace(TRAITS["write_file"], aliases=("put",)))
    assert (await made.decide("write_file", "/srv/a")).by == "tool allowlist"
    made = replace(made, ctx=replace(made.ctx, registry=Registry([other])))
    assert (await made.decide("write_file", "/srv/a")).by.startswith("deny rule")


@pytest.mark.parametrize(
    ("url", "allowed"),
    [
        ("https://a.example.com/x", True),
        ("https://a.example.com/x/y?z=1", True),
        ("https://evil.net/.example.com/x", False),
        ("https://evil.net?.example.com/x", False),
        ("https://a.\N{CYRILLIC SMALL LETTER IE}xample.com/x", False),
    ],
)
async def test_a_star_in_the_host_of_a_rule_for_urls_matches_no_other_host(url: str, allowed: bool) -> None:
    rules = (Rule(ALLOW, tool="fetch_url", argument="https://*.example.com/*", match=Match.GLOB),)
    assert await desk(rules=rules).allows("fetch_url", url) is allowed
