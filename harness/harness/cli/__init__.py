"""The command line: one module per group of commands, imported when it is used."""
