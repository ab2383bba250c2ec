"""The functions of the held shell: each name means one thing there."""

from __future__ import annotations

import re
from collections import Counter

from harness_backends.posix import state_directory
from harness_backends.posix.jobs import shell_library


def test_no_function_of_the_held_shell_is_defined_twice() -> None:
    text = state_directory.PROLOGUE + shell_library.PROLOGUE
    counted = Counter(re.findall(r"^(hx_\w+)\(\)", text, re.MULTILINE))
    assert len(counted) > 40
    assert [name for name, times in counted.items() if times > 1] == []
