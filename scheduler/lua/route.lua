-- To whom a run goes: to the worker whose prefix cache is warm for it, unless the wait there is longer than the wait for
-- any worker by more than the prefix would take to compute; then to all. Stands before the scripts that call it.
--
-- routes.queue    list, the tier's Celery queue; workers take from its tail, and each from that of a sticky one as well,
--                 <queue>@<worker>
-- routes.sticky   sorted set: run -> until when it may wait for its worker, in ms; of those sent and not told as claimed
-- routes.holders  hash:  <run>       its worker
--                        @<worker>   how many of the runs are that worker's
-- routes.workers  hash: worker -> what it told: at, free, interval_ms, prefill_us
--                 free         how many more runs it could take
--                 interval_ms  from one slot's release to the next while it is full; 0 when that was not measured
--                 prefill_us   what the engine takes to compute a token of a prompt; 0 likewise
-- Noted before it is sent: so a message of which nothing is noted has come back from a worker, and is for all.

-- A worker tells every 2 s: several in a row are lost only where something is wrong.
local FRESH_MS = 10000
-- A worker with a free slot takes a message within milliseconds; more than a pause of a busy machine is none of those.
local LEAST_MS = 200
local UUID = '%x+%-%x+%-%x+%-%x+%-%x+'

local function note_worker(workers, worker, told, now)
    redis.call('HSET', workers, worker, string.format('%.0f %s', now, table.concat(told, ' ')))
end

-- Nil for a worker that never told.
local function read_worker(workers, worker, now)
    local at, free, interval_ms, prefill_us =
        string.match(redis.call('HGET', workers, worker) or '', '^(%S+) (%S+) (%S+) (%S+)')
    if not at then
        return nil
    end
    return {
        age_ms = now - at,
        is_fresh = math.abs(now - at) < FRESH_MS,
        free = tonumber(free),
        interval_ms = tonumber(interval_ms),
        prefill_us = tonumber(prefill_us),
    }
end

local function forget(routes, run_id)
    local worker = redis.call('HGET', routes.holders, run_id)
    redis.call('ZREM', routes.sticky, run_id)
    if worker then
        redis.call('HDEL', routes.holders, run_id)
        if redis.call('HINCRBY', routes.holders, '@' .. worker, -1) <= 0 then
            redis.call('HDEL', routes.holders, '@' .. worker)
        end
    end
end

local function stick(routes, run_id, worker, until_ms)
    forget(routes, run_id)
    redis.call('ZADD', routes.sticky, until_ms, run_id)
    redis.call('HSET', routes.holders, run_id, worker)
    redis.call('HINCRBY', routes.holders, '@' .. worker, 1)
end

-- Of all tiers: slots are what they share. Those of a worker that were claimed and not told yet count too, as they do
-- not yet in what it told.
local function held_for(routes, worker, tiers)
    local count = 0
    for _, tier in ipairs(tiers) do
        count = count + (redis.call('HGET', routes.all_holders .. tier, '@' .. worker) or 0)
    end
    return count
end

-- Tells the decision, by how much longer the wait is there than for any worker, and the saving; false is not known.
local function decide(routes, warm, tiers, any_ms, now)
    local told = read_worker(routes.workers, warm.worker, now)
    if not told or not told.is_fresh then
        return 'silent', false, false
    end
    local saving_ms = warm.tokens * told.prefill_us / 1000
    local releases = held_for(routes, warm.worker, tiers) + 1 - told.free
    if releases <= 0 then
        return 'warm', 0, saving_ms
    elseif told.interval_ms == 0 then
        return 'busy', false, saving_ms
    end
    local wait_ms = math.max(0, releases * told.interval_ms - any_ms)
    return wait_ms <= saving_ms and 'warm' or 'busy', wait_ms, saving_ms
end

-- `tiers` are all of the model's, `any_ms` is how long a run waits that goes to all.
local function route(routes, run_id, warm, tiers, any_ms, now)
    local decision, wait_ms, saving_ms = decide(routes, warm, tiers, any_ms, now)
    if decision == 'warm' then
        stick(routes, run_id, warm.worker, now + math.max(any_ms + saving_ms, LEAST_MS))
    end
    return decision, warm.worker, wait_ms, saving_ms
end

-- Those of a worker's messages in which `due` finds a run's id, to the front of the queue of all.
local function move_to_all(routes, worker, due)
    local own, moved = routes.queue .. '@' .. worker, {}
    -- The newest first, so that the oldest is the next to be taken.
    for _, message in ipairs(redis.call('LRANGE', own, 0, -1)) do
        local run_id = due(message)
        if run_id then
            redis.call('LREM', own, 1, message)
            redis.call('RPUSH', routes.queue, message)
            moved[#moved + 1] = run_id
        end
    end
    return moved
end

local function one_of(run_ids)
    return function(message)
        for _, run_id in ipairs(run_ids) do
            if string.find(message, run_id, 1, true) then
                return run_id
            end
        end
    end
end

-- Tells the runs that have waited for their worker for long enough and are for all from now on.
local function yield_late(routes, now)
    local late, by_worker, moved = redis.call('ZRANGEBYSCORE', routes.sticky, '-inf', now), {}, {}
    for _, run_id in ipairs(late) do
        local worker = redis.call('HGET', routes.holders, run_id) or ''
        by_worker[worker] = by_worker[worker] or {}
        table.insert(by_worker[worker], run_id)
    end
    for worker, run_ids in pairs(by_worker) do
        for _, run_id in ipairs(move_to_all(routes, worker, one_of(run_ids))) do
            moved[#moved + 1] = run_id
        end
    end
    for _, run_id in ipairs(late) do
        forget(routes, run_id)
    end
    return moved
end

