"""Tracked files that git would show: a secret among them, or what ``.aiexclude`` names, asks."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from tests.support.own_home import here
from tests.support.permits import Desk, desk

from harness.context import ExecutionContext
from harness.results import Status
from harness.testing.memory import MemoryBackend, ScriptedReply
from harness.toolkit.permissions.paths.git_shown_files import SECONDS
from harness.toolkit.permissions.rules.settings import Mode
from harness.toolkit.permissions.shell.git_commands import shown_request

__all__ = ["here"]

ASKS = """
git log -p
git log -p -- '*env'
git log -p -- *env
git log -p -- conf
git log -u --all
git log -U1 -5
git log --patch --oneline --graph
git log --word-diff -5
git log -c
git log -S1 -p
git log -p | head -50
git show HEAD~1
git show HEAD~1 HEAD:src/a.py
git show HEAD~3
git -C src show HEAD~1
cd src && git show HEAD~1
git --no-pager show HEAD~3 --relative=src
timeout 9 git show HEAD~3
git diff HEAD~4 HEAD~3
git diff HEAD~2
git diff --stat -p HEAD~2
git whatchanged -p
git diff-tree -p HEAD~1
git diff-tree --root -p HEAD~3
git stash show -p
git grep S HEAD~3
git grep 1
git grep -n 1 -- 'src/*'
git log -s -p
git log --no-patch -p
git log -p --quiet
git show --quiet -p HEAD~3
git show HEAD~3 -s -p
git diff -s -p HEAD~4 HEAD~3
git grep -i 1 HEAD~3
git grep -e1 HEAD~3
git grep -iS=1 HEAD~3
git show 'HEAD^{/conf: add}'
git show ':/conf: add'
git log -p -1 'HEAD^{/conf: add}'
git show 'HEAD@{2099-01-01 00:00:00}~3'
git log --check HEAD~3
git diff --check HEAD~4 HEAD~3
git show --check HEAD~3
git log --remerge-diff
git log --patch-with-stat
git stash list -p
git reflog -p
git reflog show -p
git diff-index -p HEAD~2
git diff-index --patch --cached HEAD~2
git diff-tree -p HEAD~4 HEAD~3
git format-patch --stdout HEAD~4
git format-patch --stdout -1 HEAD~3
git format-patch -4
git format-patch --stdout --root HEAD~2
git format-patch HEAD~4..HEAD~2 -o out
git format-patch --stdout --unknown HEAD
git archive HEAD
git archive HEAD~3 conf
git archive --format=tar -o x.tar HEAD~3
git archive HEAD~3:conf
git archive --remote=. HEAD
git bundle create x --all
git bundle create x HEAD~4..HEAD
git bundle create - HEAD
git fast-export --all
git fast-export HEAD
git fast-export --stdin
git range-diff HEAD~4..HEAD HEAD~3..HEAD
git range-diff HEAD~4 HEAD~2 HEAD
git range-diff HEAD~4...HEAD
git checkout -p HEAD~3
git restore -p --source=HEAD~3 .
git restore --patch -s HEAD~3 .
git reset --patch HEAD~3
git difftool -y -x cat HEAD~4 HEAD~3
git difftool --extcmd=cat --no-prompt HEAD~3
git send-email HEAD~3
git send-email --to a@example.com -1
git request-pull -p HEAD~4 . HEAD
git merge-tree HEAD~4 HEAD~3 HEAD
git am --show-current-patch=diff
git rebase --show-current-patch
git rerere diff
git config --blob HEAD~3:conf/.env --list
git checkout-index --temp -a
git checkout-index --prefix=out/ -a
git pack-objects --stdout
git unpack-file HEAD~3:conf
git leak HEAD~3
git -c alias.other='show HEAD~3' other
/usr/lib/git-core/git-show HEAD~3
git-show HEAD~3
cd .git && git show HEAD~3
cd src && git show HEAD:src/dump.sql
cd src && git show HEAD~1:src/dump.sql
git cat-file -p HEAD:src/dump.sql
""".strip().splitlines()
RUNS = """
git log
git log -3
git log --stat
git log --oneline -- '*env'
git log -p -1
git log -p --oneline --graph --color=always -1
git log -p -- src/a.py
git show
git show HEAD
git show HEAD:src/a.py
git show --stat HEAD~3
git show --name-only HEAD~3
git show -s HEAD~3
git show nosuch
git diff
git diff --cached
git diff HEAD~1
git diff HEAD~2 -- src/a.py
git diff --stat HEAD~2
git diff HEAD~1:src/a.py src/a.py
git diff HEAD~4 HEAD~2
git diff-tree HEAD~1
git stash list
git stash show
git grep S
git grep -l 1
git grep -c 1
git grep 1 -- src/a.py
git grep -nl 1
git cat-file -p HEAD
git cat-file -p HEAD:src/a.py
git cat-file -p HEAD:src
git cat-file -t HEAD~3:src/a.py
git show HEAD:src
git show v1:src/a.py
git diff HEAD~1..HEAD
git ls-files
git status
git status -sb
git reflog
git blame src/a.py
git cherry -v HEAD~1
git show HEAD:./src/a.py
cd src && git show HEAD:src/a.py
cd src && git show HEAD:./a.py
cd /tmp && git diff
""".strip().splitlines()


@pytest.fixture
def repository(here: ExecutionContext, tmp_path: Path) -> Path:
    """Five commits: the second adds ``conf/.env``, the third removes it, the fourth adds ``src/dump.sql``."""
    made = tmp_path / "home/repository"
    (made / "src").mkdir(parents=True)
    (made / "conf").mkdir()

    def git(*words: str) -> None:
        subprocess.run(["git", "-c", "user.name=ann", "-c", "user.email=a@example.com", *words], cwd=made, check=True)

    def commit(name: str, text: str, subject: str = "") -> None:
        (made / name).write_text(text)
        git("add", "-A")
        git("commit", "-qm", subject or name)

    git("init", "-q")
    commit("src/a.py", "1\n")
    git("tag", "-a", "v1", "-m", "first")
    commit("conf/.env", "S=1\n", "conf: add")
    git("rm", "-q", "conf/.env")
    git("commit", "-qm", "without")
    (made / ".aiexclude").write_text("*.sql\n")
    commit("src/dump.sql", "1\n")
    (made / "src/dump.sql").write_text("2\n")
    git("stash", "-q")
    commit("src/a.py", "2\n")
    (made / "src/a.py").write_text("3\n")
    (made / ".env").write_text("not tracked\n")
    git("config", "alias.leak", "show")
    return made


def there(here: ExecutionContext, repository: Path, mode: Mode) -> Desk:
    return desk(execution=here, cwd=str(repository), mode=mode)


@pytest.mark.parametrize("mode", [Mode.ASK, Mode.AUTO])
async def test_what_git_would_show_of_a_secret_asks(here: ExecutionContext, repository: Path, mode: Mode) -> None:
    made = there(here, repository, mode)
    assert [command for command in ASKS if await made.allows("run_shell", command)] == []


async def test_the_reason_names_the_file(here: ExecutionContext, repository: Path) -> None:
    made = there(here, repository, Mode.ASK)
    assert "repository/conf/.env is a secret" in (await made.decide("run_shell", "git log -p -- '*env'")).reason
    assert "repository/src/dump.sql" in (await made.decide("run_shell", "git show HEAD~1")).reason


async def test_what_shows_other_files_or_names_runs(here: ExecutionContext, repository: Path) -> None:
    made = there(here, repository, Mode.ASK)
    refused = {command: (await made.decide("run_shell", command)).reason for command in RUNS}
    assert {text: why for text, why in refused.items() if why != "it only reads"} == {}


async def test_asking_git_runs_nothing_that_the_repository_names(here: ExecutionContext, repository: Path) -> None:
    hook = repository / "hook.sh"
    hook.write_text("#!/bin/sh\ntouch ran\n")
    hook.chmod(0o700)
    for name in ("core.fsmonitor", "diff.external", "core.pager"):
        subprocess.run(["git", "config", name, str(hook)], cwd=repository, check=True)
    made = there(here, repository, Mode.ASK)
    for command in ("git diff", "git show HEAD", "git log -p -1", "git grep 3"):
        await made.decide("run_shell", command)
    assert not (repository / "ran").exists()


@pytest.mark.parametrize(
    ("reply", "runs"),
    [
        (ScriptedReply(), True),
        (ScriptedReply("/r\nsrc/a.py\0src/b.py\0"), True),
        (ScriptedReply("/r\nsrc/a.py\0conf/.env\0"), False),
        (ScriptedReply("/r\nHEAD:conf/.env\0"), False),
        (ScriptedReply("\n", exit_code=128), True),
        (ScriptedReply("/r\n", status=Status.TIMED_OUT), False),
        (ScriptedReply("/r\n" + "x\0" * 600_000), False),
    ],
)
async def test_what_could_not_be_found_out_asks(reply: ScriptedReply, runs: bool) -> None:
    backend = MemoryBackend(lambda command: reply)
    assert await desk(backend=backend).allows("run_shell", "git show HEAD") is runs
    assert len(backend.received) == 1
    assert backend.received[0].timeout == SECONDS


async def test_words_that_are_only_known_at_run_time_ask() -> None:
    assert not await desk().allows("run_shell", 'git show "HEAD~$n"')
    assert await desk().allows("run_shell", 'git log "HEAD~$n"')


PART_BY_PART = """
git diff-files -p
git stash -p
git stash push -p
git add -p
git add -i
git add --patch
git add --edit
git add -p HEAD -- a
git commit -v
git commit -p
git commit --interactive
git status -v
git checkout -p
git restore -p .
git reset -p
""".strip().splitlines()


async def test_what_shows_changes_part_by_part_asks_when_a_secret_has_changed(
    here: ExecutionContext, repository: Path
) -> None:
    made = there(here, repository, Mode.AUTO)
    refused = {text: (await made.decide("run_shell", text)).reason for text in PART_BY_PART}
    assert {text: why for text, why in refused.items() if why != "the mode is auto"} == {}
    (repository / "src/dump.sql").write_text("5\n")
    reasons = {text: (await made.decide("run_shell", text)).reason for text in PART_BY_PART}
    assert {text: why for text, why in reasons.items() if "src/dump.sql" not in why} == {}
    subprocess.run(["git", "add", "src/dump.sql"], cwd=repository, check=True)
    assert [text for text in PART_BY_PART if await made.allows("run_shell", text)] == ["git diff-files -p"]


async def test_a_repository_without_a_working_directory_is_asked_too(here: ExecutionContext, repository: Path) -> None:
    bare = repository.parent / "bare.git"
    subprocess.run(["git", "clone", "-q", "--bare", str(repository), str(bare)], check=True)
    made = desk(execution=here, cwd=str(bare))
    assert "conf/.env is a secret" in (await made.decide("run_shell", "git show HEAD~3")).reason
    assert await made.allows("run_shell", "git show HEAD~4")


OBJECTS = """
git show {env}
git show {short}
git show {env} --
git show file
git cat-file -p {env}
git cat-file blob {env}
git cat-file -p file
git cat-file -p {tree}:dump.sql
git show {tree}:dump.sql
git diff {env} {a}
git diff {env}..{a}
git diff {env} src/a.py
git diff {older} {tree}
git diff HEAD~2:src HEAD~1:src
git diff-tree -p {older} {tree}
git grep 1 {env}
git grep 1 {tree}
git grep 1 HEAD~1:src
""".strip().splitlines()


@pytest.mark.parametrize("mode", [Mode.ASK, Mode.AUTO])
async def test_an_object_that_has_no_name_asks(here: ExecutionContext, repository: Path, mode: Mode) -> None:
    def hash_of(name: str) -> str:
        return subprocess.check_output(["git", "rev-parse", name], cwd=repository, text=True).strip()

    env, names = hash_of("HEAD~3:conf/.env"), {"a": "HEAD:src/a.py", "tree": "HEAD:src", "older": "HEAD~2:src"}
    ann = ("-c", "user.name=ann", "-c", "user.email=a@example.com")
    subprocess.run(["git", *ann, "tag", "-a", "file", "-m", "a file", env], cwd=repository, check=True)
    words = {"env": env, "short": env[:8], **{key: hash_of(name) for key, name in names.items()}}
    made = there(here, repository, mode)
    assert [text for text in OBJECTS if await made.allows("run_shell", text.format(**words))] == []


AUTO_ASKS = """
sudo git show HEAD~3
git show HEAD~3 > shown
git --git-dir=.git show HEAD
git --git-dir .git show HEAD
git -c core.abbrev=8 show HEAD
GIT_DIR=.git git show HEAD
env GIT_DIR=.git git show HEAD
export GIT_DIR=.git; git show HEAD
git log -p --output=shown
git cat-file --batch < list
git rev-list HEAD | git diff-tree --stdin -p
""".strip().splitlines()
AUTO_RUNS = """
git format-patch --stdout -1
git format-patch HEAD~1 -o out
git archive HEAD~4
git archive HEAD src/a.py
git archive -l
git bundle verify x
git bundle create x HEAD~1..HEAD -- src/a.py
git fast-export HEAD~1..HEAD
git fast-export --no-data --all
git range-diff -s HEAD~4..HEAD HEAD~3..HEAD
git range-diff HEAD~1..HEAD HEAD~1..HEAD
git diff-index HEAD~2
git diff-index -p HEAD
git diff-files
git add -A
git add -n .
git commit -am x
git checkout HEAD
git checkout -b p
git restore src/a.py
git reset --hard
git stash
git stash push -m part
git difftool --tool-help
git difftool -y -x cat HEAD~1
git rebase --continue
git am --abort
git config --list
git push
git pull --rebase
git clone . ../other
git flow
git mytool x
sudo git show HEAD
git show HEAD > shown
git -c core.abbrev=8 log
git --git-dir=.git status
git commit -m show
""".strip().splitlines()


async def test_mode_auto_asks_about_what_git_shows_in_a_command_that_does_more(
    here: ExecutionContext, repository: Path
) -> None:
    made = there(here, repository, Mode.AUTO)
    assert [text for text in AUTO_ASKS if await made.allows("run_shell", text)] == []
    assert [text for text in AUTO_RUNS if not await made.allows("run_shell", text)] == []


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        ("git show HEAD", "show --name-only -z --format= HEAD"),
        ("git -C a log -p --oneline -- x", "log --name-only -z --format= -p -- x"),
        ("git diff --relative a b", "diff --name-only -z a b"),
        ("git show -s -p HEAD", "show --name-only -z --format= -p HEAD"),
        ("git show HEAD:x", ""),
        ("git cat-file -p HEAD", ""),
        ("git cat-file -t HEAD", None),
        ("git diff --no-index a b", None),
        ("git log", None),
        ("git", None),
        ("git stash", None),
        ("gitk show", None),
        ("", None),
    ],
)
def test_the_same_command_is_asked_for_names(argv: str, expected: str | None) -> None:
    found = shown_request(argv.split())
    assert (" ".join(word for names in found.names for word in names) if found else None) == expected
