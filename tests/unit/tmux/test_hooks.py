"""The shell hooks, in real shells in a real tmux, under the start-up files that users have."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.examples import few_examples
from tests.support.pane_shells import PANE_SHELLS, PaneShell, open_pane_shell

POSIX = tuple(shell for shell in PANE_SHELLS if shell != "fish")
TIME = 60.0

STARSHIP = """
theme_precmd() { STATUS=$?; %s }
%s
"""

START_UP: dict[str, dict[str, str]] = {
    "bash": {
        "a theme in PROMPT_COMMAND": "PROMPT_COMMAND='PS1=\"theme \\w> \"'\n",
        "an array of prompt commands": "PROMPT_COMMAND=('PS1=\"t\\$ \"' true)\n",
        "a theme with two lines": STARSHIP
        % ('PS1="$(printf "dir\\n> ")"; return $STATUS;', "PROMPT_COMMAND=theme_precmd"),
        "many options": "set -u -C -f -o vi -o pipefail; IFS=0123456789:\n"
        "shopt -s xpg_echo nullglob failglob extdebug\n"
        "shopt -u interactive_comments; HISTCONTROL=; HISTIGNORE=\n",
        "aliases": "shopt -s expand_aliases\nalias printf='echo HA' cat='cat -n' test=false read='echo R' .='echo DOT' "
        "eval='echo E' alias='echo A'\n",
        "read-only variables": "readonly PROMPT_COMMAND=true HISTIGNORE=x HISTCONTROL= PS0= PS2='more '\n",
        "everything exported": "export PS1='x> ' PS2='y> ' PS0='z'; set -a\n",
        "noise and no prompt": "unset PS1 PS2; echo noise; printf 'more noise'; trap true DEBUG; set -o posix\n",
    },
    "zsh": {
        "a theme in precmd": "precmd() { PROMPT='th %~ > ' }\n",
        "a theme with two lines": STARSHIP % ("PROMPT=$'dir\\n%# ';", "precmd_functions=(theme_precmd); RPROMPT=right"),
        "substitution in the prompt": "setopt promptsubst; PROMPT='$(print x)> '\n",
        "many options": "setopt KSH_ARRAYS SH_WORD_SPLIT NO_UNSET noclobber correct_all\n"
        "setopt extendedglob globsubst posixbuiltins\n"
        "unsetopt multios prompt_cr prompt_sp; bindkey -v; IFS=0123456789:\n",
        "aliases": "alias printf='echo HA' print='echo P' cat='cat -n' test=false read='echo R' .='echo DOT' "
        "eval='echo E' alias='echo A'\nalias -g G='| grep'\n",
        "history shared at once": "HISTFILE=~/.hist SAVEHIST=99 HISTSIZE=99\nsetopt sharehistory incappendhistory\n",
        "everything exported": "export PS1='x> ' PS2='y> '; setopt allexport\n",
        "a return on each error": "setopt errreturn; unset PROMPT\n",
        "noise and no line editor": "echo noise; printf 'more noise'; unsetopt zle\n",
    },
    "dash": {
        "a prompt with a substitution": "PS1='$(echo cs)> '\n",
        "a prompt of two lines": "PS1='a\nb> '; PS2='more> '\n",
        "many options": "set -u -C -f -o vi; IFS=0123456789:\n",
        "aliases": "alias printf='echo HA' cat='cat -n' read='echo R' .='echo DOT' eval='echo E' alias='echo A'\n",
        "everything exported": "export PS1='x> '; set -a; echo noise\n",
        "an ENV file": "ENV=~/.shinit; export ENV; echo 'PS1=\"env> \"; echo fromenv' >~/.shinit\n",
    },
    "fish": {
        "a prompt of two lines": "function fish_prompt; echo line1; echo -n 'l2> '; end\n",
        "a right prompt and vi keys": "function fish_right_prompt; echo -n R; end\nfish_vi_key_bindings\necho noise\n",
        "functions of the same names": "function fish_prompt; builtin echo -n '> '; end\n"
        "function echo; end; function printf; end\n",
        "abbreviations": "abbr -a hxa 'echo abbr'; abbr -a hx 'echo abbr'; function fish_greeting; echo hello; end\n",
    },
}
START_UP["busybox"] = {name: START_UP["dash"][name] for name in ("many options", "aliases", "everything exported")}
START_UP["mksh"] = {name: START_UP["dash"][name] for name in START_UP["dash"] if name != "an ENV file"}
CASES = [
    pytest.param(shell, text, id=f"{shell}-{name}") for shell, cases in START_UP.items() for name, text in cases.items()
]


@pytest.fixture(scope="module", params=PANE_SHELLS)
async def plain(needs_tmux: None, request: pytest.FixtureRequest) -> AsyncIterator[PaneShell]:
    async with open_pane_shell(request.param) as pane:
        yield pane


@pytest.fixture(scope="module", params=POSIX)
async def posix(needs_tmux: None, request: pytest.FixtureRequest) -> AsyncIterator[PaneShell]:
    async with open_pane_shell(request.param) as pane:
        yield pane


@pytest.fixture(autouse=True)
async def bounded() -> AsyncIterator[None]:
    with anyio.fail_after(TIME):
        yield


async def check_battery(pane: PaneShell) -> None:
    """What must hold whatever the user's files did."""
    await pane.gives("command printf abc", "abc")
    await pane.gives("sh -c 'exit 42'", "", 42)
    await pane.gives('command printf %s "$status"' if pane.shell == "fish" else 'command printf %s "$?"', "42")
    await pane.gives("command printf '%s\\n' 'tab\there !' \\\n  -x", "tab\there !\n-x\n")
    broken = await pane.run("if then fi ((")
    assert broken.status == "completed"
    assert broken.exit_code
    await pane.gives("command printf '\\n\\nnext\\n\\n'", "\n\nnext\n\n")
    await check_screen(pane)
    exported = await pane.run("env; sh -c set" if pane.shell == "fish" else "env; sh -c set; export -p")
    assert [nonce for nonce in pane.nonces if nonce in exported.stdout] == []


