"""A permission of its own to read what people wrote."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("chat", "0011_message_html")]
    operations = [
        migrations.AlterModelOptions(
            "message",
            options={"ordering": ("position",), "permissions": (("read_content", "Can read what people wrote"),)},
        ),
    ]
