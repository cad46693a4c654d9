"""From a request to a running container, and what is done with a task until it is removed."""
