-- Take a run out of its room, or its message out of the queue behind it; what it would have cost is given back.
-- KEYS[1]  sorted set, the room      KEYS[2]  list, the Celery queue      KEYS[3], KEYS[4]  see order.lua
-- KEYS[5], KEYS[6]  the sticky runs and their holders, see route.lua
-- ARGV     run id, user, cost
-- returns  how many were taken out: 0 when a worker has its message, or nobody
local rooms = {room = KEYS[1], counters = KEYS[3], owners = KEYS[4]}
local routes = {queue = KEYS[2], sticky = KEYS[5], holders = KEYS[6]}
if take_back(rooms, ARGV[1], ARGV[2]) then
    return 1
end

-- Released: its message carries its id, and the queues are kept shallow.
local function take_from(queue)
    for _, message in ipairs(redis.call('LRANGE', queue, 0, -1)) do
        if string.find(message, ARGV[1], 1, true) then
            give_back(rooms, ARGV[2], tonumber(ARGV[3]))
            return redis.call('LREM', queue, 1, message)
        end
    end
    return 0
end

local worker = redis.call('HGET', routes.holders, ARGV[1])
if not worker then
    return take_from(routes.queue)
end
forget(routes, ARGV[1])
return math.max(take_from(routes.queue .. '@' .. worker), take_from(routes.queue))
