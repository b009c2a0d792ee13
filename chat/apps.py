from django.apps import AppConfig


class ChatConfig(AppConfig):
    """Users, chats, messages and runs."""

    name = "chat"
    default_auto_field = "django.db.models.BigAutoField"
