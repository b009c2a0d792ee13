"""An index of those that wait, in the order in which the reaper looks at them."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("chat", "0009_reply_indexes")]
    operations = [
        migrations.AddIndex(
            "run",
            models.Index(condition=models.Q(("status", "queued")), fields=["id"], name="run_queued"),
        ),
    ]
