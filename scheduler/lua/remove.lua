-- Take a run out of its room, or its message out of the queue behind it; what it would have cost is given back.
-- KEYS[1]  sorted set, the room      KEYS[2]  list, the Celery queue      KEYS[3], KEYS[4]  see order.lua
-- ARGV     run id, user, cost
-- returns  how many were taken out: 0 when a worker has its message, or nobody
local rooms = {room = KEYS[1], counters = KEYS[3], owners = KEYS[4]}
if take_back(rooms, ARGV[1], ARGV[2]) then
    return 1
end
-- Released: its message carries its id, and the queue is kept shallow.
for _, message in ipairs(redis.call('LRANGE', KEYS[2], 0, -1)) do
    if string.find(message, ARGV[1], 1, true) then
        give_back(rooms, ARGV[2], tonumber(ARGV[3]))
        return redis.call('LREM', KEYS[2], 1, message)
    end
end
return 0
