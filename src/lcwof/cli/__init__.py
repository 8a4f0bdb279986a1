"""The command line: thin commands over the library's public parts."""
