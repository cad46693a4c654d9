"""Stores: live state (`tinydb`), ended tasks (`history`), and secrets of tasks that have not started."""
