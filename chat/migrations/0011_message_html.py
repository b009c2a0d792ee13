"""Answers as HTML, which pages make when they first show one."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("chat", "0010_run_queued")]
    operations = [
        migrations.AddField(
            "message",
            "html",
            models.TextField(
                db_default="", editable=False, help_text="An answer as pages show it: see `chat.markup`."
            ),
        ),
        migrations.AddField(
            "message",
            "html_version",
            models.PositiveSmallIntegerField(
                db_default=0, editable=False, help_text="By which rules: 0 is none."
            ),
        ),
    ]
