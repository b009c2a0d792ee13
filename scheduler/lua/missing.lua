-- Find runs that wait neither in a room nor in the queue behind it.
-- KEYS[1]  sorted set, the room      KEYS[2]  list, the Celery queue
-- ARGV     run ids
-- returns  those of them that are in neither
local messages
local missing = {}
for _, run_id in ipairs(ARGV) do
    if not redis.call('ZSCORE', KEYS[1], run_id) then
        -- Released: its message carries its id, and the queue is kept shallow.
        messages = messages or table.concat(redis.call('LRANGE', KEYS[2], 0, -1))
        if not string.find(messages, run_id, 1, true) then
            missing[#missing + 1] = run_id
        end
    end
end
return missing
