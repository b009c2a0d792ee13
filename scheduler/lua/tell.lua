-- Note what a worker tells of itself.
-- KEYS[1]  hash, the workers
-- ARGV     the time in ms, empty for the server's own; the worker; free, interval_ms, prefill_us: see route.lua
note_worker(KEYS[1], ARGV[2], {ARGV[3], ARGV[4], ARGV[5]}, now_ms(ARGV[1]))
return 1