async def check_screen(pane: PaneShell) -> None:
    """People see their prompt and the commands, and nothing of ours but the tag."""
    screen = await pane.screen()
    assert "printf abc" in screen
    assert re.findall(r".*(?:\bhx[a-z]*\b|133;).*", screen) == [], screen


@pytest.mark.usefixtures("needs_tmux")
@pytest.mark.parametrize(("shell", "start_up"), CASES)
async def test_results_are_exact_under_a_users_start_up_file(shell: str, start_up: str) -> None:
    async with open_pane_shell(shell, start_up) as pane:
        await check_battery(pane)


@pytest.mark.usefixtures("needs_tmux")
@pytest.mark.parametrize("shell", PANE_SHELLS)
@pytest.mark.parametrize(("term", "lang"), [("dumb", "C"), ("xterm", "C.UTF-8"), ("linux", "POSIX")])
async def test_results_are_exact_with_any_terminal_and_locale(shell: str, term: str, lang: str) -> None:
    async with open_pane_shell(shell, TERM=term, LANG=lang, LC_ALL=lang) as pane:
        await check_battery(pane)
        await pane.gives("command printf '\\303\\244\\n'", "ä\n")


async def test_no_plumbing_is_on_the_screen(plain: PaneShell) -> None:
    await plain.gives("command printf abc", "abc")
    await plain.gives("false", "", 1)
    await check_screen(plain)


@pytest.mark.usefixtures("needs_tmux")
async def test_state_stays_as_for_a_person(posix: PaneShell) -> None:
    await posix.gives("cd /tmp; export FOO=bar; ff() { echo in-ff; }; alias qq='echo qq'", "")
    await posix.gives("pwd; echo $FOO; ff; qq", "/tmp\nbar\nin-ff\nqq\n")
    await posix.gives("cd - >/dev/null", "")


@pytest.mark.usefixtures("needs_tmux")
async def test_a_declaration_at_the_top_level_stays(posix: PaneShell) -> None:
    if posix.shell in ("bash", "zsh", "mksh"):
        await posix.gives("typeset -i number=5; typeset word=w", "")
        await posix.gives("number=number+1; echo $number $word", "6 w\n")
    else:
        await posix.gives("number=5", "")
        await posix.gives("echo $number", "5\n")


