"""Indexes of what is counted at each question; by themselves, since the rows that 0008 changed are settled first."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("chat", "0008_run_user")]
    operations = [
        migrations.RemoveIndex("run", "run_waiting"),
        migrations.AddIndex(
            "run",
            models.Index(
                condition=models.Q(("kind", "reply"), ("status", "queued")),
                fields=["model", "tier"],
                name="reply_waiting",
            ),
        ),
        migrations.AddIndex(
            "run",
            models.Index(
                condition=models.Q(("kind", "reply"), ("status__in", ("queued", "streaming"))),
                fields=["user_id"],
                name="live_reply_by_user",
            ),
        ),
    ]
