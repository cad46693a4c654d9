"""Ways to run a task on a node: values in, commands out, answers parsed. Others know them as `ports.Engine`."""
