"""From a request to tasks that run or wait."""
