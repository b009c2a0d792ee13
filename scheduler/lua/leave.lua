-- A worker takes no more: nothing is kept for it, and what is there already is for all.
-- KEYS[1]  hash, the workers      ARGV  the time in ms, empty for the server's own; the worker
-- Its name stays for a while: the broker may give back what it held.
note_worker(KEYS[1], ARGV[2], {0, 0, 0}, now_ms(ARGV[1]) - FRESH_MS)
return 1
