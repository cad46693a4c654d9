"""Speed as ratios against what else one would use, measured in pairs on the same machine: `make bench`.

    submit.py     `agentless submit` against `ssh NODE docker run -d`, both as whole processes
    overhead.py   a submit inside the controller against the same two docker commands without it
    sweep.py      one question to 50 nodes against parallel-ssh and Ansible
    ps.py         `agentless ps` as a whole process against `import typer`
    history.py    a submit after 100,000 ended tasks against one after none
    scale.py      what a controller takes with 100 nodes that it samples every 2 s
    plan.py       one look at 10,000 waiting tasks in 1,000 nodes, and how it grows
    starts.py     how many tasks the queue starts in a second
    workflows.py  1,000 jobs that wait for each other against the same 1,000 as a batch
    gangs.py      the start of a gang on eight nodes against that of eight single tasks
    replay.py     apart from them, `make replay`: the queue against first come, first served
    beside.py     apart from them, `make replay WHAT=--slurm`: the queue beside a real Slurm
    measure.py    pairs, medians, rows; fleets.py: nodes, real and simulated, with a controller that serves them

`python -m tests.bench NAME` runs one. What a machine lacks is said in the row that needs it.
"""
