"""The one process that changes state: it reaches the nodes, keeps the tasks, and answers the faces."""
