-- Let newcomers into a room, then take out those who are first, as long as the queue behind it is shallow.
-- KEYS[1]  sorted set, the room   KEYS[2]  list, the Celery queue   KEYS[3]  hash, the drain   KEYS[4], KEYS[5]  see order.lua
-- KEYS[6], KEYS[7], KEYS[8]  the sticky runs, their holders, the workers: see route.lua
-- ARGV[1]  the time in ms, empty for the server's own      ARGV[2]  how many messages the queue may hold
-- ARGV[3]  the tier      ARGV[4]  the worker that calls, empty when none does      ARGV[5..7]  what it tells, see route.lua
-- ARGV[8]  how many newcomers      ARGV[9]  how many have left for a worker and were not told before
-- ARGV     then of each newcomer: run id, user, cost, 1 if it was charged before, its warm worker or empty, warm tokens
-- ARGV     then the run id of each that has left
-- ARGV     then of each run that has ended and was not told before: user, cost, charge
-- returns  of each to send, first come first: run id, cost, decision or empty, warm worker, wait and saving in ms;
--          each tier of the model and how many wait there, for the worker that calls or for any;
--          the runs that were kept for a worker and are for all now
local rooms = {room = KEYS[1], counters = KEYS[4], owners = KEYS[5]}
local now, lookahead, tier, caller = now_ms(ARGV[1]), tonumber(ARGV[2]), ARGV[3], ARGV[4]
local routes = {
    queue = KEYS[2], sticky = KEYS[6], holders = KEYS[7], workers = KEYS[8], all_holders = without_tier(KEYS[7], tier)
}
local newcomers_end = 9 + 6 * ARGV[8]
local departed_end = newcomers_end + ARGV[9]

for n = departed_end + 1, #ARGV, 3 do
    give_back(rooms, ARGV[n], ARGV[n + 1] - ARGV[n + 2])
    note_charge(KEYS[3], tier, tonumber(ARGV[n + 2]))
end
if caller ~= '' then
    note_worker(routes.workers, caller, {ARGV[5], ARGV[6], ARGV[7]}, now)
end
for n = newcomers_end + 1, departed_end do
    forget(routes, ARGV[n])
end
local late = yield_late(routes, now)
local queued = redis.call('LLEN', KEYS[2])
if newcomers_end > 9 then
    -- Nobody may have told that the queues ran dry: newcomers did not wait since.
    note_departures(KEYS, tier, caller, 0, now)
    if queued + redis.call('ZCARD', KEYS[1]) + redis.call('ZCARD', KEYS[6]) == 0 then
        start_anew(rooms)
    end
end
adopt_unknown(rooms)
for n = 10, newcomers_end, 6 do
    local run_id, user, cost, was_charged, warm_worker, warm_tokens = unpack(ARGV, n, n + 5)
    if tag_of(rooms, run_id) then
        -- It waits already.
    else
        if was_charged == '1' then
            enter_again(rooms, run_id, cost)
        else
            enter(rooms, run_id, user, cost)
        end
        note_warm(rooms, run_id, warm_worker, warm_tokens)
    end
end
local waiting, tiers = note_departures(KEYS, tier, caller, departed_end - newcomers_end, now)
local taken = {}
while queued < lookahead do
    local run_id, cost, warm = take_first(rooms)
    if not run_id then
        break
    end
    local decision, worker, wait_ms, saving_ms = '', '', false, false
    if warm then
        decision, worker, wait_ms, saving_ms = route(routes, run_id, warm, tiers, queued * interval_ms(KEYS[3]), now)
    end
    -- A sticky queue is no part of the depth: what its worker's waits are worth bounds it.
    if decision ~= 'warm' then
        queued = queued + 1
    end
    for _, value in ipairs({run_id, cost, decision, worker, wait_ms, saving_ms}) do
        taken[#taken + 1] = value
    end
end
forget_counters_passed(rooms)
return {taken, waiting, late}
