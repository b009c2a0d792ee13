-- Let go to all what waits in sticky queues and is not to wait there: for too long, for a worker that has gone silent, or
-- come back from one. Of all tiers of a model.
-- KEYS[1]  hash, the drain, which knows the tiers      KEYS[2]  hash, the workers
-- ARGV[1]  the time in ms, empty for the server's own
-- ARGV     what the names of the tiers' keys begin with: queues, sorted sets of sticky runs, hashes of their holders
-- returns  the runs that were let go
-- The tiers' keys are not declared, for which the broker must be one server.

-- By then the broker gives back nothing of what a worker held.
local FORGOTTEN_MS = 24 * 3600 * 1000

local now, moved = now_ms(ARGV[1]), {}

local function note_moved(run_ids)
    for _, run_id in ipairs(run_ids) do
        moved[#moved + 1] = run_id
    end
end

-- What is noted of a message: its run, when that is this worker's.
local function noted_in(message, routes, worker)
    for run_id in string.gmatch(message, UUID) do
        if redis.call('HGET', routes.holders, run_id) == worker then
            return run_id
        end
    end
end

local function not_to_wait(routes, worker, is_fresh)
    return function(message)
        local noted = noted_in(message, routes, worker)
        if noted and is_fresh then
            return nil
        elseif noted then
            forget(routes, noted)
        end
        return noted or string.match(message, '"id": ?"(' .. UUID .. ')"')
    end
end

local workers = redis.call('HKEYS', KEYS[2])
for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
    local tier = string.match(field, '^waiting:(.*)')
    if tier then
        local routes = {queue = ARGV[2] .. tier, sticky = ARGV[3] .. tier, holders = ARGV[4] .. tier}
        note_moved(yield_late(routes, now))
        for _, worker in ipairs(workers) do
            local told = read_worker(KEYS[2], worker, now)
            note_moved(move_to_all(routes, worker, not_to_wait(routes, worker, told.is_fresh)))
        end
    end
end
for _, worker in ipairs(workers) do
    if read_worker(KEYS[2], worker, now).age_ms > FORGOTTEN_MS then
        redis.call('HDEL', KEYS[2], worker)
        for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
            local tier = string.match(field, '^waiting:(.*)')
            if tier then
                -- What kombu keeps of each queue.
                redis.call('DEL', '_kombu.binding.' .. ARGV[2] .. tier .. '@' .. worker)
            end
        end
    end
end
return moved
