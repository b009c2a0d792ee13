from django.apps import AppConfig
from django.contrib.auth.signals import user_logged_out


class ChatConfig(AppConfig):
    """Users, chats, messages and runs."""

    name = "chat"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Tell a session's pages when it ends; have changes of users and keys audited."""
        from chat import announcements, audit

        audit.register()
        user_logged_out.connect(announcements.signed_out, dispatch_uid="chat.announcements")
