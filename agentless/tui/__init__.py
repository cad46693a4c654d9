"""The dashboard: the whole cluster in a terminal, and everything a user does with it.

app.py        the app: its views, its keys, and what comes in from the controller
feed.py       a thread that follows the controller, also over its end and its return
board.py      what is known of the cluster, by what the controller has sent
view.py       a table of rows that can be sorted and filtered; gpus, nodes, tasks, queue, events: one view each
overview.py   all GPUs at one look, and beside them what waits and what is wrong
table.py      the widget that draws rows; look.py: colours, bars, plots; tiles.py: GPUs as tiles
acts.py       what can be done to a task or a node
submit.py, logs.py, details.py, ask.py, help.py, terminal.py   the screens on top
"""
