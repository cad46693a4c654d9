"""Run a command once for each combination of values, and print the run with the lowest loss.

The command prints a line such as "loss 0.31" at its end. Usage:

    python docs/examples/best_of_sweep.py python train.py
"""

import sys

from agentless import Cluster, Task


def loss(task: Task) -> float:
    """The last loss that a task printed; infinity if there is none."""
    found = [float(line.split()[1]) for line in task.logs() if line.startswith("loss ")]
    return found[-1] if found else float("inf")


def main() -> None:
    """Submit, wait, compare."""
    command = (*sys.argv[1:], "--lr", "span:[0.1,0.01]", "--seed", "span:{1..2}")
    batch = Cluster().submit_batch(*command, gpus=1, time_limit="1h", max_parallel=4, retries=1).wait()
    for refusal in batch.errors:
        print(f"refused: {refusal}", file=sys.stderr)
    for task in batch.tasks:
        print(f"{task.id}  {task.parameters}  {task.state}  loss {loss(task)}")
    best = min(batch.tasks, key=loss)
    print(f"best: {best.parameters}")


if __name__ == "__main__":
    main()
