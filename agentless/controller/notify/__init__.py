"""Notifications: kept until they are sent, and sent."""
