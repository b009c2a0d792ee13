"""Free, Plus and Pro: users need a tier from the first row on; operators change them in the admin."""

from django.db import migrations

TIERS = [
    {"slug": "free", "name": "Free", "weight": 1, "concurrency": 2, "max_output_tokens": 512},
    {"slug": "plus", "name": "Plus", "weight": 3, "concurrency": 4, "max_output_tokens": 1024},
    {"slug": "pro", "name": "Pro", "weight": 8, "concurrency": 8, "max_output_tokens": 2048},
]


def create_tiers(apps, schema_editor):
    tier = apps.get_model("scheduler", "Tier")
    tier.objects.bulk_create(tier(**fields) for fields in TIERS)


class Migration(migrations.Migration):
    dependencies = [("scheduler", "0001_initial")]
    operations = [migrations.RunPython(create_tiers, migrations.RunPython.noop)]
