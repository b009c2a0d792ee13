-- Find runs that wait neither in a room nor in the queues behind it.
-- KEYS[1]  sorted set, the room      KEYS[2]  list, the Celery queue
-- KEYS[3]  hash, the workers, each with a sticky queue, <queue>@<worker>
-- ARGV     run ids
-- returns  those of them that are in none
local function all_messages()
    local messages = redis.call('LRANGE', KEYS[2], 0, -1)
    for _, worker in ipairs(redis.call('HKEYS', KEYS[3])) do
        for _, message in ipairs(redis.call('LRANGE', KEYS[2] .. '@' .. worker, 0, -1)) do
            messages[#messages + 1] = message
        end
    end
    return table.concat(messages)
end

local messages
local missing = {}
for _, run_id in ipairs(ARGV) do
    if not redis.call('ZSCORE', KEYS[1], run_id) then
        -- Released: its message carries its id, and the queues are kept shallow.
        messages = messages or all_messages()
        if not string.find(messages, run_id, 1, true) then
            missing[#missing + 1] = run_id
        end
    end
end
return missing
