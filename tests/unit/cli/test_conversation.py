"""Which target a stored conversation goes on with."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.disks import file_limit

from harness.agent.models import ModelProfile, ModelTable
from harness.agent.storage import ConversationSummary
from harness.cli.conversation import check_identity, check_target, choices_for, stored_choices, stored_model, write_new
from harness.errors import ConfigError, HarnessError
from harness.settings import CommandLineChoices

WEB = CommandLineChoices(ssh="web1", tmux="ops", ssh_options=("Port=22",), identity="key", pane="logs")
SUMMARY = ConversationSummary(
    session_id="k3f9-02mx-7yqa",
    created=0.0,
    changed=0.0,
    target="ssh://web1",
    identity="ssh://web1",
    tmux="ops",
    pane="logs",
    options=stored_choices(WEB),
)
KEPT = replace(WEB, identity=os.path.abspath("key"))


def test_paths_are_kept_as_they_are_seen_from_everywhere() -> None:
    assert stored_choices(CommandLineChoices()) == {}
    assert stored_choices(WEB) == {
        "ssh": "web1",
        "tmux": "ops",
        "pane": "logs",
        "ssh_options": ["Port=22"],
        "identity": os.path.abspath("key"),
    }


@pytest.mark.parametrize(
    ("given_", "here", "chosen"),
    [
        (CommandLineChoices(), False, KEPT),
        (
            CommandLineChoices(identity="/other", ssh_options=("Port=23",)),
            False,
            replace(KEPT, identity="/other", ssh_options=("Port=23",)),
        ),
        (CommandLineChoices(tmux=False), False, replace(KEPT, tmux=False, pane=None)),
        (CommandLineChoices(ssh="web2"), False, CommandLineChoices(ssh="web2", tmux="ops")),
        (CommandLineChoices(), True, CommandLineChoices()),
        (CommandLineChoices(ssh="web2", tmux="x"), True, CommandLineChoices(ssh="web2", tmux="x")),
        (CommandLineChoices(target="local:", tmux=True), False, CommandLineChoices(target="local:", tmux=True)),
    ],
)
def test_the_conversation_says_what_the_command_line_does_not(
    given_: CommandLineChoices, here: bool, chosen: CommandLineChoices
) -> None:
    assert choices_for(SUMMARY, given_, here=here) == chosen


def test_a_target_that_the_settings_chose_is_named_by_its_url() -> None:
    summary = replace(SUMMARY, options={}, tmux="", pane="")
    assert choices_for(summary, CommandLineChoices(), here=False) == CommandLineChoices(target="ssh://web1", tmux=False)


def test_a_throw_away_container_is_not_made_again() -> None:
    summary = replace(SUMMARY, options=stored_choices(CommandLineChoices(image="debian")))
    with pytest.raises(ConfigError, match="in a temporary container, which was removed"):
        choices_for(summary, CommandLineChoices(), here=False)
    assert choices_for(summary, CommandLineChoices(ssh="web1"), here=False).ssh == "web1"


def test_a_conversation_on_many_hosts_takes_its_options_but_no_single_target() -> None:
    stored = stored_choices(CommandLineChoices(ssh="web1", ssh_options=("Port=22",)))
    summary = replace(SUMMARY, target="fleet://web[1-3]", options=stored, tmux="", pane="")
    chosen = choices_for(summary, CommandLineChoices(), here=False)
    assert chosen == CommandLineChoices(ssh_options=("Port=22",), tmux=False)


def test_hosts_of_the_command_line_need_nothing_of_the_conversation() -> None:
    summary = replace(SUMMARY, tmux="", pane="")
    assert choices_for(summary, CommandLineChoices(), here=False, on_hosts=True) == CommandLineChoices(tmux=False)


@given(
    st.dictionaries(
        st.sampled_from(["ssh", "tmux", "ssh_options", "nothing", "target"]),
        st.none() | st.text() | st.integers() | st.lists(st.integers()),
    )
)
def test_options_of_another_kind_are_passed_over(options: dict[str, object]) -> None:
    summary = replace(SUMMARY, options=options)  # type: ignore[arg-type]  # that is the point
    chosen = choices_for(summary, CommandLineChoices(), here=False)
    assert isinstance(chosen.ssh, str | None)
    assert isinstance(chosen.ssh_options, tuple)


def test_it_goes_on_where_it_was_only() -> None:
    check_target(SUMMARY, "ssh://web1", "ops", here=False)
    check_target(SUMMARY, "ssh://web1", False, here=False)
    check_target(SUMMARY, "ssh://web2", "x", here=True)
    with pytest.raises(ConfigError, match="belongs to ssh://web1, not to ssh://web2") as refused:
        check_target(SUMMARY, "ssh://web2", "ops", here=False)
    assert "--allow-other-target" in refused.value.hint
    with pytest.raises(ConfigError, match="belongs to tmux session 'ops', not to 'x'"):
        check_target(SUMMARY, "ssh://web1", "x", here=False)
    check_identity(SUMMARY, "ssh://web1")
    with pytest.raises(ConfigError, match="belongs to ssh://web1, not to ssh://web1#2"):
        check_identity(SUMMARY, "ssh://web1#2")


def test_a_document_that_finds_no_room_leaves_no_half_of_it(tmp_path: Path) -> None:
    with file_limit(tmp_path / "disk") as full, full():
        with pytest.raises(HarnessError, match=r"cannot write .*: file too large"):
            write_new(tmp_path / "it.json", "x" * 100_000)
        write_new(tmp_path / "short.json", "{}")
    assert not (tmp_path / "it.json").exists()
    assert (tmp_path / "short.json").read_text() == "{}\n"
    with pytest.raises(HarnessError, match="file exists") as refused:
        write_new(tmp_path / "short.json", "other")
    assert refused.value.hint == "name a new file"
    assert (tmp_path / "short.json").read_text() == "{}\n"


def test_the_model_of_a_conversation_is_taken_or_its_loss_is_said() -> None:
    models = ModelTable((ModelProfile(name="one", provider="openai", model="m"),), "one")
    assert stored_model(models, replace(SUMMARY, model="one")) == (models.profiles[0], "")
    assert stored_model(models, SUMMARY) == (None, "")
    gone, why = stored_model(models, replace(SUMMARY, model="two"))
    assert gone is None
    assert why == "the conversation's model two is not configured any more"


def test_a_dedicated_connection_is_stored_under_its_first_name() -> None:
    stored = stored_choices(CommandLineChoices(ssh="web1", dedicated_connection=True))
    assert stored == {"ssh": "web1", "fresh_connection": True}
    chosen = choices_for(replace(SUMMARY, options=stored), CommandLineChoices(), here=False)
    assert chosen.dedicated_connection is True