@pytest.mark.usefixtures("needs_tmux")
async def test_a_here_document_arrives_with_its_tabs_and_marks(posix: PaneShell) -> None:
    await posix.gives(
        "cat <<'E'\n\ttab ! $x `y` \\\nE\ncat <<-E\n\t$((1+1))\n\tE\necho end # !", "\ttab ! $x `y` \\\n2\nend\n"
    )


async def test_a_trace_shows_the_users_commands_and_no_plumbing(posix: PaneShell) -> None:
    await posix.gives("set -x", "+ hxd\n" if posix.shell == "mksh" else "")
    traced = await posix.run("echo one; echo two | cat")
    await posix.run("{ set +x; } 2>/dev/null")
    lines = traced.stdout.splitlines()
    assert (lines[0][0], lines[0].rstrip().endswith("echo one"), traced.exit_code) == ("+", True, 0), traced
    assert {"one", "two"} < set(lines)
    said = [re.sub(r"^\+\S+:\d+>", "+", line) for line in lines]  # zsh names the file, in a directory of any name
    plumbing = [line for line in said if re.search(r"hx|jobs/\d+\.cmd$|dev/null", line)]
    assert plumbing == (["+ hxd"] if posix.shell == "mksh" else []), traced
    assert not re.search("[0-9a-f]{20}", await posix.ctx.capture_pane(start="-")), "the nonce is on the screen"
    await posix.gives("echo after", "after\n")


async def test_a_callback_gets_the_output_and_no_plumbing_under_a_trace(posix: PaneShell) -> None:
    await posix.run("set -x")
    seen: list[bytes] = []
    result = await posix.ctx.run_shell("echo one; sleep 0.1; echo two", on_output=seen.append, timeout=15)
    await posix.run("{ set +x; } 2>/dev/null")
    assert b"".join(seen) == result.stdout_bytes
    assert len(seen) > 1


async def test_errexit_ends_the_shell_at_a_failing_command_and_not_before(posix: PaneShell) -> None:
    await posix.gives("sh -c 'exit 9'", "", 9)
    await posix.gives("set -e", "")
    await posix.gives("echo on; true", "on\n")
    await posix.gives("sh -c 'exit 9' || echo caught", "caught\n")
    ended = await posix.run("echo now; sh -c 'exit 3'; echo never")
    assert (ended.status, ended.exit_code) == ("shell_exited", 3)
    assert ended.stdout.startswith("now\n")
    assert "never" not in ended.stdout
    await posix.gives("echo $-$?", (await posix.run("echo $-0")).stdout)


async def test_the_status_of_the_last_command_is_seen_by_the_next(posix: PaneShell) -> None:
    for code in (0, 1, 42, 255, 0):
        await posix.gives(f"sh -c 'exit {code}'", "", code)
        await posix.gives("echo $?", f"{code}\n")


async def test_an_alias_that_all_shells_lose_is_made_again(posix: PaneShell) -> None:
    await posix.gives("unalias -a", "")
    await posix.gives("printf abc", "abc")
    await posix.gives("sh -c 'exit 9'", "", 9)
    await posix.gives("echo $?", "9\n")


@pytest.mark.parametrize(
    "command", ["set -u", "set -f", "set -C", "IFS=0123456789", "PS1='$ '", "PS2=", "unset PS1 PS2", "stty -echo"]
)
async def test_what_a_command_does_to_its_shell_spoils_no_later_result(posix: PaneShell, command: str) -> None:
    await posix.gives(command, "")
    await posix.gives("command printf '%s|' a 'b c'; sh -c 'exit 10'", "a|b c|", 10)
    await posix.gives("command printf '%s' \"$?\"", "10")
    await posix.gives("set +u +f +C; stty echo; IFS=' \n\t'; true", "")


@pytest.mark.usefixtures("needs_tmux")
async def test_an_error_trap_says_nothing_of_its_own_in_the_next_result() -> None:
    async with open_pane_shell("bash", "trap 'echo ERR' ERR\n") as pane:
        failed = await pane.run("sh -c 'exit 42'")
        assert (failed.exit_code, set(failed.stdout.split())) == (42, {"ERR"})
        await pane.gives("echo $?", "42\n")
        await pane.gives("true", "")


