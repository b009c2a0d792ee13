-- The order of a room: a virtual token counter for each user. Stands before the scripts that call it.
--
-- A run that comes gets a start tag: its user's counter, which then goes up by its cost. Whose tag is lowest goes first.
-- The virtual time is the highest tag that went. A user who had nothing waiting starts there at least; one who has is not
-- lifted, since what a run did not use is theirs.
--
-- rooms.room      sorted set: run id -> start tag
-- rooms.counters  sorted set: user -> counter, of those above the virtual time who have nothing waiting; the counter of
--                 others is the end of the last of their waiting runs
-- rooms.owners    hash:  run:<id>   cost, and user unless it was charged before
--                        warm:<id>  tokens that a worker's prefix cache has of its prompt, and that worker
--                        user:<id>  ids of their waiting runs, in order
--                        now        the virtual time
-- All numbers are whole, hence exact.
local function whole(number)
    return string.format('%.0f', number)
end

local function tag_of(rooms, run_id)
    return tonumber(redis.call('ZSCORE', rooms.room, run_id) or nil)
end

local function owner_of(rooms, run_id)
    local cost, user = string.match(redis.call('HGET', rooms.owners, 'run:' .. run_id) or '', '^(%d+) ?(.*)$')
    return tonumber(cost or 0), user ~= '' and user or nil
end

-- At first that of whoever stands in the room already: the release before this one had them in the order of their birth.
local function virtual_time(rooms)
    local now = redis.call('HGET', rooms.owners, 'now')
    return tonumber(now or redis.call('ZRANGE', rooms.room, 0, 0, 'WITHSCORES')[2] or 0)
end

-- A process of the release before this one lets runs in by their birth in ms, far behind every tag: who came now would
-- go before them, and who came next.
local function adopt_unknown(rooms)
    while true do
        local last = redis.call('ZRANGE', rooms.room, -1, -1)[1]
        if not last or redis.call('HEXISTS', rooms.owners, 'run:' .. last) == 1 then
            return
        end
        redis.call('ZADD', rooms.room, whole(virtual_time(rooms)), last)
        redis.call('HSET', rooms.owners, 'run:' .. last, 0)
    end
end

