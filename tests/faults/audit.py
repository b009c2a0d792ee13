"""Logs that the database itself keeps of every reply's transitions and bills, beside the product, out of its reach."""

from __future__ import annotations

INSTALL = """
    CREATE TABLE audit_run (
        place bigserial PRIMARY KEY, run_id uuid NOT NULL, status text NOT NULL, attempt integer NOT NULL,
        worker text NOT NULL, at timestamptz NOT NULL DEFAULT clock_timestamp()
    );
    CREATE FUNCTION audit_run_note() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO audit_run (run_id, status, attempt, worker) VALUES (NEW.id, NEW.status, NEW.attempt, NEW.worker);
        RETURN NULL;
    END
    $$;
    CREATE TRIGGER audit_run_insert AFTER INSERT ON chat_run FOR EACH ROW
        WHEN (NEW.kind = 'reply') EXECUTE FUNCTION audit_run_note();
    CREATE TRIGGER audit_run_update AFTER UPDATE ON chat_run FOR EACH ROW
        WHEN (NEW.kind = 'reply' AND (OLD.status, OLD.attempt) IS DISTINCT FROM (NEW.status, NEW.attempt))
        EXECUTE FUNCTION audit_run_note();

    CREATE TABLE audit_bill (
        place bigserial PRIMARY KEY, run_id uuid NOT NULL, user_id uuid NOT NULL, tier_id text NOT NULL,
        model_id text NOT NULL, attempt integer NOT NULL, error_code text NOT NULL, input_tokens integer NOT NULL,
        cached_tokens integer NOT NULL, output_tokens integer NOT NULL, charged_tokens integer NOT NULL,
        max_output_tokens integer NOT NULL, created_at timestamptz NOT NULL, started_at timestamptz,
        finished_at timestamptz
    );
    CREATE FUNCTION audit_bill_note() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO audit_bill (run_id, user_id, tier_id, model_id, attempt, error_code, input_tokens, cached_tokens,
                                output_tokens, charged_tokens, max_output_tokens, created_at, started_at, finished_at)
        SELECT NEW.id, owner_id, NEW.tier_id, NEW.model_id, NEW.attempt, NEW.error_code, NEW.input_tokens,
               NEW.cached_tokens, NEW.output_tokens, NEW.charged_tokens, NEW.max_output_tokens, NEW.created_at,
               NEW.started_at, NEW.finished_at
          FROM chat_chat WHERE id = NEW.chat_id AND NEW.kind = 'reply';
        RETURN NULL;
    END
    $$;
    CREATE TRIGGER audit_bill_insert AFTER INSERT ON chat_run FOR EACH ROW EXECUTE FUNCTION audit_bill_note();
    CREATE TRIGGER audit_bill_update AFTER UPDATE ON chat_run FOR EACH ROW
        WHEN ((OLD.attempt, OLD.input_tokens, OLD.cached_tokens, OLD.output_tokens, OLD.charged_tokens,
               OLD.max_output_tokens, OLD.started_at, OLD.finished_at)
              IS DISTINCT FROM (NEW.attempt, NEW.input_tokens, NEW.cached_tokens, NEW.output_tokens,
                                NEW.charged_tokens, NEW.max_output_tokens, NEW.started_at, NEW.finished_at))
        EXECUTE FUNCTION audit_bill_note();
"""
READ = "SELECT run_id, status, attempt, worker, at FROM audit_run ORDER BY place"
BILLS = """
    SELECT run_id, user_id, tier_id, model_id, attempt, error_code, input_tokens, cached_tokens, output_tokens,
           charged_tokens, max_output_tokens, created_at, started_at, finished_at
      FROM audit_bill ORDER BY place
"""
