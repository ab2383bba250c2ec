"""Commands that stand as values, behind programs that are not known, and in programs for interpreters."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.own_home import here
from tests.support.permits import Desk, desk

from harness.context import ExecutionContext
from harness.toolkit.permissions.rules.rule import Action, Match, Rule
from harness.toolkit.permissions.rules.settings import Mode

__all__ = ["here"]

RUNS_A_VALUE = """
PAGER='touch y1' man ls
MANPAGER='touch y1' man ls
EDITOR='touch y1' crontab -e
GIT_SSH_COMMAND='touch y1' git fetch
GIT_PAGER='touch y1' git -p log
export PAGER='touch y1'
env EDITOR='touch y1' crontab -e
man -P 'touch y1' ls
man --pager='touch y1' ls
tar cf x.tar x --checkpoint=1 --checkpoint-action=exec='touch y1'
tar xf x --to-command='touch y1'
tar xf x -I 'touch y1'
tar cf x.tar -F 'touch y1' x
rsync -e 'touch y1' x h:
rsync --rsh='touch y1' x h:
split --filter='touch y1' x
sort --compress-program='touch y1' x
zip x.zip x -T -TT 'touch y1'
ncat --sh-exec 'touch y1' h 1
socat - EXEC:'touch y1'
apt-get -o DPkg::Pre-Invoke::='touch y1' install x
mapfile -C 'touch y1' -c 1 a < x
readarray -C 'touch y1' -c1 a < x
complete -C 'touch y1' x
git -c core.pager='touch y1' -p log
git -c core.sshCommand='touch y1' fetch
git rebase -x 'touch y1' HEAD~1
git submodule foreach 'touch y1'
git submodule foreach touch y1
git bisect run touch y1
git filter-branch --tree-filter 'touch y1' HEAD
git clone -u 'touch y1' h:x
runcon -t x touch y1
runcon ctx touch y1
tmux new -d 'touch y1'
tmux run-shell 'touch y1'
""".strip().splitlines()
NOT_UNDERSTOOD = """
x='$(touch y1)'; echo "${x@P}"
x='a[$(touch y1)]'; echo $((x))
printf -v 'a[$(touch y1)]' x
read 'a[$(touch y1)]' <<< x
test -v 'a[$(touch y1)]'
[ -v 'a[`touch y1`]' ]
[[ 'a[$(touch y1)]' -eq 0 ]]
let 'a[$(touch y1)]=1'
declare 'a[$(touch y1)]=1'
PS1='$(touch y1)'
PS4='$(touch y1)'; set -x; ls
export PS1='`touch y1`'
!!
!touch
""".strip().splitlines()
EMBEDDED = """
setarch x86_64 touch y1
linux64 touch y1
prlimit --nofile=10 touch y1
numactl -N 0 touch y1
unbuffer touch y1
fd . -x touch y1
entr touch y1
systemd-inhibit touch y1
firejail touch y1
fakeroot -- touch y1
dbus-run-session touch y1
ip netns exec x touch y1
cgexec -g cpu:x touch y1
lxc exec x -- touch y1
pdsh -w h touch y1
sshpass -p x ssh h touch y1
npm exec touch y1
uv run touch y1
tini -- touch y1
valgrind touch y1
perf stat touch y1
proxychains /bin/touch y1
/lib64/ld-linux-x86-64.so.2 /bin/touch y1
awk 'BEGIN{system("touch y1")}'
awk 'BEGIN{print | "touch y1"}'
sed -n '1e touch y1' x
perl -e '`touch y1`'
python3 -c 'import os; os.system("touch y1")'
python3 - <<< 'import os; os.system("touch y1")'
echo 'system("touch y1")' | perl
ruby -e 'system("touch y1")'
vim -c '!touch y1' -c q
ed <<< '!touch y1'
gdb -batch -ex 'shell touch y1'
make -f - <<< 'x:; touch y1'
expect -c 'spawn touch y1'
less '+!touch y1' x
psql -c '\\! touch y1'
sqlite3 x '.shell touch y1'
rpm --eval '%(touch y1)'
""".strip().splitlines()
OPENS_A_SECRET = """
PAGER='cat key' man ls
man -P 'cat key' ls
tmux new -d 'cat key > z'
mapfile -C 'cat key' -c1 a < x
git submodule foreach 'cat key'
python3 -c 'print(open("key").read())'
python3 -c "print(open('.env').read())"
awk 'BEGIN{while((getline l < "key")>0) print l}'
awk 'BEGIN{system("cat key")}'
perl -e 'print `cat key`'
perl -e 'open F, "<", "key"; print <F>'
node -e 'console.log(require("fs").readFileSync("key"))'
ruby -e 'puts File.read("key")'
sed 'r key' x
sed 's/a/b/w key' x
sed '1e cat key' x
ed x <<< 'r key'
vim -es '+r key' '+w! z' '+q'
m4 <<< 'include(key)'
groff <<< '.so key'
less '+:e key' x
gcc -E - <<< '#include "key"'
""".strip().splitlines()
RUNS = """
PAGER=cat git log
EDITOR=vim git commit
GIT_SSH_COMMAND='ssh -p 22' git fetch
export PS1='$ '
tar -I zstd -cf x.tar.zst src
tar cf x.tar --checkpoint=100 --checkpoint-action=dot src
rsync -av -e 'ssh -p 22' x h:y
apt-get -o Dpkg::Options::=--force-confold install nginx
mapfile -t a < x
printf -v x '%s' y
x[0]=1; echo ${x[0]}
[[ $a == b ]] && echo c
! grep -q x y
tmux new -d -s x 'make all'
git commit -m 'fix: touch nothing'
echo 'touch it' > z
python3 -c 'import json; print(json.load(open("x"))["key"])'
sed -i 's/a/b/; s/r x/y/' x
fakeroot make deb
numactl -N 0 make
""".strip().splitlines()


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A working directory in which ``key`` leads to a private key."""
    made = tmp_path / "home/work"
    (made / "src").mkdir(parents=True)
    for name in ("x", "y", ".env"):
        (made / name).write_text("x\n")
    (made / "key").symlink_to("../.ssh/id_rsa")
    return made


