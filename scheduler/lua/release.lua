-- Let newcomers into a room, then take out those who are first, as long as the queue behind it is shallow.
-- KEYS[1]  sorted set, the room   KEYS[2]  list, the Celery queue   KEYS[3]  hash, the drain   KEYS[4], KEYS[5]  see order.lua
-- ARGV[1]  the time in ms, empty for the server's own      ARGV[2]  how many messages the queue may hold
-- ARGV[3]  how many runs have left for a worker, not told before      ARGV[4]  the tier
-- ARGV[5]  how many newcomers      ARGV  then of each: run id, user, cost, 1 if it was charged before
-- ARGV     then of each run that has ended and was not told before: user, cost, charge
-- returns  run ids to send and their costs, first come first; each tier of the model and how many wait there
local rooms = {room = KEYS[1], counters = KEYS[4], owners = KEYS[5]}
local now, lookahead, departed, tier = now_ms(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]
local newcomers_end = 5 + 4 * ARGV[5]
local queued = redis.call('LLEN', KEYS[2])

for n = newcomers_end + 1, #ARGV, 3 do
    give_back(rooms, ARGV[n], ARGV[n + 1] - ARGV[n + 2])
    note_charge(KEYS[3], tier, tonumber(ARGV[n + 2]))
end
if newcomers_end > 5 then
    -- Nobody may have told that the queues ran dry: newcomers did not wait since.
    note_departures(KEYS, tier, 0, now)
    if queued + redis.call('ZCARD', KEYS[1]) == 0 then
        start_anew(rooms)
    end
end
adopt_unknown(rooms)
for n = 6, newcomers_end, 4 do
    local run_id, user, cost, was_charged = unpack(ARGV, n, n + 3)
    if tag_of(rooms, run_id) then
        -- It waits already.
    elseif was_charged == '1' then
        enter_again(rooms, run_id, cost)
    else
        enter(rooms, run_id, user, cost)
    end
end
local waiting = note_departures(KEYS, tier, departed, now)
local taken = {}
for _ = queued + 1, lookahead do
    local run_id, cost = take_first(rooms)
    if not run_id then
        break
    end
    taken[#taken + 1] = run_id
    taken[#taken + 1] = cost
end
forget_counters_passed(rooms)
return {taken, waiting}
