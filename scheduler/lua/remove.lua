-- Take a run out of its room, or its message out of the queue behind it.
-- KEYS[1]  sorted set, the room      KEYS[2]  list, the Celery queue
-- ARGV[1]  the run id
-- returns  how many were taken out: 0 when a worker has its message, or nobody
if redis.call('ZREM', KEYS[1], ARGV[1]) == 1 then
    return 1
end
-- Released: its message carries its id, and the queue is kept shallow.
for _, message in ipairs(redis.call('LRANGE', KEYS[2], 0, -1)) do
    if string.find(message, ARGV[1], 1, true) then
        return redis.call('LREM', KEYS[2], 1, message)
    end
end
return 0
