-- Let newcomers into a room, then take out those who are first, as long as the queue behind it is shallow.
-- KEYS[1]  sorted set, the room: run ids by place      KEYS[2]  list, the Celery queue      KEYS[3]  hash, the drain
-- ARGV[1]  how many messages the queue may hold        ARGV[2]  how many runs have left for a worker, not told before
-- ARGV[3]  the tier                                    ARGV     then place and run id of each newcomer
-- returns  the run ids to send, first come first
local queued = redis.call('LLEN', KEYS[2])
if #ARGV > 3 then
    -- Nobody may have told that the queues ran dry: newcomers did not wait since.
    note_departures(KEYS, ARGV[3], 0)
end
for n = 4, #ARGV, 2 do
    redis.call('ZADD', KEYS[1], 'NX', ARGV[n], ARGV[n + 1])
end
note_departures(KEYS, ARGV[3], tonumber(ARGV[2]))
local space = tonumber(ARGV[1]) - queued
if space <= 0 then
    return {}
end
local taken = redis.call('ZPOPMIN', KEYS[1], space)
local run_ids = {}
for n = 1, #taken, 2 do
    run_ids[#run_ids + 1] = taken[n]
end
return run_ids
