"""Ways to run a task on a node, one file each: values in, commands out, answers parsed."""
