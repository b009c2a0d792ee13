"""Every model that is there has a first version: what it was served as so far."""

from __future__ import annotations

from typing import Any

from django.db import migrations


def give_first_versions(apps: Any, _schema_editor: Any) -> None:
    """Active at once: workers load the same as before."""
    model_row, version_row = apps.get_model("scheduler", "Model"), apps.get_model("scheduler", "ModelVersion")
    for model in model_row.objects.filter(version=None).exclude(source=""):
        version = version_row.objects.create(
            model=model, number=1, source=model.source, context_window=model.context_window, state="active"
        )
        model.version = version
        model.save(update_fields=["version"])


class Migration(migrations.Migration):
    """Back there is nothing to do: the versions go with their table."""

    dependencies = (("scheduler", "0007_model_versions"),)

    operations = (migrations.RunPython(give_first_versions, migrations.RunPython.noop),)
