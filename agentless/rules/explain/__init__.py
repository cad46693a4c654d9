"""Why a task is still pending, and what would help."""
