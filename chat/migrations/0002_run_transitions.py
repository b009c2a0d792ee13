"""The database refuses what `chat.models.TRANSITIONS` does not allow, whoever asks."""

from django.db import migrations

FORWARD = """
CREATE FUNCTION chat_run_refuse_transition() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'run % cannot go from % to %', OLD.id, OLD.status, NEW.status
        USING ERRCODE = 'check_violation', CONSTRAINT = 'run_transition_known';
END
$$;

CREATE TRIGGER run_transition_known
BEFORE UPDATE OF status ON chat_run FOR EACH ROW
WHEN ((OLD.status, NEW.status) NOT IN (
    ('queued', 'streaming'), ('queued', 'cancelled'), ('queued', 'failed'),
    ('streaming', 'streaming'), ('streaming', 'done'), ('streaming', 'cancelled'), ('streaming', 'failed')
))
EXECUTE FUNCTION chat_run_refuse_transition();
"""
BACKWARD = """
DROP TRIGGER run_transition_known ON chat_run;
DROP FUNCTION chat_run_refuse_transition();
"""


class Migration(migrations.Migration):
    dependencies = [("chat", "0001_initial")]
    operations = [migrations.RunSQL(FORWARD, BACKWARD)]
