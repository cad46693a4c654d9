"""Ways to reach a node, one file each: `make(node, files)` gives a `Transport` and does no I/O yet.

    asyncssh   SSH in the event loop; the default
    paramiko   SSH in threads, for servers that do not work with asyncssh
    local      this machine

Importing this package imports none of the SSH libraries.
"""

from agentless.remote.transports._ssh.route import SshFiles

__all__ = ["SshFiles"]
