from django.apps import AppConfig


class SchedulerConfig(AppConfig):
    """Tiers and models."""

    name = "scheduler"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Have changes of its rows audited."""
        from scheduler import audit

        audit.register()
