"""Commands that open files in a directory operand under the names of other operands are judged by those files."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.own_home import here
from tests.support.permits import Desk, desk

from harness.context import ExecutionContext
from harness.toolkit.permissions.rules.rule import Action, Match, Rule
from harness.toolkit.permissions.rules.settings import Mode
from harness.toolkit.permissions.shell import operand_paths
from harness.toolkit.permissions.shell.operand_paths import directory_operands, entry_names

__all__ = ["here"]

WRITES = """
cp a/s.txt kept
cp a/s.txt kept/
cp a/x a/s.txt kept
cp -t kept a/s.txt
cp -tkept a/s.txt
cp -atkept a/s.txt
cp --target-directory=kept a/s.txt
cp --target-directory kept a/s.txt
cp --targ=kept a/s.txt
cp a/s.txt kept/../kept
cp a/s.txt link-to-kept
cp a/* kept
cp a/s.{txt,log} kept
cp a/s.txt k*t
cp a/s.txt ke{pt,ep}
f=a/s.txt; cp $f kept
d=kept; cp a/s.txt "$d"
for f in a/x a/s.txt; do cp $f kept; done
cd kept && cp ../a/s.txt .
cd a && cp s.txt ../kept
cp a/s.txt ~/kept
/bin/cp a/s.txt kept
busybox cp a/s.txt kept
sudo cp a/s.txt kept
sh -c 'cp a/s.txt kept'
env cp a/s.txt kept
nohup cp a/s.txt kept
true && cp a/s.txt kept
mv a/s.txt kept
mv -t kept a/s.txt
mv -tkept a/s.txt
install -m 600 a/s.txt kept
install -t kept a/s.txt
install -Dt kept a/s.txt
ln a/s.txt kept
ln -s /x/s.txt kept
ln -st kept /x/s.txt
cd kept && ln -s /x/s.txt
scp host:/x/s.txt kept
scp host:s.txt kept
rsync a/s.txt kept
docker cp c:/x/s.txt kept
podman cp c:s.txt kept
kubectl cp pod:/x/s.txt kept
git mv a/s.txt kept
wget -P kept https://example.com/s.txt
wget -qPkept https://example.com/s.txt
cp -t k*t a/s.txt
cp a/s.txt kept -S .old
curl -O --output-dir kept https://example.com/s.txt
cd kept && wget https://example.com/x/s.txt
cd kept; curl -sO https://example.com/s.txt#x
curl -okept/s.txt https://example.com
curl -sSokept/s.txt https://example.com
wget -Okept/s.txt https://example.com
curl -Tkept/s.txt https://example.com
unxz kept/s.txt.xz
bunzip2 kept/s.txt.bz2
zstd -d kept/s.txt.zst
unknown a/s.txt kept
unknown --into=kept a/s.txt
cp x/config.toml ~/.config/harness
cp -t ~/.config/harness x/config.toml
cp a/conf d
mv a/.aiexclude d
ln -s /x/.aiexclude
cp -t d a/.aiexclude
""".strip().splitlines()
READS = """
diff a/s.txt kept
diff kept a/s.txt
diff -u a/s.txt link-to-kept
cd a && diff s.txt ../kept
diff a/s.txt k*t
git diff --no-index a/s.txt kept
git diff a/s.txt kept
git -C a diff --no-index s.txt ../kept
diff a/id_ed25519 d
diff a/conf d
""".strip().splitlines()
ASKS = """
find a -name s.txt -exec cp {} kept ;
echo a/s.txt | xargs cp -t kept
ls a | xargs -I% cp a/% kept
cp "$(ls a)" kept
cp $f kept
find a -type f | xargs -I{} cp {} kept
echo kept | xargs cp a/s.txt
7z x a.7z -okept
patch -d kept < x
rsync --files-from=y a kept
cp -r b/kept .
rsync -a b/kept .
scp -r host:b/kept .
diff -N a kept
diff a kept
diff -r kept /nowhere
git diff --no-index a kept
""".strip().splitlines()
RUNS = """
cp a/x kept
cp a/s.txt d
cp -t d a/s.txt
mv a/x kept
ln -s ../a/x kept
install -m 644 a/x kept
cp kept/x a
diff a/x d
scp a/x host:kept
chmod 600 kept
chmod 644 a/s.txt d
rm a/s.txt d/x
mkdir kept/s
touch a/s.txt d
make -C d s.txt
docker build -t s.txt d
cd d && wget https://example.com/s.txt
unknown a/x kept
unknown a/s.txt d
cp -r b/kept d
ls -la > d/list
make -j4 -C d
""".strip().splitlines()


@pytest.fixture
def home(here: ExecutionContext, tmp_path: Path) -> Path:
    """``kept/s.txt`` is kept back, ``d/conf`` leads to the settings, and ``d/id_ed25519`` to a key."""
    made = tmp_path / "home"
    for name in ("a", "b/kept", "d", "kept", "x", ".config/harness"):
        (made / name).mkdir(parents=True)
    for name in ("a/s.txt", "a/x", "d/x", "kept/s.txt", "kept/x", ".config/harness/config.toml"):
        (made / name).write_text("text\n")
    (made / "kept/.aiexclude").write_text("s.txt\n")
    (made / "link-to-kept").symlink_to("kept")
    (made / "d/conf").symlink_to("../.ssh/id_rsa")
    return made


def there(here: ExecutionContext, home: Path, **more: object) -> Desk:
    file = home / ".config/harness/permissions.json"
    return desk(mode=Mode.AUTO, file=file, execution=here, cwd=str(home), **more)  # type: ignore[arg-type]  # settings


@pytest.mark.parametrize("commands", [WRITES, READS], ids=["writes", "reads"])
async def test_what_is_opened_in_a_directory_is_judged(here: ExecutionContext, home: Path, commands: list[str]) -> None:
    made = there(here, home)
    verdicts = {command: await made.decide("run_shell", command) for command in commands}
    assert {text: one.reason for text, one in verdicts.items() if one.allowed or one.by != "hard denial"} == {}


async def test_names_that_only_run_time_knows_count_as_any(here: ExecutionContext, home: Path) -> None:
    made = there(here, home)
    assert [command for command in ASKS if await made.allows("run_shell", command)] == []


async def test_ordinary_copies_and_comparisons_run(here: ExecutionContext, home: Path) -> None:
    made = there(here, home)
    refused = {command: (await made.decide("run_shell", command)).reason for command in RUNS}
    assert {text: why for text, why in refused.items() if why not in ("the mode is auto", "it only reads")} == {}


async def test_a_rule_that_denies_a_file_holds_for_the_entry(here: ExecutionContext, home: Path) -> None:
    rule = Rule(Action.DENY, argument="~/d/x", match=Match.GLOB)
    made = there(here, home, rules=(rule,))
    assert not await made.allows("run_shell", "cp a/x d")
    assert not await made.allows("run_shell", "diff a/x d")
    assert await made.allows("run_shell", "cp a/x kept")


async def test_many_entries_are_looked_up_by_listing_the_directory(here: ExecutionContext, home: Path) -> None:
    for number in range(operand_paths.MAX_LOOKUPS + 20):
        (home / f"a/f{number}").write_text("")
    made = there(here, home)
    assert await made.allows("run_shell", "cp a/f* d")
    (home / "d/f7").symlink_to("../.ssh/id_rsa")
    assert not await made.allows("run_shell", "cp a/f* d")
    assert not await made.allows("run_shell", "cp a/* kept")


@given(
    st.lists(st.text("ab/.-=t:?#~", max_size=6)), st.sampled_from(["cp", "diff", "git", "x", "ln", ""]), st.booleans()
)
def test_any_words_have_entries_or_none(words: list[str], name: str, read_only: bool) -> None:
    found = directory_operands([name, *words], read_only=read_only)
    assert found is None or set(found.sources) <= {*words}
    for word in words:
        assert all("/" not in entry and entry not in ("", ".", "..") for entry in entry_names(word))
