# shellcheck shell=bash
# Functions that the commands in this folder share. Sourced by bash, not run.

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
VENVS=${HARNESS_VENVS:-$ROOT/.venv}
SUPPORTED="3.11 3.12 3.13"

say() { printf '== %s\n' "$*" >&2; }
die() { printf '%s: %s\n' "${0##*/}" "$*" >&2; exit 2; }

# version_of PYTHON: its "major.minor"; fails when it does not run (a pyenv shim without a version, for example).
version_of() { "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null; }

# python_for VERSION: a Python of that version, from PATH or from pyenv.
python_for() {
    local candidate
    for candidate in "python$1" "${PYENV_ROOT:-$HOME/.pyenv}"/versions/"$1".*/bin/python /opt/python/"$1"*/bin/python; do
        [ "$(version_of "$candidate")" = "$1" ] && { echo "$candidate"; return; }
    done
    return 1
}

# find_pythons: "VERSION PATH" lines, the oldest first: each supported version that is here, else any newer python3.
find_pythons() {
    local version python found=
    for version in $SUPPORTED; do
        python=$(python_for "$version") && echo "$version $python" && found=yes
    done
    if [ -z "$found" ]; then
        ! python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || echo "$(version_of python3) python3"
    fi
}

# first_python: the path of the oldest supported Python here.
first_python() {
    local first
    first=$(find_pythons | head -n 1)
    [ -n "$first" ] || die "Python 3.11 or newer is needed (on Debian or Ubuntu: apt-get install python3)"
    echo "${first#* }"
}

# install_packages COMMAND=PACKAGE...: as root installs what is missing with apt-get; otherwise says what to install.
install_packages() {
    local pair missing=
    for pair in "$@"; do
        PATH=$PATH:/usr/sbin:/sbin command -v "${pair%%=*}" >/dev/null || case "$missing " in
            *" ${pair#*=} "*) ;; # asked for already, by another of its commands
            *) missing="$missing ${pair#*=}" ;;
        esac
    done
    [ -n "$missing" ] || return 0
    command -v apt-get >/dev/null || die "please install:$missing"
    [ "$(id -u)" = 0 ] || die "please run: sudo apt-get update && sudo apt-get install -y$missing"
    say "installing$missing"
    # shellcheck disable=SC2086  # a list of words
    quietly apt_install $missing || { quietly apt-get update -qq && quietly apt_install $missing; } || {
        echo "$QUIET" >&2
        die "could not install:$missing"
    }
}

# want_packages COMMAND=PACKAGE...: as install_packages; where that cannot be, the tests that need them are left out.
want_packages() {
    (install_packages "$@") || {
        [ "${CI:-}" != true ] || exit 2
        say "what needs them is left out"
    }
}

# quietly COMMAND...: run it, and keep what it says in QUIET.
QUIET=
quietly() { QUIET=$("$@" 2>&1); }

# apt_install PACKAGE...: without starting the services that come with them; nobody asked for an SSH server.
apt_install() (
    policy=/usr/sbin/policy-rc.d
    if [ ! -e "$policy" ]; then
        trap 'rm -f "$policy"' EXIT
        printf '#!/bin/sh\nexit 101\n' >"$policy" && chmod 755 "$policy"
    fi
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends -o DPkg::Lock::Timeout=300 "$@"
    status=$?
    case " $* " in *" openssh-server "*)
        [ ! -d /run/systemd/system ] || systemctl disable --quiet ssh.service ssh.socket 2>/dev/null || true ;;
    esac
    case " $* " in *" docker.io "*)
        [ ! -d /run/systemd/system ] || systemctl disable --quiet docker.service docker.socket 2>/dev/null || true ;;
    esac
    exit "$status"
)

# ensure_venv NAME PYTHON EXTRAS: an environment with this checkout installed in it; prints its bin directory. Does
# nothing, and needs no network, when it is there with these extras and the project's metadata has not changed.
ensure_venv() {
    local home=$VENVS/$1 stamp installed= extras
    stamp="$2 $ROOT $(cksum <"$ROOT/pyproject.toml")"
    [ "$(sed -n 1p "$home/.stamp" 2>/dev/null)" != "$stamp" ] || installed=$(sed -n 2p "$home/.stamp")
    extras=$(tr , '\n' <<<"$3${installed:+,$installed}" | sort -u | paste -sd, -)
    if [ "$installed" != "$extras" ]; then
        say "preparing $home"
        "$2" -c 'import ensurepip, venv' 2>/dev/null || install_venv_module "$2"
        "$2" -m venv "$home" >&2 || die "could not make an environment with $2"
        "$home/bin/python" -m pip install --quiet --disable-pip-version-check -e "${ROOT}[$extras]" >&2 ||
            die "could not install the project into $home"
        printf '%s\n' "$stamp" "$extras" >"$home/.stamp"
    fi
    echo "$home/bin"
}

# install_venv_module PYTHON: Debian ships it apart from Python.
install_venv_module() {
    install_packages "no-such-command=python$(version_of "$1")-venv"
}

# ensure_npm NAME FOLDER: what is taken from npm, of exactly the versions that the lockfile in FOLDER names.
ensure_npm() {
    local home=$VENVS/$1 pinned=$ROOT/$2
    ! cmp -s "$home/package-lock.json" "$pinned/package-lock.json" || return 0
    say "preparing $home"
    rm -rf "$home" "$home.new" && mkdir -p "$home.new"
    cp "$pinned"/package*.json "$home.new/"
    (cd "$home.new" && npm ci --no-audit --no-fund --ignore-scripts --loglevel=error) >&2 ||
        die "could not install with npm what $2/package.json names"
    mv "$home.new" "$home"
}

ensure_inspector() { ensure_npm inspector tests/inspector; }   # the MCP Inspector's command line
ensure_web_assets() { ensure_npm web-assets scripts/web; }     # what pages show with, and axe-core, which checks them
