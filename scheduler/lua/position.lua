-- Tell the place of a run among those that no worker has taken; 1 is next.
-- KEYS[1]  sorted set, the room      KEYS[2]  list, the Celery queue: workers take from its tail
-- KEYS[3]  hash: run -> the worker in whose sticky queue, <queue>@<worker>, it is
-- ARGV[1]  the run id
-- returns  its place, or nil when it does not wait
local rank = redis.call('ZRANK', KEYS[1], ARGV[1])
if rank then
    return redis.call('LLEN', KEYS[2]) + rank + 1
end
-- Released: its message carries its id, and the queues are kept shallow.
local function place_in(queue)
    local queued = redis.call('LRANGE', queue, 0, -1)
    for n = #queued, 1, -1 do
        if string.find(queued[n], ARGV[1], 1, true) then
            return #queued - n + 1
        end
    end
    return false
end

local worker = redis.call('HGET', KEYS[3], ARGV[1])
return worker and place_in(KEYS[2] .. '@' .. worker) or place_in(KEYS[2])