-- A process of the release before this one takes runs out of the room and says nothing here: only who is there counts.
local function waiting_of(rooms, user)
    local waiting = {}
    for run_id in string.gmatch(redis.call('HGET', rooms.owners, 'user:' .. user) or '', '%S+') do
        if tag_of(rooms, run_id) then
            waiting[#waiting + 1] = run_id
        end
    end
    return waiting
end

local function keep_waiting(rooms, user, waiting)
    if #waiting > 0 then
        redis.call('HSET', rooms.owners, 'user:' .. user, table.concat(waiting, ' '))
    else
        redis.call('HDEL', rooms.owners, 'user:' .. user)
    end
end

local function keep_counter(rooms, user, counter)
    if counter > virtual_time(rooms) then
        redis.call('ZADD', rooms.counters, whole(counter), user)
    else
        redis.call('ZREM', rooms.counters, user)
    end
end

local function counter_of(rooms, user, waiting)
    local last = waiting[#waiting]
    if last then
        return tag_of(rooms, last) + owner_of(rooms, last)
    end
    return math.max(virtual_time(rooms), tonumber(redis.call('ZSCORE', rooms.counters, user) or 0))
end

-- Nobody waits: whoever comes next is no worse off than any other.
local function start_anew(rooms)
    local now = virtual_time(rooms)
    redis.call('UNLINK', rooms.counters, rooms.owners)
    redis.call('HSET', rooms.owners, 'now', whole(now))
end

local function enter(rooms, run_id, user, cost)
    local listed = redis.call('HGET', rooms.owners, 'user:' .. user) or ''
    local last = listed ~= '' and string.sub(listed, -#run_id) or nil
    -- Only where the last one is gone are the others looked at: many of one user may come in one call.
    if last and not tag_of(rooms, last) then
        local waiting = waiting_of(rooms, user)
        listed, last = table.concat(waiting, ' '), waiting[#waiting]
    end
    redis.call('ZADD', rooms.room, whole(counter_of(rooms, user, {last})), run_id)
    redis.call('HSET', rooms.owners, 'run:' .. run_id, cost .. ' ' .. user)
    redis.call('ZREM', rooms.counters, user)
    redis.call('HSET', rooms.owners, 'user:' .. user, last and listed .. ' ' .. run_id or run_id)
end

-- Charged when it went the first time.
local function enter_again(rooms, run_id, cost)
    local first = redis.call('ZRANGE', rooms.room, 0, 0, 'WITHSCORES')[2]
    local front = math.min(virtual_time(rooms), tonumber(first or math.huge))
    redis.call('ZADD', rooms.room, whole(front), run_id)
    redis.call('HSET', rooms.owners, 'run:' .. run_id, cost)
end

-- Bookkeeping behind a run that has left the room, where it had that tag; tells its cost, its user if it was charged,
-- and which of their runs stand behind it. A run that is not known has no cost.
local function leave(rooms, run_id, tag)
    local cost, user = owner_of(rooms, run_id)
    redis.call('HDEL', rooms.owners, 'run:' .. run_id, 'warm:' .. run_id)
    if not user then
        return cost
    end
    local waiting, behind = waiting_of(rooms, user), {}
    for _, other in ipairs(waiting) do
        if tag_of(rooms, other) >= tag then
            behind[#behind + 1] = other
        end
    end
    keep_waiting(rooms, user, waiting)
    return cost, user, waiting, behind
end

local function lower(rooms, run_ids, tokens)
    for _, run_id in ipairs(run_ids) do
        redis.call('ZINCRBY', rooms.room, whole(-tokens), run_id)
    end
end

-- What a user's run did not use.
local function give_back(rooms, user, tokens)
    local waiting = waiting_of(rooms, user)
    lower(rooms, waiting, tokens)
    if #waiting == 0 then
        keep_counter(rooms, user, counter_of(rooms, user, waiting) - tokens)
    end
end

-- Beside `run:<id>`: the release before this one goes on reading that.
local function note_warm(rooms, run_id, worker, tokens)
    if worker ~= '' then
        redis.call('HSET', rooms.owners, 'warm:' .. run_id, tokens .. ' ' .. worker)
    end
end

local function warm_of(rooms, run_id)
    local tokens, worker = string.match(redis.call('HGET', rooms.owners, 'warm:' .. run_id) or '', '^(%d+) (.+)$')
    return tokens and {worker = worker, tokens = tonumber(tokens)}
end

-- The first run, for a worker: its id, its cost, and who is warm for it.
local function take_first(rooms)
    local run_id, tag = unpack(redis.call('ZPOPMIN', rooms.room))
    if not run_id then
        return nil
    end
    tag = tonumber(tag)
    redis.call('HSET', rooms.owners, 'now', whole(math.max(virtual_time(rooms), tag)))
    local warm = warm_of(rooms, run_id)
    local cost, user, waiting = leave(rooms, run_id, tag)
    if user and #waiting == 0 then
        keep_counter(rooms, user, tag + cost)
    end
    return run_id, cost, warm
end

-- A run that will not be served, from among those that wait; false when it does not.
local function take_back(rooms, run_id, owner)
    local tag = tag_of(rooms, run_id)
    if not tag then
        return false
    end
    redis.call('ZREM', rooms.room, run_id)
    local cost, user, waiting, behind = leave(rooms, run_id, tag)
    if not user then
        give_back(rooms, owner, cost)
    elseif #waiting == 0 then
        keep_counter(rooms, user, tag)
    else
        lower(rooms, behind, cost)
    end
    return true
end

local function forget_counters_passed(rooms)
    redis.call('ZREMRANGEBYSCORE', rooms.counters, '-inf', whole(virtual_time(rooms)))
end

