"""Which programs take whole directories, and with which options. Short options are letters, long ones whole words."""

from __future__ import annotations

__all__ = ["CHANGING", "COPYING", "FEEDING", "LISTING", "PLAIN", "READING", "REMOTE", "SEARCHING"]

SEARCHING = frozenset({"rg", "ag", "ack", "ugrep", "rgrep", "pt", "sift"})
"""What searches the directory where it is when it is given no other."""
READING = {
    "zip": "r --recurse-paths",
    "pax": "w",
    **dict.fromkeys(("mksquashfs", "genisoimage", "mkisofs", "xorriso", "restic", "borg", "rclone", "duplicity"), ""),
}
"""What reads all of the directories that it is given."""
CHANGING = {
    "rm": "rR --recursive",
    **dict.fromkeys(("chmod", "chown", "chgrp", "setfacl", "chattr", "chcon"), "R --recursive"),
    "restorecon": "rR --recursive",
    "shred": "",
}
"""What changes all of them."""
COPYING = {
    "cp": "rRa --recursive --archive",
    "scp": "r",
    "rsync": "",
    "mv": "",
    "ln": "",
    "install": "",
}
"""What makes entries in the last directory that it is given."""
REMOTE = frozenset({"scp", "rsync"})
"""Where a word with a colon is on another host."""
FEEDING = frozenset({"xargs", "parallel", "cpio", "pax"})
"""What takes the names of files from what it reads."""
LISTING = frozenset({"find", "fd", "fdfind", "ls", "rg", "tree", "du"})
"""What may list all that is below a directory."""
PLAIN = frozenset(
    [
        *("cd", "pushd", "popd", "chdir", "mkdir", "rmdir", "touch", "test", "[", "[[", "echo", "printf", "export"),
        *("unset", "set", "read", "wait", "exit", "umask", "type", "which", "command", "hash", "trap", "alias", "tee"),
        *("sed", "awk", "gawk", "mawk", "cut", "sort", "cat", "head", "tail", "less", "more", "kill", "systemctl"),
        *("service", "df", "du", "stat", "ls", "tree", "basename", "dirname", "readlink", "realpath", "truncate", "dd"),
        *("date", "sleep", "true", "false", "local", "declare", "typeset", "readonly", "return", "break", "continue"),
        *(
            "source",
            ".",
            "file",
            "wc",
            "md5sum",
            "sha256sum",
            "umount",
            "crontab",
            "logger",
            "return",
            "shift",
            "getopts",
        ),
    ]
)
"""What does no more with a directory than to enter, make, name or list it."""
