"""A run knows whose it is, so that a user's live runs are counted without those of others."""

from django.db import migrations, models

FORWARD = """
CREATE FUNCTION chat_run_set_user() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.user_id := (SELECT owner_id FROM chat_chat WHERE id = NEW.chat_id);
    RETURN NEW;
END
$$;

CREATE TRIGGER run_user BEFORE INSERT ON chat_run FOR EACH ROW EXECUTE FUNCTION chat_run_set_user();

-- Of those that have ended nobody asks it.
UPDATE chat_run SET user_id = chat_chat.owner_id FROM chat_chat
 WHERE chat_chat.id = chat_id AND status IN ('queued', 'streaming');
"""
BACKWARD = """
DROP TRIGGER run_user ON chat_run;
DROP FUNCTION chat_run_set_user();
"""


class Migration(migrations.Migration):
    dependencies = [("chat", "0007_long_conversations")]
    operations = [
        migrations.AddField("run", "user_id", models.UUIDField(editable=False, null=True)),
        migrations.RunSQL(FORWARD, BACKWARD),
    ]