def there(here: ExecutionContext, work: Path, *denied: str) -> Desk:
    rules = tuple(Rule(Action.DENY, tool="run_shell", argument=text, match=Match.GLOB) for text in denied)
    return desk(execution=here, cwd=str(work), mode=Mode.AUTO, rules=rules)


async def test_a_rule_that_denies_holds_for_a_command_that_stands_as_a_value(
    here: ExecutionContext, work: Path
) -> None:
    made = there(here, work, "touch *")
    verdicts = {text: await made.decide("run_shell", text) for text in RUNS_A_VALUE}
    assert {text: verdict.by for text, verdict in verdicts.items() if not verdict.by.startswith("deny rule")} == {}


async def test_what_a_shell_makes_of_a_text_at_run_time_asks(here: ExecutionContext, work: Path) -> None:
    made = there(here, work)
    reasons = {text: (await made.decide("run_shell", text)).reason for text in NOT_UNDERSTOOD}
    assert {text: why for text, why in reasons.items() if "not understood" not in why} == {}


async def test_what_a_rule_denies_asks_in_the_words_of_another_program(here: ExecutionContext, work: Path) -> None:
    made = there(here, work, "touch *")
    assert [text for text in EMBEDDED if await made.allows("run_shell", text)] == []
    other = there(here, work, "rm *")
    assert [text for text in EMBEDDED if not await other.allows("run_shell", text)] == []


