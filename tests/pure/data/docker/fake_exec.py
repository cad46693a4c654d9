"""A stand-in for `docker exec`: the program is not the client's child, and lives on when the client has gone.

Its container is this machine. It has the client's terminal itself, where Docker gives it one of its own.
"""

import os
import sys

words = sys.argv[2:]
while words[0].startswith("--"):
    words = words[2:] if words[0] == "--detach-keys" else words[1:]
reader, writer = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.close(reader)
        pid = os.posix_spawnp(words[1], words[1:], os.environ, setsid=True)
        os.write(writer, b"%d" % os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    os._exit(0)
os.close(writer)
code = int(os.read(reader, 9))
sys.exit(code if code >= 0 else 128 - code)
