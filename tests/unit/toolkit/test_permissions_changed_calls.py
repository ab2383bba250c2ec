"""A call that an approver changes: what may be changed, for one host and for many."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.toolkit.permissions.changed_calls import changed_call, editable
from harness.toolkit.permissions.host_questions import HOSTS, HostQuestion, merge_questions, single_answer
from harness.toolkit.permissions.questions import ApprovalDecision, ApprovalRequest, ApprovalScope
from harness.toolkit.redaction.redactor import MARK
from harness.toolkit.values import JsonObject, ToolCall

SECRET = f"token={MARK}"


def question_of(arguments: JsonObject | str, *, what: str = "make") -> ApprovalRequest:
    call = ToolCall("run_shell", arguments, "c1")
    return ApprovalRequest("q1", call, what, "no rule allows it", "local:", tuple(ApprovalScope))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"command": "make"}, ("command", "make")),
        ({"content": "x", "path": "/srv/a"}, ("path", "/srv/a")),
        ({"path": "", "content": "x"}, ("content", "x")),
        ({"path": ["/srv/a"], "content": "x"}, ("content", "x")),
        ({"timeout": 5}, None),
        ("make", None),
        ({"command": SECRET}, None),
        ({"command": "make", "env": {"A": "1"}, "args": ["b", 2]}, ("command", "make")),
        ({"command": "make", "env": {"A": SECRET}}, None),
        ({"command": "make", "args": ["b", {"c": [SECRET]}]}, None),
    ],
)
def test_an_argument_can_be_changed_if_nothing_of_the_call_is_redacted(
    arguments: JsonObject | str, expected: tuple[str, str] | None
) -> None:
    assert editable(question_of(arguments)) == expected


def test_only_the_argument_that_was_shown_is_changed() -> None:
    question = question_of({"command": "make", "cwd": "/srv"})
    assert changed_call(question, "make -n") == replace(question.call, arguments={"command": "make -n", "cwd": "/srv"})


FOR_HOSTS = ToolCall("run_shell", {"command": "make", HOSTS: "web[1-2]"}, "c1")


def answered(arguments: JsonObject | str, scope: ApprovalScope = ApprovalScope.ONCE) -> ApprovalDecision:
    return single_answer(ApprovalDecision(scope, "mia", call=replace(FOR_HOSTS, arguments=arguments)), FOR_HOSTS)


@pytest.mark.parametrize(
    "changed", ["make", {"command": "make", HOSTS: "web[1-3]"}, {"command": "make"}, {"command": "make", HOSTS: None}]
)
def test_an_approval_that_changes_the_hosts_of_a_call_denies_it(changed: JsonObject | str) -> None:
    answer = answered(changed)
    assert (answer.scope, answer.call, answer.by) == (ApprovalScope.DENY_ONCE, None, "mia")


def test_a_changed_call_runs_on_each_host_without_the_argument_that_names_them() -> None:
    answer = answered({"command": "make -n", HOSTS: "web[1-2]"}, ApprovalScope.EXACT)
    assert answer.call == replace(FOR_HOSTS, arguments={"command": "make -n"})
    assert answer.scope is ApprovalScope.EXACT
    for unchanged in (ApprovalDecision(ApprovalScope.ONCE), ApprovalDecision(ApprovalScope.DENY_ONCE, call=FOR_HOSTS)):
        assert single_answer(unchanged, FOR_HOSTS) is unchanged


def merged(*each: JsonObject | str, call: ToolCall = FOR_HOSTS, what: tuple[str, ...] = ()) -> ApprovalRequest:
    texts = what or ("make",) * len(each)
    asked = [
        HostQuestion(f"web{number}", question_of(arguments, what=text))
        for number, (arguments, text) in enumerate(zip(each, texts, strict=True), 1)
    ]
    return merge_questions(asked, call)


def test_a_question_for_many_hosts_shows_the_arguments_that_all_of_them_have_and_no_unredacted_ones() -> None:
    one, other = {"command": SECRET, "cwd": "/srv", "only1": 1}, {"command": SECRET, "cwd": "/tmp", "only2": 2}
    assert merged(one).call.arguments == {HOSTS: "web[1-2]", **one}
    assert merged(one, other).call.arguments == {HOSTS: "web[1-2]", "command": SECRET}
    assert merged(one, one, other).call.arguments == {HOSTS: "web[1-2]", "command": SECRET}
    assert merged(one, {}).call.arguments == {}
    assert merged(one, call=replace(FOR_HOSTS, arguments="make")).call.arguments == {}


def test_a_question_for_many_hosts_tells_which_text_is_for_which_host() -> None:
    assert merged({"a": 1}, {"a": 1}).what == "make"
    assert merged({"a": 1}, {"a": 1}, {"a": 1}, what=("make", "make -n", "make")).what == (
        "on web[1,3] (2 hosts):\nmake\non web2 (1 host):\nmake -n"
    )
