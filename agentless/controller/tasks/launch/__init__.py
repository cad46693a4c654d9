"""From a placed task to a started one."""
