"""Containers: what reaches files of the host outside of the working directory asks, also in mode auto."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.own_home import here
from tests.support.permits import desk

from harness.context import ExecutionContext
from harness.testing.memory import MemoryBackend, memory_context
from harness.toolkit.permissions.rules.rule import Action, Match, Rule
from harness.toolkit.permissions.rules.settings import Mode
from harness.toolkit.permissions.shell.classification import classify_command
from harness.toolkit.permissions.shell.container_files import ContainerFiles
from harness.toolkit.permissions.shell.container_reach import Mount, container_reach
from harness.toolkit.permissions.shell.operand_paths import OperandPaths

__all__ = ["here"]

ASKS = """
docker run -v /:/h alpine ls /h
docker run -v/:/h alpine ls /h
docker run -itv /:/h alpine
docker run --rm -it -v /srv/data:/d:ro alpine ls /d
docker run --volume=/:/h alpine ls /h
docker run --volume /srv:/d alpine
docker run -v ..:/d alpine
docker run -v ./out:/d alpine
docker run -v "$HOME":/d alpine
docker run -v ~:/d alpine
docker run -v "$DIR:/d" alpine
docker run -v "$MOUNT" alpine
docker run -v "${DIR:-/srv}:/d" alpine
docker run -v /var/run/docker.sock:/var/run/docker.sock alpine
docker run --mount type=bind,src=/,dst=/h alpine ls /h
docker run --mount type=bind,source=/srv,target=/h,readonly alpine
docker run --mount=type=bind,source=/srv,target=/h alpine
docker run --mount '"type=bind","src=/srv","dst=/h"' alpine
docker run --mount type=bind,SRC=/srv,dst=/h alpine
docker run --mount type=volume,dst=/h,volume-opt=type=none,volume-opt=o=bind,volume-opt=device=/srv alpine
docker run --volumes-from other alpine
docker run --privileged alpine
docker run --privileged=true alpine
docker run --pid host alpine
docker run --pid=host alpine
docker run --ipc=host alpine
docker run --device /dev/sda alpine
docker run --device=/dev/sda:/dev/x alpine
docker run --cap-add SYS_ADMIN alpine
docker run --cap-add=NET_ADMIN --cap-add=cap_dac_read_search alpine
docker run --cap-add ALL alpine
docker run --security-opt systempaths=unconfined alpine
docker run --use-api-socket alpine
docker create -v /:/h alpine
docker container run -v /:/h alpine
docker exec --privileged app sh
docker container exec --privileged app sh
docker cp /srv/data app:/x
docker cp -L out/x app:/x
docker cp app:/x /srv
docker cp app:/x ../y
docker container cp app:/x ~/y
docker build /srv
docker build -o /srv/out .
docker build --output type=local,dest=/srv .
docker build --build-context other=/srv .
docker buildx build --allow security.insecure .
docker volume create -o type=none -o o=bind -o device=/srv x
docker volume create --opt device=/srv x
docker service create --mount type=bind,src=/,dst=/h nginx
docker service update --mount-add type=bind,src=/,dst=/h web
docker plugin install --grant-all-permissions vieux/sshfs
docker -H ssh://web1 run -v "$PWD:/w" alpine
docker --context prod run -v ./src:/w alpine
docker compose run -v /:/h app ls
docker compose -f compose.yml run --volume /srv:/h app
docker compose exec --privileged app sh
docker compose cp app:/x /srv
docker-compose run -v /:/h app ls
podman run -v /:/h alpine
podman run --pid=host alpine
podman run --cap-add NET_ADMIN,SYS_ADMIN alpine
podman run --security-opt unmask=ALL alpine
podman run --rootfs /
podman run --mount type=glob,src=/usr/lib/x*,dst=/h alpine
podman --remote run -v ./src:/w alpine
podman --hooks-dir /srv/hooks run alpine
podman pod create --volume /:/h
podman container runlabel install image
nerdctl run -v /:/h alpine
sudo docker run -v /:/h alpine
timeout 9 docker run -v /:/h alpine
bash -c 'docker run -v /:/h alpine'
cd / && docker run -v .:/h alpine
cd /srv && docker run -v "$PWD:/h" alpine
cd /srv; docker cp app:/x .
buildah run -v /srv:/h c ls
apptainer exec -B /srv:/h x.sif ls
ctr run --mount type=bind,src=/,dst=/h image c ls
ctr run --privileged image c ls
lxc config device add c root disk source=/ path=/h
incus launch images:debian c -c security.privileged=true
lxc config set c raw.lxc 'lxc.mount.entry=/ h none bind'
lxc file push -r /srv c/x
lxc file pull c/x /srv/y
systemd-nspawn -D /srv/root --bind=/:/h ls
systemd-run -p BindPaths=/srv:/h ls
systemd-run -p RootDirectory=/srv ls
machinectl bind c /srv
machinectl copy-from c /x /srv
kubectl debug node/a -it --image=busybox
kubectl -n x --context y debug pod/a
oc debug node/a
kubectl run x --image=a --overrides='{"spec": {"hostPID": true}}'
kubectl run x --image=a --privileged
kubectl cp /srv/data app:/x
kubectl cp app:/x /srv/y -n x
oc rsync /srv app:/x
nsenter -t 1 -m ls
nsenter -at 1 ls
nsenter --target 1 --mount ls
nsenter -t 1 -r ls
curl --unix-socket /var/run/docker.sock http://x/containers/create
curl -X POST --unix-socket=/run/podman/podman.sock http://x/containers/create
echo x | socat - UNIX-CONNECT:/var/run/docker.sock
""".strip().splitlines()
RUNS = """
docker run alpine
docker run --rm -it -e A=b -p 80:80 --name web nginx
docker run -v data:/d alpine
docker run -v /d alpine
docker run -v "$PWD:/w" -w /w node npm ci
docker run -v "$PWD":/w alpine
docker run -v "$(pwd):/w" alpine
docker run -v "${PWD}/src:/w" alpine
docker run -v ./src:/w alpine
docker run --mount type=bind,src=./src,dst=/w alpine
docker run --mount type=volume,src=data,dst=/d alpine
docker run --mount type=tmpfs,dst=/d alpine
docker run --tmpfs /d alpine
docker run --network host alpine
docker run --pid container:app alpine
docker run --cap-add NET_ADMIN alpine
docker run --security-opt no-new-privileges alpine
docker run --privileged=false alpine
docker exec app ls
docker exec -it app sh -c 'ls /'
docker cp app:/var/log/x .
docker cp app:/x -
docker cp src/x app:/x
docker cp ./src app:/x
docker build .
docker build -t web:1 -f src/Dockerfile --build-arg PREFIX=/usr src
docker build -o out2 .
docker volume create data
docker volume create -o type=tmpfs x
docker compose up -d
docker compose run --rm app ls /
docker restart web
docker -H ssh://web1 restart web
docker rm -f web
podman run --rm alpine
podman exec -l ls
podman cp app:/x x
kubectl exec app -- ls /
kubectl cp app:/x x
kubectl delete pod debug
kubectl apply -f src/x.yaml
nsenter -t 1 -n ip addr
systemd-run --user -p MemoryMax=1G make
curl https://example.com/docker.sock.html -o x
""".strip().splitlines()


@pytest.fixture
def work(here: ExecutionContext, tmp_path: Path) -> Path:
    """A working directory, with a link that leads out of it."""
    made = tmp_path / "home/work"
    (made / "src").mkdir(parents=True)
    (made / "out").symlink_to("/usr")
    return made


@pytest.mark.parametrize("mode", [Mode.ASK, Mode.AUTO])
async def test_what_reaches_files_of_the_host_elsewhere_asks(here: ExecutionContext, work: Path, mode: Mode) -> None:
    made = desk(execution=here, cwd=str(work), mode=mode)
    assert [command for command in ASKS if await made.allows("run_shell", command)] == []


async def test_what_stays_in_its_container_or_the_working_directory_runs_in_mode_auto(
    here: ExecutionContext, work: Path
) -> None:
    made = desk(execution=here, cwd=str(work), mode=Mode.AUTO)
    verdicts = {command: await made.decide("run_shell", command) for command in RUNS}
    assert {text: verdict.reason for text, verdict in verdicts.items() if not verdict.allowed} == {}


DENIED = """
docker run -v /etc:/h alpine cat /h/shadow
docker run --volume=/etc:/h alpine cat /h/shadow
docker run -v /etc:/h alpine sh -c 'cd /h && cat shadow'
docker run -v /etc:/h -w /h alpine cat shadow
docker run -v /:/h alpine cat /h/etc/shadow
docker run --mount type=bind,src=/etc,dst=/h alpine cat /h/shadow
docker run --volume=/etc/shadow:/s alpine cat /s
docker run --mount type=bind,src=/etc/shadow,dst=/s alpine cat /s
docker compose run -v /etc:/h app cat /h/shadow
docker cp /etc/shadow app:/x
docker build --secret id=x,src=/etc/shadow .
nerdctl run -v "$PWD/../.ssh:/h" alpine cat /h/id_rsa
bwrap --ro-bind /etc /h cat /h/shadow
chroot /etc cat /shadow
unshare --root=/etc cat /shadow
systemd-run -p BindPaths=/etc:/h cat /h/shadow
systemd-nspawn --bind-ro=/etc:/h cat /h/shadow
kubectl cp /etc/shadow app:/x
""".strip().splitlines()


async def test_a_secret_is_denied_under_its_name_in_a_container(here: ExecutionContext, work: Path) -> None:
    made = desk(execution=here, cwd=str(work), mode=Mode.AUTO)
    verdicts = {command: await made.decide("run_shell", command) for command in DENIED}
    assert {text: verdict.reason for text, verdict in verdicts.items() if verdict.by != "hard denial"} == {}


def allow(argument: str) -> Rule:
    return Rule(Action.ALLOW, tool="run_shell", argument=argument, match=Match.GLOB)


@pytest.mark.parametrize(
    ("command", "runs"),
    [
        ("docker run -v /usr/share/doc:/d:ro alpine ls /d", True),
        ("docker run alpine ls", True),
        ("docker run -v ./kept:/d alpine ls /d", False),
        ("docker run -v .:/d alpine ls /d", False),
        ("docker run -v ..:/d alpine ls /d", False),
        ("docker run --privileged alpine ls", False),
        ("docker run -v /:/d alpine ls /d", False),
    ],
)
async def test_a_pattern_allows_other_directories_but_nothing_that_is_kept_back_in_them(
    here: ExecutionContext, work: Path, command: str, runs: bool
) -> None:
    (work / "kept").mkdir()
    (work / "kept/.aiexclude").write_text("x\n")
    (work / "kept/x").write_text("x")
    made = desk(execution=here, cwd=str(work), rules=(allow("docker run *"), allow("ls *"), allow("ls")))
    assert await made.allows("run_shell", command) is runs


@pytest.mark.parametrize("command", ["docker run -v .:/d alpine", "docker build .", "docker cp . app:/x"])
async def test_what_is_kept_back_in_the_working_directory_asks(
    here: ExecutionContext, work: Path, command: str
) -> None:
    made = desk(execution=here, cwd=str(work), mode=Mode.AUTO)
    assert await made.allows("run_shell", command)
    (work / "src/.aiexclude").write_text("x\n")
    (work / "src/x").write_text("x")
    made.clock.now += 60
    assert "src/x" in (await made.decide("run_shell", command)).reason


@pytest.mark.parametrize(("start", "asks"), [("/home/ann", False), ("/", True), ("", True)])
async def test_a_directory_is_in_no_working_directory_that_is_not_known_or_the_root(start: str, asks: bool) -> None:
    execution = memory_context(MemoryBackend())
    text = "docker run -v ./src:/w alpine"
    judged = classify_command(text)
    files = ContainerFiles(execution, OperandPaths(execution, (), start, judged, text), start)
    assert bool(await files.reason(judged)) is asks


@pytest.mark.parametrize(
    "command",
    [
        "docker compose -f x.yml exec -T app rm x",
        "docker-compose run --rm app rm x",
        "podman unshare rm x",
        "podman exec -l rm x",
        "docker run -it --network-alias a --entrypoint rm alpine x",
        "docker --log-level debug exec app rm x",
    ],
)
async def test_a_rule_that_denies_a_program_holds_in_a_container(command: str) -> None:
    rule = Rule(Action.DENY, tool="run_shell", argument="rm *", match=Match.GLOB)
    assert (await desk(mode=Mode.AUTO, rules=(rule,)).decide("run_shell", command)).by.startswith("deny rule")


@pytest.mark.parametrize(
    ("command", "mounts"),
    [
        ("docker run -v /a:/b:ro,z x -v /c:/d", [Mount("/a", "/b", writes=False)]),
        ("docker run -itv/a:/b x", [Mount("/a", "/b")]),
        ("docker run -v $(pwd):/b x", [Mount(".", "/b")]),
        ("docker run -v a:/b x", []),
        ("docker run --mount type=bind,src=a,dst=/b,ro=false x", [Mount("a", "/b")]),
        ("docker run --mount type=bind,src=/a,dst=/b,readonly x", [Mount("/a", "/b", writes=False)]),
        ("docker cp /a b:/c", [Mount("/a", writes=False)]),
        ("docker cp b:/c /a", [Mount("/a", reads=False)]),
        ("docker cp b:/c -", []),
        ("chroot /a ls -v /b:/c", [Mount("/a", "/", by_name=True)]),
        ("lxc file pull c/a c/b d", [Mount("d", reads=False)]),
        ("lxc file push a b c/x", [Mount("a", writes=False), Mount("b", writes=False)]),
        ("machinectl bind m /a /b", [Mount("/a", "/b")]),
        ("machinectl copy-to m /a /b", [Mount("/a", "/b", writes=False)]),
        ("machinectl copy-from m /b /a", [Mount("/a", reads=False)]),
        ("machinectl copy-from m a", [Mount("a", reads=False)]),
        ("docker container cp /a b:/c", [Mount("/a", writes=False)]),
        ("docker container ls", []),
        ("docker ps", []),
        ("docker", []),
        ("", []),
    ],
)
def test_what_a_command_gives_to_a_container(command: str, mounts: list[Mount]) -> None:
    assert list(container_reach(command.split()).mounts) == mounts
