-- Let newcomers into a room, then take out those who are first, as long as the queue behind it is shallow.
-- KEYS[1]  sorted set, the room: run ids by place      KEYS[2]  list, the Celery queue
-- ARGV     how many messages the queue may hold, then place and run id of each newcomer
-- returns  the run ids to send, first come first
for n = 2, #ARGV, 2 do
    redis.call('ZADD', KEYS[1], 'NX', ARGV[n], ARGV[n + 1])
end
local space = tonumber(ARGV[1]) - redis.call('LLEN', KEYS[2])
if space <= 0 then
    return {}
end
local taken = redis.call('ZPOPMIN', KEYS[1], space)
local run_ids = {}
for n = 1, #taken, 2 do
    run_ids[#run_ids + 1] = taken[n]
end
return run_ids
