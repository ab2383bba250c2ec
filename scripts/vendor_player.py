"""Makes harness/harness/recordings/asciinema_player from the npm package asciinema-player, whose hash it checks."""

from __future__ import annotations

import argparse
import base64
import hashlib
import io
import sys
import tarfile
import urllib.request
from pathlib import Path

VERSION = "3.18.0"
URL = f"https://registry.npmjs.org/asciinema-player/-/asciinema-player-{VERSION}.tgz"
INTEGRITY = "sha512-5gpt2ipFcy4NKmgkv+c/QXnJ9zMicxqWROCOuJqgwwtiYKM8Qe9hnDOvfqke5bW6M2DW/seO3uQYkQ0xeUUVtw=="
FILES = {
    "dist/bundle/asciinema-player.min.js": "752c9b528b664f5b16f27c68ba22fc7973d1d6063a1c3e4795a4c8015943acf6",
    "dist/bundle/asciinema-player.css": "981fe7bc6042048b2a373b6da297f747e324e90a8b6264e833e3a92cec22dfb9",
    "LICENSE": "63422284ed65be54ab38d8a94e7518d27e222fbb26c9ae4cd984c63926e91c12",
}
"""The files of the package that are built into harness, and their SHA-256."""
PLAYER = Path(__file__).resolve().parents[1] / "harness/harness/recordings/asciinema_player"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare only; download nothing")
    parser.add_argument("--package", type=Path, help="use this file of `npm pack` instead of a download")
    options = parser.parse_args()
    if not options.check:
        _unpack(options.package.read_bytes() if options.package else _download())
    different = [name for name, known in FILES.items() if _hash(PLAYER / Path(name).name) != known]
    for name in different:
        print(f"{Path(name).name} is not that of asciinema-player {VERSION}", file=sys.stderr)
    return 1 if different else 0


def _download() -> bytes:
    with urllib.request.urlopen(URL, timeout=60) as reply:
        data: bytes = reply.read()
    return data


def _unpack(package: bytes) -> None:
    found = "sha512-" + base64.b64encode(hashlib.sha512(package).digest()).decode()
    if found != INTEGRITY:
        raise SystemExit(f"the package has the hash {found}, not {INTEGRITY}")
    PLAYER.mkdir(exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(package)) as archive:
        for name in FILES:
            member = archive.extractfile(f"package/{name}")
            assert member is not None
            (PLAYER / Path(name).name).write_bytes(member.read())


def _hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else ""


if __name__ == "__main__":
    raise SystemExit(main())
