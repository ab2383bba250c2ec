"""A program: HTML on standard input, a JSON object with its text and title on standard output.

``htmlscript.py FORM BASE SECONDS MEMORY LONGEST``. It is run by its path, apart from whoever wants the page, because a
page may be made to take all time and memory: the limits are those of the process.
"""

from __future__ import annotations

import html
import json
import re
import resource
import sys
from contextlib import suppress

__all__ = ["main", "title_of"]

NO_LIBRARY = 3
DEPTH = 400
"""Elements within elements; what is deeper is left out."""
_TITLE = re.compile(r"<title(?:\s[^<>]{0,200})?>([^<]{0,2000})", re.IGNORECASE)


def title_of(source: str) -> str:
    """What the page calls itself, on one line."""
    found = _TITLE.search(source)
    return " ".join(html.unescape(found[1]).split())[:300] if found else ""


def main() -> int:
    """Do it; returns the exit code."""
    form, base, *numbers = sys.argv[1:]
    seconds, memory, longest = (int(number) for number in numbers)
    try:
        from html_to_markdown import ConversionOptions, convert
    except ImportError:
        return NO_LIBRARY
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    with suppress(ValueError, OSError):  # some systems have no such limit; the one of time holds
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    source = sys.stdin.buffer.read().decode("utf-8", "replace")
    options = ConversionOptions(
        output_format="plain" if form == "text" else "markdown",
        base_url=base,
        extract_metadata=False,
        inline_data_media="alt_text_only",
        max_depth=DEPTH,
    )
    made = convert(source, options).content or ""
    sys.stdout.write(json.dumps({"text": made[:longest], "title": title_of(source)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
