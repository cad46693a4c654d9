"""agentless: one big computer out of the GPU machines you can already ssh into.

Nothing runs on a node but SSH and Docker. Start reading at `docs/architecture.md`; the way of a submit
through this package is `cli/submit.py` → `client` → `controller` → `rules/place` → `runtimes/docker` → `session`.
"""

__version__ = "0.1.0"
