"""The dashboard: the whole cluster in a terminal, and everything a user does with it.

app.py        the app: its views, its keys, and what comes in from the controller
incoming.py   what the controller sends: taken down on the board, and shown
feed.py       a thread that follows the controller, also over its end and its return
board.py      what is known of the cluster, by what the controller has sent
view.py       a table of rows that can be sorted and filtered; gpus, nodes, tasks, queue, events: one view each
overview.py   all GPUs at one look, and beside them what waits and what is wrong
bar.py        the two lines above the view: which one it is, and numbers
table.py      the widget that draws rows; tiles.py: GPUs as tiles; lines.py: both are made of it; look.py: colours, bars
acts.py       what can be done to a task or a node
submit.py, logs.py, details.py, ask.py, keys.py, shell.py   the screens on top
"""
