"""What operators see of users, chats and runs, and of each other's acts. Lists never show what people wrote."""

from chat.admin import audit, chats, users

__all__ = ["audit", "chats", "users"]
