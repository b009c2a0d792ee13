"""A column, which the release before does not know: its rows get the default from the database."""

from pathlib import Path

from django.db import migrations, models

from chat import migrations as present

LAST = max(path.stem for path in Path(present.__path__[0]).glob("[0-9]*.py"))


class Migration(migrations.Migration):
    dependencies = [("chat", LAST)]
    operations = [migrations.AddField("message", "weight", models.PositiveIntegerField(default=1, db_default=1))]