@pytest.mark.usefixtures("needs_tmux")
@pytest.mark.parametrize("code", [-1, 1000])
async def test_a_status_that_is_no_byte_ends_the_command(posix: PaneShell, code: int) -> None:
    result = await posix.run(f"ff() {{ return {code}; }}; ff")
    assert result.status == "completed"
    assert result.exit_code
    await posix.gives("echo next", "next\n")


@pytest.mark.usefixtures("needs_tmux")
@pytest.mark.parametrize(
    ("shell", "history"), [("bash", "history"), ("zsh", "fc -l 1"), ("mksh", "fc -l 1"), ("fish", "history")]
)
async def test_the_history_holds_what_people_typed_and_no_plumbing(shell: str, history: str) -> None:
    async with open_pane_shell(shell) as pane:
        await pane.gives("echo one", "one\n")
        await pane.ctx.send_keys(literal_text="echo typed-by-hand", enter=True)
        await pane.gives("echo two", "two\n")
        await pane.ctx.send_keys(literal_text=f"{history} >~/shown", enter=True)
        shown = (await pane.run("cat ~/shown")).stdout
        assert "typed-by-hand" in shown
        assert "hx" not in shown


@pytest.mark.usefixtures("needs_tmux")
async def test_fish_keeps_its_state_and_status() -> None:
    async with open_pane_shell("fish") as pane:
        await pane.gives("cd /tmp; set -gx FOO bar; function ff; echo in-ff; return 3; end", "")
        await pane.gives("pwd; echo $FOO; ff", "/tmp\nbar\nin-ff\n", 3)
        await pane.gives("echo $status; set -g loc 5", "3\n")
        await pane.gives("for i in 1 2\n  echo $i$loc\nend", "15\n25\n")


SCRIPTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=300)


@pytest.fixture(scope="module", params=["bash", "dash"])
async def echoing(needs_tmux: None, request: pytest.FixtureRequest) -> AsyncIterator[PaneShell]:
    async with open_pane_shell(request.param, LC_ALL="C.UTF-8") as pane:
        yield pane


@given(text=SCRIPTS)
@few_examples()
async def test_any_text_in_a_command_comes_back_byte_for_byte(echoing: PaneShell, text: str) -> None:
    quoted = "'" + text.replace("'", "'\\''") + "'"
    await echoing.gives(f"printf %s {quoted}", text)


ABORTED = {
    "a pattern without a match": ("echo /no/such*thing; echo after", 1),
    "several lines": ("true\necho /no/such*thing\necho after", 126),
    "an unset variable": ("set -u; echo $no_such_variable", 1),
    "a syntax error": ("echo a; if )", 1),
    "an open quote": ("echo 'a", 1),
    "a division by zero": ("echo $((1 / 0))", 1),
    "in a function": ("f() { echo /no/such*thing; }; f", 1),
    "a program's own": ("sh -c 'exit 126'", 126),
    "returned": ("return 126", 126),
    "a comment": ("(exit 7) # of it", 7),
    "traced": ("set -x; (exit 3); set +x; (exit 4)", 4),
    "nothing": ("", 0),
    "after another's code": ("(exit $?)", 0),
    "aliases are known in the next line": ("alias hxtest='(exit 3)'\nhxtest", 3),
}


@pytest.fixture(scope="module")
async def zsh(needs_tmux: None) -> AsyncIterator[PaneShell]:
    async with open_pane_shell("zsh") as opened:
        yield opened


@pytest.mark.parametrize("case", ABORTED)
@pytest.mark.parametrize("options", [{}, {"cwd": "/"}, {"env": {"A": "b"}}], ids=str)
async def test_zsh_gives_the_code_of_its_prompt_for_what_it_aborts_itself(
    zsh: PaneShell, case: str, options: dict[str, Any]
) -> None:
    command, code = ABORTED[case]
    result = await zsh.ctx.run_shell(command, timeout=15, **options)
    assert (result.status, result.exit_code) == ("completed", code), result
    assert "after" not in result.stdout
    await zsh.gives("set +u; echo next", "next\n")
