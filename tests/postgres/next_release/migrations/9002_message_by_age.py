"""An index, made beside whoever uses the table."""

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("chat", "9001_message_weight")]
    operations = [AddIndexConcurrently("message", models.Index(fields=["created_at"], name="message_by_age"))]
