"""The way to a node as OpenSSH would take it: its configuration, keys, known hosts and proxies."""
