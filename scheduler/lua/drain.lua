-- How fast a model's runs leave for its workers while others wait, of all tiers together: slots are what they share.
-- Stands before the script that calls `note_departures`.
--
-- A batch is what leaves within BATCH_MS of its first: a full engine frees many slots at one step, several workers take
-- from one queue, and an idle engine fills its slots at once. It counts, with the time since the batch before began,
-- when runs waited all along from that one to this one's end: else free slots had waited for runs, not runs for slots.
--
-- The hash:  waiting:<tier>                how many of each tier waited when that was last told
--            runs, batches, busy_ms, squares   what counted, each decayed by exp(-busy time / TIME_CONSTANT_MS)
--            at, leaving, leaving_squares  when the latest batch began, and what will count of it
--            gap_ms       from the batch before to it; 0 when it does not count, or has been counted
--            unbroken     1 while runs have waited ever since `at`
--            since        from when runs have waited and none has left; 0 while none waits
--            weight:<tier>  told by workers; not read here
--            charge:<tier>  tokens that a run of the tier was charged at its end, a decaying mean
--            flow:<tier>, flow_at:<tier>  how many of the tier left, decayed, and when that was counted
-- Squares are those of the times between one departure and the next, in ms: by them who comes can tell a burst every
-- few seconds from a steady flow.

-- A batch of a full engine leaves every few seconds: the window must span several, and still follow a worker that came.
local TIME_CONSTANT_MS = 60000
-- Longer than an idle engine takes to fill: a claim costs milliseconds, a few at a time.
local BATCH_MS = 1000
-- A silence counts as so many usual ones at most: else an outage would outweigh all else for minutes after it.
local LONGEST = 4
-- About so many ended runs say what one of their tier comes to.
local REMEMBERED_RUNS = 64

local FIELDS = {
    'runs', 'batches', 'busy_ms', 'squares', 'at', 'leaving', 'leaving_squares', 'gap_ms', 'unbroken', 'since'
}

local function now_ms(told)
    if told ~= '' then
        return tonumber(told)
    end
    local time = redis.call('TIME')
    return time[1] * 1000 + math.floor(time[2] / 1000)
end

local function read_drain(key)
    local drain = {}
    local stored = redis.call('HMGET', key, unpack(FIELDS))
    for n, field in ipairs(FIELDS) do
        drain[field] = tonumber(stored[n] or 0)
    end
    return drain
end

local function write_drain(key, drain)
    local pairs_of = {}
    for _, field in ipairs(FIELDS) do
        pairs_of[#pairs_of + 1] = field
        pairs_of[#pairs_of + 1] = string.format('%.3f', drain[field])
    end
    redis.call('HSET', key, unpack(pairs_of))
end

local function count_batch(drain)
    local kept = math.exp(-drain.gap_ms / TIME_CONSTANT_MS)
    -- The batch's runs are taken as spread over its gap, which decays meanwhile: so the ratio stays true for any gap.
    local share = TIME_CONSTANT_MS * (1 - kept) / drain.gap_ms
    drain.runs = drain.runs * kept + drain.leaving * share
    drain.batches = drain.batches * kept + share
    drain.squares = drain.squares * kept + drain.leaving_squares * share
    drain.busy_ms = drain.busy_ms * kept + drain.gap_ms * share
    drain.gap_ms = 0
end

-- Between one run and the next, of all workers together; 0 until that was measured.
local function interval_ms(key)
    local drain = read_drain(key)
    return drain.runs > 0 and drain.busy_ms / drain.runs or 0
end

local function counted_ms(drain, silence_ms)
    if drain.batches == 0 then
        return silence_ms
    end
    return math.min(silence_ms, LONGEST * drain.busy_ms / drain.batches)
end

local function without_tier(key, tier)
    return string.sub(key, 1, -#tier - 1)
end

-- How many of a tier are kept for workers: in all, and for one or, where none asks, for any.
local function count_sticky(sticky, holders, worker)
    local count = redis.call('ZCARD', sticky)
    if count == 0 or worker == '' then
        return count, count
    end
    return count, tonumber(redis.call('HGET', holders, '@' .. worker) or 0)
end

-- Counted anew of all tiers, in their rooms and queues: who was last may have been cancelled in a worker's hands, of
-- which nobody tells. The others' keys are not declared, for which the broker must be one server.
-- By tier it tells what the worker could take that asks: what waits for others only is no reason to keep it a share.
local function count_waiting(keys, tier, worker)
    local room, queue = without_tier(keys[1], tier), without_tier(keys[2], tier)
    local sticky, holders = without_tier(keys[6], tier), without_tier(keys[7], tier)
    redis.call('HSETNX', keys[3], 'waiting:' .. tier, 0)
    local total, by_tier, tiers = 0, {}, {}
    for _, field in ipairs(redis.call('HKEYS', keys[3])) do
        local of = string.match(field, '^waiting:(.*)')
        if of then
            local kept, own = count_sticky(sticky .. of, holders .. of, worker)
            local count = redis.call('LLEN', queue .. of) + redis.call('ZCARD', room .. of)
            redis.call('HSET', keys[3], field, count + kept)
            total = total + count + kept
            by_tier[#by_tier + 1] = of
            by_tier[#by_tier + 1] = count + own
            tiers[#tiers + 1] = of
        end
    end
    return total, by_tier, tiers
end

-- What a run of the tier comes to, beside those that ended before it.
local function note_charge(key, tier, charge)
    local mean = tonumber(redis.call('HGET', key, 'charge:' .. tier) or charge)
    redis.call('HSET', key, 'charge:' .. tier, string.format('%.3f', mean + (charge - mean) / REMEMBERED_RUNS))
end

-- How many runs of the tier left within a time constant, by which is told how many will have come while another waits.
local function note_flow(key, tier, departed, now)
    local flow, at = unpack(redis.call('HMGET', key, 'flow:' .. tier, 'flow_at:' .. tier))
    local kept = math.exp(-math.max(0, now - (at or now)) / TIME_CONSTANT_MS)
    local counted = string.format('%.3f', (flow or 0) * kept + departed)
    redis.call('HSET', key, 'flow:' .. tier, counted, 'flow_at:' .. tier, string.format('%.0f', now))
end

-- `keys` are those of release.lua. Tells each tier and how many wait there for the worker that asks; and the tiers.
local function note_departures(keys, tier, worker, departed, now)
    local drain, waiting, by_tier, tiers = read_drain(keys[3]), count_waiting(keys, tier, worker)
    -- Another server's clock may be behind.
    drain.at, drain.since = math.min(drain.at, now), math.min(drain.since, now)
    local is_batch_over = now - drain.at >= BATCH_MS
    if is_batch_over and drain.unbroken == 1 and drain.gap_ms > 0 then
        count_batch(drain)
    end
    if departed > 0 then
        note_flow(keys[3], tier, departed, now)
        if is_batch_over then
            drain.gap_ms = drain.unbroken * counted_ms(drain, now - drain.at)
            drain.at, drain.leaving, drain.leaving_squares, drain.unbroken = now, 0, 0, 1
        end
        drain.leaving = drain.leaving + departed
        drain.leaving_squares = drain.leaving_squares + counted_ms(drain, now - drain.since) ^ 2
    end
    if waiting == 0 then
        drain.unbroken, drain.since = 0, 0
    elseif departed > 0 or drain.since == 0 then
        drain.since = now
    end
    write_drain(keys[3], drain)
    return by_tier, tiers
end