async def test_what_only_a_person_decides_asks_in_the_words_of_another_program(
    here: ExecutionContext, work: Path
) -> None:
    made = there(here, work)
    texts = [text.replace("touch y1", "harness permissions add --allow x") for text in (*RUNS_A_VALUE, *EMBEDDED)]
    texts += [text.replace("touch y1", "rm -rf /") for text in EMBEDDED]
    texts += ["""python3 -c 'import subprocess as s; s.run(["harness", "permissions", "add", "--allow", "x"])'"""]
    assert [text for text in texts if await made.allows("run_shell", text)] == []


async def test_a_secret_that_a_program_opens_by_itself_is_denied(here: ExecutionContext, work: Path) -> None:
    made = there(here, work)
    verdicts = {text: await made.decide("run_shell", text) for text in OPENS_A_SECRET}
    assert {text: verdict.reason for text, verdict in verdicts.items() if verdict.by != "hard denial"} == {}


async def test_usual_values_run(here: ExecutionContext, work: Path) -> None:
    made = there(here, work, "touch *")
    verdicts = {text: await made.decide("run_shell", text) for text in RUNS}
    assert {text: verdict.reason for text, verdict in verdicts.items() if not verdict.allowed} == {}


STORED = [
    "git config core.pager 'touch y1'",
    "git config --global alias.x '!touch y1'",
    "git config set core.editor 'touch y1'",
    "git config --add credential.helper '!touch y1'",
    "npm pkg set scripts.test='touch y1'",
    "npm config set script-shell 'touch y1'",
    "npm config set editor='touch y1'",
    "ssh -o ProxyCommand='touch y1' h",
    "ssh -oProxyCommand='touch y1' h",
    "ssh -o 'LocalCommand touch y1' h",
    "scp -o ProxyCommand='touch y1' a h:",
    "cat > x.sh <<'EOF'\ntouch y1\nEOF",
    "cat >> .git/hooks/pre-commit <<'EOF'\ntouch y1\nEOF",
    "cat > run <<'EOF'\n#!/bin/sh\ntouch y1\nEOF",
    "cat > x.py <<'EOF'\nimport os\nos.system('touch y1')\nEOF",
    "printf 'touch y1\\n' > x.sh; sh x.sh",
    "echo 'touch y1' | tee x.sh",
    "tee Makefile <<'EOF'\nall:\n\ttouch y1\nEOF",
]
NOT_STORED = [
    "git config user.name 'A B'",
    "git config core.pager less",
    "git config alias.st status",
    "git config core.editor vim",
    "npm test",
    "npm config set registry https://x",
    "npm pkg set scripts.build='tsc -p .'",
    "ssh -o StrictHostKeyChecking=no h",
    "ssh -o 'ServerAliveInterval 5' h true",
    "./gradlew build",
    "make test",
    "sh script.sh",
    "./deploy.sh",
    "cat > x.sh <<'EOF'\nmake\nEOF\nsh x.sh",
    "cat > notes.md <<'EOF'\nthen touch y1\nEOF",
    "echo 'touch y1' > notes.txt",
]


@pytest.mark.parametrize("command", STORED)
async def test_a_command_that_is_stored_for_later_is_matched_by_rules_that_deny(command: str) -> None:
    denied = Rule(Action.DENY, tool="run_shell", argument="touch *", match=Match.GLOB)
    assert not await desk(mode=Mode.AUTO, rules=(denied,)).allows("run_shell", command)
    assert await desk(mode=Mode.AUTO).allows("run_shell", command)


@pytest.mark.parametrize("command", NOT_STORED)
async def test_other_settings_texts_and_scripts_of_the_directory_run(command: str) -> None:
    denied = Rule(Action.DENY, tool="run_shell", argument="touch *", match=Match.GLOB)
    assert await desk(mode=Mode.AUTO, rules=(denied,)).allows("run_shell", command)


async def test_a_script_with_a_blocked_command_is_asked_about_when_it_is_written() -> None:
    assert not await desk(mode=Mode.AUTO).allows("run_shell", "cat > x.sh <<'EOF'\nsecret-tool lookup x\nEOF")
