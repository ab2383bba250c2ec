"""POSIX over any transport: a held shell, files, jobs and probes."""
