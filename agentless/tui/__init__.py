"""The dashboard: the whole cluster in a terminal, and everything a user does with it.

`app` has the views and the keys. `data/` is what is known and decided, without a widget: `feed` is a thread that
follows the controller, also over its end and its return; `incoming` applies what it sends to `cluster`, the state of
the cluster; `actions` are what can be done to a task or a node; `form` reads the submit form; `log_source` reads logs.
`widgets/` draw: a `table` of rows, GPUs as `tiles`, both made of `lines`. `screens/` are the views and what opens on
top of them.
"""
