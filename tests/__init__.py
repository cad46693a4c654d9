"""The tests of agentless, and what they need of their surroundings: they pass wherever they are started from.

A terminal, cron, `nohup`, a script in the background; with whatever umask, locale and terminal, and without a home.
"""

import atexit
import os
import shutil
import sys
import tempfile

from agentless.signals import defaults_for_children

defaults_for_children()
os.umask(0o022)
os.environ["LC_ALL"] = "C.UTF-8"
os.environ["TERM"] = "xterm-256color"
os.environ.pop("NO_COLOR", None)
# Without bytecode each of hundreds of controllers and commands would be compiled anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
if not os.access(os.path.expanduser("~"), os.W_OK | os.X_OK):
    os.environ["HOME"] = tempfile.mkdtemp(prefix="home-")
    atexit.register(shutil.rmtree, os.environ["HOME"], ignore_errors=True)
