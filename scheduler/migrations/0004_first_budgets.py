"""Budgets for the tiers that came along; those that an operator has added keep the defaults."""

from django.db import migrations

BUDGETS = {
    "free": {"budget_tokens": 50_000, "refill_tokens_per_hour": 25_000, "shed_at_percent": 60},
    "plus": {"budget_tokens": 250_000, "refill_tokens_per_hour": 125_000, "shed_at_percent": 80},
    "pro": {"budget_tokens": 1_000_000, "refill_tokens_per_hour": 500_000, "shed_at_percent": 100},
}


def set_budgets(apps, schema_editor):
    tier = apps.get_model("scheduler", "Tier")
    for slug, numbers in BUDGETS.items():
        tier.objects.filter(slug=slug).update(**numbers)


class Migration(migrations.Migration):
    dependencies = [("scheduler", "0003_budgets_and_queues")]
    operations = [migrations.RunPython(set_budgets, migrations.RunPython.noop)]
