"""What changes where ``~`` and ``cd`` lead, or which names patterns match, asks in every mode."""

from __future__ import annotations

import pytest
from tests.support.own_home import here
from tests.support.permits import desk

from harness.context import ExecutionContext
from harness.toolkit.permissions.rules.settings import Mode

__all__ = ["here"]

ASKS = """
HOME=/etc
HOME=/etc; cat ~/notes
HOME+=/../etc
x=1 HOME=/etc
! HOME=/etc
time HOME=/etc
if HOME=/etc; then :; fi
export HOME=/etc
export PATH HOME=/etc
declare -x HOME=/etc
builtin export HOME=/etc
unset HOME
read HOME < x
printf -v HOME /etc
mapfile HOME < x
for HOME in /etc; do cat ~/notes; done
: ${HOME:=/etc}
HOME=/etc cd
HOME=/etc sh -c 'cat ~/notes'
env HOME=/etc sh -c 'cat ~/notes'
sh -c 'HOME=/etc; cat ~/notes'
CDPATH=/ cd etc
export CDPATH=/
OLDPWD=/etc
GLOBIGNORE=x
shopt -s dotglob
shopt -u nocaseglob
set -o noglob
setopt GLOB_DOTS
setopt no_case_glob
set -4
bash -O dotglob -c 'cat x'
""".strip().splitlines()
RUNS = """
HOME=/tmp/x make
env HOME=/tmp npm install
set -euo pipefail; make
shopt -s histappend
shopt -p dotglob
export PATH=/x JAVA_HOME=/y
echo HOME=1
grep HOME= x > y
unset FOO
for f in a; do touch $f; done
""".strip().splitlines()


async def test_what_changes_the_meaning_of_later_words_asks(here: ExecutionContext) -> None:
    made = desk(execution=here, mode=Mode.AUTO)
    assert [text for text in ASKS if await made.allows("run_shell", text)] == []


async def test_other_variables_and_options_run(here: ExecutionContext) -> None:
    made = desk(execution=here, mode=Mode.AUTO)
    refused = {text: (await made.decide("run_shell", text)).reason for text in RUNS}
    assert {text: why for text, why in refused.items() if why != "the mode is auto"} == {}


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("cat ~/notes", "HOME"),
        ("cd && ls", "HOME"),
        ("cd etc", "CDPATH"),
        ("harness --version", "XDG_CONFIG_HOME"),
        ("git show HEAD", "GIT_DIR"),
    ],
)
async def test_a_variable_that_goes_with_the_call_counts_as_one_in_the_text(
    here: ExecutionContext, command: str, name: str
) -> None:
    made = desk(execution=here, mode=Mode.AUTO)
    assert await made.allows("run_shell", command, env={"FOO": "/etc"})
    assert not await made.allows("run_shell", command, env={name: "/etc"})


async def test_the_reason_says_that_later_words_are_concerned(here: ExecutionContext) -> None:
    verdict = await desk(execution=here, mode=Mode.ASK).decide("run_shell", "HOME=/etc")
    assert "the check of file names does not follow" in verdict.reason
