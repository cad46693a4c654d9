"""Notifications: which events are sent, when, and in which words."""
