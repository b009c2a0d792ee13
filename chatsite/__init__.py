"""The Django project: settings, URLs, ASGI, the Celery app."""

from chatsite.celery import app as celery_app

__all__ = ["celery_app"]
