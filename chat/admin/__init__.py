"""What operators see of users, chats and runs, and of each other's acts. Lists never show what people wrote."""

from chat.admin import audit, chats, runs, users

__all__ = ["audit", "chats", "runs", "users"]
