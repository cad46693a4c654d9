"""Simulated GPU nodes on this machine, for trying agentless out and for tests at scale. Nothing here is a real node.

What is real: an SSH server per node, the `sh` that it starts, and every command of a task, which runs as a local
process of this user. What is made up: the GPUs (`bin/nvidia-smi` prints tables) and the container engine (`bin/docker`
asks `engine.py`, which isolates nothing: no file system, no network, no limits). Whatever a person sees says so: the
GPUs are called "Simulated …", the engine's version and the default image "simulated". Only for Linux.

    fleet.py      many nodes as one context manager: keys, known_hosts, inventory
    node.py       one node: its SSH server, GPUs and engine, and the faults that a test may want
    ssh.py        a session: `sh` and its three streams
    engine.py     the containers of a node, and their events; container.py: one of them; log.py: what it printed;
                  clock.py: what it dates by
    docker.py     the `docker` command: words.py takes it apart, looking.py and changing.py are its verbs,
                  go_template.py its --format
    calls.py      how `bin/docker` and `bin/flock` reach this process; flock.py: the node's own lock
    gpus.py       the tables that nvidia-smi prints
    life/         loads that move, and the hour before; bin/train is a training that computes nothing
    processes.py  child processes that end with all they started; guard.py: also after kill -9; pipes.py: their streams
"""
