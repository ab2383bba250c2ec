"""The POSIX backend over any transport: persistent shell, files, jobs and probes."""
