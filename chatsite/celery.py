"""The Celery app: messages carry a run's id only, and a lost one is no loss, since the row is the truth."""

from __future__ import annotations

import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "chatsite.settings")

app = Celery("palaver")
app.config_from_object("chatsite.celery_settings")
app.autodiscover_tasks(["chat"])
