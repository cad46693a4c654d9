"""What may break, broken on real nodes: `make faults`, and a part of it in `make test`.

matrix.py     all faults by name, and the table
judge.py      what is true, read from the nodes' own Docker; what was lost, what was there twice
scene.py      what a fault plays in: people at a shell, requests, counts; held_lock.py, controller_log.py
kill.py       the controller is killed: at every step, at random; hook/ counts its steps
race.py       two controllers want one GPU
"""
