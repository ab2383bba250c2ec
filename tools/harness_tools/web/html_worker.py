"""Worker process: reads HTML from standard input, prints a JSON object with its text and title.

Usage: ``html_worker.py FORM BASE SECONDS MEMORY LONGEST``. It is run by its path in a separate process, because a page
may be designed to exhaust time and memory; the limits are those of the process.
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
"""Maximum nesting of elements; deeper ones are omitted."""
_TITLE = re.compile(r"<title(?:\s[^<>]{0,200})?>([^<]{0,2000})", re.IGNORECASE)


def title_of(source: str) -> str:
    """Return the title of the page, on one line."""
    found = _TITLE.search(source)
    return " ".join(html.unescape(found[1]).split())[:300] if found else ""


def main() -> int:
    """Convert standard input, and return the exit code."""
    form, base, *numbers = sys.argv[1:]
    seconds, memory, longest = (int(number) for number in numbers)
    try:
        from html_to_markdown import ConversionOptions, convert
    except ImportError:
        return NO_LIBRARY
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    with suppress(ValueError, OSError):  # some systems lack this limit; the CPU limit remains
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
